"""Which nodes can be used: alive, reachable and not about to go."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group_table,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raymx import _ray
from raymx.cluster.placement import NodeResources
from raymx.experiment import this_machine
from raymx.experiment.mxnet_gpus import has_code_for_type

PROBE_TIMEOUT_S = 1.0
ABILITIES_TIMEOUT_S = 20.0

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


def cluster_nodes(*, processors: bool = False) -> list[NodeResources]:
    """What each node has that lives. ``processors``: ask each for its processor too, which takes a process there."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    avx512 = _has_avx512([node["NodeID"] for node in alive]) if processors else {}
    return [
        NodeResources(
            node["NodeManagerAddress"],
            node["Resources"].get("CPU", 0),
            node["Resources"].get("GPU", 0),
            avx512.get(node["NodeID"]),
            unusable_gpus(node["Resources"]),
        )
        for node in alive
    ]


def unusable_gpus(resources: Mapping[str, float]) -> str:
    """The types of GPUs in a node's resources that MXNet has no code for, as Ray names them."""
    types = (name.partition(":")[2] for name in resources if name.startswith("accelerator_type:"))
    return ", ".join(name for name in types if not has_code_for_type(name))


def _has_avx512(nodes: Sequence[str]) -> dict[str, bool | None]:
    """By node, of those that answer in time."""
    ask = ray.remote(num_cpus=0, max_retries=0)(this_machine.has_avx512)
    here = ray.get_runtime_context().get_node_id()
    asked = {
        node: ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for node in nodes
        if node != here
    }
    return {here: this_machine.has_avx512(), **(_answers(asked) if asked else {})}


def _answers(asked: Mapping[str, Any]) -> dict[str, bool | None]:
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=ABILITIES_TIMEOUT_S)
    found: dict[str, bool | None] = {}
    for node, reference in asked.items():
        with contextlib.suppress(ray.exceptions.RayError):
            found[node] = ray.get(reference) if reference in ready else None
    return found


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
