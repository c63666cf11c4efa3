"""The search libraries: what they suggest is checked before it costs anything."""

from __future__ import annotations

import json
import logging
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray import tune
from ray.tune.search import Repeater, Searcher

from raymx.cluster.abilities import asks_for_processors
from raymx.cluster.nodes import cluster_nodes
from raymx.errors import ExperimentError
from raymx.experiment.sweep_schema import Sweep
from raymx.experiment.without_effect import effective
from raymx.sweep.axis import Axis, Point
from raymx.sweep.combinations import library_of
from raymx.sweep.listener import listener
from raymx.sweep.plan import Cell, judge
from raymx.sweep.space import Space
from raymx.text.words import count

SUGGESTION_TRIES = 200  # of points that cannot run, one after the other


class Judge:
    """Judges the points of a search library on the cluster as it is then, and tells the watch."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._processors = asks_for_processors(space.base.to_dict(), space.axes)

    def __call__(self, number: int, point: Point) -> Cell:
        cell = judge(self._space, number, point, cluster_nodes(processors=self._processors))
        listener().on_cell(cell)
        return cell


class WhatIsTrained:
    """A text for a point, equal for points whose experiments come to the same."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(self, point: Point) -> str:
        return effective(self._space.at(point))


@dataclass
class Outcome:
    """A point that was suggested: its trial, what came of it, and who waits to be told."""

    trial_id: str
    is_over: bool = False
    result: dict[str, Any] | None = None
    waiting: list[str] = field(default_factory=list)


class Memory:
    """The points that a search library has suggested."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Outcome] = {}  # by what is trained
        self._texts: set[str] = set()

    @property
    def points(self) -> int:
        """How many different points there were."""
        return len(self._texts)

    def suggested(self, key: str, text: str, trial_id: str) -> Outcome | None:
        """What is known of a point that was suggested before; None of a new one, which is now ``trial_id``'s."""
        self._texts.add(text)
        if key in self._outcomes:
            return self._outcomes[key]
        self._outcomes[key] = Outcome(trial_id)
        return None

    def over(self, trial_id: str, result: dict[str, Any] | None) -> list[str]:
        """A trial has ended; who is to be told its result (None: it has none) too."""
        found = [one for one in self._outcomes.values() if one.trial_id == trial_id and not one.is_over]
        told = [name for one in found for name in one.waiting]
        for one in found:
            one.is_over, one.result, one.waiting = True, result, []
        return told


class Checked(Searcher):
    """A search library's suggestions, but for those that cannot run, or that were made before: of the first it is told
    that they failed, of the others what came of them, and it is asked again.

    ``judge`` gives the cell of (number, point); ``key`` is equal for points that train the same; there are ``size``
    different ones (None where there are numbers without end), within ``axes``.
    """

    def __init__(
        self,
        searcher: Searcher,
        judge: Callable[[int, Point], Cell],
        metric: str,
        mode: str,
        most: int,
        *,
        key: Callable[[Point], str] | None = None,
        size: int | None = None,
        axes: Sequence[Axis] = (),
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self.searcher = searcher
        self._judge, self._most = judge, most
        self._key, self._size = key or _as_text, size
        self._axes = {axis.key: axis for axis in axes}
        self._number = self._possible = 0
        self._names: dict[str, str] = {}  # of trials that have not ended, as the library knows them
        self._memory = Memory()
        self._stuck = False  # until a trial has ended

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self._possible == self._most:
            return Searcher.FINISHED
        if self._stuck:
            return None
        for attempt in range(SUGGESTION_TRIES):
            if self._size is not None and self._memory.points >= self._size:
                return self._ended("all points of sweep.space have been suggested")
            name = f"{trial_id}-{attempt}" if attempt else trial_id
            found = self.searcher.suggest(name)
            if found is None or found == Searcher.FINISHED:
                return found
            point = self._plain(found["axes"])
            if not self._is_new(name, trial_id, point):
                continue
            cell = self._judge(self._number, point)
            self._number += 1
            if not cell.reason:
                self._possible += 1
                self._names[trial_id] = name
                return {"point": {"axes": dict(cell.point), "cell": cell.number, "repeat": 0}}
            self._memory.over(trial_id, None)
            self.searcher.on_trial_complete(name, error=True)
        if self._names:  # it may think better of it when it knows what comes of these
            self._stuck = True
            return None
        return self._ended(f"{SUGGESTION_TRIES} points in a row could not run, or had been suggested before")

    def _plain(self, axes: Mapping[str, Any]) -> dict[str, Any]:
        """Without NumPy's types, and within the axes: what a library makes of a range may lie a little beyond it."""
        values = {key: value.item() if hasattr(value, "item") else value for key, value in axes.items()}
        return {key: self._axes[key].bounded(value) if key in self._axes else value for key, value in values.items()}

    def _is_new(self, name: str, trial_id: str, point: Point) -> bool:
        """Whether a point is a new one; of another the library is told what came of it, now or when that is known."""
        before = self._memory.suggested(self._key_of(point), _as_text(point), trial_id)
        if before is None:
            return True
        if before.is_over:
            self._tell(name, before.result)
        else:
            before.waiting.append(name)
        return False

    def _key_of(self, point: Point) -> str:
        try:
            return self._key(point)
        except ExperimentError:  # of a point that cannot be
            return _as_text(point)

    def _tell(self, name: str, result: dict[str, Any] | None) -> None:
        self.searcher.on_trial_complete(name, result=result, error=result is None)

    def _ended(self, why: str) -> Any:
        listener().warn(f"the search ends after {count(self._possible, 'cell')}: {why}")
        return Searcher.FINISHED

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self._names and self._is_known(result):
            self.searcher.on_trial_result(self._names[trial_id], result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        name = self._names.pop(trial_id, None)
        self._stuck = False
        if name is not None:  # else a trial that is run again: the library has been told before
            known = result if self._is_known(result) and not error else None
            self._tell(name, known)
            for other in self._memory.over(trial_id, known):
                self._tell(other, known)

    def _is_known(self, result: Mapping[str, Any] | None) -> bool:
        """Whether a result has the metric, which one of an interrupted epoch may lack; of nan no library can learn."""
        value = (result or {}).get(self.metric)
        return value is not None and math.isfinite(value)

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
        return {
            "number": self._number,
            "possible": self._possible,
            "names": self._names,
            "memory": self._memory,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._number, self._possible, self._names = state["number"], state["possible"], state["names"]
        self._memory = state.get("memory") or Memory()  # a run of before has none

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
    checked = Checked(
        made, judge, metric, mode, space.samples, key=WhatIsTrained(space), size=space.size, axes=space.axes
    )
    return Repeater(checked, repeat=sweep.repeats) if sweep.repeats > 1 else checked


def domain(axis: Axis) -> Any:
    """Ray Tune's domain of an axis: its function of the name of the axis' kind."""
    return tune.choice(list(axis.values)) if axis.values else getattr(tune, axis.kind)(axis.low, axis.high)


def _as_text(point: Point) -> str:
    return json.dumps(dict(point), sort_keys=True)
