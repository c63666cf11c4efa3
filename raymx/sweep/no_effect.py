"""Axes and given keys that change nothing in any cell of a sweep, each with its reason. Pure: no ray, no mxnet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from raymx.errors import ExperimentError
from raymx.experiment.loading import FLAGS, ExperimentConfig
from raymx.experiment.values import show
from raymx.experiment.without_effect import KEYS, effective, idle
from raymx.sweep.axis import Axis, Point

MOST_POINTS = 200
"""Points that are looked at: an axis that changes something mostly does so in the first one."""

At = Callable[[Point], ExperimentConfig]
"""The experiment of a point; it raises ExperimentError for what cannot be."""


def idle_axes(axes: Sequence[Axis], points: Sequence[Point], at: At) -> Iterator[str]:
    """A sentence for each axis whose values come to the same experiment wherever all else is the same."""
    for axis in axes:
        if len(axis.values) != 1 and not any(_matters(axis, point, at) for point in points[:MOST_POINTS]):
            reasons = (idle(at(point)).get(axis.key) for point in points[:MOST_POINTS])
            why = next(filter(None, reasons), "all its values come to the same experiment")
            yield f"sweep.space.{axis.key} changes nothing: {why}; leave it out, or change that"


def idle_given(given: Mapping[str, object], points: Sequence[Point], at: At) -> Iterator[str]:
    """A sentence for each key that a flag gives and that is idle at all ``points``."""
    asked = {key: value for key, value in given.items() if key in KEYS}
    found = [idle(one) for point in points[:MOST_POINTS] if asked and (one := _known(point, at))]
    for key, value in asked.items():
        if found and all(key in each for each in found):
            flag = next((f"{flag} {show(value)}" for flag, dotted in FLAGS.items() if dotted == key), "")
            yield (
                f"{flag or f'--set {key}={show(value)}'} changes nothing: {found[0][key]}; leave it out, or change that"
            )


def _matters(axis: Axis, point: Point, at: At) -> bool:
    """Whether another value of the axis at this point is another experiment; one that cannot be is that too."""
    numbers = random.Random(0)
    values: list[str | int | float] = [*axis.values] or [axis.draw(numbers) for _ in range(3)]
    try:
        return len({effective(at({**point, axis.key: value})) for value in values}) > 1
    except ExperimentError:
        return True


def _known(point: Point, at: At) -> ExperimentConfig | None:
    try:
        return at(point)
    except ExperimentError:
        return None
