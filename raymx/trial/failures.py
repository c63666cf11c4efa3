"""What happens to a run, in words and as `raymx.cluster.scaling_policy` wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raymx.cluster import stacks
from raymx.cluster.generation import Generation
from raymx.cluster.scaling_policy import Decision, Failure, History
from raymx.errors import KVStoreError, RaymxError, RoleLost, StallError, TrainingError

STACK_TIMEOUT_S = 5.0


class Leave(KVStoreError):
    """The trial gives up its place in the cluster; Tune then places it anew."""


def failure_of(error: RaymxError, node_is_gone: bool, trained: bool) -> Failure:
    """The failure that an error stands for.

    A KVStore that could not be formed is the cluster's doing once it has worked before.
    """
    if isinstance(error, RoleLost) or (isinstance(error, KVStoreError) and trained):
        return Failure("node" if node_is_gone else "process", str(error))
    if isinstance(error, StallError):
        return Failure("stall", str(error))
    return Failure("error", str(error), error.place if isinstance(error, TrainingError) else None)


def final(error: RaymxError, reason: str) -> RaymxError:
    """The error that ends the run, with why it is the last one."""
    if reason.startswith("it came before"):
        return error
    first, _, rest = str(error).partition("\n")
    return type(error)(f"{first} ({reason})" + ("\n" + rest if rest else ""))


def line(decision: Decision, before: int, now: int, took_s: float) -> str:
    """What changed, why, and how long it took."""
    words = {
        "grow": f"grew from {before} to {_workers(now)}",
        "shrink": f"shrank from {before} to {_workers(now)}",
        "restart": f"went on with {_workers(now)}",
    }.get(decision.action, f"started with {_workers(now)}")
    return f"{decision.reason}: {words} in {took_s:.1f} s"


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def history(before: Mapping[str, Any]) -> History:
    """The history that a trial's process posted before it died, or a new one."""
    known = dict(before.get("history", {}))
    last = known.pop("last", None)
    if last:
        last["place"] = tuple(last["place"]) if last["place"] else None
    return History(**known, last=Failure(**last) if last else None)


def stalled(ranks: list[int], timeout_s: float, where: str) -> StallError:
    """The error of loops that stand still; ``where`` are the stacks."""
    who = " and ".join(f"worker {rank}" for rank in ranks)
    return StallError(
        f"{who} did not move for {timeout_s:g} s (failures.stall_timeout_s); the stacks of all workers {where}"
    )


def stacks_of(generation: Generation) -> str:
    """What all threads of all workers do, as text."""
    return "\n\n".join(f"=== worker {rank}\n{_stack(rank, generation)}" for rank in range(len(generation.workers)))


def _stack(rank: int, generation: Generation) -> str:
    try:
        return str(ray.get(generation.workers[rank].stacks.remote(), timeout=STACK_TIMEOUT_S))
    except RayError:  # it holds the interpreter's lock, or is stopped: look from outside
        pid = generation.progress.get(rank, {}).get("pid")
        if pid is None:
            return "it does not answer"
        assignment = generation.assignments[rank]
        there = PlacementGroupSchedulingStrategy(assignment.placement_group, assignment.bundle)
        task: Any = ray.remote(stacks.of_process)
        found = task.options(num_cpus=0, scheduling_strategy=there).remote(pid)
        try:
            return f"it does not answer; from outside:\n{ray.get(found, timeout=3 * STACK_TIMEOUT_S)}"
        except RayError as error:
            return f"it does not answer ({error})"
