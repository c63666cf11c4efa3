"""Mixed pictures, smoothed labels, gradients in several turns: what each computes, and that runs go on to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from factories import make_experiment  # noqa: E402
from in_process import InProcess, parameters  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402

from raymx.data.tools.packing import pack_arrays  # noqa: E402
from raymx.errors import ExperimentError  # noqa: E402
from raymx.experiment import rules  # noqa: E402
from raymx.training import loop, mixing, nets  # noqa: E402
from raymx.training.accumulation import turns_of  # noqa: E402
from raymx.training.batches import DeviceBatch, Part  # noqa: E402
from raymx.training.precision import MIX_INPUTS, Prepare  # noqa: E402

OWN = """
from mxnet import gluon

def mlp(classes):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, "tanh"), gluon.nn.Dense(classes))
    return net
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    random = np.random.default_rng(1)
    pack_arrays(random.integers(0, 256, (70, 8, 8), np.uint8), random.integers(0, 3, 70), tmp_path / "train.rec")
    (tmp_path / "learning_objects.py").write_text(OWN)
    (tmp_path / "experiment.yaml").write_text(
        "name: learning\nmodel: {net: 'learning_objects:mlp', classes: 3}\n"
        "data: {train: train.rec, validation: train.rec, image_shape: [1, 8, 8]}\n"
        "training: {global_batch_size: 20, epochs: 2, base_lr: 0.2, optimizer: {name: sgd, momentum: 0.9}}\n"
    )
    return str(tmp_path / "experiment.yaml")


def part_of(rows: int, real: tuple[int, ...] | None = None, size: tuple[int, int] = (4, 6)) -> Part:
    """Rows of pictures with one value each, the row's number, which is the label too."""
    numbers = mx.nd.arange(rows)
    weights = np.ones(rows) if real is None else np.isin(np.arange(rows), real)
    images = mx.nd.broadcast_to(numbers.reshape((-1, 1, 1, 1)), (rows, *size, 1)).astype("uint8")
    return Part((images,), numbers, mx.nd.array(weights), mx.nd.array(weights * 2), real)


# ---- mixing ----


def test_what_is_drawn_is_of_seed_epoch_and_step_alone() -> None:
    one = mixing.draw(0.2, 1.0, (1, 2, 3, 0), (8, 8))
    again, other = mixing.draw(0.2, 1.0, (1, 2, 3, 0), (8, 8)), mixing.draw(0.2, 1.0, (1, 2, 4, 0), (8, 8))
    assert (one.taken, one.turn) == (again.taken, again.turn) != (other.taken, other.turn)
    np.testing.assert_array_equal(one.rows, again.rows)


def test_each_batch_has_one_of_both_and_shares_are_of_their_distributions() -> None:
    drawn = [mixing.draw(0.4, 1.0, (1, step), (32, 32)) for step in range(2000)]
    cuts = [each for each in drawn if each.taken == 1.0 and each.rows.mean() * each.columns.mean() < 1]
    assert 0.45 < len(cuts) / len(drawn) < 0.55
    assert all(mixing.draw(0.0, 1.0, (step,), (8, 8)).taken == 1.0 for step in range(50))
    only = [mixing.draw(0.4, 0.0, (step,), (8, 8)) for step in range(2000)]
    assert all(each.rows.all() and each.columns.all() for each in only)
    shares = np.array([each.share for each in only])
    assert abs(shares.mean() - 0.5) < 0.03
    assert abs(shares.var() - 1 / (4 * (2 * 0.4 + 1))) < 0.01  # of Beta(a, a)
    assert min(each.share for each in drawn) >= 0


@pytest.mark.parametrize("rows", [1, 2, 3, 16])
@pytest.mark.parametrize("turn", [0.0, 0.3, 0.999])
def test_partners_are_other_real_rows(rows: int, turn: float) -> None:
    found = mixing.partners(rows, None, turn)
    assert sorted(found) == list(range(rows))
    assert rows == 1 or not (found == np.arange(rows)).any()
    real = tuple(range(0, rows, 2))
    found = mixing.partners(rows, real, turn)
    for row in range(rows):
        assert found[row] in real if row in real else found[row] == row
    assert len(real) == 1 or all(found[row] != row for row in real)
    assert list(mixing.partners(rows, (), turn)) == list(range(rows))


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.5, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("mirror", [False, True])
def test_the_graph_mixes_pictures_as_labels_are_mixed(mixup: float, cutmix: float, mirror: bool) -> None:
    prepare = Prepare([0.0], [1.0], "float32", mixes=True)
    prepare.initialize()
    prepare.hybridize()
    part = part_of(5, real=(0, 1, 3))
    if mirror:
        part = Part((*part.inputs, mx.nd.ones(5, dtype="uint8")), part.labels, part.weights, part.scale, part.real_rows)
    for step in range(5):
        drawn = mixing.draw(mixup, cutmix, (step,), (4, 6))
        mixed = mixing.mixed(part, drawn)
        assert len(mixed.inputs) == len(part.inputs) + MIX_INPUTS
        found = prepare(*mixed.inputs).asnumpy()
        own, others = mixed.labels.own.asnumpy(), mixed.labels.others.asnumpy()
        np.testing.assert_allclose(
            found.mean(axis=(1, 2, 3)), own * drawn.share + others * (1 - drawn.share), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_array_equal(found[[2, 4]], np.full((2, 1, 4, 6), [[[[2]]], [[[4]]]]))  # rows of weight 0
        assert set(others[[0, 1, 3]]) == {0, 1, 3}
        if cutmix:
            assert set(np.unique(found)) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_the_loss_of_mixed_labels_is_that_of_soft_ones() -> None:
    outputs, share = mx.nd.random.normal(shape=(4, 3)), 0.7
    own, others = mx.nd.array([0, 1, 2, 0]), mx.nd.array([1, 2, 0, 0])
    found = mixing.loss_of(gluon.loss.SoftmaxCrossEntropyLoss())(outputs, mixing.Mixed(own, others, share))
    soft = share * mx.nd.one_hot(own, 3) + (1 - share) * mx.nd.one_hot(others, 3)
    expected = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)(outputs, soft)
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5)
    score = mixing.score_of(lambda outputs, labels: labels)
    assert score(outputs, mixing.Mixed("own", "others", 0.5)) == "own"
    assert score(outputs, mixing.Mixed("own", "others", 0.4)) == "others"


@pytest.mark.parametrize(
    "augment", [{"mixup": 0.4}, {"cutmix": 1.0, "rand_mirror": True}, {"mixup": 0.2, "cutmix": 1.0}]
)
def test_a_run_with_mixed_pictures_goes_on_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, path: str, augment: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {"data.augment": augment, "resources.cpu_devices_per_worker": 2}
    whole = InProcess(monkeypatch, path, overrides, loop.train)
    held = InProcess(monkeypatch, path, overrides, loop.train, hold_at=2)
    resumed = InProcess(monkeypatch, path, overrides, loop.train, saved=held.saved)
    assert parameters(resumed.end) == parameters(whole.end)
    plain = InProcess(monkeypatch, path, {**overrides, "data.augment": {}}, loop.train)
    assert parameters(plain.end) != parameters(whole.end)
    assert not caplog.records  # both graphs are hybridized
    assert whole.rows[-1]["validation_samples"] == 70


# ---- smoothed labels ----


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_smoothed_labels_are_those_of_soft_ones_in_training_alone(shape: tuple[int, ...]) -> None:
    loss = nets.build_loss(make_experiment(training__label_smoothing=0.1, model__classes=4))
    outputs, labels = mx.nd.random.normal(shape=(5, 4)), mx.nd.array([0, 1, 2, 3, 0]).reshape(shape)
    soft = 0.9 * mx.nd.one_hot(labels.reshape((-1,)), 4) + 0.1 / 4
    expected = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)(outputs, soft).asnumpy()
    with autograd.train_mode():
        np.testing.assert_allclose(loss(outputs, labels).asnumpy(), expected, rtol=1e-5)
    plain = gluon.loss.SoftmaxCrossEntropyLoss()(outputs, labels).asnumpy()
    np.testing.assert_array_equal(loss(outputs, labels).asnumpy(), plain)


# ---- several turns ----


@pytest.mark.parametrize(("rows", "count"), [(8, 4), (7, 4), (5, 4), (3, 2), (4, 4), (6, 1)])
def test_turns_have_every_row_once_and_one_size(rows: int, count: int) -> None:
    real = tuple(range(rows - 1))  # the last one is a row of padding
    turns = [parts[0] for parts in turns_of(DeviceBatch([part_of(rows, real)], rows - 1), count)]
    assert len(turns) <= count
    assert len({len(turn.weights) for turn in turns}) == 1
    found = [
        float(label)
        for turn in turns
        for label, weight in zip(turn.labels.asnumpy(), turn.weights.asnumpy(), strict=True)
        if weight
    ]
    assert found == list(range(rows - 1))
    for turn in turns:
        there = turn.weights.asnumpy().astype(bool)
        assert turn.real_rows == (None if there.all() else tuple(np.flatnonzero(there)))
        np.testing.assert_array_equal(turn.scale.asnumpy(), turn.weights.asnumpy() * 2)
        np.testing.assert_array_equal(turn.inputs[0].asnumpy()[:, 0, 0, 0], turn.labels.asnumpy())


def test_devices_with_other_numbers_of_rows_have_other_numbers_of_turns() -> None:
    batch = DeviceBatch([part_of(5), part_of(4)], 9)
    assert [[len(part.weights) for part in parts] for parts in turns_of(batch, 4)] == [[2, 1], [2, 1], [2, 1], [1]]


@pytest.mark.parametrize("count", [2, 3, 4, 20])
@pytest.mark.parametrize("more", [{}, {"resources.cpu_devices_per_worker": 2}, {"precision.loss_scale": 8}])
def test_an_update_is_the_same_in_several_turns(
    monkeypatch: pytest.MonkeyPatch, path: str, count: int, more: dict[str, Any]
) -> None:
    plain = InProcess(monkeypatch, path, more, loop.train)
    found = InProcess(monkeypatch, path, {**more, "training.accumulate": count}, loop.train)
    expected = parameters(plain.end)
    for name, values in parameters(found.end).items():
        np.testing.assert_allclose(values, expected[name], atol=1e-5)
    for row, other in zip(found.rows, plain.rows, strict=True):
        assert row == pytest.approx(other, rel=1e-4)


def test_turns_and_mixed_pictures_go_on_to_the_bit(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    overrides = {"training.accumulate": 3, "data.augment": {"mixup": 0.4}, "training.label_smoothing": 0.1}
    whole = InProcess(monkeypatch, path, overrides, loop.train)
    held = InProcess(monkeypatch, path, overrides, loop.train, hold_at=6)
    resumed = InProcess(monkeypatch, path, overrides, loop.train, saved=held.saved)
    assert parameters(resumed.end) == parameters(whole.end)


# ---- rules ----


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"training__accumulate": 2}, r"training\.accumulate is 2: raymx's own loop does that"),
        ({"training__label_smoothing": 0.1}, r"training\.label_smoothing is 0\.1: raymx's own loop does that"),
        ({"data__augment": {"mixup": 0.2, "cutmix": 1}}, r"augment\.mixup is 0\.2: raymx's .*\n.*augment\.cutmix is 1"),
    ],
)
def test_a_loop_of_ones_own_does_these_itself(given: dict[str, Any], said: str) -> None:
    rules.check(make_experiment(**given))
    with pytest.raises(ExperimentError, match=said):
        rules.check(make_experiment(**given, training__loop="mine:train"))


def test_what_cannot_be_smoothed_or_cut() -> None:
    with pytest.raises(ExperimentError, match=r"label_smoothing is 0\.1: it is of softmax_cross_entropy, .* is l2"):
        rules.check(make_experiment(training__label_smoothing=0.1, model__loss="l2", model__metric="mse"))
    with pytest.raises(
        ExperimentError, match=r"training\.accumulate is 9: a worker has 8 rows of the global batch of 16"
    ):
        rules.check(make_experiment(training={"accumulate": 9, "global_batch_size": 16}, resources__workers=2))
    rules.check(make_experiment(data__transform="mine:change", data__augment={"mixup": 0.2}))
