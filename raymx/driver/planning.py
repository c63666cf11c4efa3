"""What there is to plan a run with: this machine, or a cluster and what its autoscaler could add."""

from __future__ import annotations

import math
import os
from dataclasses import replace

from raymx import _ray
from raymx.cluster import placement, this_machine
from raymx.cluster.placement import NodeResources
from raymx.experiment.loading import ExperimentConfig
from raymx.sweep import plan as sweep_plan
from raymx.sweep.plan import RunPlan


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
    """Logical CPUs that a run's trials need; ``data.cpus: auto`` is 1 where nothing is free."""
    prepared = prepare_here(experiment, 0)
    return placement.logical_cpus(prepared.plan) * prepared.at_once


def cpus_here(experiment: ExperimentConfig) -> int:
    """Logical CPUs of a Ray that is started on this machine for a run."""
    return max(needed_cpus(experiment), len(os.sched_getaffinity(0)))


def soft_limit(cpus: int) -> dict[str, str]:
    """For its environment: Ray ends idle processes beyond one a CPU, and counts actors too, so that the data streams
    would start theirs every epoch. Nor does it start any before they are wanted: those of a run have an environment of
    their own, and would not use them.
    """
    return {"RAY_num_workers_soft_limit": str(4 * cpus), "RAY_prestart_worker_first_driver": "0"}


def nodes_to_plan_with(experiment: ExperimentConfig) -> tuple[list[NodeResources], list[NodeResources], int]:
    """The cluster's nodes, those that its autoscaler could add, and how many are just joining."""
    import ray

    from raymx.cluster import autoscaler
    from raymx.cluster.nodes import cluster_nodes

    nodes = cluster_nodes(processors="amp_bfloat16" in str(experiment.to_dict()))
    scaling = autoscaler.config_here(ray.get_runtime_context().gcs_address)
    return nodes, autoscaler.could_add(scaling, nodes), autoscaler.joining(scaling, len(nodes))


def free_now() -> list[NodeResources]:
    """What nobody holds at this moment, by node."""
    return [
        NodeResources(node, resources.get("CPU", 0), resources.get("GPU", 0))
        for node, resources in _ray.available_resources().items()
    ]
