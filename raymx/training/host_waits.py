"""What a loop does between its steps: when it begins a forward pass, and which of its lines wait for MXNet's engine."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import mxnet as mx

_OF_MXNET = os.path.dirname(mx.__file__) + os.sep
_OF_RAYMX = os.path.dirname(os.path.dirname(__file__)) + os.sep
MOST = 5  # lines that are told
_NAMES = {"__bool__": "bool"}  # of what Python calls by itself


class HostWaits:
    """A context for the loop's thread: within, the time that each line of the user's own code waits is added up.

    raymx's own waits are not counted: they leave the engine a step to go on with. A call costs a microsecond more.
    """

    def __init__(self, counts: Callable[[], bool], begins: Callable[[], None] = lambda: None) -> None:
        """``counts``: whether a wait now is one of training, and not of validation. ``begins`` is called with each
        ``autograd.record()``.
        """
        self._thread, self._counts, self._begins = 0, counts, begins
        self._lines: dict[tuple[str, int, str], list[float]] = {}  # -> seconds, calls
        self._seconds = 0.0  # of all lines
        self._patched: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> HostWaits:
        self._thread = threading.get_ident()
        for owner, name in ((mx.nd.NDArray, "asnumpy"), (mx.nd.NDArray, "wait_to_read"), (mx.nd, "waitall")):
            self._patch(owner, name, self._timed(getattr(owner, name), name))
        self._patch(mx.autograd, "record", self._told(mx.autograd.record))
        return self

    def _patch(self, owner: Any, name: str, by: Any) -> None:
        self._patched.append((owner, name, getattr(owner, name)))
        setattr(owner, name, by)

    def _told(self, record: Callable[..., Any]) -> Callable[..., Any]:
        def told(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == self._thread:
                self._begins()
            return record(*arguments, **named)

        return told

    def __exit__(self, *_: object) -> None:
        while self._patched:
            owner, name, original = self._patched.pop()
            setattr(owner, name, original)

    def take_seconds(self) -> float:
        """Of all lines together since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def take(self, folder: str = "") -> list[tuple[str, float, int]]:
        """``file:line name()``, seconds and calls since the last call, longest first; files as seen from a folder."""
        found = sorted(self._lines.items(), key=lambda item: -item[1][0])[:MOST]
        self._lines = {}
        return [
            (f"{file.removeprefix(folder + os.sep)}:{line} {_NAMES.get(name, name)}()", seconds, int(calls))
            for (file, line, name), (seconds, calls) in found
        ]

    def _timed(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread or not self._counts():
                return original(*arguments, **named)
            began = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                self._add(time.perf_counter() - began, name, sys._getframe(1))

        return timed

    def _add(self, seconds: float, name: str, caller: FrameType | None) -> None:
        while caller is not None and caller.f_code.co_filename.startswith(_OF_MXNET):  # asscalar() calls asnumpy()
            name, caller = caller.f_code.co_name, caller.f_back
        if caller is None or caller.f_code.co_filename.startswith(_OF_RAYMX):
            return
        entry = self._lines.setdefault((caller.f_code.co_filename, caller.f_lineno, name), [0.0, 0])
        self._seconds += seconds
        entry[0] += seconds
        entry[1] += 1
