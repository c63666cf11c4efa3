"""Where the time of all workers' steps goes, out of what each has measured of its own. Pure.

Each worker tells the seconds of its measured steps by part (`raymx.training.timeline`), and when the gradients of each
were computed. In sync training a worker waits for the one whose gradients come last: so much of what it has waited for
gradients and weights was for that *straggler*, and no link or server could have made it shorter. Where its gradients
come last since its weights did, as over a slow link, there is no straggler: all of it is communication.

The parts are those of the worker in the middle by the time that it computes: with a slow one among several, one that
waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

PARTS = ("compute", "communication", "data", "straggler", "checkpoint", "loop")
COLUMNS = {
    "compute": "compute_fraction",
    "communication": "communication_fraction",
    "data": "data_wait_fraction",
    "straggler": "straggler_fraction",
    "checkpoint": "checkpoint_fraction",
    "loop": "loop_fraction",
}
EXPLAINED = 0.8  # of what the others wait for a straggler: with less its cause is not named
LAST = 0.5  # of the steps: a worker that is the last in more is said to be the one that the others wait for


def columns_of(told: Sequence[Mapping[str, Any]], *, in_step: bool) -> dict[str, Any]:
    """The columns of a row. ``told``: each worker's; ``in_step``: each update needs all workers.

    Nothing where a worker has measured no step.
    """
    if not all(one["steps"] for one in told):
        return {}
    waits, last = [0.0] * len(told), None
    if in_step and len(told) > 1:
        waits, last = stragglers([one["backward"] for one in told])
    workers = [_with_straggler(one, wait) for one, wait in zip(told, waits, strict=True)]
    shares = [seconds["compute"] / max(sum(seconds.values()), 1e-12) for seconds in workers]
    rank = sorted(range(len(workers)), key=lambda rank: shares[rank])[(len(workers) - 1) // 2]
    middle = workers[rank]
    cause = "" if last is None else _cause(workers[last], middle)
    if cause == "communication":  # what the straggler waits for is what all of them wait for
        middle["communication"], middle["straggler"] = middle["communication"] + middle["straggler"], 0.0
    whole = sum(middle.values()) or 1.0
    found: dict[str, Any] = {COLUMNS[part]: middle[part] / whole for part in PARTS}
    found["host_bound_fraction"] = told[rank]["host_bound"] / told[rank]["steps"] / whole
    if told[rank]["alone_s"] is not None:
        queueing_s = told[rank]["queueing"] / told[rank]["steps"]
        found["queueing_fraction"] = max(0.0, min(queueing_s, whole - told[rank]["alone_s"])) / whole
    if last is None:
        return found
    return {**found, "straggler": last, "straggler_cause": cause}


def _cause(slow: Mapping[str, float], middle: Mapping[str, float]) -> str:
    """The part that explains most of what the others wait for; "" where none explains enough."""
    more = {part: slow[part] - middle[part] for part in ("data", "compute", "loop", "communication")}
    part = max(more, key=lambda name: more[name])
    return part if more[part] >= EXPLAINED * middle["straggler"] else ""


def stragglers(backward: Sequence[Mapping[int, float]]) -> tuple[list[float], int | None]:
    """Mean seconds a step that each worker waits for the last one's gradients; who is last in most steps, if one is."""
    common = set.intersection(*(set(one) for one in backward))
    if not common:
        return [0.0] * len(backward), None
    latest = {step: max(one[step] for one in backward) for step in common}
    waits = [mean(latest[step] - one[step] for step in common) for one in backward]
    counts = Counter(next(rank for rank, one in enumerate(backward) if one[step] == latest[step]) for step in common)
    rank, times = counts.most_common(1)[0]
    return waits, rank if times > LAST * len(common) else None


def _with_straggler(told: Mapping[str, Any], wait_s: float) -> dict[str, float]:
    """One worker's seconds a step, the wait for the last one apart."""
    seconds = {part: told["seconds"].get(part, 0.0) / told["steps"] for part in PARTS}
    seconds["straggler"] = min(wait_s, seconds["communication"])
    seconds["communication"] -= seconds["straggler"]
    return seconds
