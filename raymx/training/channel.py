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
    """What a loop tells the trial. ``count`` is the number of report() calls so far, the same in every worker.

    ``met`` is that of the operations so far which need all workers: updates of a sync store, and its barriers.
    """

    kind: str
    count: int
    payload: Any = None
    met: int = 0


class LoopEnded(BaseException):
    """Raised inside the loop to end it. No Exception, so that a user's ``except Exception`` does not catch it."""


class Channel:
    """`ask`, `boundary` and `report` are for the loop; `next_event`, `command` and `hold` for another thread."""

    def __init__(self, handlers: Mapping[str, Callable[[Any], Any]]) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        self._commands: queue.Queue[tuple[str, Any, Future[Any]]] = queue.Queue()
        self._handlers = handlers
        self._holds: list[tuple[int, int]] = []  # (how many answers it came after, the count to hold from)
        self._answered = 0  # answers to "held" and "report"
        self._lock = threading.Lock()
        self._count = 0
        self.met = 0  # operations begun that need all workers
        self.heartbeat = 0  # grows whenever the loop does something: a watcher sees that it does not stand still

    def ask(self, kind: str, payload: Any = None) -> Any:
        """Post an event and wait for its answer, doing what the trial commands meanwhile."""
        self._events.put(Event(kind, self._count, payload, self.met))
        while True:
            name, argument, future = self._commands.get()
            self.heartbeat += 1
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

    def boundary(self, payload: Any = None, *, may_wait: bool = True) -> bool:
        """Between two steps: waits here when the trial holds the loop, else returns at once. Whether it did.

        Not where it may not wait: then a report comes next in all workers.
        """
        self._count += 1
        self.heartbeat += 1
        held = False
        while may_wait and self._is_held():
            self._wait("held", payload)
            held = True
        return held

    def _is_held(self) -> bool:
        with self._lock:
            return any(self._count >= count for _, count in self._holds)

    def report(self, payload: Any) -> None:
        """Hand over a result and wait until the trial goes on."""
        self._count += 1
        self._wait("report", payload)

    def _wait(self, kind: str, payload: Any) -> None:
        """Its answer is the count from which to hold next, or None, instead of what was asked for before it."""
        following = self.ask(kind, payload)
        with self._lock:
            self._answered += 1
            self._holds = [hold for hold in self._holds if hold[0] >= self._answered]
            if following is not None:
                self._holds.append((self._answered, following))

    def next_event(self) -> Event:
        return self._events.get()

    def command(self, name: str, argument: Any = None) -> Any:
        """Have the waiting loop do ``name``; its result or exception."""
        future: Future[Any] = Future()
        self._commands.put((name, argument, future))
        return future.result()

    def hold(self, count: int = 0, after: int = 0) -> None:
        """Hold the loop at its first boundary from report number ``count`` on, if that comes before its next result.

        ``after`` says how many answers to "held" and "report" were sent before it: it is void once there is another.
        """
        with self._lock:
            if after >= self._answered:
                self._holds.append((after, count))
