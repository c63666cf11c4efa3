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

import importlib.util
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment import rules
from raymx.experiment.loading import Experiment, parse_experiment
from raymx.experiment.names import OBJECTS
from raymx.experiment.sweep_schema import Sweep
from raymx.experiment.values import show

BATCH_LR = "batch_lr"
PAUSING = ("hyperband", "pbt")  # trial schedulers that pause trials, so that more begin than run at once
LISTED = ("grid", "random")  # searches whose points are known beforehand
_LIBRARIES = {"optuna": "optuna", "hyperopt": "hyperopt", "bohb": "hpbandster"}
_WITHIN_A_TRIAL = (
    "training.base_lr",
    "batch_lr",
    "training.global_batch_size",
    "training.async_lr_factor",
    "training.optimizer.",
    "training.decay",
    "kvstore.compression",
    "data.augment",
)
_NO_AXIS = ("sweep", "name", "tracking", "checkpoint", "report", "failures")
AUTO_SAMPLES = {"grid": 1}  # else:
MANY_SAMPLES = 10
_TRIAL_INDEX = "__trial_index__"  # where Tune's Repeater says it
_DRAWS = 100  # for a point that is not there yet

Point = Mapping[str, str | int | float]
"""A label or a number for each axis."""


@dataclass(frozen=True)
class Axis:
    """One axis: ``values`` by label, or a range of numbers."""

    key: str
    kind: str
    values: Mapping[str, object] = field(default_factory=dict)
    low: float = 0.0
    high: float = 0.0

    def draw(self, numbers: random.Random) -> str | int | float:
        if self.values:
            return numbers.choice(list(self.values))
        if self.kind == "randint":
            return numbers.randrange(int(self.low), int(self.high))
        if self.kind == "loguniform":
            return short(math.exp(numbers.uniform(math.log(self.low), math.log(self.high))))
        return short(numbers.uniform(self.low, self.high))

    def bounded(self, value: Any) -> str | int | float:
        """A value of another's making, kept within the axis."""
        if self.values:
            return str(value)
        kept = min(max(value, self.low), self.high)
        return min(int(kept), int(self.high) - 1) if self.kind == "randint" else short(kept)

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "kind": self.kind,
            "labels": list(self.values) or None,
            "low": None if self.values else self.low,
            "high": None if self.values else self.high,
        }


class Space:
    """The axes of an experiment's sweep. Every trial makes one, so they are not checked then: see `check`."""

    def __init__(self, experiment: Experiment) -> None:
        """Raises ExperimentError when an axis has a value twice."""
        self.base = experiment.model_copy(update={"sweep": type(experiment.sweep)()})
        self._sweep = experiment.sweep
        self._raw = self.base.to_dict()
        self.axes = tuple(_axis(key, value) for key, value in experiment.sweep.space.items())

    def check(self) -> None:
        """Raise ExperimentError, a line for each value that the experiment cannot have; it looks at every value."""
        problems = list(self._problems())
        if problems:
            raise ExperimentError("\n".join(problems))

    @property
    def samples(self) -> int:
        """Points that are drawn: of the axes that are no grid, or, where nothing is a grid, of all."""
        if self._sweep.samples != "auto":
            return self._sweep.samples
        return AUTO_SAMPLES.get(self._sweep.search, MANY_SAMPLES)

    @property
    def searched(self) -> bool:
        """Whether a search library chooses the points while the sweep runs."""
        return self._sweep.search not in LISTED

    def points(self) -> list[Point]:
        """All points of a grid or random search, in order; [{}] where there is no axis.

        In a grid the values that are drawn are the same for every point of the grid, so that those can be compared.
        """
        numbers = random.Random(self._sweep.seed)
        grid = [axis for axis in self.axes if axis.kind == "grid" and self._sweep.search == "grid"]
        drawn = self._draws([axis for axis in self.axes if axis not in grid], numbers, self.samples)
        found = [
            dict(zip([axis.key for axis in grid], labels, strict=True)) | more
            for labels in itertools.product(*[axis.values for axis in grid])
            for more in drawn
        ]
        return [{axis.key: point[axis.key] for axis in self.axes} for point in found]

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

    def at(self, point: Point, repeat: int = 0) -> Experiment:
        """The experiment of a point; ``repeat`` is added to its seed. Raises ExperimentError."""
        settings: dict[str, object] = {}
        for axis in self.axes:
            if axis.key in point:
                settings |= self._settings(axis, point[axis.key])
        if repeat:
            settings["training.seed"] = self.base.training.seed + repeat
        return parse_experiment(self._raw, self.base.directory, settings)

    def _settings(self, axis: Axis, chosen: str | int | float) -> dict[str, object]:
        return self._as_settings(axis.key, axis.values[str(chosen)] if axis.values else chosen)

    def _as_settings(self, key: str, value: object) -> dict[str, object]:
        if key != BATCH_LR:
            return {key: value}
        training = self.base.training
        rule = {"training.lr_rule": "linear"} if training.lr_rule == "none" else {}
        return {
            "training.global_batch_size": value,
            "training.base_batch_size": training.base_batch_size or training.global_batch_size,
            **rule,
        }

    def _problems(self) -> Iterator[str]:
        keys = [axis.key for axis in self.axes]
        yield from _key_problems(keys, self._sweep)
        yield from _combination_problems(self._sweep) if keys else ()
        for axis in self.axes:
            for value in axis.values.values() if axis.values else (axis.low, axis.high, axis.draw(random.Random(0))):
                try:
                    self._parse_alone(axis, value)
                except ExperimentError as error:
                    yield from (
                        f"sweep.space.{axis.key}: {line.partition(' (given by')[0]}" for line in str(error).splitlines()
                    )
                    break

    def _parse_alone(self, axis: Axis, value: Any) -> None:
        parse_experiment(self._raw, self.base.directory, self._as_settings(axis.key, value))


def _key_problems(keys: Sequence[str], sweep: Sweep) -> Iterator[str]:
    for one, other in itertools.permutations(keys, 2):
        if other.startswith(f"{one}."):
            yield f"sweep.space has {one} and {other}: the first one sets the second too; leave one of them out"
    if BATCH_LR in keys and {"training.global_batch_size", "training.base_batch_size"} & set(keys):
        yield "sweep.space has batch_lr and a batch size of its own: leave one of them out"
    if sweep.repeats > 1 and "training.seed" in keys:
        yield (
            f"sweep.repeats is {sweep.repeats} and sweep.space has training.seed, which repeats change themselves: "
            "leave one of them out"
        )
    for key in keys:
        if key.partition(".")[0] in _NO_AXIS:
            yield f"sweep.space.{key}: it does not change what is trained, so it is no axis"


def _combination_problems(sweep: Sweep) -> Iterator[str]:
    if sweep.search == "bohb" and sweep.repeats > 1:
        yield (
            f"sweep.repeats is {sweep.repeats}, but bohb follows each trial's own result: set it to 1, or use "
            "another search"
        )
    if sweep.search not in LISTED and sweep.scheduler.name == "pbt":
        yield f"sweep.search is {sweep.search}, but pbt chooses settings itself: use grid or random"
    if sweep.scheduler.name == "pbt":
        for key in sweep.space:
            if not key.startswith(_WITHIN_A_TRIAL) or key == "training.optimizer.name":
                yield (
                    f"sweep.space has {key}, which pbt cannot change within a trial: it can change "
                    f"{', '.join(name.rstrip('.') for name in _WITHIN_A_TRIAL)}"
                )
    if sweep.search == "bohb" and sweep.scheduler.name not in ("fifo", "hyperband"):
        yield f"sweep.scheduler is {sweep.scheduler.name}, but bohb goes with hyperband: use that, or another search"
    limited = [
        name
        for name, is_set in (
            ("max_concurrent_trials", sweep.max_concurrent_trials != "auto"),
            ("max_share", sweep.max_share < 1),
        )
        if is_set
    ]
    if limited and pausing(sweep):
        yield (
            f"sweep.{limited[0]} is {getattr(sweep, limited[0])}, but with this trial scheduler all trials begin, "
            "and those without room are paused: leave it out, or use fifo, asha or median"
        )


def check(experiment: Experiment) -> None:
    """Raise ExperimentError for what of a run or a sweep cannot be on any cluster."""
    if experiment.sweep.space:
        Space(experiment).check()
    else:
        rules.check(experiment)


def check_installed(sweep: Sweep) -> None:
    """Raise ExperimentError when the sweep's search library is not there."""
    module = _LIBRARIES.get(sweep.search)
    if module and importlib.util.find_spec(module) is None:
        raise ExperimentError(
            f"sweep.search is {sweep.search}, and its library is not installed: "
            f'pip install "raymx[{sweep.search}]", or use grid or random'
        )


def trial_config(
    experiment: Experiment,
    raw: Any,
    run_id: str,
    *,
    gpus: int = 0,
    point: Any = None,
    spare_cpus: float = 0.0,
    gpus_available: int = 0,
) -> dict[str, Any]:
    """What a trial of Tune's is given. ``raw``: ``experiment.to_dict()``; ``point``: ``axes``, ``cell``, ``repeat``.

    ``cluster`` is what may be another when the run is resumed.
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
        },
    }


def experiment_of(config: Mapping[str, Any]) -> tuple[Experiment, float]:
    """(experiment, GPUs a worker) of a trial's config."""
    space = Space(parse_experiment(config["experiment"], config["directory"]))
    experiment = space.at(config["point"]["axes"], repeat_of(config))
    return experiment, gpus_of(experiment, config["cluster"]["gpus_per_worker"])


def gpus_of(experiment: Experiment, auto: int) -> float:
    """GPUs of each worker, where ``auto`` is what auto comes to."""
    asked = experiment.resources.gpus_per_worker
    return auto if asked == "auto" else asked


def repeat_of(config: Mapping[str, Any]) -> int:
    """Which repeat of its cell a trial is, from 0."""
    return int(config.get(_TRIAL_INDEX, config["point"]["repeat"]))


def pausing(sweep: Sweep) -> bool:
    """Whether the trial scheduler pauses trials, so that more of them begin than run at once."""
    return sweep.scheduler.name in PAUSING or sweep.search == "bohb"


def verdict(experiment: Experiment, gpus_available: int | None) -> str:
    """Why an experiment cannot run, in one sentence; "" when it can."""
    found = rules.problems(experiment, gpus_available=gpus_available)
    return "; ".join(f"{problem.key} is {problem.value}: {problem.reason}" for problem in found)


def in_words(point: Point) -> str:
    """``dtype float16, compression 2bit 0.5``."""
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in point.items())


def _axis(key: str, given: Mapping[str, Any]) -> Axis:
    kind, value = next(iter(given.items()))
    if kind not in ("grid", "choice"):
        return Axis(key, kind, low=value[0], high=value[1])
    labels = [label(one) for one in value]
    if len(set(labels)) < len(labels):
        labels = [one if isinstance(one, str) else json.dumps(one, sort_keys=True) for one in value]
    if len(set(labels)) < len(labels):
        raise ExperimentError(f"sweep.space.{key} is {show(given)}: it has a value twice")
    return Axis(key, kind, dict(zip(labels, value, strict=True)))


def label(value: object) -> str:
    """A short text for a value: ``2bit 0.5`` for {type: 2bit, threshold: 0.5}, ``2:8`` for {min: 2, max: 8}.

    An object that was defined in a notebook goes by its name.
    """
    if isinstance(value, Mapping) and value:
        if value.keys() == {"min", "max"}:
            return f"{value['min']}:{value['max']}"
        if value.get("type") == "none":
            return "none"
        first, *rest = [(key, label(one)) for key, one in value.items()]
        plain = first[0] in ("type", "name")
        return " ".join(
            [
                first[1] if plain else "=".join(first),
                *(text if plain and len(rest) == 1 else f"{key}={text}" for key, text in rest),
            ]
        )
    return value.removeprefix(f"{OBJECTS}:") if isinstance(value, str) else json.dumps(value)


def short(number: float) -> float:
    """Four figures: enough, and readable."""
    return float(f"{number:.4g}")
