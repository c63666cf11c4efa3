"""What there is to plan a run with: this machine, or a cluster and what its autoscaler could add."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raymx import _ray
from raymx.cli import machine
from raymx.cluster import abilities, placement
from raymx.cluster.placement import NodeResources
from raymx.errors import ExperimentError, PlacementError
from raymx.experiment import this_machine
from raymx.experiment.loading import ExperimentConfig
from raymx.sweep import plan as sweep_plan
from raymx.sweep.plan import RunPlan
from raymx.text.words import count

SUBMITTED_TO = "127.0.0.1"  # the node's address of a cluster that raymx.submit starts on this machine
LEAST_LIMIT, LIMIT_A_CORE = 64, 16  # logical CPUs of a Ray that is started here: the larger of both


def prepare_here(experiment: ExperimentConfig, cpus: int) -> RunPlan:
    """As a Ray started on this machine would run it, with the machine's GPUs, and so many logical CPUs free."""
    here = NodeResources(
        "this machine",
        math.inf,
        this_machine.gpu_files(),
        this_machine.has_avx512(),
        this_machine.unusable_gpus(),
    )
    return sweep_plan.prepare(experiment, [here], [replace(here, cpu=cpus)])


def needed_cpus(experiment: ExperimentConfig) -> int:
    """Logical CPUs that a run's trials need; ``data.cpus: auto`` is 1 where nothing is free.

    Raises PlacementError for more than a machine of its cores can be asked for.
    """
    prepared = prepare_here(experiment, 0)
    needed = placement.logical_cpus(prepared.plan) * prepared.at_once
    if problem := beyond_sense(prepared, needed, machine.cores()):
        raise PlacementError(problem)
    return needed


def beyond_sense(prepared: RunPlan, needed: int, cores: int) -> str:
    """Why a Ray that is started here is not to have so many logical CPUs, or "". Pure.

    It may have more than cores: the trial, the servers and the reading of data take little of a small machine's. A
    worker and a server compute in as many threads as they have CPUs.
    """
    roles, data = prepared.plan.roles, prepared.base.data.read_cpus
    asked = {
        "resources.cpus_per_worker": (roles.worker_cpus - data, cores),
        "kvstore.cpus_per_server": (roles.server_cpus if roles.servers else 0, cores),
        "data.cpus": (data, max(cores, placement.MOST_DATA_CPUS)),
    }
    most = max(LEAST_LIMIT, LIMIT_A_CORE * cores)
    has = f"this machine has {count(cores, 'core')}"
    other = "or name a cluster with --address"
    for key, (value, limit) in asked.items():
        if value > limit:
            return f"{key} is {value:g}, and {has}: give at most {limit}, {other}"
    if needed > most:
        return (
            f"{placement.needs(prepared.plan)}, for {count(prepared.at_once, 'trial')} at once {needed}; {has}, on "
            f"which raymx starts a Ray with at most {most} logical CPUs: ask for fewer workers or trials, {other}"
        )
    return ""


def cpus_here(experiment: ExperimentConfig) -> int:
    """Logical CPUs of a Ray that is started on this machine for a run."""
    return max(needed_cpus(experiment), machine.cores())


def process_settings(cpus: int) -> dict[str, str]:
    """For its environment: Ray ends idle processes beyond one a CPU, and counts actors too, so that the data streams
    would start theirs every epoch. Nor does it start any before they are wanted: those of a run have an environment of
    their own, and would not use them.
    """
    return {"RAY_num_workers_soft_limit": str(4 * cpus), "RAY_prestart_worker_first_driver": "0"}


@dataclass(frozen=True)
class ClusterRoom:
    """The cluster's nodes and those that its autoscaler could add; of ``unknown`` ones it has only the names of their
    types. ``joining``: how many are just coming.
    """

    nodes: tuple[NodeResources, ...]
    could_add: tuple[NodeResources, ...] = ()
    unknown: tuple[str, ...] = ()
    joining: int = 0

    @property
    def known(self) -> list[NodeResources]:
        return [*self.nodes, *self.could_add]


def prepare_on(experiment: ExperimentConfig, room: ClusterRoom, free: Sequence[NodeResources]) -> RunPlan:
    """As a cluster would run it. What only nodes of unknown size may hold is planned as if each held a whole trial.

    Raises ExperimentError or PlacementError for what is known not to fit.
    """
    free = [*free, *room.could_add]
    try:
        return sweep_plan.prepare(experiment, room.known, free)
    except (PlacementError, ExperimentError):
        if not room.unknown:
            raise
    gpus, cpus = sweep_plan.largest(experiment)
    assumed = [NodeResources(f"{name} (its size is not known)", cpus, gpus) for name in room.unknown]
    return sweep_plan.prepare(experiment, [*room.known, *assumed], free)


def restart_advice(room: ClusterRoom, experiment: ExperimentConfig) -> str:
    """A line for a run that does not fit the Ray that an earlier run's submission started on this machine; else "".

    That one was as large as that run needed, or as the machine.
    """
    if [node.name for node in room.known] != [SUBMITTED_TO]:
        return ""
    try:
        needed = cpus_here(experiment)
    except (PlacementError, ExperimentError):  # nor would it fit the next one
        return ""
    return (
        f"  The Ray on this machine was started for an earlier run, with {room.nodes[0].cpu:g} logical CPUs: end it "
        f"with  ray stop  and submit again, which starts one with {needed}."
    )


def room_now(experiment: ExperimentConfig) -> ClusterRoom:
    """What there is to plan this run with on the cluster that this process is connected to."""
    return cluster_room(processors=abilities.asks_for_processors(experiment.to_dict()))


def cluster_room(*, processors: bool = False) -> ClusterRoom:
    """The nodes of the cluster that this process is connected to, and those that it could add. ``processors``: see
    `raymx.cluster.nodes.cluster_nodes`.
    """
    import ray

    from raymx.cluster import autoscaler
    from raymx.cluster.nodes import cluster_nodes

    nodes = cluster_nodes(processors=processors)
    scaling = autoscaler.config_here(ray.get_runtime_context().gcs_address)
    return ClusterRoom(
        tuple(nodes),
        tuple(autoscaler.could_add(scaling, nodes)),
        tuple(autoscaler.could_add_unknown(scaling, nodes)),
        autoscaler.joining(scaling, len(nodes)),
    )


def free_now() -> list[NodeResources]:
    """What nobody holds at this moment, by node."""
    return [
        NodeResources(node, resources.get("CPU", 0), resources.get("GPU", 0))
        for node, resources in _ray.available_resources().items()
    ]
