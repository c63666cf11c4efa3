"""The tables of report.html, as data; the template tables.html.j2 draws them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raymx.report import words
from raymx.report.cell_summaries import CellSummary
from raymx.report.diagnoses import KINDS
from raymx.report.effects import Effect
from raymx.report.findings import Findings
from raymx.report.intervals import Interval
from raymx.report.model import ComparedAxis, ObjectiveColumn, show
from raymx.report.study import Entry
from raymx.results import step_text
from raymx.results.step_text import Segment
from raymx.text.words import count


@dataclass(frozen=True)
class Item:
    """A table's cell: what is shown, and what it is sorted by (None is last)."""

    text: str
    key: float | str | None
    marked: bool = False
    bar: Sequence[Segment] = ()  # drawn before the text

    def look(self, numeric: bool) -> str:
        """Its classes in the style, in a column of numbers or not."""
        kind = "number" if numeric else "text" if len(self.text) > 24 else ""
        return f"{kind} {'mark' if self.marked and self.text else ''}".strip()


@dataclass(frozen=True)
class Column:
    head: str
    numeric: bool = True


@dataclass(frozen=True)
class Row:
    cells: Sequence[Item]
    chosen: bool = False


@dataclass(frozen=True)
class Table:
    """Every row has a cell for each column. ``sortable``: by a click on a head."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    sortable: bool = False
    legend: Sequence[Segment] = ()  # of the bars in it


@dataclass(frozen=True)
class TrialColumn:
    """A column of the table of trials, and what it has of each."""

    head: str
    item: Callable[[Entry], Item]
    numeric: bool = True


def trials(found: Findings) -> Table:
    """All trials, sortable; the recommended settings' are bold."""
    columns = _columns(found)
    chosen = found.answer.recommended.axes if found.answer else None
    rows = [
        Row([column.item(entry) for column in columns], entry.trial.axes == chosen) for entry in found.study.entries
    ]
    drawn = any(item.bar for row in rows for item in row.cells)
    heads = [Column(column.head, column.numeric) for column in columns]
    return Table(heads, rows, sortable=True, legend=step_text.LEGEND if drawn else ())


def _columns(found: Findings) -> list[TrialColumn]:
    axes = [_axis_column(axis) for axis in found.study.axes]
    columns = [
        TrialColumn("trial", lambda entry: _text(entry.trial.trial_id), numeric=False),
        *axes,
        TrialColumn("repeat", lambda entry: _number(entry.trial.repeat + 1, "{:g}")),
        TrialColumn("state", lambda entry: _text(entry.trial.state), numeric=False),
        TrialColumn(found.study.objective.metric, lambda entry: _worded(entry.measures.best, words.objective)),
        TrialColumn("epoch of it", lambda entry: _number(entry.measures.best_epoch, "{:g}")),
        TrialColumn("last", lambda entry: _worded(entry.measures.final, words.objective)),
        TrialColumn("samples/s", _speed),
        TrialColumn("time to target", lambda entry: _worded(entry.measures.time_to_target_s, words.seconds)),
        TrialColumn("time", lambda entry: _worded(entry.measures.time_s, words.seconds)),
        TrialColumn("a step", _step),
        TrialColumn("computing", lambda entry: _worded(entry.measures.compute_fraction, words.part)),
        TrialColumn("waits for gradients", lambda entry: _worded(entry.measures.communication_fraction, words.part)),
        TrialColumn("waits for data", lambda entry: _worded(entry.measures.data_wait_fraction, words.part)),
        TrialColumn("first step", lambda entry: _worded(entry.measures.first_step_s, words.seconds)),
        TrialColumn("pushed a step", lambda entry: _worded(entry.measures.bytes_pushed, words.size)),
        TrialColumn("pulled a step", lambda entry: _worded(entry.measures.bytes_pulled, words.size)),
        TrialColumn("peak rate", lambda entry: _number(entry.measures.peak_rate, "{:.4g}")),
        TrialColumn("warmup epochs", lambda entry: _number(entry.trial.warmup_epochs, "{:.3g}")),
        TrialColumn("steps", lambda entry: _number(entry.measures.steps or None, "{:,}")),
        TrialColumn("batch", lambda entry: _number(entry.trial.global_batch_size, "{:,}")),
        TrialColumn("workers", lambda entry: _number(entry.trial.num_workers, "{:g}")),
        TrialColumn("CPUs", lambda entry: _number(entry.trial.cpus, "{:g}")),
        TrialColumn("GPUs", lambda entry: _number(entry.trial.gpus, "{:g}")),
        TrialColumn("CPU-seconds", lambda entry: _number(entry.measures.cpu_s, "{:,.0f}")),
        TrialColumn("GPU-seconds", lambda entry: _number(entry.measures.gpu_s, "{:,.0f}")),
        TrialColumn("cost", lambda entry: _number(entry.measures.cost, "{:.4f}")),
        TrialColumn("restarts", lambda entry: _number(entry.measures.restarts, "{:g}")),
        *_code_column(found),
        TrialColumn("flags", lambda entry: _text(_marks(found, entry), marked=True), numeric=False),
    ]
    axes_heads = {column.head for column in axes}
    return [
        column
        for column in columns
        if column.head in axes_heads | {"trial", "state"}
        or any(column.item(entry).key not in (None, "") for entry in found.study.entries)
    ]


def _code_column(found: Findings) -> list[TrialColumn]:
    """The version of the experiment's own modules, where trials have several."""
    several = len({entry.trial.code for entry in found.study.entries}) > 1
    return [TrialColumn("code", lambda entry: _text(entry.trial.code or ""), numeric=False)] if several else []


def _axis_column(axis: ComparedAxis) -> TrialColumn:
    if axis.labels is None:

        def drawn(entry: Entry) -> Item:
            value = entry.trial.axes[axis.key]
            return Item(show(value), None if isinstance(value, str) else value)

        return TrialColumn(axis.name, drawn)
    return TrialColumn(axis.name, lambda entry: _text(show(entry.trial.axes[axis.key])), numeric=False)


def _marks(found: Findings, entry: Entry) -> str:
    kinds = dict.fromkeys(KINDS[diagnosis.kind].word for diagnosis in found.diagnoses_of(entry))
    return ", ".join([*kinds, *(["shared node"] if entry.shared else [])])


def _speed(entry: Entry) -> Item:
    speed = entry.measures.samples_per_sec
    return Item(words.speed(speed) + ("*" if entry.shared and speed is not None else ""), speed, entry.shared)


def effects(of: Sequence[Effect], objective: ObjectiveColumn) -> Table:
    """Each label against the first one of its axis, with intervals."""
    columns = [
        Column("axis", numeric=False),
        Column("label", numeric=False),
        Column("against", numeric=False),
        Column("samples/s"),
        Column("95 % interval"),
        Column(f"difference of {objective.metric}"),
        Column("95 % interval"),
        Column("noise"),
        Column("pairs"),
    ]
    rows = []
    for effect in of:
        n = max((found.n for found in (effect.speed, effect.objective) if found), default=0)
        noise = _worded(effect.margin, lambda value: "±" + words.difference(value, objective).split()[0].lstrip("+"))
        cells = [
            _text(effect.axis),
            _text(show(effect.label)),
            _text(show(effect.against)),
            *_measured(effect.speed, lambda value: f"{value:.3f}x"),
            *_measured(effect.objective, lambda value: words.difference(value, objective).split()[0]),
            noise,
            Item(count(n, effect.pairs[:-1]) if n else "none matched", n),
        ]
        rows.append(Row(cells))
    return Table(columns, rows)


def _measured(found: Interval | None, shown: Callable[[float], str]) -> tuple[Item, Item]:
    if found is None:
        return Item(words.NONE, None), Item(words.NONE, None)
    if found.low is None or found.high is None:
        return Item(shown(found.mean), found.mean), Item("n too small", None)
    width = found.high - found.low
    return Item(shown(found.mean), found.mean), Item(f"{shown(found.low)} to {shown(found.high)}", width)


def _step(entry: Entry) -> Item:
    """Its seconds, and a bar of where they go."""
    seconds, step = entry.measures.step_s, step_text.of_rows(entry.trial.counted)
    text = words.NONE if seconds is None else words.short_seconds(seconds)
    return Item(text, seconds, bar=step_text.segments(step.fractions) if step else ())


def front(cells: Sequence[CellSummary], objective: ObjectiveColumn) -> Table:
    """The settings on the Pareto front, by speed; their numbers are those in the plot."""
    shown = sorted((cell for cell in cells if cell.on_front), key=lambda cell: cell.samples_per_sec or 0.0)
    columns = [
        Column(""),
        Column("settings", numeric=False),
        Column("samples/s"),
        Column(objective.metric),
        Column("time to target"),
    ]
    rows = [
        Row(
            (
                Item(str(at), at),
                _text(cell.label),
                _worded(cell.samples_per_sec, words.speed),
                _worded(cell.objective, words.objective),
                _worded(cell.time_to_target_s, words.seconds),
            )
        )
        for at, cell in enumerate(shown, 1)
    ]
    return Table(columns, rows)


def _text(text: str, marked: bool = False) -> Item:
    return Item(text, text, marked)


def _number(value: float | None, form: str) -> Item:
    return Item(words.NONE if value is None else form.format(value), value)


def _worded(value: float | None, shown: Callable[[float], str]) -> Item:
    return Item(words.NONE if value is None else shown(value), value)
