"""The moments of real steps: MXNet's engine, with operators that take a known time."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import mxnet as mx
import pytest
from mxnet.base import _LIB, check_call

from raymx.training import marks, step_clock
from raymx.training.ahead import StepsAhead
from raymx.training.step_clock import StepClock
from raymx.training.timeline import COMMUNICATION, COMPUTE, DATA, LOOP

pytestmark = pytest.mark.timeout(60)
STEPS = 12


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
def _sleep(_: Any, microseconds: int) -> None:
    time.sleep((microseconds or 0) / 1e6)


def compute(seconds: float, reads: list[Any], writes: list[Any]) -> None:
    """Queue an operator that takes so long, and no core."""

    def handles(arrays: list[Any]) -> Any:
        return (ctypes.c_void_p * len(arrays))(*(array.handle for array in arrays))

    context = (ctypes.c_int * 2)(1, 0)
    check_call(
        _LIB.MXEnginePushSyncND(
            _sleep, ctypes.c_void_p(int(seconds * 1e6)), None, ctypes.byref(context), handles(reads), len(reads),
            handles(writes), len(writes), None, 0, b"sleep",
        )
    )  # fmt: skip


def array() -> mx.nd.NDArray:
    made = mx.nd.zeros((2,))
    made.wait_to_read()
    return made


def batches(every_s: float) -> Iterator[int]:
    """One each so many seconds, whoever asks when: what is ready waits in a queue."""
    began = time.perf_counter()
    for number in count():
        time.sleep(max(0.0, began + number * every_s - time.perf_counter()))
        yield number


class Loop:
    """A training loop over arrays, with a step of 100 ms: 40 forward, 40 backward, 20 for the update."""

    def __init__(self, *, distributed: bool, shows_late: bool = False) -> None:
        self.shows_late = shows_late  # after the step, as a loop may do
        self.clock, self.ahead = StepClock(distributed=distributed), StepsAhead(10**9)
        self.loss, self.grads, self.weights = array(), [array(), array()], [array(), array()]

    def run(self, every_s: float, host_s: float = 0.0) -> dict[str, float]:
        """The parts, as fractions. ``host_s``: the loop's own time in each step, with nothing queued."""
        stream = batches(every_s)
        for number in range(STEPS):
            asked = time.perf_counter()
            next(stream)
            self.clock.data(asked, time.perf_counter())
            self.ahead.wait(number)
            self.clock.queued()
            if host_s:
                mx.nd.waitall()
                time.sleep(host_s)
            self.clock.begins()
            compute(0.04, self.weights, [self.loss])
            if not self.shows_late:
                self.clock.losses(self.loss)
            compute(0.04, [self.loss], self.grads)
            self.clock.gradients(lambda: self.grads)
            compute(0.02, self.grads, self.weights)
            self.clock.weights(lambda: self.weights)
            if self.shows_late:
                self.clock.losses(self.loss)
            self.ahead.add(number, self.loss)
        mx.nd.waitall()
        parts = self.clock.take()
        assert parts.steps == STEPS - 1
        assert len(parts.backward) == STEPS - 1
        return {part: seconds / sum(parts.seconds.values()) for part, seconds in parts.seconds.items()}


@pytest.mark.parametrize(("every_s", "expected"), [(0.080, 0.0), (0.100, 0.0), (0.125, 0.2)])
def test_waiting_for_data_is_what_a_perfect_input_would_save(every_s: float, expected: float) -> None:
    """At balance too, where the loop waits in each step, and the engine never."""
    found = Loop(distributed=False).run(every_s)
    assert found[DATA] == pytest.approx(expected, abs=0.05)
    assert found[COMPUTE] == pytest.approx(1 - expected, abs=0.05)


@pytest.mark.parametrize("shows_late", [False, True])
@pytest.mark.parametrize(("every_s", "part"), [(0.0, 0.2), (0.125, 0.16)])
def test_with_servers_the_update_is_communication(shows_late: bool, every_s: float, part: float) -> None:
    loop = Loop(distributed=True, shows_late=shows_late)
    assert loop.run(every_s)[COMMUNICATION] == pytest.approx(part, abs=0.05)


def test_a_loop_that_waits_holds_the_engine() -> None:
    found = Loop(distributed=False).run(0.0, host_s=0.05)
    assert found[LOOP] == pytest.approx(1 / 3, abs=0.07)
    assert found[DATA] == pytest.approx(0.0, abs=0.05)


def test_operators_that_are_computed_as_they_are_queued_are_bound_by_the_host() -> None:
    loop = Loop(distributed=False)
    for _ in range(STEPS):
        loop.clock.queued()
        for _ in range(20):
            compute(0.0001, loop.weights, [loop.loss])
            time.sleep(0.001)
        loop.clock.losses(loop.loss)
        compute(0.0001, [loop.loss], loop.grads)
        loop.clock.gradients(lambda: loop.grads)
        compute(0.0001, loop.grads, loop.weights)
        loop.clock.weights(lambda: loop.weights)
    mx.nd.waitall()
    parts = loop.clock.take()
    assert parts.host_bound > 0.8 * parts.seconds[COMPUTE]
    assert parts.is_queued_late
    assert parts.alone_s is None


def many_operators(loop: Loop, *, waits: bool = False) -> None:
    """Steps of 40 operators of a millisecond, each of which takes 3 ms to queue."""
    for _ in range(STEPS):
        loop.clock.queued()
        for _ in range(40):
            compute(0.001, loop.weights, [loop.loss])
            time.sleep(0.003)
        loop.clock.losses(loop.loss)
        if waits:
            loop.loss.wait_to_read()
        compute(0.001, [loop.loss], loop.grads)
        loop.clock.gradients(lambda: loop.grads)
        compute(0.001, loop.grads, loop.weights)
        loop.clock.weights(lambda: loop.weights)
    mx.nd.waitall()


@pytest.fixture
def one_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in so few steps."""
    monkeypatch.setattr(step_clock, "STEPS_A_GATE", STEPS)


@pytest.mark.usefixtures("one_gate")
def test_one_step_tells_what_computing_takes_once_it_is_queued() -> None:
    loop = Loop(distributed=False)
    many_operators(loop)
    assert loop.clock.take().is_queued_late
    many_operators(loop)
    parts = loop.clock.take()
    assert parts.steps == STEPS - 1  # the one that was held, the first, has none before it
    assert parts.alone_s is not None
    assert 0.04 <= parts.alone_s < 0.6 * parts.seconds[COMPUTE] / parts.steps  # the update too
    assert parts.queueing == pytest.approx(parts.seconds[COMPUTE], rel=0.2)


@pytest.mark.usefixtures("one_gate")
def test_a_loop_that_waits_in_the_middle_of_a_step_is_let_go_on_and_not_held_again() -> None:
    loop = Loop(distributed=False)
    many_operators(loop, waits=True)
    loop.clock.take()
    many_operators(loop, waits=True)
    parts = loop.clock.take()
    assert (parts.alone_s, parts.is_queued_late) == (None, True)
    many_operators(loop, waits=True)
    assert loop.clock.take().steps == STEPS - 1


def test_of_few_steps_none_is_held() -> None:
    loop = Loop(distributed=False)
    many_operators(loop)
    assert loop.clock.take().is_queued_late
    many_operators(loop)
    assert loop.clock.take().alone_s is None


def test_of_short_steps_one_in_several_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_clock, "EVERY_S", 0.35)
    monkeypatch.setattr(step_clock, "LEAST", 2)
    loop = Loop(distributed=False)
    loop.run(0.0)
    for _ in range(2 * STEPS):
        loop.clock.queued()
        loop.clock.losses(loop.loss)
        loop.clock.gradients(lambda: loop.grads)
        loop.clock.weights(lambda: loop.weights)
    mx.nd.waitall()
    parts = loop.clock.take()
    assert [number % 4 for number in parts.backward] == [0] * parts.steps
    assert parts.steps >= 5


def test_a_mark_is_reached_when_what_it_stands_behind_is_done_and_taken_once() -> None:
    slow = array()
    compute(0.1, [], [slow])
    began, number = time.perf_counter(), marks.mark([slow])
    assert marks.take(number) is None
    slow.wait_to_read()
    mx.nd.waitall()
    at = marks.take(number)
    assert at is not None
    assert at - began == pytest.approx(0.1, abs=0.05)
    assert marks.take(number) is None
