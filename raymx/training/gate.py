"""One step that MXNet's engine may not begin before all of it is queued: how long it takes by itself.

Where Python queues operators no faster than they are computed, that tells what would be left of a step if queueing took
no time, as with a hybridized net. The gate is an operator that writes the weights, so to say, until it is opened: what
reads them waits. A loop that itself waits for the step in the middle of it would never open it, so a timer does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from raymx.kvstore import engine

LONGEST_S = 0.5


class Gate:
    """Closed when made, before the first operator of a step is queued."""

    def __init__(self, weights: Sequence[Any], longest_s: float) -> None:
        """``longest_s``: when it opens by itself."""
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None  # once its turn has come
        self._open_at: float | None = None
        self._begun_at: float | None = None
        self.was_forced = False
        self._timer = threading.Timer(min(longest_s, LONGEST_S), self._force)
        self._timer.daemon = True
        self._timer.start()
        engine.hold(self._begun, "raymx_gate", (), weights)

    def open(self) -> None:
        """All is queued."""
        self._timer.cancel()
        self._opened()

    @property
    def since(self) -> float | None:
        """When the engine could begin, by ``time.perf_counter``; None where it was not yet, or began too early."""
        if self.was_forced or self._open_at is None or self._begun_at is None:
            return None
        return max(self._open_at, self._begun_at)

    def _force(self) -> None:
        self.was_forced = True
        self._opened()

    def _begun(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._begun_at = time.perf_counter()
            is_open = self._open_at is not None
            self._end = None if is_open else end
        if is_open:
            end()

    def _opened(self) -> None:
        with self._lock:
            if self._open_at is not None:
                return
            self._open_at = time.perf_counter()
            end, self._end = self._end, None
        if end is not None:
            end()
