"""A node's GPUs as the driver, Ray and MXNet see them -> findings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from raymx.doctor.facts import NodeFacts
from raymx.doctor.findings import Finding
from raymx.experiment.mxnet_gpus import has_code, range_in_words

_DRIVER_CUDA = 11000  # CUDA 11 of any minor version runs CUDA 11.8's libraries: driver 450.80.02

_CPU_FIX = "train on the CPU: pip uninstall -y mxnet-cu112, then in raymx's folder pip install -e '.[cpu]'"


def check_gpus(facts: NodeFacts, in_ray: float | None) -> list[Finding]:
    """``in_ray``: GPUs of the node in Ray's books, None where no Ray was asked."""
    driver, mxnet = facts["child"]["driver"], facts["child"]["mxnet"]
    devices: Sequence[Mapping[str, Any]] = driver.get("devices", [])
    gpu_build = bool(mxnet.get("cuda")) or "mxnet-cu112" in facts["packages"]
    if not devices:
        return [_none(facts, gpu_build, in_ray)]
    unusable = [device for device in devices if not has_code(device["capability"])]
    if unusable:
        return [_unsupported(unusable, gpu_build)]
    if not gpu_build:
        return [
            Finding(
                "warning",
                "GPUs",
                f"{_names(devices)}: not used, mxnet is the CPU build",
                "to use them: pip uninstall -y mxnet, then in raymx's folder pip install -e '.[cu112]'",
            )
        ]
    if driver["cuda"] < _DRIVER_CUDA:
        return [
            Finding(
                "problem",
                "GPUs",
                f"{_names(devices)}: the NVIDIA driver is for CUDA {_cuda(driver['cuda'])}",
                "install NVIDIA driver 450.80.02 or a later one, which is for CUDA 11",
            )
        ]
    return [_as_mxnet_sees(devices, mxnet, in_ray)]


def _none(facts: NodeFacts, gpu_build: bool, in_ray: float | None) -> Finding:
    """The driver shows no GPU."""
    error = facts["child"]["driver"].get("error", "it shows none")
    if in_ray:
        return Finding(
            "problem",
            "GPUs",
            f"Ray counts {in_ray:g}, the NVIDIA driver cannot be used ({error})",
            "start the node's Ray without --num-gpus, or put its NVIDIA driver right (nvidia-smi)",
        )
    if facts["gpu_files"]:
        return Finding(
            "problem" if gpu_build else "note",
            "GPUs",
            f"{facts['gpu_files']}, but the NVIDIA driver cannot be used ({error})",
            "put the driver right (nvidia-smi); in a container, start it with docker run --gpus all",
        )
    return Finding("ok", "GPUs", "none")


def _unsupported(devices: Sequence[Mapping[str, Any]], gpu_build: bool) -> Finding:
    value = f"{_names(devices)}: MXNet 1.9.1 has code for compute capability {range_in_words()} only"
    if not gpu_build:
        return Finding("note", "GPUs", value + ", so they are not used")
    return Finding("problem", "GPUs", value, f"take a GPU of up to that (A100, A10, L4, RTX 4090), or {_CPU_FIX}")


def _as_mxnet_sees(devices: Sequence[Mapping[str, Any]], mxnet: Mapping[str, Any], in_ray: float | None) -> Finding:
    wanted = len(devices) if in_ray is None else in_ray
    if "error" not in mxnet and mxnet["gpus"] < wanted:
        counts = f"the driver shows {len(devices)}" + (f", Ray counts {in_ray:g}" if in_ray is not None else "")
        return Finding(
            "problem",
            "GPUs",
            f"MXNet sees {mxnet['gpus']}, {counts}" + (f" ({mxnet['gpus_error']})" if "gpus_error" in mxnet else ""),
            "look at nvidia-smi, and at CUDA_VISIBLE_DEVICES and --num-gpus where the node's Ray is started",
        )
    if in_ray == 0:
        return Finding(
            "note",
            "GPUs",
            f"{_names(devices)}: Ray counts none, so they are not used",
            "start the node's Ray where nvidia-smi works, without --num-gpus=0",
        )
    return Finding("ok", "GPUs", _names(devices))


def _names(devices: Sequence[Mapping[str, Any]]) -> str:
    kinds = Counter((device["name"], tuple(device["capability"])) for device in devices)
    return ", ".join(
        f"{number} {name} (compute capability {_dotted(capability)})" for (name, capability), number in kinds.items()
    )


def _dotted(capability: Sequence[int]) -> str:
    return ".".join(map(str, capability))


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
