"""How many workers a trial has, now and next: decisions over a frozen status. Pure: no Ray, no mxnet, no clock.

    decision = decide(status, limits)       # whenever a look at the cluster, or a checkpoint, is there

`raymx.cluster.role_manager` observes and applies, `raymx.trial.controller` asks. Every decision carries its reason in
words, for the user. Whether a run survives a failure at all is decided before (`raymx.cluster.failure_policy`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

PATIENCE_S = 10.0  # for Ray to place lost bundles on other nodes; then the trial is placed anew as a whole


@dataclass(frozen=True)
class Limits:
    """What the experiment allows."""

    min_workers: int
    max_workers: int
    cooldown_s: float


@dataclass(frozen=True)
class Status:
    """What there is at one moment. ``workers`` is 0 when no generation runs."""

    workers: int
    own_bundles: Literal["ready", "lost", "draining"]  # the trial's own placement group
    lost_for_s: float = 0.0  # since when they are lost
    spare_slots: int = 0  # more workers that could join now
    leaving_slots: int = 0  # workers of the generation on nodes that are drained or gone
    others_wait: bool = False  # somebody's whole placement group has been waiting for room for a while
    saved: bool = False  # a checkpoint of exactly this position was taken
    recovers_from: str = ""  # the failure that ended the last generation, in one line
    since_resize_s: float = 0.0


@dataclass(frozen=True)
class Decision:
    """``workers`` is the number that the next generation has. ``release``: give the slots back to the cluster."""

    action: Literal["start", "keep", "save", "grow", "shrink", "restart", "wait", "leave"]
    workers: int = 0
    reason: str = ""
    release: bool = False


def decide(status: Status, limits: Limits) -> Decision:
    """What to do now.

    start, restart: form a generation. save: take a checkpoint, then ask again. grow, shrink: dissolve this generation
    and form another one from the checkpoint of this position. wait: nothing can be formed yet. leave: give up the
    trial's placement group, so that it is placed anew on other nodes.
    """
    if status.own_bundles == "lost":
        reason = (
            f"a node is gone: waiting for room for {_workers(limits.min_workers)}, the least that this run may have"
        )
        return Decision("wait" if status.lost_for_s < PATIENCE_S else "leave", reason=reason, release=True)
    if status.own_bundles == "draining":
        return _leave(status)
    if not status.workers:
        return _begin(status, limits)
    return _resize(status, limits)


def _leave(status: Status) -> Decision:
    reason = "a node that it cannot do without is being drained"
    return Decision("save" if status.workers and not status.saved else "leave", reason=reason)


def _begin(status: Status, limits: Limits) -> Decision:
    room = min(limits.max_workers, limits.min_workers + (0 if status.others_wait else status.spare_slots))
    if status.recovers_from:
        return Decision("restart", room, status.recovers_from)
    return Decision("start", room, f"there is room for {_workers(room)}")


def _resize(status: Status, limits: Limits) -> Decision:
    least, now = limits.min_workers, status.workers
    if status.leaving_slots:
        fewer = Decision(
            "shrink", max(least, now - status.leaving_slots), f"{_nodes(status.leaving_slots)} being drained"
        )
        return fewer if status.saved else replace(fewer, action="save")
    if status.others_wait and now > least:
        fewer = Decision("shrink", least, "another job is waiting for room", release=True)
        return fewer if status.saved else replace(fewer, action="save")
    room = min(limits.max_workers, now + status.spare_slots)
    if room > now and status.saved and not status.others_wait and status.since_resize_s >= limits.cooldown_s:
        return Decision("grow", room, f"room for {_workers(room - now, 'more ')} appeared")
    return Decision("keep", now)


def _workers(count: int, more: str = "") -> str:
    return f"{count} {more}worker{'' if count == 1 else 's'}"


def _nodes(count: int) -> str:
    return "the node of a worker is" if count == 1 else f"the nodes of {count} workers are"
