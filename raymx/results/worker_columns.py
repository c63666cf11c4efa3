"""The columns of a row that say what the workers took, waited for and read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

STAGES = ("read", "decode", "transform", "to devices")  # of the input
_MOST_OF = ("gpu_memory_peak_mib", "gpu_memory_fraction")


def columns_of(reports: Sequence[Mapping[str, Any]], train_s: float) -> dict[str, Any]:
    """Of all workers' reports in a row; ``train_s``: the seconds of training that it counts."""
    usage = [report["usage"] for report in reports]
    return {
        "worker_rss_peak_mib": max(one["rss_peak_mib"] for one in usage),
        **_largest("node_memory", usage, "node_memory_fraction"),
        **{name: value for one in _MOST_OF for name, value in _largest(one, usage, one).items()},
        **_mean("gpu_utilization", usage),
        "sync_fraction": min(1.0, max(report["sync_s"] for report in reports) / train_s) if train_s else 0.0,
        "checkpoint_s": max(report["held_s"] for report in reports),
        **_store([report["store"] for report in reports]),
        **_input([report["input"] for report in reports], train_s),
    }


def reading_s(told: Mapping[str, Any]) -> float:
    """What making a batch took one worker and its read tasks, on the mean of those that were made; 0 where none was."""
    made = sum(count for source, count in told["batches"].items() if source != "memory")
    spent = sum(sum(stages.values()) for stages in told["spent"].values())
    return spent / made if made else 0.0


def _largest(name: str, usage: Sequence[Mapping[str, float]], column: str) -> dict[str, float]:
    told = [one[name] for one in usage if name in one]
    return {column: max(told)} if told else {}


def _mean(name: str, usage: Sequence[Mapping[str, float]]) -> dict[str, float]:
    told = [one[name] for one in usage if name in one]
    return {name: mean(told)} if told else {}


def _store(told: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Of the node on which this run's reading kept most; workers of one node are added up."""
    nodes: dict[str, float] = {}
    for node, mib in told:
        nodes[node] = nodes.get(node, 0.0) + mib
    return {"object_store_mib": max(nodes.values())}


def _input(told: Sequence[Mapping[str, Any]], train_s: float) -> dict[str, Any]:
    """Nothing for a loop with data of its own."""
    batches: Counter[str] = Counter()
    for one in told:
        batches.update(one["batches"])
    if not batches:
        return {}
    tasks_s = max(sum(one["spent"].get("tasks", {}).values()) for one in told)
    return {
        "kept_batches_fraction": batches["memory"] / batches.total(),
        "own_batches_fraction": batches["here"] / batches.total(),
        "read_cpus_used": tasks_s / train_s if train_s else 0.0,
        "input_stages": _stages(told),
    }


def _stages(told: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """[stage, seconds] of all workers together, in the order of `STAGES`."""
    seconds = dict.fromkeys(STAGES, 0.0)
    for one in told:
        seconds["to devices"] += one["transfer_s"]
        for stages in one["spent"].values():
            for stage, spent in stages.items():
                seconds[stage] += spent
    return [[stage, spent] for stage, spent in seconds.items() if spent]
