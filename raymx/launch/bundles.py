"""The one placement group of a script's roles. Pure: no ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raymx.cluster import placement
from raymx.cluster.placement import NodeResources
from raymx.errors import PlacementError
from raymx.launch.script import Script
from raymx.text.words import count

KVSTORE_SCHEDULER = "KVStore scheduler"


@dataclass(frozen=True)
class Seat:
    """A role: ``kind`` as DMLC_ROLE has it, its number of that kind, its bundle, and what it asks for."""

    kind: str
    index: int
    bundle: int
    cpus: float
    gpus: float = 0.0

    @property
    def name(self) -> str:
        return KVSTORE_SCHEDULER if self.kind == "scheduler" else f"{self.kind} {self.index}"


def seats(script: Script) -> tuple[Seat, ...]:
    """All roles, the KVStore scheduler first. A script without servers has no store that needs one.

    Servers sit beside workers, so that both halves of the traffic are spread over the nodes; the KVStore scheduler,
    which does nothing once the store is formed, asks for no CPU.
    """
    workers = [Seat("worker", at, at, script.cpus_per_worker, script.gpus_per_worker) for at in range(script.workers)]
    servers = [Seat("server", at, at % script.workers, script.cpus_per_server) for at in range(script.num_servers)]
    first = [Seat("scheduler", 0, 0, 0.0)] if servers else []
    return (*first, *servers, *workers)


def bundles(script: Script) -> tuple[dict[str, float], ...]:
    """One a worker, with the servers beside it."""
    found: list[dict[str, float]] = [{"CPU": 0.0} for _ in range(script.workers)]
    for seat in seats(script):
        found[seat.bundle]["CPU"] += seat.cpus
        if seat.gpus:
            found[seat.bundle]["GPU"] = seat.gpus
    return tuple(found)


def cpus(script: Script) -> float:
    return sum(bundle["CPU"] for bundle in bundles(script))


def gpus(script: Script) -> float:
    return sum(bundle.get("GPU", 0.0) for bundle in bundles(script))


def needs(script: Script) -> str:
    """What the roles ask for, in words."""
    worker = f"{script.cpus_per_worker:g} CPU" + (
        f" and {script.gpus_per_worker:g} GPU" if script.gpus_per_worker else ""
    )
    told = f"{count(script.workers, 'worker')} with {worker} each"
    if script.num_servers:
        told += f", {count(script.num_servers, 'server')} with {script.cpus_per_server:g} CPU each beside them"
    return told


def check_fit(script: Script, nodes: Sequence[NodeResources]) -> None:
    """Raise PlacementError, with what would fit, when the cluster's nodes cannot hold the roles even when empty."""
    if placement.holds(bundles(script), nodes):
        return
    fewer = (n for n in range(script.workers - 1, 0, -1) if placement.holds(bundles(script)[:n], nodes))
    fitting = next(fewer, 0)
    raise PlacementError(
        f"the cluster cannot hold {needs(script)}; it has {placement.nodes_in_words(nodes)}: "
        + (f"give -n {fitting}, or " if fitting else "")
        + "lower --cpus-per-worker, --cpus-per-server or --gpus-per-worker, or give fewer servers with -s; a worker "
        "and the servers beside it must fit on one node"
    )
