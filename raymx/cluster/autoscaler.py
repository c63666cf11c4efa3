"""What the cluster's autoscaler could add, and what it is just starting: from the configuration that it was given.

Ray itself does not tell. The autoscaler runs on the head node, as jobs do, so its configuration is a file of this node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from raymx.cluster.placement import NodeResources

_PROGRAM, _FLAG, _CLUSTER_FLAG = "/monitor.py", "--autoscaling-config=", "--gcs-address="


def config_here(gcs_address: str) -> Mapping[str, Any]:
    """The configuration of the autoscaler of the cluster at ``gcs_address``; {} when none runs on this node."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if any(word.endswith(_PROGRAM) for word in words) and f"{_CLUSTER_FLAG}{gcs_address}" in words:
                paths = [word[len(_FLAG) :] for word in words if word.startswith(_FLAG)]
                found = yaml.safe_load(Path(paths[0]).expanduser().read_text()) if paths else {}
                return found if isinstance(found, dict) else {}
    return {}


def could_add(config: Mapping[str, Any], living: Sequence[NodeResources]) -> list[NodeResources]:
    """The nodes that may still be started, as far as their CPUs and GPUs are known. Pure.

    ``living`` are those that there are, the head among them; which type one is of is told by its size.
    """
    room = _room(config, living)
    sizes = [(node.cpu, node.gpu) for node in living]
    found: list[NodeResources] = []
    for name, cpu, gpu, most in _types(config):
        there = min(most, sizes.count((cpu, gpu)))
        sizes = [size for size in sizes if size != (cpu, gpu)]
        found += [NodeResources(f"{name} (to be started)", cpu, gpu)] * (most - there)
    largest = sorted(found, key=lambda node: (node.gpu, node.cpu), reverse=True)
    return largest[: max(0, room)]


def could_add_unknown(config: Mapping[str, Any], living: Sequence[NodeResources]) -> list[str]:
    """The types of those nodes that may still be started and whose size is written nowhere, a name for each. Pure.

    That is no size of 0: of a list of hosts nothing is known before they join, nor of a cloud's type at first.
    """
    known = [(cpu, gpu) for _, cpu, gpu, _ in _types(config)]
    there = sum((node.cpu, node.gpu) not in known for node in living[1:])
    named = [name for name, kind in _unknown(config) for _ in range(int(kind.get("max_workers") or 0))]
    return named[there:][: max(0, _room(config, living))]


def joining(config: Mapping[str, Any], living: int) -> int:
    """How many nodes the autoscaler keeps at all times and are not there yet. ``living`` counts the head. Pure."""
    kept = sum(
        kind.get("min_workers") or 0 for name, kind in _kinds(config).items() if name != config.get("head_node_type")
    )
    return max(0, min(kept, config.get("max_workers", kept)) - (living - 1))


def _types(config: Mapping[str, Any]) -> list[tuple[str, float, float, int]]:
    """(name, CPUs, GPUs, most) of the types of nodes whose size is written down."""
    return [
        (name, float(have["CPU"]), float(have.get("GPU", 0)), int(kind.get("max_workers") or 0))
        for name, kind in _kinds(config).items()
        if name != config.get("head_node_type") and "CPU" in (have := kind.get("resources") or {})
    ]


def _unknown(config: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (name, kind)
        for name, kind in _kinds(config).items()
        if name != config.get("head_node_type") and "CPU" not in (kind.get("resources") or {})
    ]


def _room(config: Mapping[str, Any], living: Sequence[NodeResources]) -> int:
    """How many nodes more the cluster may have, of all types."""
    return int(config.get("max_workers", 0)) - (len(living) - 1)


def _kinds(config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    kinds = config.get("available_node_types")
    return kinds if isinstance(kinds, dict) else {}
