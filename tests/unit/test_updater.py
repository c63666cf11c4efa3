"""The updater: an optimizer that was saved and restored goes on as if it had never stopped, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from raymx.checkpoint import files
from raymx.errors import CheckpointError
from raymx.experiment.names import OPTIMIZERS
from raymx.kvstore.optimizer import Updater
from raymx.kvstore.schedule import Schedule
from raymx.kvstore.spec import OptimizerSpec
from raymx.kvstore.state import OptimizerState, rekey

SHAPES = {0: (3, 4), 1: (5, 2)}
NAMES = {0: "0.weight", 1: "body/1.weight"}
SCHEDULE = Schedule(peak=0.05, warmup_steps=2, total_steps=10, decay="cosine")  # another rate in every step

# dcasgd has no momentum here: with one, MXNet 1.9.1 asks whether an array is true, and fails.
OPTIONS: dict[str, dict[str, Any]] = {
    name: {"momentum": 0.9} if "momentum" in own and name != "dcasgd" else {} for name, own in OPTIMIZERS.items()
}
CASES = [
    *OPTIONS.items(),
    ("rmsprop", {"centered": True}),
    ("lbsgd", {"momentum": 0.9, "warmup_strategy": "lars"}),
    ("sgd", {}),
    ("lars", {}),
]
STATELESS = [("sgd", {}), ("sgld", {}), ("lars", {})]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_an_optimizer_is_made_without_a_word(
    name: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """MXNet prints that an optimizer's own rate replaces the schedule's, which would be false here."""
    updater = Updater(OptimizerSpec(name, options, rescale_grad=0.5, schedule=Schedule(peak=0.125)))
    assert updater.learning_rate == 0.125
    assert capsys.readouterr().out == ""


class Run:
    """Two weights and an updater. Gradients and random numbers of a step are always the same."""

    def __init__(
        self, name: str, options: Mapping[str, Any], dtype: str = "float32", masters: bool = False, listed: bool = False
    ) -> None:
        self.spec = OptimizerSpec(name, options, rescale_grad=0.5, schedule=SCHEDULE, lr_mult={1: 0.5})
        self.masters, self.listed, self.done = masters, listed, 0
        self.weights = {key: mx.nd.array(_numbers(key, 0, shape), dtype=dtype) for key, shape in SHAPES.items()}
        self.updater = Updater(self.spec, masters=masters)

    def steps(self, count: int) -> Run:
        for _ in range(count):
            self.done += 1
            mx.random.seed(self.done)  # for sgld
            grads = {
                key: mx.nd.array(_numbers(key, self.done, shape), dtype=self.weights[key].dtype)
                for key, shape in SHAPES.items()
            }
            if self.listed:  # as a worker does; a store gives one at a time
                self.updater(list(SHAPES), list(grads.values()), list(self.weights.values()))
            else:
                for key, grad in grads.items():
                    self.updater(key, grad, self.weights[key])
        return self

    def restored(self, state: OptimizerState, done: int) -> Run:
        """Another one with this one's weights, which goes on from ``state``."""
        run = Run(self.spec.name, self.spec.options, masters=self.masters, listed=self.listed)
        run.weights, run.done = {key: weight.copy() for key, weight in self.weights.items()}, done
        run.updater = Updater(self.spec, state, masters=self.masters)
        return run

    def values(self) -> list[Any]:
        return [weight.asnumpy() for weight in self.weights.values()]


def _numbers(key: int, step: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng([key, step]).standard_normal(shape)


def through_files(state: OptimizerState, folder: Path) -> OptimizerState:
    """As a checkpoint has it: by structural name, written and read."""
    files.write(str(folder), files.Saved(b"", rekey(state, NAMES), epoch=0, step=3))
    return rekey(files.read(str(folder)).optimizer, {name: key for key, name in NAMES.items()})


def same(one: Run, other: Run) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))


def test_every_optimizer_is_here() -> None:
    assert {name for name, _ in CASES} == set(OPTIMIZERS)


@pytest.mark.parametrize(
    ("name", "options", "listed"),
    [*((*case, False) for case in CASES), *((name, OPTIONS[name], True) for name in ("sgd", "lars", "lamb", "adam"))],
)
def test_an_optimizer_goes_on_to_the_bit(name: str, options: dict[str, Any], listed: bool, tmp_path: Path) -> None:
    run = Run(name, options, listed=listed).steps(3)
    state = through_files(run.updater.state(), tmp_path)
    again, empty = run.restored(state, 3), run.restored(replace(state, arrays={}), 3)
    untouched = again.updater.state()
    run.steps(2)
    assert same(again.steps(2), run)
    assert same(empty.steps(2), run) is ((name, options) in STATELESS)
    # What was restored and not used yet is saved again as it was.
    assert (untouched.counts, untouched.scalars) == (state.counts, state.scalars)
    for key in SHAPES:
        np.testing.assert_equal(untouched.arrays[key], state.arrays.get(key, []))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("adam", "counts"),
        ("lamb", "counts"),
        ("adamax", "counts"),
        ("ftml", "counts"),
        ("nadam", "counts"),
        ("nadam", "scalars"),
        ("lars", "scalars"),
    ],
)
def test_every_part_of_the_state_counts(name: str, part: str, tmp_path: Path) -> None:
    run = Run(name, OPTIONS[name]).steps(3)
    lacking = run.restored(replace(through_files(run.updater.state(), tmp_path), **{part: {}}), 3)
    assert not same(lacking.steps(2), run.steps(2))


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "lamb", "lars", "rmsprop"])
def test_masters_in_a_worker(name: str, tmp_path: Path) -> None:
    """float16 weights: MXNet keeps the masters in the state, raymx apart from it."""
    run = Run(name, {**OPTIONS[name], "multi_precision": True}, "float16", listed=True).steps(3)
    state = through_files(run.updater.state(), tmp_path)
    assert {key: (master.dtype, master.size) for key, master in state.masters.items()} == {
        0: (np.float32, 12),
        1: (np.float32, 10),
    }
    np.testing.assert_array_equal(state.masters[0].astype("float16"), run.weights[0].asnumpy().ravel())
    again, without = run.restored(state, 3), run.restored(replace(state, masters={}), 3)
    final = run.steps(2).updater.state()
    assert same(again.steps(2), run)
    np.testing.assert_array_equal(again.updater.state().masters[0], final.masters[0])
    assert not np.array_equal(without.steps(2).updater.state().masters[0], final.masters[0])


def on_server(name: str) -> Run:
    run = Run(name, {**OPTIONS[name], "multi_precision": True}, masters=True)
    for weight in run.weights.values():
        weight[:] = weight.astype("float16").astype("float32")  # what arrived from a worker
    return run


def rounded(run: Run) -> Run:
    """With the weights that a worker would have, and that a checkpoint's parameters are."""
    for weight in run.weights.values():
        weight[:] = weight.astype("float16").astype("float32")
    return run


@pytest.mark.parametrize("name", ["sgd", "adam", "lamb", "dcasgd"])
def test_masters_on_a_server(name: str, tmp_path: Path) -> None:
    """The weight that a server's updater sees is the master; a new server begins with the float16 weights."""
    run = on_server(name).steps(3)
    state = through_files(run.updater.state(), tmp_path)
    np.testing.assert_array_equal(state.masters[1], run.weights[1].asnumpy().ravel())
    again, without = rounded(run.restored(state, 3)), rounded(run.restored(replace(state, masters={}), 3))
    np.testing.assert_array_equal(again.updater.state().masters[1], state.masters[1])
    run.steps(2)
    assert same(again.steps(2), run)
    assert not same(without.steps(2), run)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_servers_state_goes_on_in_a_worker(name: str, tmp_path: Path) -> None:
    """A run that was resized to one worker has no servers any more."""
    server = on_server(name).steps(3)
    state = through_files(server.updater.state(), tmp_path)
    worker = Run(name, server.spec.options, "float16", listed=True)
    worker.done = 3
    worker.weights = {key: weight.astype("float16") for key, weight in server.weights.items()}
    worker.updater = Updater(server.spec, state)
    server.steps(1)
    worker.steps(1)
    found, expected = worker.updater.state(), server.updater.state()
    for key in SHAPES:  # but for the gradients, which a worker has in float16
        np.testing.assert_allclose(found.masters[key], expected.masters[key], atol=1e-4)
        np.testing.assert_allclose(found.arrays[key], expected.arrays[key], atol=1e-3)


def test_masters_are_kept_only_where_they_are() -> None:
    assert Run("sgd", {"multi_precision": True}).steps(1).updater.state().masters == {}
    assert Run("sgd", {}, masters=True).steps(1).updater.state().masters == {}


def test_a_rate_set_by_hand_stays_set(tmp_path: Path) -> None:
    run = Run("sgd", {}).steps(1)
    assert "learning_rate" not in run.updater.state().scalars
    run.updater.set_learning_rate(0.25)
    again = run.restored(through_files(run.updater.state(), tmp_path), 1)
    assert again.updater.learning_rate == 0.25
    assert same(again.steps(2), run.steps(2))


def test_the_state_of_another_optimizer_is_refused() -> None:
    run = Run("sgd", {"momentum": 0.9}).steps(1)
    with pytest.raises(CheckpointError, match=r"\[12\] elements for key 0, and adam keeps \[12, 12\]"):
        Updater(replace(run.spec, name="adam", options={}), run.updater.state())(
            0, mx.nd.ones((3, 4)), mx.nd.ones((3, 4))
        )


class Counting(mx.optimizer.Optimizer):
    """One of a user's, with a number of its own."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.calls = 0

    def create_state(self, index: int, weight: Any) -> None:
        return None

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self._update_count(index)
        self.calls += 1
        weight[:] += grad * self.calls


def test_the_numbers_of_ones_own_optimizer_are_kept(tmp_path: Path) -> None:
    run = Run("test_updater:Counting", {})
    assert run.updater.state().scalars == {}
    state = through_files(run.steps(3).updater.state(), tmp_path)
    assert state.scalars == {"calls": 6}
    assert same(run.restored(state, 3).steps(2), run.steps(2))
