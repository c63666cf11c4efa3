"""Operators of MXNet's engine that raymx carries out itself, through its C API (since MXNet 1.5).

Such an operator takes its turn like any other: after all that was queued before it to write what it reads, and before
all that is queued after it and reads what it writes.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

from mxnet.base import _LIB, check_call


def is_naive() -> bool:
    """Whether MXNet carries out each operator when it is queued, as is had to find an error: none can be held."""
    return os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"


class _Context(ctypes.Structure):
    """Where an operator runs: mxnet::Context, a device type and a number."""

    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int))


class _OnComplete(ctypes.Structure):
    """mxnet::engine::CallbackOnComplete of 1.9.1: a function, and its first two arguments; the third is an error."""

    _fields_ = (("function", ctypes.c_void_p), ("engine", ctypes.c_void_p), ("block", ctypes.c_void_p))


_CPU = _Context(1, 0)
_AT_ONCE = ctypes.c_int(3)  # FnProperty::kCPUPrioritized: by threads that compute nothing else
_SYNC = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_ASYNC = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_OnComplete), ctypes.c_void_p)
_DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

Callback = Any  # what ctypes makes of a function


def callback(function: Callable[[int], None]) -> Callback:
    """A function of a number for `queue`; to be kept as long as the engine may call it."""
    return _SYNC(lambda _, number: function(number or 0))


def queue(call: Callback, number: int, name: str, reads: Sequence[Any]) -> None:
    """Queue ``call(number)`` behind these NDArrays, of which none may be there twice. It must not wait."""
    _push(_LIB.MXEnginePushSyncND, call, number, name, reads, ())


def hold(begun: Callable[[Callable[[], None]], None], name: str, reads: Sequence[Any], writes: Sequence[Any]) -> None:
    """Queue an operator that lasts until it is told to end: whatever reads what it ``writes``, or writes what it
    ``reads``, waits for that, and the engine's threads do not.

    ``begun`` is called in one of these threads when its turn has come, with the function that ends it; that one may be
    called in any thread, once.
    """
    number = next(_NUMBERS)
    _BEGUN[number] = begun
    _push(_LIB.MXEnginePushAsyncND, _HELD, number, name, reads, writes)


_NUMBERS = itertools.count(1)
_BEGUN: dict[int, Callable[[Callable[[], None]], None]] = {}


def _begins(_: Any, on_complete: Any, number: int) -> None:
    told = on_complete.contents  # the engine's own, which is gone when this returns
    function, engine, block = told.function, told.engine, told.block
    _BEGUN.pop(number)(lambda: _DONE(function)(engine, block, None))


_HELD = _ASYNC(_begins)


def _push(push: Any, call: Callback, number: int, name: str, reads: Sequence[Any], writes: Sequence[Any]) -> None:
    check_call(
        push(
            call,
            ctypes.c_void_p(number),
            None,
            ctypes.byref(_CPU),
            _handles(reads),
            ctypes.c_int(len(reads)),
            _handles(writes),
            ctypes.c_int(len(writes)),
            ctypes.byref(_AT_ONCE),
            ctypes.c_int(0),
            name.encode(),
        )
    )


def _handles(arrays: Sequence[Any]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.handle for array in arrays))
