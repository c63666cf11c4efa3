"""Which other jobs wait for room, so that a sweep leaves them some between two trials."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import ray
from ray._private.state import state as cluster_state
from ray.core.generated import gcs_pb2
from ray.experimental import internal_kv

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
    internal_kv._internal_kv_put(_own_job(), str(priority).encode(), overwrite=True, namespace=_NAMESPACE)


def _own_job() -> bytes:
    return bytes(ray.get_runtime_context().get_job_id().encode())


def _others() -> list[Waiting]:
    accessor, nodes, own = cluster_state._connect_and_get_accessor(), Nodes.now(), _own_job()
    now_ms, found = time.time() * 1000, []
    for data in accessor.get_placement_group_table():
        group = gcs_pb2.PlacementGroupTableData.FromString(data)
        job = group.creator_job_id.hex().encode()
        waits = group.state == gcs_pb2.PlacementGroupTableData.PENDING and not group.name.startswith(SLOT_NAME)
        if waits and job != own and all(nodes.could_hold(dict(bundle.unit_resources)) for bundle in group.bundles):
            priority = internal_kv._internal_kv_get(job, namespace=_NAMESPACE)
            found.append(Waiting(int(priority or 0), (now_ms - group.placement_group_creation_timestamp_ms) / 1000))
    return found
