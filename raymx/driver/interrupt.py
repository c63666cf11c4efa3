"""Ctrl-C, from the first line of a run to its last; SIGTERM and SIGHUP are taken for it."""

from __future__ import annotations

import signal
from typing import Any

from raymx.cli.exit import EXIT_INTERRUPTED, EXIT_SIGNAL, Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """A context in which such signals are noted once somebody listens; else, and the second time, they end all.

    A run's `raymx.driver.monitor.Monitor` listens while there may be something to save. A SIGHUP that was ignored
    before, as nohup has it, still is.
    """

    def __init__(self) -> None:
        self.requested = False
        self.number = signal.SIGINT  # of the signal that requested it
        self._listened_to = False

    def __enter__(self) -> Interrupt:
        self._taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = self._install()
        return self

    def listen(self, listening: bool) -> None:
        """From now on somebody looks at ``requested``, or nobody does."""
        self._listened_to = listening
        self._install()  # again: ray.init takes SIGTERM for itself

    @property
    def code(self) -> int:
        """The exit code of a run that saved and ended."""
        return _code(self.number)

    def _install(self) -> dict[int, Any]:
        return {number: signal.signal(number, self._on_signal) for number in self._taken}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.requested or not self._listened_to:
            raise Interrupted(_code(number))
        self.requested, self.number = True, signal.Signals(number)


def _code(number: int) -> int:
    """SIGTERM is how a submitted run is stopped, and counts as Ctrl-C."""
    return EXIT_SIGNAL + signal.SIGHUP if number == signal.SIGHUP else EXIT_INTERRUPTED
