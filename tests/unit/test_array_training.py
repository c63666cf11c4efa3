"""Training on samples that are no pictures: equal for any number of workers, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from conftest import EXPERIMENTS
from in_process import InProcess
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

from raymx.errors import DataError, TrainingError
from raymx.experiment.loading import ExperimentConfig, load_experiment, parse_experiment
from raymx.training import loop, nets, sequences
from raymx.training.accumulation import turns_of
from raymx.training.batches import DeviceBatch, DeviceBatches
from raymx.training.membership import Membership
from raymx.training.position import LoopPosition

WORDS, CLASSES, COUNT = 40, 3, 50
NETS = '''
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn, rnn


class Reader(gluon.HybridBlock):
    """Words of sentences of different lengths, read by a GRU; what lies behind an end counts nothing."""

    def __init__(self, classes):
        super().__init__()
        with self.name_scope():
            self.embedding, self.rnn = nn.Embedding(40, 6), rnn.GRU(8, input_size=6)
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F, tokens, lengths):
        states = self.rnn(F.transpose(self.embedding(tokens), (1, 0, 2)))
        return self.output(F.SequenceLast(states, F.cast(lengths, "float32"), use_sequence_length=True))


def reader(classes):
    return Reader(classes)


def one_input(classes):
    return nn.Dense(classes)


def samples():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, 50)
    return {"tokens": [rng.integers(1, 40, length) for length in lengths], "label": lengths % 3}
'''


def experiment(folder: Path, batch: int = 8, **given: Any) -> ExperimentConfig:
    (folder / "array_made.py").write_text(NETS)
    raw: dict[str, Any] = {
        "name": "x",
        "model": {"net": "array_made:reader", "classes": CLASSES, "initializer": "uniform"},
        "data": {
            "kind": "array",
            "train": "array_made:samples",
            "inputs": {"tokens": {"dtype": "int32", "shape": [None]}},
            "pad": {"longest": 12},
        },
        "training": {"global_batch_size": batch},
    }
    for name, keys in given.items():
        raw[name] = {**raw.get(name, {}), **keys}
    return parse_experiment(raw, str(folder))


def batches_of(made: ExperimentConfig, rank: int, workers: int, devices: int = 1) -> DeviceBatches:
    contexts = [mx.cpu(number) for number in range(devices)]
    return DeviceBatches(made, Membership(rank, workers, 0, False), contexts, LoopPosition(), lambda: 1.0)


@pytest.fixture(autouse=True)
def fresh_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import sys

    from raymx.data.pipeline.samples import load_samples

    yield
    sys.modules.pop("array_made", None)
    load_samples.cache_clear()


def weights_after(made: ExperimentConfig, workers: int, epochs: int = 4) -> dict[str, Any]:
    """What synchronous workers would have: each one's gradients, added up, and an update by 1/B."""
    net = nets.build_net(made, [mx.cpu()])
    takes_inputs = nets.as_input_net(net, made, [mx.cpu()])
    nets.hybridize_on_first_batch(takes_inputs, made)
    loss = nets.build_loss(made)
    params = net._collect_params_with_prefix()
    shares = [batches_of(made, rank, workers) for rank in range(workers)]
    for epoch in range(epochs):
        for step in zip(*(share.train(epoch) for share in shares), strict=True):
            total = dict.fromkeys(params, 0.0)
            for batch in step:
                (part,) = batch.parts
                with autograd.record():
                    losses = loss(takes_inputs(*part.inputs), part.labels)
                losses.backward(part.scale)
                total = {name: total[name] + param.grad() for name, param in params.items()}
            for name, param in params.items():
                param.set_data(param.data() - 2.0 / made.training.global_batch_size * total[name])
    return {name: param.data().asnumpy() for name, param in params.items()}


@pytest.mark.parametrize("pad", [{"longest": 12}, {"to": [4, 8, 12]}], ids=["batch", "buckets"])
def test_an_rnn_with_padding_and_an_embedding_is_the_same_for_any_number_of_workers(
    tmp_path: Path, pad: dict[str, Any]
) -> None:
    made = experiment(tmp_path, data={"pad": pad})
    one = weights_after(made, 1)
    for workers in (2, 3):
        found = weights_after(made, workers)
        assert max(float(np.abs(found[name] - one[name]).max()) for name in one) < 1e-5
    first = nets.build_net(made, [mx.cpu()])._collect_params_with_prefix()
    moved = {name: float(np.abs(one[name] - first[name].data().asnumpy()).max()) for name in one}
    assert min(moved.values()) > 1e-3, moved


def test_a_part_has_its_arrays_by_name_and_no_images(tmp_path: Path) -> None:
    made = experiment(tmp_path, batch=7)
    seen = 0
    for batch in batches_of(made, 0, 2, devices=2).train(0):
        for part in batch.parts:
            arrays = part.arrays
            assert list(arrays) == ["tokens", "lengths"]
            assert {name: array.dtype for name, array in arrays.items()} == {"tokens": np.int32, "lengths": np.int32}
            rows = part.without_padding()
            seen += 0 if rows is None else len(rows.labels)
            with pytest.raises(TrainingError, match="these samples are no images"):
                _ = part.images
    assert seen == sum(min(7, COUNT - start + 0) // 2 + min(7, COUNT - start) % 2 for start in range(0, COUNT, 7))


def test_several_labels_are_a_tuple(tmp_path: Path) -> None:
    (tmp_path / "two_labels.py").write_text(
        "import numpy as np\n\n\ndef samples():\n"
        "    return {'x': np.zeros((9, 2)), 'kind': np.arange(9), 'box': np.ones((9, 4))}\n"
    )
    made = experiment(
        tmp_path,
        model={"net": "array_made:one_input", "loss": "array_made:loss", "metric": "array_made:score"},
        data={
            "train": "two_labels:samples",
            "inputs": {"x": {"shape": [2]}},
            "labels": {"kind": {}, "box": {"shape": [4]}},
            "pad": {},
        },
    )
    shapes = [[each.shape for each in part.labels] for batch in batches_of(made, 0, 1).train(0) for part in batch.parts]
    assert shapes == [[(8,), (8, 4)], [(8,), (8, 4)]]
    (*_, last) = batches_of(made, 0, 1).train(0)
    (part,) = last.parts
    rows = part.without_padding()
    assert rows is not None
    assert [each.shape for each in rows.labels] == [(1,), (1, 4)]


def test_a_label_a_step_is_a_mean_over_those_that_are_there() -> None:
    labels = mx.nd.array([[0, 2, -1], [1, -1, -1], [-1, -1, -1]])
    outputs = mx.nd.random.uniform(shape=(3, 3, 3))
    outputs.attach_grad()
    with autograd.record():
        losses = sequences.cross_entropy(outputs, labels)
    losses.backward()
    logs = outputs.log_softmax(axis=-1).asnumpy()
    assert losses.asnumpy() == pytest.approx([-(logs[0, 0, 0] + logs[0, 1, 2]) / 2, -logs[1, 0, 1], 0], abs=1e-6)
    moved = np.abs(outputs.grad.asnumpy()).max(axis=2) > 0
    assert moved.tolist() == [[True, True, False], [True, False, False], [False] * 3]
    longer = mx.nd.concat(outputs, mx.nd.ones((3, 2, 3)), dim=1), mx.nd.concat(labels, -mx.nd.ones((3, 2)), dim=1)
    assert (sequences.cross_entropy(*longer) == losses).asnumpy().all()
    best = outputs.argmax(axis=-1)
    assert sequences.accuracy(outputs, mx.nd.where(labels >= 0, best, labels)).asnumpy().tolist() == [1, 1, 0]
    smooth = sequences.cross_entropy(outputs, labels, 0.3).asnumpy()
    assert smooth[1] == pytest.approx(-0.7 * logs[1, 0, 1] - 0.3 * logs[1, 0].mean(), abs=1e-6)


def test_raymx_takes_a_label_a_step_by_its_own_loss_and_metric(tmp_path: Path) -> None:
    made = experiment(tmp_path, data={"labels": {"tag": {"shape": [None]}}})
    outputs, labels = mx.nd.random.uniform(shape=(2, 4, CLASSES)), mx.nd.array([[0, 1, 2, -1], [1, 1, 1, 1]])
    assert nets.build_loss(made)(outputs, labels).shape == (2,)
    assert nets.build_metric(made)[1](outputs, labels).shape == (2,)
    with pytest.raises(TrainingError, match="takes one label a row, or a place of it"):
        nets.build_loss(made)(outputs, labels[:, :3])


def test_turns_keep_the_names_of_arrays_and_all_labels(tmp_path: Path) -> None:
    (batch,) = (one for number, one in enumerate(batches_of(experiment(tmp_path), 0, 1).train(0)) if number == 0)
    (part,) = batch.parts
    two = replace(part, labels=(part.labels, part.labels * 2))
    turns = [turn for (turn,) in turns_of(DeviceBatch([two], batch.samples), 3)]
    assert [turn.arrays["tokens"].shape[0] for turn in turns] == [3, 3, 3]
    assert [[each.shape for each in turn.labels] for turn in turns] == [[(3,), (3,)]] * 3


def test_floats_are_cast_and_whole_numbers_are_not(tmp_path: Path) -> None:
    inputs = {"x": {"shape": [2]}, "i": {"shape": [], "dtype": "int32"}}
    given: dict[str, Any] = {"data": {"inputs": inputs, "pad": {}}, "precision": {"dtype": "float64"}}
    made = experiment(tmp_path, model={"net": "array_made:one_input"}, **given)

    class Types(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any, i: Any) -> Any:
            return F.identity(x), F.identity(i)

    net = nets.as_input_net(Types(), made, [mx.cpu()])
    x, i = net(mx.nd.zeros((3, 2)), mx.nd.zeros((3,), dtype="int32"))
    assert (x.dtype, i.dtype) == (np.float64, np.int32)


def test_a_net_that_cannot_take_the_inputs_is_told_which(tmp_path: Path) -> None:
    made = experiment(tmp_path, model={"net": "array_made:one_input"})
    with pytest.raises(TrainingError, match=r"cannot take the inputs tokens \[null\], lengths \[\] of data.inputs"):
        nets.build_net(made, [mx.cpu()])


@pytest.mark.parametrize(
    ("name", "overrides", "key", "limit"),
    [
        ("text_classifier", {"training.epochs": 5}, "validation_accuracy", 0.75),
        ("series_lstm", {"training.epochs": 20}, "validation_mse", 0.5),
        ("tabular_mlp", {"training.epochs": 2}, "validation_accuracy", 0.65),
    ],
)
def test_the_examples_learn(
    monkeypatch: pytest.MonkeyPatch, name: str, overrides: dict[str, object], key: str, limit: float
) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    done = InProcess(monkeypatch, str(EXPERIMENTS / f"{name}.yaml"), overrides, loop.train)
    found = done.rows[-1][key]
    assert found < limit if key.endswith("mse") else found > limit


def test_a_run_goes_on_from_the_middle_of_an_epoch_as_if_it_had_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    path, overrides = str(EXPERIMENTS / "text_classifier.yaml"), {"training.epochs": 1}
    whole = InProcess(monkeypatch, path, overrides, loop.train)
    held = InProcess(monkeypatch, path, overrides, loop.train, hold_at=11)
    resumed = InProcess(monkeypatch, path, overrides, loop.train, saved=held.saved)
    assert held.saved is not None
    assert held.saved.parameters != whole.end.parameters
    assert whole.end.parameters == resumed.end.parameters


def test_a_loop_with_data_of_its_own_needs_none_in_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "name: own\nmodel: {net: 'own_made:net', classes: 2}\ntraining: {loop: 'own_made:train', epochs: 2}\n"
    )
    (tmp_path / "own_made.py").write_text(
        "from mxnet.gluon import nn\n\n\ndef net(classes):\n    return nn.Dense(classes, in_units=3)\n"
    )

    def train(ctx: Any) -> None:
        net = ctx.build_net()
        trainer = ctx.trainer(net)
        for _ in ctx.epochs():
            for _ in range(3):
                with autograd.record():
                    losses = (net(mx.nd.ones((4, 3))) ** 2).mean(axis=1)
                losses.backward()
                trainer.step()
            ctx.report({"loss": float(losses.mean().asscalar())})
        with pytest.raises(DataError, match=r"data.train is not set"):
            next(iter(ctx.train_batches(0)))

    assert len(InProcess(monkeypatch, str(tmp_path / "own.yaml"), {}, train).rows) == 2


def test_lengths_are_of_the_experiment_file() -> None:
    made = load_experiment(EXPERIMENTS / "text_classifier.yaml")
    assert made.data.input_shapes == {"tokens": (None,), "lengths": ()}
    assert isinstance(rnn.GRU(1), gluon.HybridBlock)
    assert isinstance(nn.Embedding(1, 1), gluon.HybridBlock)
