"""A step clock that keeps all of some steps: for a trace (`raymx.results.trace`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mxnet as mx

from raymx.data.pipeline.batch import TASKS, Batch
from raymx.experiment.loading import ExperimentConfig
from raymx.results.trace import READ_TASKS, Exchange, Span, Traced
from raymx.training.channel import LoopEnded
from raymx.training.marks import mark, take
from raymx.training.membership import Membership
from raymx.training.mxnet_profiler import EngineProfile
from raymx.training.step_clock import StepClock


def clock_of(experiment: ExperimentConfig, membership: Membership) -> StepClock:
    """The clock of a worker's steps, which traces some where the experiment says so."""
    profile, distributed = experiment.profile, membership.distributed
    if profile.steps is None or not profile.is_of(membership.rank):
        return StepClock(distributed=distributed)
    node = os.uname().nodename
    return ProfiledClock(*profile.steps, process=f"worker {membership.rank}", node=node, distributed=distributed)


@dataclass
class _Marks:
    """Numbers of marks of one step: of its losses, and by key of its gradients and weights."""

    step: int
    began: float
    losses: int = 0
    gradients: Sequence[int] = ()
    weights: Sequence[int] = ()


@dataclass
class _Window:
    """What was noted in it; times of ``time.perf_counter``."""

    steps: list[_Marks] = field(default_factory=list)
    loop: list[tuple[str, float, float]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


class ProfiledClock(StepClock):
    """Traces the steps ``first`` to ``last``, counted from 1. At its begin and its end it waits for the engine."""

    def __init__(self, first: int, last: int, *, process: str, node: str, distributed: bool) -> None:
        super().__init__(distributed=distributed)
        self._process, self._node = process, node
        self._from, self._until = first - 1, last - 1
        self._engine, self._window = EngineProfile(), _Window()
        self._exchanged: Callable[[], Sequence[tuple[str, int, int]]] = list
        self._traced: Traced | None = None
        self._runs = False

    def exchanges(self, told: Callable[[], Sequence[tuple[str, int, int]]]) -> None:
        """``told`` gives name, and bytes that are pushed and pulled, of each key."""
        self._exchanged = told
        if self._from == 0:
            self._start()

    def take_traced(self) -> Traced | None:
        """The trace, once, after the last of its steps."""
        traced, self._traced = self._traced, None
        return traced

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """A process that trains on must not go on tracing; after an error it ends, and its engine may never be done."""
        if self._runs and (kind is None or issubclass(kind, LoopEnded)):
            self._runs = False
            mx.nd.waitall()
            self._engine.stop()
            for marks in self._window.steps:
                _Reached.of(marks)
            self._window = _Window()

    # What it hears of

    def took(self, batch: Batch) -> None:
        if self._runs:
            self._window.batches.append(batch)

    def data(self, asked: float, got: float) -> None:
        super().data(asked, got)
        self._note("wait for data", asked, got)

    def held(self, began: float) -> None:
        super().held(began)
        self._note("held for a checkpoint", began, time.perf_counter())

    def queued(self) -> None:
        super().queued()
        if self._runs:
            self._window.steps.append(_Marks(self._step.number + 1, time.perf_counter()))

    def losses(self, losses: Any) -> None:
        super().losses(losses)
        if self._runs and self._window.steps:
            self._window.steps[-1].losses = mark([losses])

    def gradients(self, gradients: Callable[[], Sequence[Any]]) -> None:
        super().gradients(gradients)
        if self._runs:
            self._of_this_step().gradients = [mark([array]) for array in gradients()]

    def weights(self, weights: Callable[[], Sequence[Any]]) -> None:
        number = self._step.number
        if self._runs:
            self._of_this_step().weights = [mark([array]) for array in weights()]
        super().weights(weights)
        if self._runs and number >= self._until:
            self._stop()
        elif number + 1 == self._from:
            self._start()

    def _of_this_step(self) -> _Marks:
        steps = self._window.steps
        if not steps or steps[-1].step != self._step.number + 1:  # a loop with data of its own
            steps.append(_Marks(self._step.number + 1, time.perf_counter()))
        return steps[-1]

    def _note(self, name: str, began: float, ended: float) -> None:
        if self._runs:
            self._window.loop.append((name, began, ended))

    def _start(self) -> None:
        mx.nd.waitall()
        self._runs = True
        self._engine.start()

    def _stop(self) -> None:
        mx.nd.waitall()
        engine, self._runs = self._engine.stop(), False
        offset = time.time() - time.perf_counter()
        batches, steps = self._window.batches, [_Reached.of(marks) for marks in self._window.steps]
        tracks = {
            "steps": list(_phases(steps, offset)),
            "loop": [Span(name, began + offset, ended + offset) for name, began, ended in self._window.loop],
            **engine,
            "reading and decoding": [span for batch in batches if batch.source != TASKS for span in _reading(batch)],
            READ_TASKS: [span for batch in batches if batch.source == TASKS for span in _reading(batch)],
        }
        tracks = {name: spans for name, spans in tracks.items() if spans}
        exchanges = list(_exchanges(steps, self._exchanged(), offset))
        self._traced = Traced(self._process, self._node, tracks, exchanges)
        self._window = _Window()


@dataclass(frozen=True)
class _Reached:
    """`_Marks` as times, None where one was not reached."""

    step: int
    began: float
    losses: float | None
    gradients: Sequence[float | None]
    weights: Sequence[float | None]

    @classmethod
    def of(cls, marks: _Marks) -> _Reached:
        by_key = ([take(number) for number in numbers] for numbers in (marks.gradients, marks.weights))
        return cls(marks.step, marks.began, take(marks.losses), *by_key)


def _phases(steps: Sequence[_Reached], offset: float) -> Iterator[Span]:
    """What the engine did for each step until its losses were there, the gradients of all keys, the weights of all."""
    for step in steps:
        at = step.began
        ends = (step.losses, _last(step.gradients), _last(step.weights))
        for name, end in zip(("forward", "backward", "gradients and weights"), ends, strict=True):
            if end is not None and end >= at:
                yield Span(name, at + offset, end + offset, {"step": step.step})
                at = end


def _last(times: Sequence[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)


def _exchanges(steps: Sequence[_Reached], keys: Sequence[tuple[str, int, int]], offset: float) -> Iterator[Exchange]:
    for step in steps:
        for (name, pushed, pulled), begun, ended in zip(keys, step.gradients, step.weights, strict=False):
            if begun is not None and ended is not None:
                yield Exchange(step.step, name, begun + offset, ended + offset, pushed, pulled)


def _reading(batch: Batch) -> Iterator[Span]:
    """The stages of making a batch, one after the other, as the task has noted them."""
    at = batch.began
    for stage, seconds in batch.spent.items() if at else ():
        yield Span(stage, at, at + seconds, {"rows": len(batch.weights)})
        at += seconds
