"""Measures where the time of a worker's steps goes, while they run: the moments of `raymx.training.timeline`.

Nothing here waits for the engine, and of short steps one in several is measured: it costs a few operators a step.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raymx.data.pipeline.batch import Batch
from raymx.kvstore import engine
from raymx.results.trace import Traced
from raymx.training.gate import Gate
from raymx.training.marks import mark, take
from raymx.training.timeline import Moments, Parts, free_forward_s, parts_of

EVERY_S = 0.1  # between two steps that are measured
LEAST = 10  # measured steps between two reports, where there are so many steps
# Steps that are held, which take about twice as long: so many between two reports at most, and of so many steps one;
# of more steps one once there were a few, so that they do not cost a long run more than 1 %.
GATES, STEPS_A_GATE = 3, 30
FEW_GATES, STEPS_A_LATER_GATE = 9, 100
MOST = 4096  # steps between two reports of which the moments are kept


@dataclass
class _Step:
    """A step that is measured, or the one before it, of which the weights alone are: times, and numbers of marks."""

    number: int
    queued: float = 0.0
    has_begun: bool = False
    asked: float | None = None
    got: float | None = None
    held: tuple[tuple[float, float], ...] = ()
    dispatched: float | None = None
    forward: int = 0
    backward: int = 0
    first: int = 0
    all: int = 0
    gate: Gate | None = None


class StepClock:
    """For the loop's thread. The steps are numbered from 0 on in each generation, alike in all workers."""

    def __init__(self, *, distributed: bool) -> None:
        self._distributed = distributed
        self._stride = (
            1  # one step in so many is measured; a power of two, so that workers' strides have steps in common
        )
        self._number = 0
        self._step = self._last = _Step(0)
        self._steps: list[_Step] = []
        self._began = time.perf_counter()
        self._first_number = 0
        self._forward_s: float | None = None
        self._held_s = 0.0
        self._gates, self._step_s = 0, 0.0  # steps that are held until they are queued, and about what one takes
        self._may_gate, self._held = not engine.is_naive(), 0
        self._weights: Callable[[], Sequence[Any]] | None = None

    def data(self, asked: float, got: float) -> None:
        """The batch of the next step was asked for, and came; of several for one update, the first."""
        if not self._step.queued:
            self._step.asked, self._step.got = asked, got

    def queued(self) -> None:
        """The loop has the batch, and may begin to queue the step."""
        if self._gates and self._weights and not self._step.queued and self._is_measured:
            self._step.gate, self._gates = Gate(self._weights(), 2 * self._step_s), self._gates - 1
        self._step.queued = self._step.queued or time.perf_counter()

    def took(self, batch: Batch) -> None:
        """The batch that came."""

    def exchanges(self, told: Callable[[], Sequence[tuple[str, int, int]]]) -> None:
        """``told`` gives name, and bytes that are pushed and pulled, of each key of the store."""

    def take_traced(self) -> Traced | None:
        """What was traced, where steps are (`raymx.training.profiled_clock`)."""
        return None

    def __enter__(self) -> None:
        """For as long as the loop runs."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The loop has ended, or was ended by ``kind``."""

    def begins(self) -> None:
        """The loop begins a forward pass; what it did with the batch before was not computing."""
        if self._step.queued and not self._step.has_begun:
            self._step.queued, self._step.has_begun = time.perf_counter(), True

    def held(self, began: float) -> None:
        """The loop was held for a checkpoint since then, by ``time.perf_counter``."""
        now = time.perf_counter()
        self._held_s += now - began
        self._step.held = (*self._step.held, (began, now))

    def losses(self, losses: Any) -> None:
        """The losses of the step, queued; a loop may show them when the step has ended, before it asks for a batch."""
        step = self._step if self._step.queued else self._last
        if step.queued and step.number % self._stride == 0 and not step.forward:
            step.forward = mark([losses])

    def gradients(self, gradients: Callable[[], Sequence[Any]]) -> None:
        """All gradients of the step, queued."""
        if self._is_measured:
            self._step.dispatched = time.perf_counter()
            self._step.backward = mark(gradients())

    def weights(self, weights: Callable[[], Sequence[Any]]) -> None:
        """All weights of the step, in the order in which the net uses them, queued. The step ends."""
        step, self._number, self._weights = self._step, self._number + 1, weights
        if (self._is_measured or self._number % self._stride == 0) and len(self._steps) < MOST:
            arrays = weights()
            step.first, step.all = mark(arrays[:1]), mark(arrays)
            self._steps.append(step)
        if step.gate:
            step.gate.open()
        self._last, self._step = step, _Step(self._number)

    @property
    def _is_measured(self) -> bool:
        return self._step.number % self._stride == 0

    def take_held_s(self) -> float:
        """Seconds that the loop was held for checkpoints since the last call, in steps that are measured or not."""
        seconds, self._held_s = self._held_s, 0.0
        return seconds

    def take(self) -> Parts:
        """What the steps since the last call come to; the engine must have done them."""
        reached = [_reached(step) for step in self._steps]
        moments = list(_moments(self._steps, reached))
        self._forward_s = free_forward_s(moments) or self._forward_s
        parts = parts_of(moments, distributed=self._distributed, forward_s=self._forward_s)
        parts.alone_s = self._alone_s(reached)
        self._gate_next(parts)
        self._pace()
        return parts

    def _alone_s(self, reached: Sequence[Mapping[str, float | None]]) -> float | None:
        """What a step that was queued before it began took: the shortest, since what else runs only adds to it."""
        found = []
        for step, at in zip(self._steps, reached, strict=True):
            since, first = step.gate.since if step.gate else None, at["first"]
            if since is not None and first is not None:
                found.append(first - since)
        return min(found, default=None)

    def _gate_next(self, parts: Parts) -> None:
        """Hold some of the next steps where Python's queueing may hold them up; never again where a loop waited."""
        self._may_gate &= not any(step.gate and step.gate.was_forced for step in self._steps)
        steps = self._number - self._first_number
        self._held += sum(step.gate is not None for step in self._steps)
        each = STEPS_A_GATE if self._held < FEW_GATES else STEPS_A_LATER_GATE
        self._gates = min(GATES, steps // each) if parts.is_queued_late and self._may_gate else 0
        self._step_s = sum(parts.seconds.values()) / max(parts.steps, 1)

    def _pace(self) -> None:
        """Choose how many of the next steps are measured."""
        steps, now = self._number - self._first_number, time.perf_counter()
        step_s = (now - self._began) / max(steps, 1)
        while step_s * self._stride < EVERY_S and steps >= 2 * self._stride * LEAST:
            self._stride *= 2
        self._began, self._first_number, self._steps = now, self._number, []


def _reached(step: _Step) -> dict[str, float | None]:
    """When each of its marks was, None for what was not."""
    return {name: take(getattr(step, name)) for name in ("forward", "backward", "first", "all")}


def _moments(steps: Sequence[_Step], reached: Sequence[Mapping[str, float | None]]) -> Iterator[Moments]:
    """Of each measured step that comes right after another one, where all of its marks were reached; but for one that
    was held until it was queued.
    """
    for (before, was), (step, at) in itertools.pairwise(zip(steps, reached, strict=True)):
        first, every, backward, following = was["first"], was["all"], at["backward"], at["first"]
        if (
            step.gate
            or step.number != before.number + 1
            or first is None
            or every is None
            or backward is None
            or following is None
        ):
            continue
        yield Moments(
            number=step.number,
            before=first,
            all_before=every,
            queued=step.queued,
            forward=at["forward"],
            backward=backward,
            first=following,
            asked=step.asked,
            got=step.got,
            dispatched=step.dispatched,
            held=step.held,
        )
