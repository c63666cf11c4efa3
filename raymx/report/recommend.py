"""Which settings a sweep recommends: a change only where it gains something beyond the noise. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raymx.report.cell_summaries import CellSummary, Noise
from raymx.report.model import ComparedAxis, ObjectiveColumn, Value


@dataclass(frozen=True)
class Judge:
    """Compares cells. ``firsts``: the first label of each axis that has several, which others are compared with."""

    objective: ObjectiveColumn
    noise: Noise
    firsts: Mapping[str, Value]

    def gains(self, cell: CellSummary, other: CellSummary) -> bool:
        """Whether ``cell`` is better than ``other`` beyond the noise, or faster beyond it and not worse beyond it."""
        if cell.objective is None or other.objective is None:
            return False
        by, tolerance = self.objective.gain(cell.objective, other.objective), self._tolerance(cell, other)
        return by > tolerance or (by >= -tolerance and self.is_faster(cell, other))

    def is_near(self, cell: CellSummary, best: CellSummary) -> bool:
        """Whether ``cell`` is not worse than ``best`` beyond the noise."""
        if cell.objective is None or best.objective is None:
            return False
        return -self.objective.gain(cell.objective, best.objective) <= self._tolerance(cell, best)

    def is_faster(self, cell: CellSummary, other: CellSummary) -> bool:
        """Whether it has more samples/s, or reaches the target sooner, beyond the noise of speed."""
        limit = self.noise.speed_ratio(cell.comparable, other.comparable)
        return _above(cell.samples_per_sec, other.samples_per_sec, limit) or _above(
            other.time_to_target_s, cell.time_to_target_s, limit
        )

    def settled(self, chosen: CellSummary, cells: Sequence[CellSummary]) -> CellSummary:
        """``chosen``, with each of its changes taken back that gains nothing over the cell without it."""
        for without in self._reverted(chosen, cells):
            if not self.gains(chosen, without):
                return self.settled(without, cells)
        return chosen

    def is_first(self, cell: CellSummary) -> bool:
        """Whether it changes nothing: it has the first label of every axis."""
        return bool(self.firsts) and all(cell.axes.get(key) == value for key, value in self.firsts.items())

    def _reverted(self, cell: CellSummary, cells: Sequence[CellSummary]) -> list[CellSummary]:
        """The cells that are as ``cell`` but for the first label on every axis, and then on one that it changes."""
        changed = [key for key, value in self.firsts.items() if cell.axes.get(key) != value]
        wanted = [{**cell.axes, **{key: self.firsts[key] for key in changed}}]
        wanted += [{**cell.axes, key: self.firsts[key]} for key in changed]
        return [one for axes in wanted if changed for one in cells if one.axes == axes and one.objective is not None]

    def _tolerance(self, cell: CellSummary, other: CellSummary) -> float:
        return self.noise.tolerance(cell.settled, other.settled)


def firsts(axes: Sequence[ComparedAxis], cells: Sequence[CellSummary]) -> dict[str, Value]:
    """The first label that a cell has, of each axis with labels on which cells differ."""
    found: dict[str, Value] = {}
    for axis in axes:
        there = {cell.axes[axis.key] for cell in cells}
        if axis.labels is not None and len(there) > 1:
            found[axis.key] = next((label for label in axis.labels if label in there), min(there, key=str))
    return found


def _above(value: float | None, other: float | None, limit: float) -> bool:
    return bool(value and other and value / other > limit)
