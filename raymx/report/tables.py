"""The tables of report.html. Everything that comes from outside is escaped here. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from raymx.report import words
from raymx.report.cell_summaries import Cell
from raymx.report.diagnoses import KINDS
from raymx.report.effects import Effect
from raymx.report.findings import Findings
from raymx.report.intervals import Interval
from raymx.report.model import Axis, Objective, show
from raymx.report.study import Entry
from raymx.text.words import count


@dataclass(frozen=True)
class Item:
    """A table's cell: what is shown, and what it is sorted by (None is last)."""

    text: str
    key: float | str | None
    marked: bool = False


@dataclass(frozen=True)
class Column:
    head: str
    item: Callable[[Entry], Item]
    numeric: bool = True


def trials(found: Findings) -> str:
    """All trials, sortable; the recommended settings' are bold."""
    columns = _columns(found)
    chosen = found.answer.recommended.axes if found.answer else None
    rows = [
        _row(
            [column.item(entry) for column in columns],
            [column.numeric for column in columns],
            entry.trial.axes == chosen,
        )
        for entry in found.study.entries
    ]
    return _table([(column.head, column.numeric) for column in columns], rows, "sortable")


def _columns(found: Findings) -> list[Column]:
    axes = [_axis_column(axis) for axis in found.study.axes]
    columns = [
        Column("trial", lambda entry: _text(entry.trial.trial_id), numeric=False),
        *axes,
        Column("repeat", lambda entry: _number(entry.trial.repeat + 1, "{:g}")),
        Column("state", lambda entry: _text(entry.trial.state), numeric=False),
        Column(found.study.objective.metric, lambda entry: _worded(entry.figures.best, words.objective)),
        Column("epoch of it", lambda entry: _number(entry.figures.best_epoch, "{:g}")),
        Column("last", lambda entry: _worded(entry.figures.final, words.objective)),
        Column("samples/s", _speed),
        Column("time to target", lambda entry: _worded(entry.figures.time_to_target_s, words.seconds)),
        Column("time", lambda entry: _worded(entry.figures.time_s, words.seconds)),
        Column("waits for data", lambda entry: _worded(entry.figures.data_wait_fraction, words.part)),
        Column("first step", lambda entry: _worded(entry.figures.first_step_s, words.seconds)),
        Column("pushed a step", lambda entry: _worded(entry.figures.bytes_pushed, words.size)),
        Column("pulled a step", lambda entry: _worded(entry.figures.bytes_pulled, words.size)),
        Column("peak rate", lambda entry: _number(entry.figures.peak_rate, "{:.4g}")),
        Column("batch", lambda entry: _number(entry.trial.global_batch_size, "{:,}")),
        Column("workers", lambda entry: _number(entry.trial.num_workers, "{:g}")),
        Column("CPUs", lambda entry: _number(entry.trial.cpus, "{:g}")),
        Column("GPUs", lambda entry: _number(entry.trial.gpus, "{:g}")),
        Column("CPU-seconds", lambda entry: _number(entry.figures.cpu_s, "{:,.0f}")),
        Column("GPU-seconds", lambda entry: _number(entry.figures.gpu_s, "{:,.0f}")),
        Column("cost", lambda entry: _number(entry.figures.cost, "{:.4f}")),
        Column("restarts", lambda entry: _number(entry.figures.restarts, "{:g}")),
        Column("flags", lambda entry: _text(_marks(found, entry), marked=True), numeric=False),
    ]
    axes_heads = {column.head for column in axes}
    return [
        column
        for column in columns
        if column.head in axes_heads | {"trial", "state"}
        or any(column.item(entry).key not in (None, "") for entry in found.study.entries)
    ]


def _axis_column(axis: Axis) -> Column:
    if axis.labels is None:

        def drawn(entry: Entry) -> Item:
            value = entry.trial.axes[axis.key]
            return Item(show(value), None if isinstance(value, str) else value)

        return Column(axis.name, drawn)
    return Column(axis.name, lambda entry: _text(show(entry.trial.axes[axis.key])), numeric=False)


def _marks(found: Findings, entry: Entry) -> str:
    kinds = dict.fromkeys(KINDS[flag.kind].word for flag in found.flags_of(entry))
    return ", ".join([*kinds, *(["shared node"] if entry.shared else [])])


def _speed(entry: Entry) -> Item:
    speed = entry.figures.samples_per_sec
    return Item(words.speed(speed) + ("*" if entry.shared and speed is not None else ""), speed, entry.shared)


def effects(of: Sequence[Effect], objective: Objective) -> str:
    """Each label against the first one of its axis, with intervals."""
    heads = [
        ("axis", False),
        ("label", False),
        ("against", False),
        ("samples/s", True),
        ("95 % interval", True),
        (f"difference of {objective.metric}", True),
        ("95 % interval", True),
        ("noise", True),
        ("pairs", True),
    ]
    rows = []
    for effect in of:
        n = max((found.n for found in (effect.speed, effect.objective) if found), default=0)
        rows.append(
            _row(
                [
                    _text(effect.axis),
                    _text(show(effect.label)),
                    _text(show(effect.against)),
                    *_measured(effect.speed, lambda value: f"{value:.3f}x"),
                    *_measured(effect.objective, lambda value: words.difference(value, objective).split()[0]),
                    _worded(
                        effect.margin, lambda value: "±" + words.difference(value, objective).split()[0].lstrip("+")
                    ),
                    Item(count(n, effect.pairs[:-1]) if n else "none matched", n),
                ],
                [numeric for _, numeric in heads],
            )
        )
    return _table(heads, rows)


def _measured(found: Interval | None, shown: Callable[[float], str]) -> tuple[Item, Item]:
    if found is None:
        return Item(words.NONE, None), Item(words.NONE, None)
    if found.low is None or found.high is None:
        return Item(shown(found.mean), found.mean), Item("n too small", None)
    width = found.high - found.low
    return Item(shown(found.mean), found.mean), Item(f"{shown(found.low)} to {shown(found.high)}", width)


def front(cells: Sequence[Cell], objective: Objective) -> str:
    """The settings on the Pareto front, by speed; their numbers are those in the plot."""
    shown = sorted((cell for cell in cells if cell.on_front), key=lambda cell: cell.samples_per_sec or 0.0)
    heads = [("", True), ("settings", False), ("samples/s", True), (objective.metric, True), ("time to target", True)]
    rows = [
        (
            Item(str(at), at),
            _text(cell.label),
            _worded(cell.samples_per_sec, words.speed),
            _worded(cell.objective, words.objective),
            _worded(cell.time_to_target_s, words.seconds),
        )
        for at, cell in enumerate(shown, 1)
    ]
    return _table(heads, [_row(row, [numeric for _, numeric in heads]) for row in rows])


def _text(text: str, marked: bool = False) -> Item:
    return Item(text, text, marked)


def _number(value: float | None, form: str) -> Item:
    return Item(words.NONE if value is None else form.format(value), value)


def _worded(value: float | None, shown: Callable[[float], str]) -> Item:
    return Item(words.NONE if value is None else shown(value), value)


def _row(items: Sequence[Item], numeric: Sequence[bool], chosen: bool = False) -> str:
    return f"<tr{' class=best' if chosen else ''}>{''.join(map(_item, items, numeric))}</tr>"


def _item(item: Item, numeric: bool) -> str:
    look = "number" if numeric else "text" if len(item.text) > 24 else ""
    look += " mark" if item.marked and item.text else ""
    key = "" if item.key is None else item.key
    return f'<td class="{look.strip()}" data-value="{escape(str(key))}">{escape(item.text)}</td>'


def _table(heads: Sequence[tuple[str, bool]], rows: Sequence[str], look: str = "") -> str:
    button = "<button type=button>{}</button>" if look else "{}"
    cells = "".join(
        f'<th scope=col class="{"number" if numeric else ""}">{button.format(escape(head))}</th>'
        for head, numeric in heads
    )
    return (
        f'<div class=wide tabindex=0><table class="{look}"><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
