"""Where the time of training steps goes, out of a few moments of each. Pure: no mxnet, no clock.

A step of one worker, in the order of these moments:

    asked      the loop asks for its batch
    got        the batch is there
    queued     the loop begins to queue the step: it has the batch, and records a forward pass
    forward    the losses are computed
    backward   the gradients are computed
    first      the weight that the net uses first is updated, or here again from the servers: the next step can begin
    all        every weight is

From the ``first`` of the step before to that of this one, a moment belongs to one part:

- until the step was queued the engine had nothing to compute: *data*, while the loop waited for its batch,
  *checkpoint*, while it was held for one, or *loop*, while it did something else;
- until ``backward`` it computed: *compute*. Where it was done almost as soon as the last operator was queued, it could
  not have been faster: it was ``host_bound``, since Python queues many small operators no faster;
- until ``first`` it waited for gradients and weights: *communication*. So did a forward pass that took longer than one
  for which all weights were there before: in a run with servers weights come one by one while it computes. Where there
  are no servers, it is the update, which is computed: *compute*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

COMPUTE, COMMUNICATION, DATA, CHECKPOINT, LOOP = "compute", "communication", "data", "checkpoint", "loop"
PARTS = (COMPUTE, COMMUNICATION, DATA, CHECKPOINT, LOOP)
LATE = 0.4  # of the computing: while Python still queues it
HOST_BOUND = 0.1  # of its computing: what the engine has left to do, at most, when such a step was queued


@dataclass(frozen=True)
class Moments:
    """Of one step, in seconds of one clock. ``asked`` is None in a loop with batches of its own."""

    number: int  # of the step, the same in all workers
    before: float  # ``first`` of the step before
    all_before: float  # ``all`` of the step before
    queued: float
    forward: float | None
    backward: float
    first: float
    asked: float | None = None
    got: float | None = None
    dispatched: float | None = None  # when the loop had queued it, up to the gradients
    held: tuple[tuple[float, float], ...] = ()  # from when to when the loop was held for a checkpoint

    @property
    def begins(self) -> float:
        """When the engine could begin with it."""
        return max(self.queued, self.before)

    @property
    def is_host_bound(self) -> bool:
        """Whether the engine was done with it right when the loop had queued it."""
        rest = self.backward - (self.dispatched if self.dispatched is not None else self.begins)
        return rest < HOST_BOUND * (self.backward - self.begins)

    @property
    def had_all_weights(self) -> bool:
        """Whether its forward pass had to wait for none."""
        return self.all_before <= self.begins


@dataclass
class Parts:
    """Seconds by part of ``steps`` measured steps; ``backward`` by step number, for who waits for whom."""

    steps: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    backward: dict[int, float] = field(default_factory=dict)
    own: dict[int, dict[str, float]] = field(default_factory=dict)  # what makes a worker late, by step number
    host_bound: float = 0.0  # of the seconds of computing
    computed: float = 0.0  # forward and backward passes, without what they waited for
    queueing: float = 0.0  # of these: Python had not queued all of the step yet
    alone_s: float | None = None  # what one step takes once all of it is queued, where that was tried

    @property
    def is_queued_late(self) -> bool:
        """Whether Python is busy with most of the step while the engine computes it, so that it may hold it up."""
        return self.queueing > LATE * self.computed


def parts_of(steps: Sequence[Moments], *, distributed: bool, forward_s: float | None = None) -> Parts:
    """What these steps come to. ``forward_s``: a forward pass that waits for no weight, where one is known."""
    found = Parts(len(steps))
    for step in steps:
        parts = _of_step(step, distributed, forward_s)
        for part, seconds in parts.items():
            found.seconds[part] += seconds
        found.own[step.number] = {part: parts[part] for part in (DATA, COMPUTE, LOOP)}
        found.backward[step.number] = step.backward
        found.host_bound += step.backward - step.begins if step.is_host_bound else 0.0
        found.computed += step.backward - step.begins - _stalled(step, distributed, forward_s)
        found.queueing += max(0.0, min(step.dispatched or 0.0, step.backward) - step.begins)
    return found


def free_forward_s(steps: Sequence[Moments]) -> float | None:
    """Seconds of a forward pass that waits for no weight, by the steps that had all of them; None where none had."""
    free = [step.forward - step.begins for step in steps if step.forward is not None and step.had_all_weights]
    return median(free) if free else None


def _of_step(step: Moments, distributed: bool, forward_s: float | None) -> dict[str, float]:
    idle = max(0.0, step.queued - step.before)
    waited = _overlap(step.before, step.queued, step.asked, step.got) if step.asked is not None else 0.0
    held = sum(_overlap(step.before, step.queued, *interval) for interval in step.held)
    waits = {DATA: waited, CHECKPOINT: held, LOOP: idle - waited - held}
    computed, came = step.backward - step.begins, step.first - step.backward
    if not distributed:
        return {**waits, COMPUTE: computed + came}
    stalled = _stalled(step, distributed, forward_s)
    return {**waits, COMPUTE: computed - stalled, COMMUNICATION: came + stalled}


def _stalled(step: Moments, distributed: bool, forward_s: float | None) -> float:
    """Seconds for which the forward pass waited for weights that came one by one."""
    if not distributed or forward_s is None or step.forward is None or step.had_all_weights:
        return 0.0
    return min(max(0.0, step.forward - step.begins - forward_s), step.backward - step.begins)


def _overlap(begin: float, end: float, other_begin: float, other_end: float | None) -> float:
    assert other_end is not None
    return max(0.0, min(end, other_end) - max(begin, other_begin))
