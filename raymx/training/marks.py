"""When MXNet's engine gets somewhere, without waiting for it.

A mark is an operator of the engine's that reads some arrays and does nothing but look at the clock: it is carried out
once all that was queued to write them is done.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from raymx.kvstore import engine

_AT: dict[int, float] = {}  # when a mark was reached, until it is taken
_NUMBERS = itertools.count(1)


def _reached(number: int) -> None:
    _AT[number] = time.perf_counter()


# The engine may still call it when whoever asked is gone.
_CALL = engine.callback(_reached)


def mark(arrays: Sequence[Any]) -> int:
    """Queue a mark behind these NDArrays, of which none may be there twice. Its number, for `take`."""
    number = next(_NUMBERS)
    engine.queue(_CALL, number, "raymx_mark", arrays)
    return number


def take(number: int) -> float | None:
    """When it was reached, by ``time.perf_counter``, once; None where it was not yet."""
    return _AT.pop(number, None)
