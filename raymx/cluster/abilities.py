"""Whether the processors and GPUs of nodes can compute what an experiment asks for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from raymx.cluster.placement import NodeResources
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.mxnet_gpus import range_in_words


def asks_for_processors(*settings: object) -> bool:
    """Whether anything in plain settings, those of a sweep's cells too, depends on what the processors can compute."""
    return "amp_bfloat16" in str(settings)


def problem(experiment: ExperimentConfig, gpus_per_worker: float, nodes: Sequence[NodeResources]) -> str:
    """Why workers on some of ``nodes`` would fail, in one sentence; "" where none would, or it is not known.

    A worker may come to any node that has room for it, so one node that cannot compute it is enough.
    """
    without = [node.name for node in nodes if node.has_avx512 is False and node.cpu >= 1]
    if experiment.precision.amp == "bfloat16" and without:
        return (
            "precision.dtype is amp_bfloat16: MXNet computes it with AVX-512 (avx512bw), which the processor of "
            f"{', '.join(without)} does not have; use float32"
        )
    unusable = [f"{node.unusable_gpus} of {node.name}" for node in nodes if node.unusable_gpus and node.gpu]
    if gpus_per_worker and unusable:
        return (
            f"resources.gpus_per_worker is {experiment.resources.gpus_per_worker}: MXNet 1.9.1 has code for NVIDIA "
            f"GPUs of compute capability {range_in_words()}, and not for {', '.join(unusable)}; "
            "set it to 0, or use others"
        )
    return ""
