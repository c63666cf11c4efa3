"""The line between a worker's loop, in its own thread, and the trial. Pure Python: no ray, no mxnet.

The loop posts events and, while it waits for the answer, carries out the trial's commands in its own thread, so all of
MXNet's work of a worker stays in one thread.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """What a loop tells the trial. ``count`` is the number of report() calls so far, the same in every worker."""

    kind: str
    count: int
    payload: Any = None


class LoopEnded(BaseException):
    """Raised inside the loop to end it. No Exception, so that a user's ``except Exception`` does not catch it."""


class Channel:
    """`ask`, `boundary` and `report` are for the loop; `next_event`, `command` and `hold` for another thread."""

    def __init__(self, handlers: Mapping[str, Callable[[Any], Any]]) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        self._commands: queue.Queue[tuple[str, Any, Future[Any]]] = queue.Queue()
        self._handlers = handlers
        self._hold_from: int | None = None
        self._count = 0

    def ask(self, kind: str, payload: Any = None) -> Any:
        """Post an event and wait for its answer, doing what the trial commands meanwhile."""
        self._events.put(Event(kind, self._count, payload))
        while True:
            name, argument, future = self._commands.get()
            if name == "answer":
                future.set_result(None)
                return argument
            if name == "end":
                future.set_result(None)
                raise LoopEnded
            try:
                future.set_result(self._handlers[name](argument))
            except Exception as error:
                future.set_exception(error)

    def boundary(self, payload: Any = None) -> None:
        """A place between two steps: waits here when the trial holds the loop, else returns at once."""
        self._count += 1
        while self._hold_from is not None and self._count >= self._hold_from:
            self._hold_from = self.ask("held", payload)

    def report(self, payload: Any) -> None:
        """Hand over a result and wait until the trial goes on."""
        self._count += 1
        self._hold_from = None
        self.ask("report", payload)

    def next_event(self) -> Event:
        return self._events.get()

    def command(self, name: str, argument: Any = None) -> Any:
        """Have the waiting loop do ``name``; its result or exception."""
        future: Future[Any] = Future()
        self._commands.put((name, argument, future))
        return future.result()

    def hold(self) -> None:
        """Hold the loop at its next boundary. Its "held" event's answer is the count to hold at next, or None."""
        self._hold_from = 0
