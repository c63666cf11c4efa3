"""Which nodes can be used: alive, reachable and not about to go. And the slots: placement groups of one bundle each."""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray._private.state import state as cluster_state
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from raymx.cluster.placement import NodeResources

SLOT_NAME = "raymx-slot-"
PROBE_TIMEOUT_S = 1.0

Condition = Literal["ready", "lost", "draining", "pending"]


@dataclass(frozen=True)
class Nodes:
    """The nodes of the cluster at one moment, by id."""

    addresses: Mapping[str, str]  # of those alive
    resources: Mapping[str, Mapping[str, float]]
    draining: frozenset[str]

    @staticmethod
    def now(probe: Iterable[str] = ()) -> Nodes:
        """Ask Ray; those named in ``probe`` only when they can be reached.

        Ray notices a machine whose processes were killed after some ten seconds, and a pulled cable after a minute.
        """
        probed = set(probe)
        alive = {
            node["NodeID"]: node
            for node in ray.nodes()
            if node["Alive"] and (node["NodeID"] not in probed or _reachable(node))
        }
        return Nodes(
            {name: node["NodeManagerAddress"] for name, node in alive.items()},
            {name: node["Resources"] for name, node in alive.items()},
            frozenset(cluster_state.get_draining_nodes()),
        )

    def memory_bytes(self, node: str) -> float:
        return self.resources.get(node, {}).get("memory", 0.0)

    def could_hold(self, bundle: Mapping[str, float]) -> bool:
        """Whether a bundle would fit on one of them if it were empty."""
        return any(
            all(have.get(name, 0.0) >= amount for name, amount in bundle.items()) for have in self.resources.values()
        )

    def condition(self, node: str) -> Condition:
        if not node:
            return "pending"
        return "lost" if node not in self.addresses else "draining" if node in self.draining else "ready"


def cluster_nodes() -> list[NodeResources]:
    """What each node has that lives."""
    return [
        NodeResources(node["NodeManagerAddress"], node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0))
        for node in ray.nodes()
        if node["Alive"]
    ]


def _reachable(node: Mapping[str, Any]) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), PROBE_TIMEOUT_S).close()
        return True
    return False


def bundle_nodes(group: PlacementGroup) -> list[str]:
    """The id of each bundle's node, "" for one that is not placed."""
    return _placed(group)[1]


def _placed(group: PlacementGroup) -> tuple[str, list[str]]:
    table = placement_group_table(group)
    state, nodes = table.get("state", ""), table.get("bundles_to_node_id", {})
    placed = state in ("CREATED", "RESCHEDULING")
    return state, [nodes.get(i, "") if placed else "" for i in range(group.bundle_count)]


def condition(group: PlacementGroup, nodes: Nodes) -> Condition:
    """Of a whole group: the worst of its bundles; one that Ray is placing anew is lost until then."""
    state, placed = _placed(group)
    found = {nodes.condition(node) for node in placed} | ({"lost"} if state == "RESCHEDULING" else set())
    return next((one for one in ("lost", "pending", "draining") if one in found), "ready")


class Slots:
    """Placement groups for one more worker each. Pending ones are what an autoscaler sees.

    Ray removes them when the job ends, but not when this process does: `remove_slots` is for that. One that was on a
    lost node is to be given back: as long as Ray (2.60) places a group anew for which there is no room, its GCS and an
    agent turn without a pause.
    """

    def __init__(self, owner: str, bundle: Mapping[str, float], count: int) -> None:
        """``owner``: the name of the trial, for `remove_slots`."""
        self.count, self._owner = count, owner
        self._bundle = dict(bundle)
        self._groups: list[PlacementGroup] = []
        self._others_since = 0.0

    @property
    def groups(self) -> tuple[PlacementGroup, ...]:
        """All that were asked for, placed or not."""
        return tuple(self._groups)

    def request(self) -> None:
        """Ask for those that are missing."""
        while len(self._groups) < self.count:
            name = f"{SLOT_NAME}{self._owner}/{uuid.uuid4().hex}"  # Ray wants each to have its own
            self._groups.append(placement_group([self._bundle], strategy="PACK", name=name))

    def look(self, nodes: Nodes) -> dict[PlacementGroup, Condition]:
        return {group: condition(group, nodes) for group in self._groups}

    def release(self, groups: Iterable[PlacementGroup] | None = None) -> None:
        """Give these back to the cluster, or all."""
        for group in list(self._groups if groups is None else groups):
            with contextlib.suppress(RayError):
                remove_placement_group(group)
            self._groups.remove(group)

    def others_wait_s(self, own: PlacementGroup, nodes: Nodes) -> float:
        """For how long anybody's placement group that is no slot has been waiting for room, which there could be."""
        waiting = any(
            table["state"] in ("PENDING", "RESCHEDULING")
            and not table["name"].startswith(SLOT_NAME)
            and table["placement_group_id"] != own.id.hex()
            and all(map(nodes.could_hold, table["bundles"].values()))
            for table in placement_group_table().values()
        )
        now = time.monotonic()
        self._others_since = (self._others_since or now) if waiting else 0.0
        return now - self._others_since if waiting else 0.0


def remove_slots(owner: str) -> None:
    """Give back what a trial's process left when it died: the trial itself may need the room."""
    for table in placement_group_table().values():
        if table["name"].startswith(f"{SLOT_NAME}{owner}/") and table["state"] != "REMOVED":
            with contextlib.suppress(RayError, ValueError):  # gone already
                remove_placement_group(get_placement_group(table["name"]))
