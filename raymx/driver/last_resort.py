"""The end of a run that got a signal together with all its processes, as SLURM, systemd and a closed terminal send it.

Ray is gone then: nothing can be saved, and what waits for Ray would wait for a minute and leave processes. So a thread,
which hears of signals also while the main one is inside Ray, looks whether Ray still answers, and ends everything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from raymx.cli.exit import EXIT_SIGNAL
from raymx.experiment import code_copy

GONE_S = 5.0  # so long Ray must have been away
LONGEST_S = 55.0  # for SIGTERM and SIGHUP: their senders have SIGKILL ready soon after
EVERY_S = 0.5
PROBE_TIMEOUT_S = 2.0

_MARK = "RAYMX_STARTED_BY"
_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def mark() -> None:
    """Have all processes that this one starts from now on carry its mark, so that none can stay."""
    os.environ[_MARK] = f"{os.getpid()}-{uuid.uuid4().hex}"


def must_end(number: int, since_signal_s: float, ray_gone_s: float) -> bool:
    """Whether it is time to end everything. Pure."""
    return ray_gone_s >= GONE_S or (number != signal.SIGINT and since_signal_s >= LONGEST_S)


class LastResort:
    """A context; ``is_there`` tells whether Ray answers, and ``end`` ends everything for a signal's number."""

    def __init__(self, is_there: Callable[[], bool], end: Callable[[int], None], every_s: float = EVERY_S) -> None:
        self._is_there, self._end, self._every_s = is_there, end, every_s
        self._left = threading.Event()
        self._heard, self._told = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="raymx-last-resort")

    def __enter__(self) -> LastResort:
        self._told.setblocking(False)
        self._before = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before)
        self._left.set()
        with contextlib.suppress(OSError):
            self._told.send(b"\0")
        self._thread.join()
        self._heard.close()
        self._told.close()

    def _watch(self) -> None:
        number = self._next_signal()
        began, gone_since = time.monotonic(), 0.0
        while not self._left.wait(self._every_s):
            there, now = self._is_there(), time.monotonic()
            gone_since = 0.0 if there else gone_since or now
            if must_end(number, now - began, now - gone_since if gone_since else 0.0):
                self._end(number)
                return

    def _next_signal(self) -> int:
        while not self._left.is_set():
            for number in self._heard.recv(64):
                if number in _WATCHED:
                    return number
        return 0


def answers(address: str) -> bool:
    """Whether somebody listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()
        return True
    return False


def end_all(number: int, resume: str) -> NoReturn:
    """End what this process has started, and itself; ``resume`` is the command with which the run goes on."""
    name = signal.Signals(number).name
    with contextlib.suppress(OSError):  # a terminal that was closed
        sys.stderr.write(f"raymx: ended by {name}, and Ray with it; go on with  {resume}\n")
        sys.stderr.flush()
    for _ in range(2):  # those that were starting others just then too
        for process in _marked():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
    code_copy.remove_all()
    os._exit(EXIT_SIGNAL + number)


def _marked() -> Iterator[int]:
    """The processes with this one's mark; none when the mark in the environment is another's."""
    mine = os.environ.get(_MARK, "")
    if not mine.startswith(f"{os.getpid()}-"):
        return
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and f"{_MARK}={mine}".encode() in (folder / "environ").read_bytes():
                yield int(folder.name)
