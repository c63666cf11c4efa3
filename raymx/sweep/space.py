"""The space of a sweep: its axes, the cells in it, and the experiment of each. Pure: no ray, no mxnet.

    space = Space(experiment)
    space.check()                                       # ExperimentError when a value of an axis cannot be
    points = space.points()                             # of the grid, in order
    experiment = space.at(points[0], repeat=1)          # an experiment with no sweep of its own

An axis is a dotted key of the experiment file, or ``batch_lr``: the batch together with the learning rate that
`rules.batch_factor` makes of it. Values of grid and choice axes go by a label, which is text: search libraries
and folders of results want that.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment import rules
from raymx.experiment.axis_kinds import AXIS_KINDS
from raymx.experiment.loading import BATCH_LR, ExperimentConfig, batch_with_rate, parse_experiment
from raymx.sweep.axis import Axis, Point, axes_of
from raymx.sweep.combinations import EPOCHS_AXES, combination_problems, library_of
from raymx.sweep.no_effect import MOST_POINTS, idle_axes, idle_given

_TRIAL_INDEX = "__trial_index__"  # where Tune's Repeater says it
_DRAWS = 100  # for a point that is not there yet


class Space:
    """The axes of an experiment's sweep. Every trial makes one, so they are not checked then: see `check`."""

    def __init__(self, experiment: ExperimentConfig) -> None:
        """Raises ExperimentError when an axis has a value twice."""
        self.base = experiment.model_copy(update={"sweep": type(experiment.sweep)()})
        self._sweep = experiment.sweep
        self._raw = self.base.to_dict()
        self.axes = axes_of(experiment.sweep.space)

    def check(self, *, resumed: bool = False) -> None:
        """Raise ExperimentError, a line for each value that the experiment cannot have, and for each axis that changes
        nothing, unless the sweep has been trained with it (``resumed``); it looks at every value."""
        problems = list(self._problems())
        if not problems and not resumed:
            problems = list(idle_axes(self.axes, self._examples(), self.at))
        if problems:
            raise ExperimentError("\n".join(problems))

    @property
    def samples(self) -> int:
        """Points that are drawn: of the axes that are no grid, or, where nothing is a grid, of all."""
        asked = self._sweep.samples
        return library_of(self._sweep).samples if asked == "auto" else asked

    @property
    def searched(self) -> bool:
        """Whether a search library chooses the points while the sweep runs."""
        return not library_of(self._sweep).listed

    @property
    def size(self) -> int | None:
        """How many points there are; None where there is a range of numbers that are not whole."""
        sizes = [
            len(axis.values) or (int(axis.high - axis.low) if AXIS_KINDS[axis.kind].whole else 0) for axis in self.axes
        ]
        return math.prod(sizes) or None

    @property
    def epochs(self) -> tuple[int, int]:
        """The fewest and the most epochs that a trial may have."""
        axes = [axis for axis in self.axes if axis.key in EPOCHS_AXES]
        ends: list[str | int | float] = [
            value for axis in axes for value in (axis.values or (int(axis.low), int(axis.high) - 1))
        ]
        found = [self.at({axis.key: end}).training.epochs for axis in axes for end in ends]
        found = found or [self.base.training.epochs]
        return min(found), max(found)

    def points(self) -> list[Point]:
        """All points of a grid or random search, in order; [{}] where there is no axis.

        In a grid the values that are drawn are the same for every point of the grid, so that those can be compared.
        """
        numbers = random.Random(self._sweep.seed)
        in_full = library_of(self._sweep).walks_grids
        grid = [axis for axis in self.axes if in_full and AXIS_KINDS[axis.kind].in_full]
        drawn = self._draws([axis for axis in self.axes if axis not in grid], numbers, self.samples)
        found = [
            dict(zip([axis.key for axis in grid], labels, strict=True)) | more
            for labels in itertools.product(*[axis.values for axis in grid])
            for more in drawn
        ]
        return [{axis.key: point[axis.key] for axis in self.axes} for point in found]

    def check_given(self, given: Mapping[str, object]) -> None:
        """Raise ExperimentError for keys of flags that change nothing at any point."""
        problems = list(idle_given(given, self._examples(), self.at))
        if problems:
            raise ExperimentError("\n".join(problems))

    def _examples(self) -> list[Point]:
        return self.draw(MOST_POINTS) if self.searched else self.points()

    def draw(self, count: int) -> list[Point]:
        """At most so many points, all axes drawn; as many as there are."""
        return list(self._draws(self.axes, random.Random(self._sweep.seed), count))

    def _draws(self, axes: Sequence[Axis], numbers: random.Random, count: int) -> list[dict[str, Any]]:
        if not axes:
            return [{}]
        found: list[dict[str, Any]] = []
        for _ in range(count):
            tries = ({axis.key: axis.draw(numbers) for axis in axes} for _ in range(_DRAWS))
            new = next((point for point in tries if point not in found), None)
            if new is None:  # there are no more
                break
            found.append(new)
        return found

    def at(self, point: Point, repeat: int = 0) -> ExperimentConfig:
        """The experiment of a point; ``repeat`` is added to its seed. Raises ExperimentError."""
        settings = self.settings(point)
        if repeat:
            settings["training.seed"] = self.base.training.seed + repeat
        return parse_experiment(self._raw, self.base.directory, settings, by_flags=False)

    def settings(self, point: Point) -> dict[str, object]:
        """The keys of the experiment that a point sets, with their values."""
        found: dict[str, object] = {}
        for axis in self.axes:
            if axis.key in point:
                found |= self._settings(axis, point[axis.key])
        return found

    def _settings(self, axis: Axis, chosen: str | int | float) -> dict[str, object]:
        return self._as_settings(axis.key, axis.values[str(chosen)] if axis.values else chosen)

    def _as_settings(self, key: str, value: object) -> dict[str, object]:
        return batch_with_rate(self.base.training.model_dump(), value) if key == BATCH_LR else {key: value}

    def _problems(self) -> Iterator[str]:
        keys = [axis.key for axis in self.axes]
        yield from combination_problems(keys, self._sweep)
        for axis in self.axes:
            for value in axis.values.values() if axis.values else (axis.low, axis.high, axis.draw(random.Random(0))):
                try:
                    self._parse_alone(axis, value)
                except ExperimentError as error:
                    yield from (f"sweep.space.{axis.key}: {line}" for line in str(error).splitlines())
                    break

    def _parse_alone(self, axis: Axis, value: Any) -> None:
        parse_experiment(self._raw, self.base.directory, self._as_settings(axis.key, value), by_flags=False)


def check(experiment: ExperimentConfig, given: Mapping[str, object] | None = None, *, resumed: bool = False) -> None:
    """Raise ExperimentError for what of a run or a sweep cannot be on any cluster.

    ``given`` are the keys that flags have set: one that changes nothing is refused too. ``resumed``: see `Space.check`.
    """
    if experiment.sweep.space:
        Space(experiment).check(resumed=resumed)
    else:
        rules.check(experiment)
    if given:
        Space(experiment).check_given(given)


def trial_config(
    experiment: ExperimentConfig,
    raw: Any,
    run_id: str,
    *,
    gpus: int = 0,
    point: Any = None,
    spare_cpus: float = 0.0,
    gpus_available: int = 0,
    code: str = "",
) -> dict[str, Any]:
    """What a trial of Tune's is given. ``raw``: ``experiment.to_dict()``; ``point``: ``axes``, ``cell``, ``repeat``.

    ``code``: the driver's copy of the experiment's modules. ``cluster`` is what may be another when the run is resumed:
    what it names goes before the same of the trial's own, and what is imported then are the modules of that time.
    """
    return {
        "experiment": raw,
        "directory": experiment.directory,
        "run_id": run_id,
        "point": point or {"axes": {}, "cell": 0, "repeat": 0},
        "cluster": {
            "gpus_per_worker": gpus,
            "spare_cpus": spare_cpus,
            "gpus_available": gpus_available,
            "yields": (experiment.sweep.priority, experiment.sweep.yield_after_s),
            "code": code,
            "directory": experiment.directory,
            "run_id": run_id,
        },
    }


def directory_of(config: Mapping[str, Any]) -> str:
    """The experiment's folder: where it is now, of a run that is resumed."""
    return str(config["cluster"].get("directory", config["directory"]))


def run_id_of(config: Mapping[str, Any]) -> str:
    """The name of the run's folder as it is now, by which a trial and its driver find each other's messages."""
    return str(config["cluster"].get("run_id", config["run_id"]))


def experiment_of(config: Mapping[str, Any]) -> tuple[ExperimentConfig, float]:
    """(experiment, GPUs a worker) of a trial's config."""
    space = Space(parse_experiment(config["experiment"], directory_of(config)))
    experiment = space.at(config["point"]["axes"], repeat_of(config))
    return experiment, gpus_of(experiment, config["cluster"]["gpus_per_worker"])


def gpus_of(experiment: ExperimentConfig, auto: int) -> float:
    """GPUs of each worker, where ``auto`` is what auto comes to."""
    asked = experiment.resources.gpus_per_worker
    return auto if asked == "auto" else asked


def repeat_of(config: Mapping[str, Any]) -> int:
    """Which repeat of its cell a trial is, from 0."""
    return int(config.get(_TRIAL_INDEX, config["point"]["repeat"]))


def verdict(experiment: ExperimentConfig, gpus_available: int | None) -> str:
    """Why an experiment cannot run, in one sentence; "" when it can."""
    found = rules.problems(experiment, gpus_available=gpus_available)
    return "; ".join(f"{problem.key} is {problem.value}: {problem.reason}" for problem in found)
