"""What MXNet's operators take in the trials of which steps were traced. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from raymx.report import words
from raymx.report.findings import Findings
from raymx.report.model import label_of
from raymx.report.study import Entry
from raymx.report.tables import Column, Item, Row, Table
from raymx.results import operators
from raymx.results.operators import Operator

MOST_TRIALS, MOST_ROWS = 6, 15
ALONE = ("times a step", "ms each time", "of all operators")


def table(found: Findings) -> Table | None:
    """Milliseconds in a step of a worker by operator, the longest first; None where no step was traced.

    Of one trial also how often, how long each time, and which part of all operators' time it is; of several trials how
    many times the first one's it is.
    """
    traced = [(entry, told) for entry in found.study.entries if (told := operators.of_rows(entry.trial.rows))]
    traced = traced[:MOST_TRIALS]
    if not traced:
        return None
    longest: dict[str, float] = {}
    for one in (one for _, told in traced for one in told):
        longest[one.name] = max(longest.get(one.name, 0.0), one.seconds)
    names = sorted(longest, key=lambda name: -longest[name])[:MOST_ROWS]
    heads = [Column("operator", numeric=False)]
    beside = ALONE if len(traced) == 1 else ("times the first",)
    for entry, _ in traced:
        heads += [Column(f"{_name(entry, found)}, ms"), *map(Column, beside)]
    by_name = [{one.name: one for one in told} for _, told in traced]
    if len(traced) == 1:
        return Table(heads, [_alone(by_name[0][name], by_name[0].values()) for name in names])
    return Table(heads, [_row(name, [told.get(name) for told in by_name]) for name in names])


def _alone(one: Operator, every: Collection[Operator]) -> Row:
    share = one.seconds / (sum(other.seconds for other in every) or 1.0)
    each = one.seconds / one.calls
    return Row(
        [
            Item(one.name, one.name),
            Item(f"{1000 * one.seconds:.3g}", one.seconds),
            Item(f"{one.calls:g}", one.calls),
            Item(f"{1000 * each:.3g}", each),
            Item(f"{100 * share:.1f} %", share),
        ]
    )


def _row(name: str, trials: Sequence[Operator | None]) -> Row:
    return Row([Item(name, name), *(item for one in trials for item in _items(one, trials[0]))])


def _items(one: Operator | None, first: Operator | None) -> tuple[Item, Item]:
    if one is None:
        return Item(words.NONE, None), Item(words.NONE, None)
    taken = Item(f"{1000 * one.seconds:.3g}", one.seconds)
    times = one.seconds / first.seconds if first and first.seconds else None
    return taken, Item(words.NONE if times is None else f"{times:.2f}x", times)


def _name(entry: Entry, found: Findings) -> str:
    return label_of(found.study.axes, entry.trial.axes) or entry.trial.trial_id
