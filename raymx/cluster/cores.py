"""Disjoint cores for the roles on a machine, whichever trial or Ray they belong to.

A role holds a core by a name in Linux's abstract socket namespace, which one process at a time can bind. The kernel
frees it when the process ends, however it ends: there is no file to clean up and no list to keep.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

_held: list[socket.socket] = []  # a name is held as long as its socket


def claim(count: int, allowed: Iterable[int], prefix: str = "raymx-core") -> list[int]:
    """``count`` of the ``allowed`` cores that no other role holds, in order; [] when so many are not free."""
    taken: list[tuple[int, socket.socket]] = []
    for core in sorted(allowed):
        if len(taken) == count:
            break
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0{prefix}-{core}")
            taken.append((core, name))
        except OSError:
            name.close()
    if len(taken) < count:
        for _, name in taken:
            name.close()
        return []
    _held.extend(name for _, name in taken)
    return [core for core, _ in taken]


def when_idle(action: Callable[[], None]) -> None:
    """Do it in a thread to which Linux gives only what no other wants of the cores.

    So are the threads that it starts, and nobody but root can change that later: what starts threads that the process
    is to use, such as MXNet's engine, must not be done here.
    """
    done: Future[None] = Future()

    def run() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        try:
            action()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="when idle", daemon=True).start()
    done.result()


def thread_env(threads: int, cores: list[int]) -> dict[str, str]:
    """OpenMP's settings for a role; libgomp reads them once, when MXNet is imported.

    MXNet's wheel links libgomp, so the placement is OMP_PLACES and OMP_PROC_BIND; KMP_AFFINITY would do nothing.
    """
    env = {"OMP_NUM_THREADS": str(threads)}
    if cores:
        env |= {"OMP_PLACES": ",".join(f"{{{core}}}" for core in cores), "OMP_PROC_BIND": "close"}
    return env
