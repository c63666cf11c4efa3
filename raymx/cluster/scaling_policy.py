"""What a trial does when its world changes: decisions over frozen status. Pure: no Ray, no mxnet, no clock.

    history = history.after(failure)                # when something failed
    decision = decide(status, limits, history)      # ... and whenever a look at the cluster, or a checkpoint, is there

The trial applies them (raymx.cluster.role_manager). Every decision carries its reason in words, for the user.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

DEATHS_IN_ONE_PLACE = 10  # so often may processes die with no checkpoint in between

PATIENCE_S = 10.0  # for Ray to place lost bundles on other nodes; then the trial is placed anew as a whole

Kind = Literal["error", "stall", "process", "node"]


@dataclass(frozen=True)
class Failure:
    """What ended a generation.

    ``error`` was raised by the experiment's own code and ``stall`` is a loop that stood still: both count against
    ``failures.max``. A ``process`` that died, or whose ``node`` did, is the cluster's doing and does not.
    """

    kind: Kind
    text: str
    place: tuple[int, int] | None = None
    """(epoch, step) where the experiment's own code raised it; None when that is not known."""


@dataclass(frozen=True)
class Limits:
    """What the experiment allows."""

    min_workers: int
    max_workers: int
    max_failures: int
    cooldown_s: float


@dataclass(frozen=True)
class History:
    """The failures of a run so far."""

    errors: int = 0  # errors and stalls
    losses: int = 0  # processes and nodes
    deaths_here: int = 0  # processes that died since the last checkpoint
    last: Failure | None = None
    repeated: bool = False  # the last failure is the one before it, once more
    trained: bool = False  # whether a step was ever done

    def after(self, failure: Failure, *, trained: bool) -> History:
        """With one more failure; ``trained``: a step was done in the generation that it ended."""
        own = failure.kind in ("error", "stall")
        return History(
            self.errors + own,
            self.losses + (not own),
            self.deaths_here + (failure.kind == "process"),
            failure,
            failure.kind == "error" and _same(self.last, failure),
            self.trained or trained,
        )

    @property
    def count(self) -> int:
        """All of them."""
        return self.errors + self.losses

    def saved(self) -> History:
        """Once a checkpoint was taken: what comes now is another place."""
        return replace(self, deaths_here=0, trained=True)


def _same(before: Failure | None, now: Failure) -> bool:
    return before is not None and (before.kind, _what(before), before.place) == (now.kind, _what(now), now.place)


def _what(failure: Failure) -> str:
    """The text without who it happened to."""
    first, _, rest = failure.text.partition("\n")
    return first.split(": ", 1)[-1] + rest


@dataclass(frozen=True)
class Status:
    """What there is at one moment. ``workers`` is 0 when no generation runs."""

    workers: int
    own_bundles: Literal["ready", "lost", "draining"]  # the trial's own placement group
    lost_for_s: float = 0.0  # since when they are lost
    spare_slots: int = 0  # more workers that could join now
    leaving_slots: int = 0  # workers of the generation on nodes that are drained or gone
    others_wait: bool = False  # somebody's whole placement group has been waiting for room for a while
    saved: bool = False  # a checkpoint of exactly this place was taken
    failure: Failure | None = None
    since_resize_s: float = 0.0


@dataclass(frozen=True)
class Decision:
    """``workers`` is the number that the next generation has. ``release``: give the slots back to the cluster."""

    action: Literal["start", "keep", "save", "grow", "shrink", "restart", "wait", "leave", "fail"]
    workers: int = 0
    reason: str = ""
    release: bool = False


def decide(status: Status, limits: Limits, history: History) -> Decision:
    """What to do now.

    start, restart: form a generation. save: take a checkpoint, then ask again. grow, shrink: dissolve this generation
    and form another one from the checkpoint of this place. wait: nothing can be formed yet. leave: give up the trial's
    placement group, so that it is placed anew on other nodes. fail: end the trial with the failure.
    """
    if status.failure and (reason := _final(status.failure, limits, history)):
        return Decision("fail", reason=reason)
    if status.own_bundles == "lost":
        reason = (
            f"a node is gone: waiting for room for {_workers(limits.min_workers)}, the least that this run may have"
        )
        return Decision("wait" if status.lost_for_s < PATIENCE_S else "leave", reason=reason, release=True)
    if status.own_bundles == "draining":
        return _leave(status)
    if status.failure or not status.workers:
        return _begin(status, limits)
    return _resize(status, limits)


def _final(failure: Failure, limits: Limits, history: History) -> str:
    """Why a failure is the last one, or ""."""
    if failure.kind == "error" and not history.trained:
        return "it came before the first step"
    if history.repeated:
        return "the same error came twice in a row at the same place: it will not get better"
    if failure.kind in ("error", "stall") and history.errors > limits.max_failures:
        return f"it is failure {history.errors}, and failures.max is {limits.max_failures}"
    if failure.kind == "process" and history.deaths_here > DEATHS_IN_ONE_PLACE:
        return f"processes died {history.deaths_here} times with no checkpoint in between"
    return ""


def _leave(status: Status) -> Decision:
    reason = "a node that it cannot do without is being drained"
    running = status.workers > 0 and status.failure is None
    return Decision("save" if running and not status.saved else "leave", reason=reason)


def _begin(status: Status, limits: Limits) -> Decision:
    room = min(limits.max_workers, limits.min_workers + (0 if status.others_wait else status.spare_slots))
    if status.failure is None:
        return Decision("start", room, f"there is room for {_workers(room)}")
    return Decision("restart", room, status.failure.text.partition("\n")[0])


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
