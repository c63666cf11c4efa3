"""The axes of a sweep's space, the labels of their values, and points. Pure: no ray, no mxnet."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment.axis_kinds import AXIS_KINDS
from raymx.experiment.names import OBJECTS
from raymx.experiment.values import show

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
        kind = AXIS_KINDS[self.kind]
        assert kind.draw is not None
        drawn = kind.draw(numbers, self.low, self.high)
        return drawn if kind.whole else short(drawn, self.low, self.high)

    def bounded(self, value: Any) -> str | int | float:
        """A value of another's making, kept within the axis."""
        if self.values:
            return str(value)
        kept = min(max(value, self.low), self.high)
        return min(int(kept), int(self.high) - 1) if AXIS_KINDS[self.kind].whole else short(kept, self.low, self.high)

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "kind": self.kind,
            "labels": list(self.values) or None,
            "low": None if self.values else self.low,
            "high": None if self.values else self.high,
        }


def axes_of(space: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes of ``sweep.space``. Raises ExperimentError when one has a value twice."""
    return tuple(_axis(key, given) for key, given in space.items())


def _axis(key: str, given: Mapping[str, Any]) -> Axis:
    kind, value = next(iter(given.items()))
    if AXIS_KINDS[kind].is_range:
        return Axis(key, kind, low=value[0], high=value[1])
    labels = [label(one) for one in value]
    if len(set(labels)) < len(labels):
        labels = [one if isinstance(one, str) else json.dumps(one, sort_keys=True) for one in value]
    if len(set(labels)) < len(labels):
        raise ExperimentError(f"sweep.space.{key} is {show(given)}: it has a value twice")
    return Axis(key, kind, dict(zip(labels, value, strict=True)))


def in_words(point: Point) -> str:
    """``dtype float16, compression 2bit 0.5``."""
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in point.items())


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


def short(number: float, low: float, high: float) -> float:
    """Four figures where they are enough, and readable; more where the range is narrow, or they would lie beyond it."""
    number = min(max(number, low), high)
    texts = (float(f"{number:.{figures}g}") for figures in range(4, 17))
    return next((one for one in texts if low <= one <= high and abs(one - number) <= (high - low) / 2000), number)
