"""Why a trial's steps take as long as they do: ranked causes, each with its evidence and what it is worth. Pure.

Nothing is said that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raymx.report import words
from raymx.results import step_text
from raymx.results.rows import steady
from raymx.results.step_text import DEAD_BAND, StepTime

NOT_MEASURED = (
    "where the time of its steps went was not measured: that takes an epoch of two steps or more, and a run of this "
    "version"
)


@dataclass(frozen=True)
class Cause:
    """``share`` of a step, or of the training time; what was seen; what a change is worth, "" where that is unknown."""

    share: float
    seen: str
    worth: str = ""


def causes(rows: Sequence[Mapping[str, Any]], *, halves_bytes: bool, server_cpus: float = 1.0) -> list[Cause]:
    """Of one trial's counted rows, the largest first; none where nothing counts.

    ``halves_bytes``: float16 on the wire can be had. ``server_cpus``: what a server may use.
    """
    step = step_text.of_rows(rows)
    if step is None:
        return []
    worth = dict(step_text.worth_of(step, halves_bytes=halves_bytes))
    found = [Cause(step.fractions[part], _seen(part, step, rows, server_cpus), text) for part, text in worth.items()]
    if step_text.is_host_bound(step):
        found.append(Cause(step.host_bound, f"in {words.part(step.host_bound)} of a step {step_text.HOST_BOUND}"))
    return sorted([*found, *_lines(rows)], key=lambda cause: -cause.share)


def _seen(part: str, step: StepTime, rows: Sequence[Mapping[str, Any]], server_cpus: float) -> str:
    share = words.part(step.fractions[part])
    if part == "communication":
        return f"{share} of a step waits for gradients and weights{_sent(rows)}{_servers(rows, server_cpus)}"
    if part == "straggler":
        who = "the slowest worker" if step.straggler is None else f"worker {step.straggler}"
        return f"{share} of a step waits for {who}{step_text.why_slow(step)}"
    return f"{share} of a step {_SEEN[part]}"


_SEEN = {
    "data": "nothing was left to compute, since the next batch was not there",
    "checkpoint": "nothing was left to compute, since the loop was held for a checkpoint within the epoch",
    "loop": "nothing was left to compute, since the loop had not queued the next step",
}


def _sent(rows: Sequence[Mapping[str, Any]]) -> str:
    last = rows[-1]
    sent = [last.get(name) for name in ("bytes_pushed", "bytes_pulled")]
    if not all(isinstance(value, (int, float)) and value for value in sent):
        return ""
    pushed, pulled = (words.size(float(value)) for value in sent if value is not None)
    return f": all workers together push {pushed} and pull {pulled} a step"


def _servers(rows: Sequence[Mapping[str, Any]], cpus: float) -> str:
    used = [row["server_cpus_used"] for row in rows if isinstance(row.get("server_cpus_used"), float)]
    if not used:
        return ""
    most = steady(used)
    at_limit = ", its limit" if most >= AT_LIMIT * cpus else ""
    return f"; the busiest server uses {most:.2f} of {cpus:g} CPU{'s' * (cpus != 1)}{at_limit}"


AT_LIMIT = 0.9  # of its CPUs: a server that uses more holds the others up


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    """The lines of the user's code that held the loop."""
    train_s, held, calls = 0.0, dict[str, float](), dict[str, int]()
    for row in rows:
        train_s += row.get("train_s") or 0.0
        for line, seconds, count in row.get("host_waits") or ():
            held[line] = held.get(line, 0.0) + seconds
            calls[line] = calls.get(line, 0) + count
    for line, seconds in held.items():
        if train_s and seconds / train_s >= DEAD_BAND:
            yield Cause(
                seconds / train_s,
                f"{line} held the loop {words.part(seconds / train_s)} of the training time, {calls[line]:,} times",
                "what that is worth is in the loop's part of a step; keep sums on the device "
                "(raymx.training.sums.Sums), and read them once an epoch",
            )
