"""Cells (trials of the same settings), the noise between them, and which are on the Pareto front. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from raymx.report.intervals import margin, pooled_sd
from raymx.report.model import SLACK, SPEED_SLACK, ObjectiveColumn, Value
from raymx.report.study import Entry, Study

Key = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class CellSummary:
    """Means over the repeats of one cell: of those whose objective counts, and of those whose speed does.

    ``time_to_target_s`` is there when all ``timed`` repeats have ``reached`` the target. ``on_front``: no other cell is
    both faster and better.
    """

    axes: Mapping[str, Value]
    label: str
    trials: tuple[str, ...]
    objective: float | None
    objective_sd: float | None
    settled: int
    samples_per_sec: float | None
    comparable: int
    time_to_target_s: float | None
    reached: int
    timed: int
    cost: float | None
    on_front: bool = False


@dataclass(frozen=True)
class Noise:
    """What repeats of the same cell show: the pooled standard deviation of the objective, its degrees of freedom, and
    that of the speed as a part of its cell's mean. None without repeats."""

    objective_sd: float | None
    df: int
    speed_sd: float | None
    speed_df: int

    def margin(self, n: int, other: int) -> float | None:
        """How far apart means of ``n`` and of ``other`` trials may be and still be within the noise (95 %)."""
        return None if self.objective_sd is None else margin(self.objective_sd, self.df, n, other)

    def tolerance(self, n: int, other: int) -> float:
        """The same, and `SLACK` where there are no repeats to see the noise in."""
        found = self.margin(n, other)
        return SLACK if found is None else found

    def speed_ratio(self, n: int, other: int) -> float:
        """How many times as fast the mean of ``n`` trials may be as that of ``other`` and still be within the noise of
        speed (95 %); 1 + `SPEED_SLACK` where there are no repeats to see it in."""
        if self.speed_sd is None or not n or not other:
            return 1 + SPEED_SLACK
        return math.exp(margin(self.speed_sd, self.speed_df, n, other))


def grouped(study: Study) -> dict[Key, list[Entry]]:
    """Trials by their settings, in the order of the axes' labels."""
    found: dict[Key, list[Entry]] = {}
    for entry in study.entries:
        found.setdefault(tuple(entry.trial.axes.items()), []).append(entry)
    return found


def objectives(entries: Iterable[Entry]) -> list[float]:
    return [entry.measures.best for entry in entries if entry.settled and entry.measures.best is not None]


def speeds(entries: Iterable[Entry]) -> list[float]:
    return [
        entry.measures.samples_per_sec
        for entry in entries
        if entry.comparable and entry.measures.samples_per_sec is not None
    ]


def noise(groups: Iterable[Sequence[Entry]]) -> Noise:
    each = list(groups)
    relative = [[speed / fmean(found) for speed in found] for found in map(speeds, each) if found and fmean(found)]
    return Noise(*pooled_sd([objectives(entries) for entries in each]), *pooled_sd(relative))


def cells(study: Study) -> list[CellSummary]:
    """One a setting, in the order in which their first trials are."""
    found = [_cell(dict(key), entries) for key, entries in grouped(study).items()]
    front = pareto([(cell.samples_per_sec, cell.objective) for cell in found], study.objective)
    return [CellSummary(**{**vars(cell), "on_front": at in front}) for at, cell in enumerate(found)]


def pareto(points: Sequence[tuple[float | None, float | None]], objective: ObjectiveColumn) -> set[int]:
    """Numbers of those (samples/s, objective) that no other is as fast and as good as, and in one of both better."""
    known = [
        (at, speed, objective.gain(value, 0.0))
        for at, (speed, value) in enumerate(points)
        if speed is not None and value is not None
    ]
    return {
        at
        for at, speed, gain in known
        if not any(s >= speed and g >= gain and (s > speed or g > gain) for _, s, g in known)
    }


def _cell(axes: Mapping[str, Value], entries: Sequence[Entry]) -> CellSummary:
    found, fast = objectives(entries), speeds(entries)
    timed = [
        entry.measures.time_to_target_s for entry in entries if entry.comparable and entry.measures.best is not None
    ]
    reached = [seconds for seconds in timed if seconds is not None]
    costs = [entry.measures.cost for entry in entries if entry.settled and entry.measures.cost is not None]
    return CellSummary(
        axes=axes,
        label=entries[0].label,
        trials=tuple(entry.trial.trial_id for entry in entries),
        objective=fmean(found) if found else None,
        objective_sd=stdev(found) if len(found) > 1 else None,
        settled=len(found),
        samples_per_sec=fmean(fast) if fast else None,
        comparable=len(fast),
        time_to_target_s=fmean(reached) if reached and len(reached) == len(timed) else None,
        reached=len(reached),
        timed=len(timed),
        cost=fmean(costs) if costs else None,
    )
