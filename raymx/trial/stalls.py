"""Loops that stand still: their node is gone, or the run has a stall, which is told with the stacks of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raymx.cluster import stacks
from raymx.cluster.generation import Generation
from raymx.cluster.stall import StallWatch
from raymx.errors import RoleLost, StallError
from raymx.storage import FILE_ERRORS, Location, reason

SILENT_S = 10.0  # loops that stand still for so long: can their nodes still be reached?
STACK_TIMEOUT_S = 5.0


class StallMonitor:
    """Looks at the loops of one generation; ``timeout_s`` is failures.stall_timeout_s."""

    def __init__(self, timeout_s: float, location: Location) -> None:
        """``location`` is the trial's folder, for stacks."""
        self._timeout_s, self._location = timeout_s, location
        self._stall, self._silence = StallWatch(timeout_s), StallWatch(SILENT_S)

    def check(self, generation: Generation, unreachable: Callable[[], list[str]]) -> None:
        """Raise RoleLost when a node cannot be reached any more, StallError for a loop that stood still for too long.

        ``unreachable`` asks for the addresses of such nodes.
        """
        heartbeats = {rank: said["heartbeat"] for rank, said in generation.progress.items()}
        waiting, count, now = generation.waiting(), len(generation.workers), time.monotonic()
        if self._silence.look(heartbeats, waiting, count, now):
            self._silence = StallWatch(SILENT_S)  # asked again after as long
            if gone := unreachable():
                raise RoleLost(f"{' and '.join(gone)} cannot be reached any more", nodes=tuple(gone))
        still = self._stall.look(heartbeats, waiting, count, now)
        if still:
            raise stalled(still, self._timeout_s, _keep(stacks_of(generation), self._location))


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


def _keep(text: str, folder: Location) -> str:
    """Write stacks into the trial's folder; where they are, in words."""
    file = folder / f"stacks_{time.strftime('%H-%M-%S')}.txt"
    try:
        file.write(text.encode())
    except FILE_ERRORS as error:
        return f"could not be written to {file.path} ({reason(error)}):\n{text}"
    return f"are in {file.path}"
