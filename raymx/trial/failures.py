"""What happened to a trial: as a failure for `raymx.cluster.failure_policy`, as its last error, and in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from raymx.cluster.failure_policy import PLAIN, Failure
from raymx.cluster.scaling_policy import Decision
from raymx.errors import (
    KVStoreError,
    LoopError,
    OutOfMemory,
    RaymxError,
    RoleLost,
    StallError,
    TooManyBadRecords,
    TrainingError,
)
from raymx.text.words import count


class Relocation(KVStoreError):
    """The trial gives up its placement group; Tune then places it anew."""


def failure_of(error: RaymxError, node_is_gone: bool, trained: bool) -> Failure:
    """The failure that an error stands for.

    A KVStore that could not be formed is the cluster's doing once it has worked before.
    """
    if isinstance(error, OutOfMemory):
        return Failure("memory", str(error))
    if isinstance(error, RoleLost) or (isinstance(error, KVStoreError) and trained):
        return Failure("node" if node_is_gone else "process", str(error))
    if isinstance(error, StallError):
        return Failure("stall", str(error))
    position = error.position if isinstance(error, TrainingError) else None
    return Failure("error", str(error), position, certain=isinstance(error, (LoopError, TooManyBadRecords)))


def with_roles(error: RaymxError, processes: Mapping[int, str]) -> RaymxError:
    """The error of a lack of memory with the role of the process that has most of it; ``processes``: roles by pid."""
    told = re.search(r"most by process (\d+) ", str(error)) if isinstance(error, OutOfMemory) else None
    role = processes.get(int(told[1])) if told else None
    if not role or not isinstance(error, OutOfMemory):
        return error
    return OutOfMemory(str(error).replace("most by process", f"most by {role}, process"), role=error.role)


def final(error: RaymxError, reason: str) -> RaymxError:
    """The error that ends the run, with why it is the last one."""
    if reason in PLAIN:
        return error
    first, _, rest = str(error).partition("\n")
    return type(error)(f"{first} ({reason})" + ("\n" + rest if rest else ""))


def line(decision: Decision, before: int, now: int, took_s: float) -> str:
    """What changed, why, and how long it took."""
    workers = count(now, "worker")
    words = {
        "grow": f"grew from {before} to {workers}",
        "shrink": f"shrank from {before} to {workers}",
        "restart": f"went on with {workers}",
    }.get(decision.action, f"started with {workers}")
    return f"{decision.reason}: {words} in {took_s:.1f} s"
