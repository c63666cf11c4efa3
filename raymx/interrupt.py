"""Ctrl-C, from the first line of a run to its last."""

from __future__ import annotations

import signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """A context in which SIGINT and SIGTERM are noted once somebody listens; else, and the second time, they end all.

    A run's `raymx.watch.Watch` listens while there may be something to save.
    """

    def __init__(self) -> None:
        self.requested = False
        self.listened_to = False

    def __enter__(self) -> Interrupt:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.requested or not self.listened_to:
            raise KeyboardInterrupt
        self.requested = True
