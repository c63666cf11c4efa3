"""One finding of the doctor, many nodes' findings as one, and how they are shown. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from raymx.text.words import columns, count, some

Level = Literal["ok", "note", "warning", "problem"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")

_MOST_NODES = 4  # that a line names; JSON has all
_WIDTH = 120


@dataclass(frozen=True)
class Finding:
    """What was looked at, what it is, and what to do about it.

    A "problem" would stop a run, a "warning" may, or makes it slow; a "note" is good to know. ``nodes`` are those it is
    true of, () where it is true of all. ``amount`` is what ``value`` says in a number: of several nodes that are well,
    the one with the least is shown.
    """

    level: Level
    what: str
    value: str
    fix: str = ""
    nodes: tuple[str, ...] = ()
    amount: float | None = None


def merged(found: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """The findings of many nodes, each with the nodes that have the same; in the order of the first node's."""
    together: dict[tuple[str, ...], list[tuple[str, Finding]]] = {}
    for node, findings in found.items():
        for one in findings:
            key = (one.level, one.what, "" if _measured(one) else one.value, one.fix)
            together.setdefault(key, []).append((node, one))
    order = list(dict.fromkeys(one.what for findings in found.values() for one in findings))
    groups = sorted(together.values(), key=lambda group: order.index(group[0][1].what))
    return [_one(group, len(found)) for group in groups]


def _measured(finding: Finding) -> bool:
    return finding.level == "ok" and finding.amount is not None


def _one(group: Sequence[tuple[str, Finding]], nodes: int) -> Finding:
    least = min((finding for _, finding in group), key=lambda finding: finding.amount or 0.0)
    if _measured(least) and len(group) > 1:
        least = replace(least, value=f"at least {least.value}")
    return replace(least, nodes=() if len(group) == nodes else tuple(node for node, _ in group))


def stops(findings: Iterable[Finding]) -> bool:
    return any(one.level == "problem" for one in findings)


def as_json(findings: Iterable[Finding]) -> str:
    """A JSON list; ``nodes`` is [] where a finding is true of all."""
    plain = [{name: value for name, value in asdict(one).items() if name != "amount"} for one in findings]
    return json.dumps(plain, indent=1)


def lines(findings: Iterable[Finding]) -> list[str]:
    """A line for each check, problems last, with the fix under it (or under several that have the same); the sum."""
    found = sorted(findings, key=lambda one: LEVELS.index(one.level))
    heads = columns([(one.level, one.what, ".") for one in found])  # the dot is where a value begins
    shown: list[str] = []
    for one, head, following in zip(found, heads, [*found[1:], None], strict=True):
        shown += textwrap.wrap(
            _where(one) + one.value,
            _WIDTH,
            initial_indent=head[:-1],
            subsequent_indent=" " * (len(head) - 1),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if one.fix and (following is None or following.fix != one.fix):
            shown.append(f"  {one.fix}")  # in one piece, since commands are copied from it
    return [*shown, "", _sum(found)]


def _where(finding: Finding) -> str:
    return f"{names(finding.nodes)}: " if finding.nodes else ""


def names(nodes: Sequence[str]) -> str:
    """Up to four nodes by name, and how many more."""
    return some(nodes, _MOST_NODES)


def _sum(findings: Sequence[Finding]) -> str:
    problems, warnings = (sum(one.level == level for one in findings) for level in ("problem", "warning"))
    if problems:
        return f"{count(problems, 'problem')} would stop a run: see above for what to do"
    return "nothing was found that would stop a run" + (f"; {count(warnings, 'warning')} above" if warnings else "")
