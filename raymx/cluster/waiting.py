"""Which jobs wait for room and which hold it: a sweep leaves others some between two trials, and a user is told."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import ray

from raymx import _ray
from raymx._ray import PlacementGroupRow
from raymx.cluster.nodes import Nodes
from raymx.cluster.slots import SLOT_NAME

_NAMESPACE = b"raymx-priority"
_TOLD = ("CPU", "GPU")
_LEAST = 0.01  # of a CPU or a GPU: below that it is rounding


@dataclass(frozen=True)
class Waiting:
    """A placement group of another job that is not placed."""

    priority: int
    waited_s: float


def must_yield(priority: int, after_s: float) -> bool:
    """Whether a sweep of this priority is to give up its place, now that it is between two trials."""
    return decide(priority, after_s, _others())


def anybody_waits() -> bool:
    """Whether a placement group of another job is not placed yet."""
    return bool(_others())


def decide(priority: int, after_s: float, others: Iterable[Waiting]) -> bool:
    """At once for a higher priority, once it has waited ``after_s`` for an equal one, never for a lower one. Pure."""
    return any(
        other.priority > priority or (other.priority == priority and other.waited_s >= after_s) for other in others
    )


def announce(priority: int, run: str) -> None:
    """Tell other sweeps this job's priority, and other runs its name; jobs that say none have 0, and their number."""
    _ray.put_value(_NAMESPACE, _own_job().encode(), str(priority).encode())
    _ray.put_value(_NAMESPACE, _name_key(_own_job()), run.encode())


def own_wait() -> str | None:
    """What is free and who holds the rest, in words, while a placement group of this job has no room; else None."""
    groups, own = _ray.placement_groups(), _own_job()
    names = {job: _ray.get_value(_NAMESPACE, _name_key(job)) for job in {group.job_id for group in groups}}
    return waits_for(
        groups,
        own,
        {job: name.decode() for job, name in names.items() if name},
        ray.cluster_resources(),
        ray.available_resources(),
    )


def waits_for(
    groups: Sequence[PlacementGroupRow],
    own_job: str,
    names: Mapping[str, str],
    total: Mapping[str, float],
    free: Mapping[str, float],
) -> str | None:
    """The same, of what Ray says; ``names`` of runs by job. Pure."""
    if not any(group.is_pending and group.job_id == own_job and not _is_slot(group) for group in groups):
        return None
    held: dict[str, dict[str, float]] = {}
    for group in groups:
        if group.is_placed:
            who = "this run" if group.job_id == own_job else names.get(group.job_id, f"job {group.job_id}")
            amounts = held.setdefault(who, dict.fromkeys(_TOLD, 0.0))
            for name, bundle in itertools.product(_TOLD, group.bundles):
                amounts[name] += bundle.get(name, 0.0)
    used = {name: total.get(name, 0.0) - free.get(name, 0.0) for name in _TOLD}
    held["tasks and actors"] = {name: used[name] - sum(amounts[name] for amounts in held.values()) for name in _TOLD}
    holders = [f"held by {who}: {amount}" for who, amounts in held.items() if (amount := _in_words(amounts))]
    return "; ".join([f"free now: {_in_words(free) or '0 CPUs'}", *holders])


def _in_words(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amounts[name]:g} {name}s" for name in _TOLD if amounts.get(name, 0.0) > _LEAST)


def _is_slot(group: PlacementGroupRow) -> bool:
    return group.name.startswith(SLOT_NAME)


def _name_key(job: str) -> bytes:
    return f"{job}/run".encode()


def _own_job() -> str:
    return str(ray.get_runtime_context().get_job_id())


def _others() -> list[Waiting]:
    nodes, own, now_ms = Nodes.now(), _own_job(), time.time() * 1000
    return [
        Waiting(int(_ray.get_value(_NAMESPACE, group.job_id.encode()) or 0), (now_ms - group.created_ms) / 1000)
        for group in _ray.placement_groups()
        if group.is_pending and not _is_slot(group)
        if group.job_id != own and all(map(nodes.could_hold, group.bundles))
    ]
