"""Which other jobs wait for room, so that a sweep leaves them some between two trials."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import ray

from raymx import _ray
from raymx.cluster.nodes import Nodes
from raymx.cluster.slots import SLOT_NAME

_NAMESPACE = b"raymx-priority"


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


def announce(priority: int) -> None:
    """Tell other sweeps this job's priority; jobs that say none have 0."""
    _ray.put_value(_NAMESPACE, _own_job().encode(), str(priority).encode())


def _own_job() -> str:
    return str(ray.get_runtime_context().get_job_id())


def _others() -> list[Waiting]:
    nodes, own, now_ms = Nodes.now(), _own_job(), time.time() * 1000
    return [
        Waiting(int(_ray.get_value(_NAMESPACE, group.job_id.encode()) or 0), (now_ms - group.created_ms) / 1000)
        for group in _ray.placement_groups()
        if group.is_pending and not group.name.startswith(SLOT_NAME)
        if group.job_id != own and all(map(nodes.could_hold, group.bundles))
    ]
