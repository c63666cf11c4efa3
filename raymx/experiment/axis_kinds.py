"""The table of kinds of axes in ``sweep.space``: what each takes, and how a value is drawn. Pure.

    AXIS_KINDS["loguniform"].problem([0, 1])        # what is wrong with it

To add one: a row here. Its name is that of Ray Tune's function for such a range, which search libraries are told.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class AxisKind:
    """One kind: a list of values, or, where ``draw`` is given, a range of numbers (low, high)."""

    name: str
    meaning: str
    draw: Callable[[random.Random, float, float], float] | None = None
    whole: bool = False  # its numbers, and the high one is left out
    above_zero: bool = False
    in_full: bool = False  # a grid search takes every value

    @property
    def is_range(self) -> bool:
        return self.draw is not None

    @property
    def form(self) -> str:
        """``{uniform: [low, high]}``."""
        return f"{{{self.name}: [{'low, high' if self.is_range else '...'}]}}"

    def problem(self, given: object) -> str:
        """What is wrong with what an axis of this kind is given, or ""."""
        if not self.is_range:
            return "" if isinstance(given, list) and given else f"{self.name} takes a list of values"
        kinds = int if self.whole else (int, float)
        numbers = (
            isinstance(given, list)
            and len(given) == 2
            and all(isinstance(end, kinds) and not isinstance(end, bool) for end in given)
        )
        if isinstance(given, list) and numbers and given[0] < given[1] and not (self.above_zero and given[0] <= 0):
            return ""
        more = " above 0" if self.above_zero else ""
        return f"{self.name} takes two {'whole ' if self.whole else ''}numbers{more}, the lower one first"


def _log_uniform(numbers: random.Random, low: float, high: float) -> float:
    return math.exp(numbers.uniform(math.log(low), math.log(high)))


_ROWS = (
    AxisKind("grid", "Every one of these values, in every combination with those of other grids.", in_full=True),
    AxisKind("choice", "One of these values, drawn."),
    AxisKind("uniform", "A number between the two, all equally likely.", random.Random.uniform),
    AxisKind("loguniform", "A number between the two, its logarithm uniform.", _log_uniform, above_zero=True),
    AxisKind(
        "randint",
        "A whole number, at least the first and below the second.",
        lambda numbers, low, high: numbers.randrange(int(low), int(high)),
        whole=True,
    ),
)

AXIS_KINDS: dict[str, AxisKind] = {row.name: row for row in _ROWS}
"""By name, in the order in which a message lists them."""


def forms() -> list[str]:
    """All kinds as an experiment file has them: ``{grid: [...]}``, ``{uniform: [low, high]}``."""
    return [row.form for row in AXIS_KINDS.values()]


def axis_problem(value: object) -> str:
    """What is wrong with one axis of ``sweep.space``, or "": what it must be, to go on with after its value."""
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in AXIS_KINDS:
        return f"it must be one of {', '.join(forms())}"
    kind, given = next(iter(value.items()))
    return AXIS_KINDS[kind].problem(given)
