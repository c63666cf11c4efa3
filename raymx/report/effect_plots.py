"""What each axis does: labels against the first one, with intervals; and the objective against drawn numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D

from raymx.report.effects import Effect, present
from raymx.report.findings import Findings
from raymx.report.intervals import Interval
from raymx.report.model import ComparedAxis, show
from raymx.report.study import Entry
from raymx.report.style import COLOURS, DARK, GREY, Encoding, Picture, cut, figure, handles, legend_below, log_axis, png

MOST_EFFECTS = 40
COLUMNS = 3
NOISE = "#E3E3E3"


def forest(found: Findings) -> Picture | None:
    """Ratio of samples/s and difference of the objective, a line a label; None where no two cells are matched."""
    shown = [effect for effect in found.effects if effect.speed or effect.objective][:MOST_EFFECTS]
    if not shown:
        return None
    objective = found.study.objective
    scale = 100.0 if objective.in_points else 1.0
    of, (left, right) = figure(1.3 + 0.36 * len(shown), columns=2, sharey=True)
    for at, effect in enumerate(shown):
        _bar(left, at, effect.speed, 1.0)
        if effect.margin is not None:
            right.barh(at, 2 * effect.margin * scale, left=-effect.margin * scale, height=0.7, color=NOISE, zorder=0)
        _bar(right, at, effect.objective, scale)
    _limits(left, [effect.speed for effect in shown if effect.speed], 1.0, 1.0)
    _limits(right, [effect.objective for effect in shown if effect.objective], 0.0, scale)
    left.set_yticks(range(len(shown)), [_name(effect) for effect in shown], fontsize=8.5)
    left.set_ylim(len(shown) - 0.5, -0.5)
    left.set(xlabel="ratio of samples/s", title="Speed")
    right.set(xlabel=f"difference{' in points' if objective.in_points else ''}", title=cut(objective.metric, 32))
    legend_below(of, _legend(shown))
    return Picture(
        "effects",
        "Effect of each axis",
        "Each label against the first one of its axis, all other "
        "settings the same. Lines that leave the plot go on; the table has their ends.",
        png(of),
    )


def _legend(shown: Sequence[Effect]) -> list[Line2D]:
    found = [each for effect in shown for each in (effect.speed, effect.objective) if each]
    entries = []
    if any(each.low is not None for each in found):
        entries.append(Line2D([], [], color=COLOURS[0], marker="o", label="mean of matched pairs, 95 % interval"))
    if any(each.low is None for each in found):
        entries.append(
            Line2D([], [], color=COLOURS[0], marker="o", mfc="white", ls="none", label="one pair: no interval")
        )
    if any(effect.margin is not None for effect in shown):
        entries.append(Line2D([], [], color=NOISE, lw=7, label="noise of repeats"))
    return entries


def _name(effect: Effect) -> str:
    return cut(f"{effect.axis.rsplit('.', 1)[-1]}: {show(effect.label)} vs {show(effect.against)}", 52)


def _bar(axes: Any, at: int, found: Interval | None, scale: float) -> None:
    if found is None:
        return
    if found.low is not None and found.high is not None:
        axes.plot([found.low * scale, found.high * scale], [at, at], color=COLOURS[0], lw=1.8, solid_capstyle="butt")
    axes.plot(found.mean * scale, at, "o", color=COLOURS[0], ms=6, mfc=COLOURS[0] if found.low is not None else "white")


def _limits(axes: Any, found: Sequence[Interval], neutral: float, scale: float) -> None:
    """Room for all means, and for intervals that are not far wider: those of few pairs would hide all others."""
    axes.axvline(neutral, color=DARK, lw=0.9, zorder=1)
    axes.grid(axis="y", visible=False)
    if not found:
        return
    means = [each.mean * scale for each in found] + [neutral]
    span = max(max(means) - min(means), 0.02 if neutral else 0.1 * scale / 100)
    ends = [end * scale for each in found for end in (each.low, each.high) if end is not None]
    low = max(min([*ends, *means]), min(means) - 1.5 * span)
    high = min(max([*ends, *means]), max(means) + 1.5 * span)
    axes.set_xlim(low - 0.08 * span, high + 0.08 * span)


def scatters(found: Findings, code: Encoding) -> Picture | None:
    """The objective against each drawn number, and against labels that no two matched cells compare."""
    axes_shown = [axis for axis in found.study.axes if _to_scatter(axis, found)]
    entries = [entry for entry in found.study.entries if entry.settled]
    if not axes_shown or not entries:
        return None
    columns = min(COLUMNS, len(axes_shown))
    rows = -(-len(axes_shown) // columns)
    of, panels = figure(3.4 * rows if columns > 1 else 4.0, columns, rows, squeeze=False, sharey=True)
    best = found.study.objective.best(entry.measures.best for entry in entries if entry.measures.best is not None)
    for at, panel in enumerate(panels.flat):
        if at < len(axes_shown):
            _scatter(panel, axes_shown[at], found, entries, code, best)
        else:
            panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel(found.study.objective.metric)
    legend_below(
        of,
        [
            *(entry for entry in handles(code) if entry.get_color() != GREY),
            Line2D([], [], color=DARK, marker="*", ms=11, ls="none", label="best trial"),
        ],
    )
    return Picture(
        "values",
        "Objective against the value",
        "One dot a trial. Other settings differ between the dots, "
        "so this shows where good values lie, not what one setting does alone.",
        png(of),
    )


def _to_scatter(axis: ComparedAxis, found: Findings) -> bool:
    if len(present(axis, found.study)) < 2:
        return False
    compared = {effect.axis for effect in found.effects if effect.speed or effect.objective}
    return axis.labels is None or axis.key not in compared


def _scatter(
    panel: Any, axis: ComparedAxis, found: Findings, entries: Sequence[Entry], code: Encoding, best: float | None
) -> None:
    values = present(axis, found.study)
    numeric = all(isinstance(value, float) for value in values)
    place = {value: float(value) if numeric else float(at) for at, value in enumerate(values)}
    for entry in sorted(entries, key=lambda entry: entry.measures.best == best):
        x, star = place[entry.trial.axes[axis.key]], entry.measures.best == best
        panel.plot(
            x,
            entry.measures.best,
            "*" if star else "o",
            ms=13 if star else 5,
            alpha=1 if star else 0.7,
            color=DARK if star else code.colour_of(entry.trial.axes),
            mec="white",
            mew=0.5,
        )
    panel.set_xlabel(cut(axis.name, 30))
    if not numeric:
        panel.set_xticks(
            range(len(values)),
            [cut(show(value), 16) for value in values],
            rotation=30 if len(values) > 3 else 0,
            ha="right" if len(values) > 3 else "center",
        )
        panel.set_xlim(-0.5, len(values) - 0.5)
    elif axis.logarithmic and all(math.isfinite(x) and x > 0 for x in place.values()):
        log_axis(panel.xaxis)
