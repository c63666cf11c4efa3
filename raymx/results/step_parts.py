"""Where the time of all workers' steps goes, out of what each has measured of its own. Pure.

Each worker tells the seconds of its measured steps by part (`raymx.training.timeline`), and when the gradients of each
were computed. In sync training a worker waits for the one whose gradients come last: so much of what it has waited for
gradients and weights was for that *straggler*, and no link or server could have made it shorter. Where its gradients
come last since its weights did, as over a slow link, there is no straggler: all of it is communication. Nor is there
one where workers take turns: what makes now one late and now another is what all of them wait for.

The parts are those of the worker in the middle by the time that it computes: with a slow one among several, one that
waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
OWN = ("data", "compute", "loop")  # parts that make a worker late
ALIKE = 1.25  # times as long for a batch: workers whose reading takes no longer than that read alike


@dataclass(frozen=True)
class Waits:
    """Mean seconds a step that each worker waits for the last one's gradients, by what that one had more of: a part of
    `OWN`, or "communication" where its weights came later. ``last``: who is the last in most steps, if one is.
    """

    each: Sequence[Mapping[str, float]]
    last: int | None = None


def columns_of(told: Sequence[Mapping[str, Any]], *, in_step: bool, reading_s: Sequence[float] = ()) -> dict[str, Any]:
    """The columns of a row. ``told``: each worker's; ``in_step``: each update needs all workers; ``reading_s``: what
    making a batch took for each of them, where that is known, 0 where they read none.

    Nothing where a worker has measured no step.
    """
    if not all(one["steps"] for one in told):
        return {}
    waits = Waits([{}] * len(told))
    if in_step and len(told) > 1:
        waits = stragglers([one["backward"] for one in told], [one["own"] for one in told])
    workers = [_with_straggler(one, sum(wait.values())) for one, wait in zip(told, waits.each, strict=True)]
    shares = [seconds["compute"] / max(sum(seconds.values()), 1e-12) for seconds in workers]
    rank = sorted(range(len(workers)), key=lambda rank: shares[rank])[(len(workers) - 1) // 2]
    last, cause = _straggler(workers, rank, waits)
    if cause == "data" and last is not None and _read_alike(reading_s, last, rank):
        last, cause = None, ""
    middle = (
        workers[rank] if last is not None and cause != "communication" else _shared(workers[rank], waits.each[rank])
    )
    whole = sum(middle.values()) or 1.0
    found: dict[str, Any] = {COLUMNS[part]: middle[part] / whole for part in PARTS}
    found["host_bound_fraction"] = told[rank]["host_bound"] / told[rank]["steps"] / whole
    if told[rank]["alone_s"] is not None:
        queueing_s = told[rank]["queueing"] / told[rank]["steps"]
        found["queueing_fraction"] = max(0.0, min(queueing_s, whole - told[rank]["alone_s"])) / whole
    return found if last is None else {**found, "straggler": last, "straggler_cause": cause}


def _straggler(workers: Sequence[Mapping[str, float]], rank: int, waits: Waits) -> tuple[int | None, str]:
    """The worker that takes longer than the one in the middle, and the part that explains most of it, "" where none
    explains enough. No worker where they only take turns.
    """
    if waits.last is None:
        return None, ""
    slow, middle = workers[waits.last], workers[rank]
    more = {part: max(0.0, slow[part] - middle[part]) for part in (*OWN, "communication")}
    if sum(more.values()) < EXPLAINED * middle["straggler"]:
        return None, ""
    part = max(more, key=lambda name: more[name])
    return waits.last, part if more[part] >= EXPLAINED * middle["straggler"] else ""


def _read_alike(reading_s: Sequence[float], last: int, rank: int) -> bool:
    """Whether the straggler's batches take no longer than another's, who is only ahead with its reading: without the
    straggler's wait it would soon be the one that waits for data.
    """
    return bool(reading_s) and 0 < reading_s[last] < ALIKE * reading_s[rank]


def _shared(seconds: Mapping[str, float], waits: Mapping[str, float]) -> dict[str, float]:
    """Where no worker is slower than the others, what each of them is late by is what all wait for: now one's data,
    now another's. What remains for stragglers is that computing takes now longer here, now there.
    """
    scale = seconds["straggler"] / max(sum(waits.values()), 1e-12)
    moved = {part: scale * wait for part, wait in waits.items() if part != "compute"}
    shared = {part: value + moved.get(part, 0.0) for part, value in seconds.items()}
    return {**shared, "straggler": max(0.0, seconds["straggler"] - sum(moved.values()))}


def stragglers(backward: Sequence[Mapping[int, float]], own: Sequence[Mapping[int, Mapping[str, float]]]) -> Waits:
    """Out of when each worker's gradients were there, and the seconds of its parts, by step."""
    common = set.intersection(*(set(one) for one in backward))
    nothing = dict.fromkeys((*OWN, "communication"), 0.0)
    if not common:
        return Waits([nothing] * len(backward))
    each = [dict(nothing) for _ in backward]
    counts: Counter[int] = Counter()
    for step in common:
        last = max(range(len(backward)), key=lambda rank: backward[rank][step])
        counts[last] += 1
        for rank, waits in enumerate(each):
            wait = backward[last][step] - backward[rank][step]
            for part, seconds in _causes(wait, own[last][step], own[rank][step]).items():
                waits[part] += seconds / len(common)
    rank, times = counts.most_common(1)[0]
    return Waits(each, rank if times > LAST * len(common) else None)


def _causes(wait: float, slow: Mapping[str, float], quick: Mapping[str, float]) -> dict[str, float]:
    """A wait in one step by what the last worker had more of; what none explains is that its weights came later."""
    more = {part: max(0.0, slow[part] - quick[part]) for part in OWN}
    scale = min(1.0, wait / max(sum(more.values()), 1e-12))
    found = {part: scale * seconds for part, seconds in more.items()}
    return {**found, "communication": wait - sum(found.values())}


def _with_straggler(told: Mapping[str, Any], wait_s: float) -> dict[str, float]:
    """One worker's seconds a step, the wait for the last one apart."""
    seconds = {part: told["seconds"].get(part, 0.0) / told["steps"] for part in PARTS}
    seconds["straggler"] = min(wait_s, seconds["communication"])
    seconds["communication"] -= seconds["straggler"]
    return seconds
