"""Which nodes can be used: alive, reachable and not about to go."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group_table,
)

from raymx import _ray
from raymx.cluster.placement import NodeResources

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
            _ray.draining_nodes(),
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
