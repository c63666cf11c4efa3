"""Disjoint cores for the roles on a node, whichever trials they belong to.

A role holds a core by an exclusive lock on a file in its Ray session's folder. The kernel drops the lock when the
process ends, however it ends, so there is nothing to clean up and no list to keep.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable

_held: list[int] = []       # file descriptors: a lock lasts as long as its descriptor


def claim(count: int, allowed: Iterable[int], folder: str) -> list[int]:
    """Up to ``count`` of the ``allowed`` cores that no other role holds; all ``count`` or none."""
    os.makedirs(folder, exist_ok=True)
    taken: list[tuple[int, int]] = []
    for core in sorted(allowed):
        if len(taken) == count:
            break
        descriptor = os.open(os.path.join(folder, str(core)), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken.append((core, descriptor))
        except OSError:
            os.close(descriptor)
    if len(taken) < count:
        for _, descriptor in taken:
            os.close(descriptor)
        return []
    _held.extend(descriptor for _, descriptor in taken)
    return [core for core, _ in taken]


def thread_env(threads: int, cores: list[int]) -> dict[str, str]:
    """OpenMP's settings for a role; libgomp reads them once, when MXNet is imported.

    MXNet's wheel links libgomp, so the placement is OMP_PLACES and OMP_PROC_BIND; KMP_AFFINITY would do nothing.
    """
    env = {"OMP_NUM_THREADS": str(threads)}
    if cores:
        env |= {"OMP_PLACES": ",".join(f"{{{core}}}" for core in cores), "OMP_PROC_BIND": "close"}
    return env
