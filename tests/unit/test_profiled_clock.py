"""Windows of a trace on MXNet's real engine, one after the other in a process, as trials of a run come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest

from raymx.data.pipeline.batch import HERE, MEMORY, TASKS, Batch
from raymx.errors import TrainingError
from raymx.results.trace import READ_TASKS, Span, Traced
from raymx.training import marks
from raymx.training.channel import LoopEnded
from raymx.training.profiled_clock import ProfiledClock

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def profiler_off() -> Iterator[None]:
    yield
    mx.profiler.set_state("stop")


def make_clock(first: int, last: int) -> ProfiledClock:
    made = ProfiledClock(first, last, process="worker 0", node="a", distributed=True)
    made.exchanges(lambda: [("w", 8, 16)])
    return made


def train(clock: ProfiledClock, steps: int, operator: str) -> None:
    """Steps that compute with this operator."""
    weight, gradient = mx.nd.ones((4,)), mx.nd.ones((4,))
    for _ in range(steps):
        clock.data(0.0, 0.0)
        clock.queued()
        getattr(mx.nd, operator)(weight, out=gradient)
        clock.losses(gradient)
        clock.gradients(lambda: [gradient])
        clock.weights(lambda: [weight])


def operators(traced: Traced | None) -> list[str]:
    assert traced is not None
    spans = (span for name, track in traced.tracks.items() if name.startswith("engine") for span in track)
    return sorted(span.name for span in spans)


def test_a_window_has_its_own_steps_and_nothing_of_those_before_it() -> None:
    for operator in ("sqrt", "exp"):  # a process that is used again
        clock = make_clock(3, 4)
        with clock:
            train(clock, 6, operator)
        traced = clock.take_traced()
        assert operators(traced) == [operator] * 2
        assert traced is not None
        assert [(one.step, one.name, one.pushed, one.pulled) for one in traced.exchanges] == [
            (3, "w", 8, 16),
            (4, "w", 8, 16),
        ]
        assert clock.take_traced() is None


@pytest.mark.parametrize("ends_by", [None, LoopEnded])
def test_a_loop_that_ends_within_its_window_leaves_the_process_as_it_was(ends_by: type[BaseException] | None) -> None:
    """As at a resize, or with fewer steps than asked for: the next trial is not traced, or only its own steps are."""
    before = mx.engine.set_bulk_size(7)
    mx.nd.waitall()  # for marks of the test before
    noted = len(marks._AT)
    clock = make_clock(2, 9)
    try:
        with clock:
            train(clock, 4, "sqrt")
            if ends_by:
                raise ends_by
    except LoopEnded:
        pass
    assert clock.take_traced() is None
    assert mx.engine.set_bulk_size(before) == 7
    assert len(marks._AT) <= noted + 4 * 4  # of the steps that were measured, which nobody has taken
    mx.nd.exp(mx.nd.ones((2,))).wait_to_read()  # of a trial that is not traced
    with (following := make_clock(1, 1)):
        train(following, 2, "cbrt")
    assert operators(following.take_traced()) == ["_ones", "_ones", "cbrt"]


def test_after_an_error_nothing_waits_for_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull whose other workers are gone is never done."""
    clock = make_clock(2, 9)
    clock.__enter__()
    train(clock, 4, "sqrt")
    monkeypatch.setattr(mx.nd, "waitall", lambda: pytest.fail("it would wait for ever"))
    clock.__exit__(TrainingError)
    assert clock.take_traced() is None


def test_read_tasks_have_a_track_of_their_own() -> None:
    """And what the worker decoded itself; a batch that was kept in memory was not made now."""
    clock = make_clock(1, 3)
    with clock:
        for source, began in ((TASKS, 100.0), (HERE, 200.0), (MEMORY, 0.0)):
            spent = {"read": 1.0, "decode": 2.0}
            clock.took(replace(make_batch(), source=source, spent=spent, began=began))
            train(clock, 1, "sqrt")
    traced = clock.take_traced()
    assert traced is not None
    rows = {"rows": 2}
    assert traced.tracks[READ_TASKS] == [Span("read", 100.0, 101.0, rows), Span("decode", 101.0, 103.0, rows)]
    assert traced.tracks["reading and decoding"] == [
        Span("read", 200.0, 201.0, rows),
        Span("decode", 201.0, 203.0, rows),
    ]


def make_batch() -> Batch:
    two = np.zeros(2, np.float32)
    return Batch(np.zeros((2, 1, 1, 1), np.uint8), two, np.zeros(2, np.uint8), two + 1, 2, 2)
