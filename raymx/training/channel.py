"""The line between a worker's loop, in its own thread, and the trial. Pure Python: no ray, no mxnet.

The loop posts events and, while it waits for the answer, carries out the trial's commands in its own thread, so all of
MXNet's work of a worker stays in one thread.
"""

from __future__ import annotations

import queue
import threading
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
        self._lock = threading.Lock()
        self._count = 0
        self.moves = 0      # grows whenever the loop does something: a watcher sees that it does not stand still

    def ask(self, kind: str, payload: Any = None) -> Any:
        """Post an event and wait for its answer, doing what the trial commands meanwhile."""
        self._events.put(Event(kind, self._count, payload))
        while True:
            name, argument, future = self._commands.get()
            self.moves += 1
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

    def boundary(self, payload: Any = None) -> bool:
        """A place between two steps: waits here when the trial holds the loop, else returns at once. Whether it did."""
        self._count += 1
        self.moves += 1
        held = False
        while self._hold_from is not None and self._count >= self._hold_from:
            self._wait("held", payload)
            held = True
        return held

    def report(self, payload: Any) -> None:
        """Hand over a result and wait until the trial goes on."""
        self._count += 1
        self._wait("report", payload)

    def _wait(self, kind: str, payload: Any) -> None:
        """Its answer is the count from which to hold next, or None."""
        self._hold_from = None
        following = self.ask(kind, payload)
        if following is not None:
            self.hold(following)

    def next_event(self) -> Event:
        return self._events.get()

    def command(self, name: str, argument: Any = None) -> Any:
        """Have the waiting loop do ``name``; its result or exception."""
        future: Future[Any] = Future()
        self._commands.put((name, argument, future))
        return future.result()

    def hold(self, count: int = 0) -> None:
        """Hold the loop at its first boundary from report number ``count`` on, if that comes before its next result.

        Of several calls the lowest count is kept.
        """
        with self._lock:
            self._hold_from = count if self._hold_from is None else min(count, self._hold_from)
