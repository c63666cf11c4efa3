"""The search libraries: what they suggest is checked before it costs anything."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from ray import tune
from ray.tune.search import Repeater, Searcher

from raymx.cluster.nodes import cluster_nodes
from raymx.experiment.sweep_schema import Sweep
from raymx.sweep.axis import Axis, Point, short
from raymx.sweep.combinations import library_of
from raymx.sweep.listener import listener
from raymx.sweep.plan import Cell, judge
from raymx.sweep.space import Space

SUGGESTION_TRIES = 200  # of points that cannot run, one after the other


class Judge:
    """Judges the points of a search library on the cluster as it is then, and tells the watch."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(self, number: int, point: Point) -> Cell:
        cell = judge(self._space, number, point, cluster_nodes())
        listener().on_cell(cell)
        return cell


class Checked(Searcher):
    """A search library's suggestions, but for those that cannot run: it is told that they failed, and asked again.

    ``judge`` gives the cell of (number, point).
    """

    def __init__(
        self, searcher: Searcher, judge: Callable[[int, Point], Cell], metric: str, mode: str, most: int
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self.searcher = searcher
        self._judge, self._most = judge, most
        self._number = self._possible = 0
        self._names: dict[str, str] = {}  # of trials that have not ended, as the library knows them

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self._possible == self._most:
            return Searcher.FINISHED
        for attempt in range(SUGGESTION_TRIES):
            name = f"{trial_id}-{attempt}" if attempt else trial_id
            found = self.searcher.suggest(name)
            if found is None or found == Searcher.FINISHED:
                return found
            cell = self._judge(self._number, _plain(found["axes"]))
            self._number += 1
            if not cell.reason:
                self._possible += 1
                self._names[trial_id] = name
                return {"point": {"axes": dict(cell.point), "cell": cell.number, "repeat": 0}}
            self.searcher.on_trial_complete(name, error=True)
        listener().warn(f"the search ends: {SUGGESTION_TRIES} points in a row could not run")
        return Searcher.FINISHED

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self._names and self.metric in result:  # a row of an interrupted epoch may lack it
            self.searcher.on_trial_result(self._names[trial_id], result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        name = self._names.pop(trial_id, None)
        if name is not None:  # else a trial that is run again: the library has been told before
            known = result if result and self.metric in result else None
            self.searcher.on_trial_complete(name, result=known, error=error or known is None)

    def on_pause(self, trial_id: str) -> None:
        """HyperBandForBOHB's word to TuneBOHB."""
        if trial_id in self._names:
            self.searcher.on_pause(self._names[trial_id])

    def on_unpause(self, trial_id: str) -> None:
        if trial_id in self._names:
            self.searcher.on_unpause(self._names[trial_id])

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        """The library was given space, metric and mode when it was made."""
        return True

    def get_state(self) -> dict[str, Any]:
        return {"number": self._number, "possible": self._possible, "names": self._names}

    def set_state(self, state: dict[str, Any]) -> None:
        self._number, self._possible, self._names = state["number"], state["possible"], state["names"]

    def save(self, checkpoint_path: str) -> None:
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)


def searcher(space: Space, sweep: Sweep, metric: str, mode: str, judge: Callable[[int, Point], Cell]) -> Searcher:
    """The search library's searcher for a sweep, checked and repeated."""
    row = library_of(sweep)
    domains = {"axes": {axis.key: domain(axis) for axis in space.axes}}
    kind = pkgutil.resolve_name(row.searcher)
    logging.getLogger(sweep.search).setLevel(logging.WARNING)  # optuna says each step
    made = kind(metric=metric, mode=mode, **{row.seed_argument: sweep.seed})
    made.set_search_properties(metric, mode, domains)
    checked = Checked(made, judge, metric, mode, space.samples)
    return Repeater(checked, repeat=sweep.repeats) if sweep.repeats > 1 else checked


def domain(axis: Axis) -> Any:
    """Ray Tune's domain of an axis: its function of the name of the axis' kind."""
    return tune.choice(list(axis.values)) if axis.values else getattr(tune, axis.kind)(axis.low, axis.high)


def _plain(axes: Mapping[str, Any]) -> dict[str, Any]:
    """Without NumPy's types, and with four figures."""
    values = {key: value.item() if hasattr(value, "item") else value for key, value in axes.items()}
    return {key: short(value) if isinstance(value, float) else value for key, value in values.items()}
