"""Steps with a loss scale do not hold the loop: what it queues meanwhile, and when it hears of a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

from raymx.errors import TrainingError
from raymx.kvstore import engine
from raymx.kvstore.deferred import BEHIND
from raymx.kvstore.loss_scale import FIRST, LossScale, loss_scale
from raymx.kvstore.overflow import all_finite
from raymx.kvstore.schedule import Schedule
from raymx.kvstore.spec import OptimizerSpec, StoreSettings
from raymx.kvstore.trainer import Trainer

pytestmark = pytest.mark.timeout(60)


class Held:
    """An operator that lasts until `end`: an array whose value is not computed yet."""

    def __init__(self, array: mx.nd.NDArray) -> None:
        self._ends: list[Callable[[], None]] = []
        self._begun = threading.Event()
        engine.hold(self._begins, "held", (), [array])

    def _begins(self, end: Callable[[], None]) -> None:
        self._ends.append(end)
        self._begun.set()

    def end(self) -> None:
        assert self._begun.wait(30)
        self._ends.pop()()


def parameter_of(value: float = 1.0, shape: tuple[int, ...] = (4,)) -> gluon.Parameter:
    parameter = gluon.Parameter("weight", shape=shape, init=mx.init.Constant(value))
    parameter.initialize()
    return parameter


def trainer_of(parameter: gluon.Parameter, scale: LossScale | None, name: str = "sgd", **options: Any) -> Trainer:
    return Trainer(
        {"weight": parameter},
        mx.kv.create("local"),
        OptimizerSpec(name, options, rescale_grad=1, schedule=Schedule(peak=0.5)),
        StoreSettings(distributed=False, update_on_kvstore=False),
        scale=scale,
    )


def test_what_reads_a_held_array_waits_for_its_end() -> None:
    array = mx.nd.zeros((2,))
    held = Held(array)
    array += 1
    seen = []
    reader = threading.Thread(target=lambda: seen.append(array.asnumpy().tolist()))
    reader.start()
    assert not seen
    held.end()
    reader.join(30)
    assert seen == [[1, 1]]


@pytest.mark.parametrize("setting", [128, "dynamic"])
def test_steps_are_queued_before_their_gradients_are_computed(setting: Any) -> None:
    """Two updates, the second of which overflows, and the forward passes after them, while nothing can be computed."""
    parameter, scale = parameter_of(), loss_scale(setting, {})
    trainer = trainer_of(parameter, scale)
    gradient = parameter.grad()
    held = Held(gradient)
    outputs, scales = [], []
    for value in (0.25, np.inf):
        scales.append(trainer.loss_scale_to_come())
        gradient[:] = mx.nd.array([value] * 4) * scales[-1]
        trainer.step()
        outputs.append(parameter.data() * 2)
    assert scale is not None
    assert scale.skipped == 0
    held.end()
    assert [output.asnumpy().tolist() for output in outputs] == [[1.75] * 4] * 2
    assert trainer.take_scaling() == {"loss_scale": 128 if setting == 128 else FIRST / 2, "skipped_steps": 1}
    trainer.close()


def test_weights_that_the_loop_changes_itself_are_what_is_updated() -> None:
    parameter = parameter_of()
    trainer = trainer_of(parameter, LossScale(1.0))
    for _ in range(2):
        parameter.grad()[:] = 1
        trainer.step()
        parameter.data()[:] = parameter.data() * 10
    assert parameter.data().asnumpy().tolist() == [(((1 - 0.5) * 10) - 0.5) * 10] * 4
    trainer.close()


def test_a_failure_is_raised_two_steps_later_and_by_whatever_needs_the_step_done() -> None:
    parameter = parameter_of()
    trainer = trainer_of(parameter, LossScale(1.0))
    seen = []

    def fails(rescale: float) -> None:
        seen.append(rescale)
        raise TrainingError("the optimizer failed")

    trainer._update_here = fails  # type: ignore[method-assign]
    for _ in range(BEHIND):
        trainer.step()
    with pytest.raises(TrainingError, match="the optimizer failed"):
        trainer.step()
    with pytest.raises(TrainingError, match="the optimizer failed"):
        trainer.optimizer_state()
    mx.nd.waitall()  # nothing is held any more
    assert len(seen) == 1
    trainer.close()


def test_a_trainer_that_is_closed_lets_go_of_its_store_and_ends_its_thread() -> None:
    before = threading.active_count()
    trainer = trainer_of(parameter_of(), LossScale(1.0))
    trainer.step()
    mx.nd.waitall()
    trainer.close()
    assert threading.active_count() == before


def test_squares_that_overflow_are_not_taken_for_gradients_that_do() -> None:
    large = mx.nd.array([3e38, -3e38])
    assert all_finite([large])
    assert not all_finite([large, mx.nd.array([np.inf])])


def test_nothing_is_held_where_the_engine_runs_each_operator_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_ENGINE_TYPE", "NaiveEngine")
    parameter = parameter_of()
    trainer = trainer_of(parameter, loss_scale("dynamic", {}))
    parameter.grad()[:] = np.inf
    trainer.step()
    assert trainer.loss_scale_to_come() == FIRST / 2
    trainer.close()
