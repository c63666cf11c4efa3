"""Ctrl-C, from the first line of a run to its last."""

from __future__ import annotations

import signal
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """A context in which SIGINT and SIGTERM are noted once somebody listens; else, and the second time, they end all.

    A run's `raymx.driver.monitor.Monitor` listens while there may be something to save.
    """

    def __init__(self) -> None:
        self.requested = False
        self._listened_to = False

    def __enter__(self) -> Interrupt:
        self._before = self._install()
        return self

    def listen(self, listening: bool) -> None:
        """From now on somebody looks at ``requested``, or nobody does."""
        self._listened_to = listening
        self._install()  # again: ray.init takes SIGTERM for itself

    def _install(self) -> dict[int, Any]:
        return {number: signal.signal(number, self._on_signal) for number in _SIGNALS}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.requested or not self._listened_to:
            raise KeyboardInterrupt
        self.requested = True
