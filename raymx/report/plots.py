"""The plots of a report, as PNGs. Those with nothing to show are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from matplotlib.lines import Line2D

from raymx.report import words
from raymx.report.cell_summaries import CellSummary, grouped
from raymx.report.curves import curves
from raymx.report.effect_plots import forest, scatters
from raymx.report.findings import Findings
from raymx.report.model import ComparedAxis, Value, label_of
from raymx.report.style import (
    DARK,
    GREY,
    HEIGHT,
    Encoding,
    Picture,
    cut,
    encoding,
    figure,
    handles,
    in_time,
    legend_below,
    log_axis,
    png,
    styled,
    wrapped,
)
from raymx.text.words import count

MOST_BARS, MOST_NAMED = 25, 8


def draw(found: Findings) -> list[Picture]:
    """All plots that have something to show, in the order of the page."""
    with styled():
        code = encoding(found.study)
        pictures = [
            _tradeoff(found, code),
            *curves(found, code),
            forest(found),
            scatters(found, code),
            _times(found, code),
            _bytes(found),
        ]
    return [picture for picture in pictures if picture is not None]


def _tradeoff(found: Findings, code: Encoding) -> Picture | None:
    cells = [cell for cell in found.cells if cell.objective is not None and cell.samples_per_sec is not None]
    if len(cells) < 2:
        return None
    of, axes = figure()
    metric = found.study.objective.metric
    for entry in found.study.entries:
        measures = entry.measures
        if entry.settled and entry.comparable and len(cells) < len(found.study.entries):
            axes.plot(
                measures.samples_per_sec, measures.best, ".", color=code.colour_of(entry.trial.axes), alpha=0.35, ms=4
            )
    for cell in cells:
        axes.plot(
            cell.samples_per_sec,
            cell.objective,
            code.marker_of(cell.axes),
            color=code.colour_of(cell.axes),
            ms=7 if len(cells) <= 60 else 5,
            alpha=0.85,
            mec="white",
            mew=0.6,
        )
    front = sorted((cell for cell in cells if cell.on_front), key=lambda cell: cell.samples_per_sec or 0.0)
    _speed_axis(axes, [cell.samples_per_sec or 0.0 for cell in cells])
    axes.set(ylabel=metric, title=f"{metric} against throughput")
    axes.margins(0.08)
    _front(axes, front)
    named = [
        Line2D([], [], linestyle="none", label=cut(f"{at}  {cell.label}", 95))
        for at, cell in enumerate(front[:MOST_NAMED], 1)
    ]
    line = [Line2D([], [], color=DARK, linestyle="--", marker="o", mfc="none", ms=9, label="Pareto front")]
    legend_below(of, handles(code) + line, named)
    return Picture(
        "tradeoff",
        "Accuracy against throughput",
        "Each marker is one setting (the mean over its repeats, "
        "which are the small dots). No other setting is both faster and better than one on the front.",
        png(of),
    )


def _front(axes: Any, front: Sequence[CellSummary]) -> None:
    speeds, objectives = [cell.samples_per_sec for cell in front], [cell.objective for cell in front]
    axes.plot(speeds, objectives, "--", color=DARK, lw=1, zorder=1)
    axes.plot(speeds, objectives, "o", mfc="none", mec=DARK, ms=12, mew=1.2)
    axes.autoscale_view()
    places = [axes.transData.transform((cell.samples_per_sec, cell.objective)) for cell in front[:MOST_NAMED]]
    for first, last in _together(places):
        text = str(first + 1) if first == last else f"{first + 1}–{last + 1}"
        axes.annotate(
            text,
            (front[last].samples_per_sec, front[last].objective),
            textcoords="offset points",
            xytext=(7, 7),
            fontsize=9,
            fontweight="bold",
        )


def _together(places: Sequence[Any], apart: float = 22.0) -> list[tuple[int, int]]:
    """(first, last) of those points in a row that lie too near (in dots) for a number each."""
    found: list[tuple[int, int]] = []
    for at, (x, y) in enumerate(places):
        before = places[found[-1][1]] if found else None
        if before is not None and abs(x - before[0]) < apart and abs(y - before[1]) < apart:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def _speed_axis(axes: Any, speeds: Sequence[float]) -> None:
    axes.set_xlabel("samples/s")
    if min(speeds) > 0 and max(speeds) > 10 * min(speeds):
        log_axis(axes.xaxis)
        return
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if max(speeds) > 10 else f"{value:g}")


def _times(found: Findings, code: Encoding) -> Picture | None:
    timed = sorted(
        (cell for cell in found.cells if cell.time_to_target_s is not None),
        key=lambda cell: cell.time_to_target_s or 0.0,
    )
    if len(found.cells) < 2 or not timed:
        return None
    shown = timed[:MOST_BARS]
    scale, unit = in_time(max(cell.time_to_target_s or 0.0 for cell in shown))
    of, axes = figure(_bar_height(len(shown)))
    by_cell = grouped(found.study)
    for at, cell in enumerate(shown):
        axes.barh(at, (cell.time_to_target_s or 0.0) / scale, color=code.colour_of(cell.axes), height=0.66, alpha=0.8)
        each = [
            entry.measures.time_to_target_s / scale
            for entry in by_cell[tuple(cell.axes.items())]
            if entry.comparable and entry.measures.time_to_target_s is not None
        ]
        if len(each) > 1:
            axes.plot(each, [at] * len(each), "|", color=DARK, ms=9)
        axes.text(
            1.01,
            at,
            words.seconds(cell.time_to_target_s),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=8.5,
        )
    _names(axes, [cell.label for cell in shown])
    missing = sum(cell.timed > cell.reached for cell in found.cells)
    target = words.objective(found.study.target)
    axes.set(xlabel=f"{unit} since the trial's start", title=f"Time to {found.study.objective.metric} {target}")
    legend_below(of, [entry for entry in handles(code) if entry.get_color() != GREY])
    caption = (
        f"Wall time from a trial's start to its first report at {target} or better, mean over repeats (ticks). "
        + (f"The {len(shown)} first of {len(timed)} are shown. " if len(shown) < len(timed) else "")
        + (f"{count(missing, 'setting')} did not reach it in every repeat." if missing else "")
    )
    return Picture("time_to_target", "Time to accuracy", caption.strip(), png(of))


def _bytes(found: Findings) -> Picture | None:
    groups = _by_bytes(found)
    if not any(pushed or pulled for pushed, pulled, _ in groups.values()):
        return None
    shown = sorted(groups.items(), key=lambda item: -sum(item[1][:2]))[:MOST_BARS]
    of, axes = figure(_bar_height(len(shown), 0.42))
    top = max(max(pushed, pulled) for _, (pushed, pulled, _) in shown)
    unit, scale = next(
        (unit, 10**power)
        for unit, power in (("GB", 9), ("MB", 6), ("kB", 3), ("bytes", 0))
        if top >= 10**power or not power
    )
    for at, (_, (pushed, pulled, _)) in enumerate(shown):
        axes.barh(at - 0.19, pushed / scale, height=0.36, color="#0072B2", label="pushed" if not at else None)
        axes.barh(at + 0.19, pulled / scale, height=0.36, color="#E69F00", label="pulled" if not at else None)
    _names(axes, [f"{label} ({count(trials, 'trial')})" for label, (_, _, trials) in shown])
    axes.set(xlabel=f"{unit} a step, all workers together", title="Bytes on the wire")
    legend_below(
        of,
        [
            Line2D([], [], color=colour, lw=6, label=name)
            for name, colour in (("pushed", "#0072B2"), ("pulled", "#E69F00"))
        ],
    )
    more = f" The {len(shown)} largest of {len(groups)} are shown." if len(shown) < len(groups) else ""
    return Picture(
        "bytes",
        "Bytes on the wire",
        "Payload of one step. Compression makes pushes smaller, never pulls. "
        f"Settings that change nothing here are not named.{more}",
        png(of),
    )


def _by_bytes(found: Findings) -> dict[str, tuple[float, float, int]]:
    """(pushed, pulled, trials) by those settings that they depend on."""
    known = [(entry.trial.axes, entry.measures) for entry in found.study.entries]
    sent = [
        (axes, measures.bytes_pushed, measures.bytes_pulled)
        for axes, measures in known
        if measures.bytes_pushed is not None and measures.bytes_pulled is not None
    ]
    kept = [axis for axis in found.study.axes if len({axes[axis.key] for axes, _, _ in sent}) > 1]
    for axis in reversed(kept):
        fewer = [each for each in kept if each is not axis]
        if _depends_on(sent, fewer):
            kept = fewer
    groups: dict[str, list[tuple[float, float]]] = {}
    for axes, pushed, pulled in sent:
        groups.setdefault(label_of(kept, axes), []).append((pushed, pulled))
    return {
        label: (median(pair[0] for pair in pairs), median(pair[1] for pair in pairs), len(pairs))
        for label, pairs in groups.items()
    }


def _depends_on(sent: Sequence[tuple[Mapping[str, Value], float, float]], axes: Sequence[ComparedAxis]) -> bool:
    """Whether trials that are equal on ``axes`` send the same, within a hundredth."""
    groups: dict[tuple[Value, ...], list[tuple[float, float]]] = {}
    for values, *pair in sent:
        groups.setdefault(tuple(values[axis.key] for axis in axes), []).append((pair[0], pair[1]))
    return all(max(side) <= 1.01 * min(side) for pairs in groups.values() for side in zip(*pairs, strict=True))


def _names(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [wrapped(label) for label in labels], fontsize=8.5)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _bar_height(count: int, each: float = 0.3) -> float:
    return min(max(1.6, 1.0 + each * count), 3 * HEIGHT)
