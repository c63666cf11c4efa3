"""Learning curves, against epochs and against wall time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raymx.report.findings import Findings
from raymx.report.measures import elapsed
from raymx.report.model import TrialResult, number
from raymx.report.study import Entry
from raymx.report.style import (
    COLOURS,
    FAINT,
    Encoding,
    Picture,
    cut,
    figure,
    handles,
    in_time,
    legend_below,
    log_axis,
    png,
)

MOST_COLOURED = 40  # curves by the colour of an axis; of more only a few are told apart

_X = Callable[[TrialResult, Mapping[str, Any]], float | None]


def curves(found: Findings, code: Encoding) -> list[Picture | None]:
    """Both plots of the objective; None where no trial has reported it."""
    return [
        _curves(found, code, "curves_epochs", "Learning curves by epoch", "epochs done", _epoch),
        _curves(found, code, "curves_time", "Learning curves by wall time", "since the trial's start", elapsed),
    ]


def _epoch(trial: TrialResult, row: Mapping[str, Any]) -> float | None:
    epoch = number(row.get("epoch"))
    return epoch if epoch is not None else number(row.get("training_iteration"))


def _curves(found: Findings, code: Encoding, name: str, title: str, label: str, x_of: _X) -> Picture | None:
    metric = found.study.objective.metric
    drawn = [(entry, points) for entry in found.study.entries if (points := _points(entry.trial, metric, x_of))]
    if not drawn:
        return None
    of, axes = figure()
    looks, legend, caption = _looks(found, code, [entry for entry, _ in drawn])
    longest = max(x for _, points in drawn for x, _ in points)
    scale, unit = in_time(longest) if x_of is elapsed else (1, "")
    for (_, points), look in zip(drawn, looks, strict=True):
        axes.plot(
            [x / scale for x, _ in points],
            [y for _, y in points],
            **({"marker": "o", "ms": 4} if len(points) == 1 else {}),
            **look,
        )
    axes.set(xlabel=f"{unit} {label}".strip(), ylabel=metric, title=title)
    if x_of is _epoch:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if longest == min(x for _, points in drawn for x, _ in points):  # one epoch: no curve yet
        axes.set_xlim(0, 2 * longest / scale or 1)
    _log_where_wide(axes, [y for _, points in drawn for _, y in points])
    legend_below(of, legend)
    return Picture(name, title, caption, png(of))


def _points(trial: TrialResult, metric: str, x_of: _X) -> list[tuple[float, float]]:
    pairs = ((x_of(trial, row), value) for row, value in trial.series(metric))
    return sorted((x, value) for x, value in pairs if x is not None)


def _log_where_wide(axes: Any, values: Sequence[float]) -> None:
    if min(values) > 0 and max(values) > 100 * min(values):
        log_axis(axes.yaxis)


def _looks(found: Findings, code: Encoding, entries: Sequence[Entry]) -> tuple[list[dict[str, Any]], list[Line2D], str]:
    """How each curve is drawn, the legend, and a sentence on it."""
    labels = list(dict.fromkeys(entry.label for entry in entries))
    if len(labels) <= len(COLOURS):
        return _each_setting(entries, labels)
    if code.colour and len(entries) <= MOST_COLOURED:
        looks = [
            {
                "color": code.colour_of(entry.trial.axes),
                "alpha": 0.75,
                "lw": 1.3,
                "ls": code.line_of(entry.trial.axes) if code.few_lines else "-",
            }
            for entry in entries
        ]
        return looks, handles(code, lines=True), "One curve a trial."
    return _highlighted(found, entries)


def _each_setting(entries: Sequence[Entry], labels: Sequence[str]) -> tuple[list[dict[str, Any]], list[Line2D], str]:
    colours = dict(zip(labels, COLOURS, strict=False))
    looks = [{"color": colours[entry.label], "alpha": 0.85, "lw": 1.5} for entry in entries]
    legend = [Line2D([], [], color=colour, label=cut(label, 90)) for label, colour in colours.items()]
    return looks, legend if len(labels) > 1 else [], "One curve a trial; repeats have the same colour."


def _highlighted(found: Findings, entries: Sequence[Entry]) -> tuple[list[dict[str, Any]], list[Line2D], str]:
    """Too many to tell apart: the settings that the answer names, and others of the front, in front of grey."""
    chosen = found.answer
    named = (
        []
        if chosen is None
        else [("best", chosen.best), ("fastest near it", chosen.fastest), ("recommended", chosen.recommended)]
    )
    words: dict[str, str] = {}
    for word, cell in named:
        if cell is not None:
            words[cell.label] = f"{words[cell.label]}, {word}" if cell.label in words else word
    for cell in found.cells:
        if cell.on_front and len(words) < 6:
            words.setdefault(cell.label, "on the front")
    colours = dict(zip(words, COLOURS, strict=False))
    looks = [
        {"color": colours[entry.label], "lw": 1.8, "zorder": 3}
        if entry.label in colours
        else {"color": FAINT, "lw": 0.8, "alpha": 0.7, "zorder": 1}
        for entry in entries
    ]
    legend = [
        Line2D([], [], color=colour, label=cut(f"{words[label]}: {label}", 95)) for label, colour in colours.items()
    ]
    grey = sum(entry.label not in colours for entry in entries)
    return looks, [*legend, Line2D([], [], color=FAINT, label=f"{grey} other trials")], "One curve a trial."
