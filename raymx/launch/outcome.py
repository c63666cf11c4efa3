"""Whether a generation goes on, and with which exit code it ends. Pure: no ray, no clock.

ps-lite's roles wait for ever for one that is gone, so the first role that fails ends all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raymx.launch.bundles import Seat

SERVERS_GRACE_S = 5.0
"""How long servers and the KVStore scheduler may take to end by themselves once all workers have."""
LONE_S = 60.0
"""After so long beside a worker that has ended, it is said that others still run."""


@dataclass(frozen=True)
class Ended:
    """A role whose command has ended: ``code`` is its exit code, 128 and the signal's number for one that was killed.

    ``lost``: its process on the cluster died, or its node did. ``at_s``: seconds on any clock.
    """

    seat: Seat
    code: int
    at_s: float
    lost: str = ""


@dataclass(frozen=True)
class Verdict:
    """A generation that is over: its exit code, and why in words ("" when all went well)."""

    code: int
    reason: str = ""
    failed: Seat | None = None


def verdict(ended: Sequence[Ended], seats: Sequence[Seat], now_s: float) -> Verdict | None:
    """What came of a generation whose roles ended in this order; None while it goes on.

    Of roles that failed one after the other the first counts, of those seen at the same moment a worker.
    """
    failed = [one for one in ended if one.code != 0]
    if failed:
        first = min(failed, key=lambda one: (one.at_s, one.seat.kind != "worker"))
        return Verdict(first.code, _why(first), first.seat)
    workers = [one for one in ended if one.seat.kind == "worker"]
    if len(workers) < sum(seat.kind == "worker" for seat in seats):
        return None
    if len(ended) == len(seats) or now_s - max(one.at_s for one in workers) >= SERVERS_GRACE_S:
        return Verdict(0)
    return None


def _why(ended: Ended) -> str:
    if ended.lost:
        return f"{ended.seat.name} is lost: {ended.lost}"
    if ended.code > 128:
        return f"{ended.seat.name} was ended by signal {ended.code - 128}"
    return f"{ended.seat.name} ended with exit code {ended.code}"


def lone(ended: Sequence[Ended], seats: Sequence[Seat], now_s: float) -> str:
    """A sentence for workers that still run long after another has ended, which may be for ever; else ""."""
    done = [one for one in ended if one.seat.kind == "worker" and one.code == 0]
    left = [seat.name for seat in seats if seat.kind == "worker" and all(seat != one.seat for one in ended)]
    if not done or not left or now_s - max(one.at_s for one in done) < LONE_S:
        return ""
    return (
        f"{done[0].seat.name} ended with exit code 0 {LONE_S:.0f} s ago and {', '.join(left)} still run: with a sync "
        "store they wait for ever where workers push a different number of times"
    )
