"""What MXNet's operators take in the trials of which steps were traced. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from raymx.report import words
from raymx.report.findings import Findings
from raymx.report.model import label_of
from raymx.report.study import Entry
from raymx.report.tables import Column, Item, Row, Table
from raymx.results import operators
from raymx.results.operators import Operator

MOST_TRIALS, MOST_ROWS = 6, 15


def table(found: Findings) -> Table | None:
    """Milliseconds in a step of a worker by operator, the longest first; None where no step was traced.

    Of several trials with one batch, how many times the first one's it is, too.
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
    beside = "times a step" if len(traced) == 1 else "times the first"
    for entry, _ in traced:
        heads += [Column(f"{_name(entry, found)}, ms"), Column(beside)]
    by_name = [{one.name: one for one in told} for _, told in traced]
    return Table(heads, [_row(name, [told.get(name) for told in by_name]) for name in names])


def _row(name: str, trials: Sequence[Operator | None]) -> Row:
    return Row([Item(name, name), *(item for one in trials for item in _items(one, trials[0], len(trials)))])


def _items(one: Operator | None, first: Operator | None, trials: int) -> tuple[Item, Item]:
    if one is None:
        return Item(words.NONE, None), Item(words.NONE, None)
    taken = Item(f"{1000 * one.seconds:.3g}", one.seconds)
    if trials == 1:
        return taken, Item(f"{one.calls:g}", one.calls)
    times = one.seconds / first.seconds if first and first.seconds else None
    return taken, Item(words.NONE if times is None else f"{times:.2f}x", times)


def _name(entry: Entry, found: Findings) -> str:
    return label_of(found.study.axes, entry.trial.axes) or entry.trial.trial_id
