"""When MXNet's engine gets somewhere, without waiting for it.

A mark is an operator of the engine's that reads some arrays and does nothing but look at the clock: it is carried out
once all that was queued to write them is done. MXNet's C API has had this since 1.5 (`MXEnginePushSyncND`).
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Sequence
from typing import Any

from mxnet.base import _LIB, check_call

_AT: dict[int, float] = {}  # when a mark was reached, until it is taken
_NUMBERS = itertools.count(1)


class _Context(ctypes.Structure):
    """Where an operator runs: mxnet::Context, a device type and a number."""

    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int))


_CPU = _Context(1, 0)
_AT_ONCE = ctypes.c_int(3)  # FnProperty::kCPUPrioritized: by threads that compute nothing else


def _reached(_: Any, number: int) -> None:
    _AT[number] = time.perf_counter()


# The engine may still call it when whoever asked is gone.
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_reached)


def mark(arrays: Sequence[Any]) -> int:
    """Queue a mark behind these NDArrays, of which none may be there twice. Its number, for `take`."""
    number = next(_NUMBERS)
    handles = (ctypes.c_void_p * len(arrays))(*(array.handle for array in arrays))
    check_call(
        _LIB.MXEnginePushSyncND(
            _CALL,
            ctypes.c_void_p(number),
            None,
            ctypes.byref(_CPU),
            handles,
            ctypes.c_int(len(arrays)),
            None,
            ctypes.c_int(0),
            ctypes.byref(_AT_ONCE),
            ctypes.c_int(0),
            b"raymx_mark",
        )
    )
    return number


def take(number: int) -> float | None:
    """When it was reached, by ``time.perf_counter``, once; None where it was not yet."""
    return _AT.pop(number, None)
