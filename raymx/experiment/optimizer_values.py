"""What an argument of an MXNet optimizer may be. Pure.

    problem("momentum", 1.5)  # what it must be, or None

MXNet looks at no value: with a momentum of 1 weights run away, and a gradient clipped at -1 is not clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Values:
    """The values that some arguments take, in words, and whether one is among them."""

    words: str
    fits: Callable[[object], bool]
    arguments: tuple[str, ...]


def _number(value: object, low: float = float("-inf"), below: float = float("inf")) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value < below


_WARMUPS = ("linear", "power2", "sqrt", "lars")
_ROWS = (
    Values(
        "a number from 0 to below 1",
        lambda value: _number(value, 0, 1),
        ("momentum", "beta1", "beta2", "rho", "gamma1", "gamma2"),
    ),
    Values(
        "a number above 0, or null for none",
        lambda value: value is None or (_number(value, 0) and value != 0),
        ("clip_gradient", "clip_weights"),
    ),
    Values(
        "a number, at least 0, or null for none",
        lambda value: value is None or _number(value, 0),
        ("lower_bound", "upper_bound"),
    ),
    Values(
        "true or false",
        lambda value: isinstance(value, bool),
        ("lazy_update", "centered", "bias_correction", "momentum_correction", "multi_precision"),
    ),
    Values(f"one of {', '.join(_WARMUPS)}", lambda value: value in _WARMUPS, ("warmup_strategy",)),
)
_OTHERS = Values("a number, at least 0", lambda value: _number(value, 0), ())
_BY_NAME = {name: row for row in _ROWS for name in row.arguments}


def problem(argument: str, value: object) -> str | None:
    """What the value of an argument must be, where it is something else."""
    row = _BY_NAME.get(argument, _OTHERS)
    return None if row.fits(value) else f"it must be {row.words}"
