"""A loop of a user's own in this process: the example of the documentation, and what it is made of."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from conftest import EXPERIMENTS  # noqa: E402
from in_process import InProcess, parameters  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402

from raymx.data.tools.packing import pack_arrays  # noqa: E402
from raymx.errors import LoopError  # noqa: E402
from raymx.experiment.loading import load_experiment  # noqa: E402
from raymx.kvstore.guard import no_other_store  # noqa: E402
from raymx.training import loop as default  # noqa: E402
from raymx.training import nets  # noqa: E402
from raymx.training.ahead import STEPS_AHEAD, StepsAhead  # noqa: E402
from raymx.training.context import WorkerContext  # noqa: E402
from raymx.training.position import LoopPosition  # noqa: E402
from raymx.training.sums import Sums  # noqa: E402

YAML = str(EXPERIMENTS / "own_loop.yaml")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Overrides for 12 steps an epoch, the last one a short batch."""
    folder, random = tmp_path_factory.mktemp("small"), np.random.default_rng(1)
    for name, count in (("train", 235), ("validation", 30)):
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        pack_arrays(images, random.integers(0, 10, count), folder / f"{name}.rec")
    return {
        "data.train": str(folder / "train.rec"),
        "data.validation": str(folder / "validation.rec"),
        "model.net": "nets:mlp",
        "training.global_batch_size": 20,
        "report.disp_batches": 2,
    }


def own_loop(ctx: WorkerContext) -> None:
    from raymx.experiment.user_code import load_object

    load_object("own_loop:train", str(EXPERIMENTS))(ctx)


# ---- the example ----


def test_the_example_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    run = InProcess(monkeypatch, YAML, {"training.epochs": 1}, own_loop)
    (row,) = run.rows
    assert row["validation_accuracy"] > 0.6
    assert (row["train_samples"], row["validation_samples"]) == (6000, 1000)


def test_it_gives_the_same_as_the_default_loop(monkeypatch: pytest.MonkeyPatch, small: dict[str, object]) -> None:
    """On two devices; pixels / 255 is what data.std does, and the default metric is the accuracy."""
    more = {**small, "training.epochs": 1, "resources.cpu_devices_per_worker": 2, "data.std": 255}
    mine, its = (InProcess(monkeypatch, YAML, more, loop) for loop in (own_loop, default.train))
    assert mine.rows[0].keys() == its.rows[0].keys()
    for name, figure in its.rows[0].items():
        assert mine.rows[0][name] == pytest.approx(figure, rel=1e-5)
    assert mine.context.progress["loss"] == pytest.approx(its.context.progress["loss"], rel=0.5)  # of another device


@pytest.mark.parametrize("loop", [own_loop, default.train])
def test_a_loop_goes_on_from_a_checkpoint_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, small: dict[str, object], loop: Any
) -> None:
    more = {**small, "training.epochs": 2}
    whole = InProcess(monkeypatch, YAML, more, loop, hold_at=5)
    assert whole.saved is not None
    assert (whole.saved.epoch, whole.saved.step, whole.saved.sums["samples"]) == (0, 5, 100)
    resumed = InProcess(monkeypatch, YAML, more, loop, saved=whole.saved)
    assert resumed.rows == whole.rows
    assert parameters(resumed.end) == parameters(whole.end)


@pytest.mark.parametrize("loop", [own_loop, default.train])
def test_a_loop_waits_for_nothing_inside_a_batch(
    monkeypatch: pytest.MonkeyPatch, small: dict[str, object], loop: Any
) -> None:
    in_batch, waited = [False], list[str]()
    train_batches = WorkerContext.train_batches

    def marked(ctx: WorkerContext, epoch: int) -> Iterator[Any]:
        for number, batch in enumerate(train_batches(ctx, epoch)):
            in_batch[0] = number > 0  # with the first one the net is hybridized, which looks at its outputs
            yield batch
            in_batch[0] = False

    def noted(name: str) -> Any:
        plain = getattr(mx.nd.NDArray, name)

        def call(array: Any) -> Any:
            if in_batch[0]:
                waited.append(name)
            return plain(array)

        return call

    monkeypatch.setattr(WorkerContext, "train_batches", marked)
    for name in ("asnumpy", "wait_to_read", "asscalar"):
        monkeypatch.setattr(mx.nd.NDArray, name, noted(name))
    InProcess(monkeypatch, YAML, {**small, "training.epochs": 1}, loop)
    assert waited == []


# ---- how far it is queued ahead ----


class Losses:
    """Of a step, computed or not."""

    def __init__(self, step: int, waited: list[int]) -> None:
        self._step, self._waited = step, waited

    def wait_to_read(self) -> None:
        self._waited.append(self._step)

    def mean(self) -> Losses:
        return self

    def asscalar(self) -> float:
        return float(self._step)


def test_the_queue_is_bounded_and_a_loss_is_shown_now_and_then() -> None:
    waited, shown = list[int](), list[float]()
    ahead = StepsAhead(every=3, show=shown.append)
    for step in range(8):
        ahead.wait(step)
        assert waited == list(range(step - STEPS_AHEAD + 1))
        ahead.add(step, Losses(step, waited))
    assert shown == [1.0, 4.0]  # before steps 3 and 6


def test_several_devices_are_one_step() -> None:
    waited = list[int]()
    ahead = StepsAhead(every=1)
    for step in range(3):
        ahead.wait(step)
        for _device in range(2):
            ahead.add(step, Losses(step, waited))
    assert waited == [0]


def test_a_loop_that_shows_nothing_waits_for_nothing() -> None:
    ahead = StepsAhead(every=1, show=lambda _: pytest.fail("there is nothing to show"))
    for step in range(5):
        ahead.wait(step)


# ---- hybridize ----


class Uneven(gluon.HybridBlock):  # type: ignore[misc]
    """Gives something else as a graph."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x if F is mx.nd else x + 1


class Pair(gluon.HybridBlock):  # type: ignore[misc]
    """Two outputs."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.dense = gluon.nn.Dense(2, in_units=3)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.dense(x), [x * 2]


class Imperative(gluon.Block):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2


def on_first_batch(net: gluon.Block, **more: object) -> gluon.Block:
    return nets.hybridize_on_first_batch(net, load_experiment(YAML, {f"model.{key}": at for key, at in more.items()}))


def test_a_net_is_hybridized_with_its_first_batch(caplog: pytest.LogCaptureFixture) -> None:
    net = Pair()
    net.initialize()
    names, x = list(net._collect_params_with_prefix()), mx.nd.ones((4, 3))
    plain = net(x)[0].asnumpy()
    assert on_first_batch(net) is net
    assert not net._active
    with autograd.record():
        outputs, (doubled,) = net(x)
        loss = outputs.sum()
    loss.backward()
    assert net._active
    assert "forward" not in vars(net)
    assert list(net._collect_params_with_prefix()) == names
    np.testing.assert_allclose(outputs.asnumpy(), plain, rtol=1e-6)
    np.testing.assert_array_equal(doubled.asnumpy(), 2 * x.asnumpy())
    np.testing.assert_array_equal(net.dense.weight.grad().asnumpy(), np.full((2, 3), 4.0))
    assert not caplog.records


@pytest.mark.parametrize(
    ("net", "reason"),
    [(Uneven, "its hybrid and its imperative outputs differ by up to 1"), (Imperative, "it is a Block")],
)
def test_a_net_that_cannot_be_is_used_as_it_is(net: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    plain, x = net(), mx.nd.ones((2, 3))
    expected = plain(x).asnumpy()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_array_equal(on_first_batch(plain)(x).asnumpy(), expected)
    assert f"the net runs without hybridize: {reason}" in caplog.text


def test_unchecked_where_the_experiment_says_so() -> None:
    np.testing.assert_array_equal(on_first_batch(Uneven(), hybridize=True)(mx.nd.zeros(2)).asnumpy(), [1, 1])


def test_a_part_of_a_graph_becomes_one_with_it() -> None:
    outer = gluon.nn.HybridSequential()
    outer.add(on_first_batch(gluon.nn.Dense(2, in_units=3)))
    outer.initialize()
    outer.hybridize()
    assert outer(mx.nd.ones((4, 3))).shape == (4, 2)


# ---- sums, and where a loop is ----


def test_sums_are_over_real_rows_and_all_workers_and_go_on() -> None:
    sums = Sums({"loss": 10.0, "score": 1.0, "samples": 2})
    for device in (mx.cpu(0), mx.cpu(1)):
        losses, scores, weights = (mx.nd.array(row, ctx=device) for row in ([1, 2, 9], [1, 0, 1], [1, 1, 0]))
        sums.add(losses, scores == 1, weights)
    sums.count(4)
    assert sums.values() == {"loss": 16.0, "score": 3.0, "samples": 6}
    doubled = sums.means(lambda values: {name: 2 * value for name, value in values.items()}, "train", "accuracy")
    assert doubled == {"train_loss": 16 / 6, "train_accuracy": 0.5, "train_samples": 12}
    sums.clear()
    assert sums.values() == {"loss": 0, "score": 0, "samples": 0}


def test_a_position_goes_on_within_its_epoch_alone() -> None:
    position = LoopPosition(epoch=1, step=3, records=300)
    position.enter(1)
    position.step_done(400)
    assert (position.epoch, position.step, position.records) == (1, 4, 400)
    position.epoch_done(1)
    assert (position.epoch, position.step, position.records) == (2, 0, 0)
    position.enter(5)
    assert (position.epoch, position.step, position.records) == (5, 0, 0)


# ---- rows that only fill a batch up ----


def test_what_counts_rows_sees_real_ones_alone(monkeypatch: pytest.MonkeyPatch, small: dict[str, object]) -> None:
    """mx.metric knows no weights: 30 validation records in batches of 20, 235 to train with."""
    counted: dict[str, int] = {}
    shapes: set[int] = set()

    def loop(ctx: WorkerContext) -> None:
        ctx.trainer(ctx.build_net())
        for epoch in ctx.epochs():
            train, validation = mx.metric.Accuracy(), mx.metric.Accuracy()
            for batch in ctx.train_batches(epoch):
                for part in batch.parts:
                    shapes.add(len(part.labels))
                    train.update([part.real(part.labels)], [part.real(mx.nd.one_hot(part.labels, 10))])
                ctx.report()
            for batch in ctx.validation_batches():
                for part in batch.parts:
                    assert len(part.images) == len(part.labels) == len(part.scale)
                    assert part.weights.asnumpy().all()
                    validation.update([part.labels], [mx.nd.one_hot(part.labels, 10)])
            counted.update(train=train.num_inst, validation=validation.num_inst)
            padded = sum(len(part.labels) for batch in ctx.validation_batches(padded=True) for part in batch.parts)
            counted["padded"] = padded
            ctx.report({"train_accuracy": train.get()[1]})

    overrides = {**small, "training.epochs": 1, "data.augment": {"rand_mirror": True}}
    run = InProcess(monkeypatch, YAML, overrides, loop)
    assert counted == {"train": 235, "validation": 30, "padded": 40}
    assert len(shapes) == 1
    assert run.rows == [{"train_accuracy": 1.0}]


def test_parts_without_a_real_row_are_left_out(monkeypatch: pytest.MonkeyPatch, small: dict[str, object]) -> None:
    seen: list[list[int]] = []

    def loop(ctx: WorkerContext) -> None:
        ctx.trainer(ctx.build_net())
        for epoch in ctx.epochs():
            list(ctx.train_batches(epoch))
            seen.extend([len(part.labels) for part in batch.parts] for batch in ctx.validation_batches())
            ctx.report({"x": 1.0})

    overrides = {**small, "training.epochs": 1, "resources.cpu_devices_per_worker": 2}
    InProcess(monkeypatch, YAML, overrides, loop)
    assert seen == [[10, 10], [10]]


# ---- what a loop of one's own must do, and what it may ----


def weight_of(ctx: WorkerContext) -> gluon.nn.Dense:
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize(ctx=ctx.devices)
    return net


def trains_on_its_own_data(ctx: WorkerContext) -> None:
    net = weight_of(ctx)
    trainer = ctx.trainer(net)
    for epoch in ctx.epochs():
        for _ in range(4):
            with autograd.record():
                loss = (net(mx.nd.ones((20, 2))) ** 2).sum()
            loss.backward()
            trainer.step()
            ctx.report()
        ctx.report({"train_loss": float(loss.asscalar()), "done": float(epoch)})


def test_a_loop_with_data_of_its_own_counts_epochs_and_speed_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, small: dict[str, object]
) -> None:
    more = {**small, "training.epochs": 3}
    whole = InProcess(monkeypatch, YAML, more, trains_on_its_own_data)
    assert [payload["epoch"] for payload in whole.payloads] == [1, 2, 3]
    assert [payload["meter"]["steps"] for payload in whole.payloads] == [3, 4, 4]  # the very first one is kept apart
    assert all(payload["meter"]["samples"] == 20 * payload["meter"]["steps"] for payload in whole.payloads)
    assert all(payload["meter"]["train_s"] > 0 for payload in whole.payloads)
    assert (whole.end.epoch, whole.end.step) == (3, 0)
    part = InProcess(monkeypatch, YAML, {**more, "training.epochs": 2}, trains_on_its_own_data)
    resumed = InProcess(monkeypatch, YAML, more, trains_on_its_own_data, saved=part.end)
    assert [row["done"] for row in resumed.rows] == [2]
    assert [payload["epoch"] for payload in resumed.payloads] == [3]
    assert parameters(resumed.end) == parameters(whole.end)


def test_no_checkpoint_lies_between_an_epochs_last_step_and_its_row(
    monkeypatch: pytest.MonkeyPatch, small: dict[str, object]
) -> None:
    """A loop that means over its own batches would report a mean over none after a restore there."""
    run = InProcess(monkeypatch, YAML, {**small, "training.epochs": 2}, own_loop, hold_at=12)
    assert len(run.rows) == 2
    assert run.saved is None
    held = InProcess(monkeypatch, YAML, {**small, "training.epochs": 2}, own_loop, hold_at=11)
    assert held.saved is not None
    assert (held.saved.epoch, held.saved.step) == (0, 11)


def uses_gluons_trainer(ctx: WorkerContext) -> None:
    net = weight_of(ctx)
    gluon.Trainer(net.collect_params(), "sgd", kvstore=ctx.store)


def reports_with_no_trainer(ctx: WorkerContext) -> None:
    net = weight_of(ctx)
    gluon.Trainer(net.collect_params(), "sgd")
    ctx.report({"train_loss": 0.5})


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (uses_gluons_trainer, r"ctx\.store is not for loops; use  trainer = ctx\.trainer\(net\)"),
        (reports_with_no_trainer, r"report\(\) came before ctx\.trainer\(net\), so there is no net to save"),
        (lambda ctx: ctx.report(), r"report\(\) came before ctx\.trainer"),
    ],
)
def test_a_loop_that_trains_beside_raymx_is_an_error(
    monkeypatch: pytest.MonkeyPatch, small: dict[str, object], loop: Any, said: str
) -> None:
    with pytest.raises(LoopError, match=said):
        InProcess(monkeypatch, YAML, small, loop)


def test_another_store_for_several_processes_is_refused_where_it_is_made() -> None:
    create = mx.kv.create
    with no_other_store():
        assert mx.kv.create("local").type == "local"
        with pytest.raises(LoopError, match=r'mx\.kv\.create\("dist_sync"\) in .*test_own_loop\.py, line \d+: '):
            mx.kv.create("dist_sync")
        net = gluon.nn.Dense(1, in_units=2)
        net.initialize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_async")
        with pytest.raises(LoopError, match=r"test_own_loop\.py"):
            trainer.step(1)
    assert mx.kv.create is create


def test_a_trainer_that_makes_no_step_is_told(
    monkeypatch: pytest.MonkeyPatch, small: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    def loop(ctx: WorkerContext) -> None:
        ctx.trainer(weight_of(ctx))
        ctx.report({"train_loss": 0.5})

    InProcess(monkeypatch, YAML, small, loop)
    assert "no step() of ctx.trainer(net) came before the report in epoch 0" in caplog.text
    caplog.clear()
    InProcess(monkeypatch, YAML, {**small, "training.epochs": 1}, trains_on_its_own_data)
    assert not caplog.text
