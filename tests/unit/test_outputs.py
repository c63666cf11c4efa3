"""Nets that give several arrays, or are compared with what they got: trained, scored, hybridized, and predicting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from factories import make_experiment  # noqa: E402
from in_process import InProcess, parameters  # noqa: E402

from raymx.data.tools.packing import pack_arrays  # noqa: E402
from raymx.errors import ExperimentError, TrainingError  # noqa: E402
from raymx.experiment import rules  # noqa: E402
from raymx.experiment.label_rules import label_range  # noqa: E402
from raymx.experiment.loading import load_experiment  # noqa: E402
from raymx.jobs.trained import Trained  # noqa: E402
from raymx.training import loop, nets  # noqa: E402
from raymx.training.structure import filled, form_of, leaves, mapped  # noqa: E402

OWN = """
import mxnet as mx
from mxnet import gluon

softmax, square = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L2Loss()

class Two(gluon.HybridBlock):
    def __init__(self, classes, form):
        super().__init__()
        self.form = form
        with self.name_scope():
            self.body, self.kind, self.size = gluon.nn.Dense(8, "tanh"), gluon.nn.Dense(classes), gluon.nn.Dense(1)
    def hybrid_forward(self, F, x):
        x = self.body(x)
        kind, size = self.kind(x), self.size(x)
        return {"dict": {"kind": kind, "size": size}, "list": [kind, [size]], "tuple": (kind, size)}[self.form]
class Plain(gluon.Block):
    def __init__(self, classes, form):
        super().__init__()
        self.two = Two(classes, form)
    def forward(self, x): return self.two(x)
def two(classes, form="tuple", plain=False): return (Plain if plain else Two)(classes, form)
def parts(outputs):
    if isinstance(outputs, dict): return outputs["kind"], outputs["size"]
    kind, size = outputs
    return kind, size[0] if isinstance(size, list) else size
def loss(outputs, labels):
    assert isinstance(outputs, (dict, list, tuple))
    kind, size = parts(outputs)
    return softmax(kind, labels) + square(size, labels)
def hits(outputs, labels):
    return (parts(outputs)[0].argmax(axis=1) == labels)
def coder(classes):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(5, "tanh"), gluon.nn.Dense(64))
    return net
def seen(outputs, labels):
    assert outputs[0].shape == (20, 3) and labels.shape == (20, 1, 8, 8)
    return outputs[1].reshape((-1,)) + labels.mean(axis=(1, 2, 3))
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    random = np.random.default_rng(1)
    pack_arrays(random.integers(0, 256, (60, 8, 8), np.uint8), random.integers(0, 3, 60), tmp_path / "train.rec")
    (tmp_path / "several_objects.py").write_text(OWN)
    (tmp_path / "experiment.yaml").write_text(
        "name: several\nmodel: {net: 'several_objects:two', classes: 3, loss: 'several_objects:loss', "
        "metric: 'several_objects:hits'}\n"
        "data: {train: train.rec, validation: train.rec, image_shape: [1, 8, 8]}\n"
        "training: {global_batch_size: 20, epochs: 2}\n"
    )
    return str(tmp_path / "experiment.yaml")


# ---- forms ----


@pytest.mark.parametrize("value", [1, [1], (1, 2), {"a": 1, "b": (2, [3])}, [{"x": 1}, [[2], (3,)]]])
def test_forms_are_taken_apart_and_put_together(value: Any) -> None:
    assert filled(form_of(value), leaves(value)) == value
    assert leaves(mapped(lambda each: each + 1, value)) == [each + 1 for each in leaves(value)]
    assert set(leaves(form_of(value))) == {None}


# ---- several outputs ----


def trained(monkeypatch: pytest.MonkeyPatch, path: str, **overrides: Any) -> InProcess:
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return InProcess(monkeypatch, path, given, loop.train)


@pytest.mark.parametrize("form", ["tuple", "list", "dict"])
def test_a_loss_and_a_metric_get_what_the_net_gives(
    monkeypatch: pytest.MonkeyPatch, path: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = trained(monkeypatch, path, model__options={"form": form}, resources__cpu_devices_per_worker=2)
    assert not caplog.records  # it is hybridized
    imperative = trained(monkeypatch, path, model__options={"form": form}, model__hybridize=False)
    for row, expected in zip(run.rows, imperative.rows, strict=True):
        assert row == pytest.approx(expected, rel=1e-5)
        assert 0 <= row["validation_hits"] <= 1
    assert run.rows[1]["train_loss"] < run.rows[0]["train_loss"]
    first, second = parameters(run.end), parameters(imperative.end)
    for name in first:
        np.testing.assert_allclose(first[name], second[name], atol=1e-6)


def test_outputs_of_another_type_are_cast_each(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    run = trained(monkeypatch, path, precision__dtype="float64")
    assert run.rows[1]["train_loss"] < run.rows[0]["train_loss"]


def test_a_net_that_is_no_graph(monkeypatch: pytest.MonkeyPatch, path: str, caplog: pytest.LogCaptureFixture) -> None:
    run = trained(monkeypatch, path, model__options={"plain": True, "form": "dict"})
    assert "the net runs without hybridize" in caplog.text
    for row, expected in zip(run.rows, trained(monkeypatch, path).rows, strict=True):
        assert row == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"model.loss": "softmax_cross_entropy"},
            r"model\.loss softmax_cross_entropy takes one array, .* a tuple of 2",
        ),
        ({"model.metric": "accuracy"}, r"model\.metric accuracy takes one array, and the net returns a tuple of 2"),
    ],
)
def test_losses_and_metrics_of_raymx_take_one(
    monkeypatch: pytest.MonkeyPatch, path: str, overrides: dict[str, Any], said: str
) -> None:
    with pytest.raises(TrainingError, match=said):
        InProcess(monkeypatch, path, overrides, loop.train)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_trained_net_predicts_in_the_form_that_it_gives(path: str, count: int) -> None:
    experiment = load_experiment(path, {"model.options": {"form": "dict"}})
    net = nets.build_net(experiment, [mx.cpu()])
    file = str(Path(path).with_name("net.params"))
    net.save_parameters(file)
    best = Trained("trial", {}, 1.0, {}, file, experiment)
    images = np.random.default_rng(1).integers(0, 256, (count, 8, 8), np.uint8)
    found = best.predict(images, rows_at_once=3)
    assert {name: array.shape for name, array in found.items()} == {"kind": (count, 3), "size": (count, 1)}
    if count:
        expected = net(mx.nd.array(images[:, None] / np.float32(255)))
        np.testing.assert_allclose(found["kind"], expected["kind"].asnumpy(), rtol=1e-5)


# ---- compared with the input ----

CODER: dict[str, Any] = {
    "model__net": "several_objects:coder",
    "model__target": "input",
    "model__loss": "l2",
    "model__metric": "mse",
}


def test_an_autoencoder_is_compared_with_what_it_got(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    run = trained(
        monkeypatch, path, **CODER, model__classes=1, training__base_lr=0.5, data__augment={"rand_mirror": True}
    )
    assert run.rows[1]["train_loss"] < run.rows[0]["train_loss"]
    last = run.rows[1]
    assert last["validation_loss"] == pytest.approx(last["validation_mse"] / 2, rel=1e-5)  # gluon's L2Loss halves it


def test_the_input_beside_several_outputs(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    more = {"model__loss": "several_objects:seen", "model__metric": "several_objects:seen", "model__target": "input"}
    (row, _) = trained(monkeypatch, path, **more).rows
    assert row["train_loss"] == pytest.approx(row["train_seen"])


def test_what_cannot_be_compared_with_the_input_is_refused() -> None:
    with pytest.raises(
        ExperimentError, match=r"model\.loss is softmax_cross_entropy: .* model\.target is input; use l2"
    ):
        rules.check(make_experiment(model__target="input"))
    with pytest.raises(ExperimentError, match=r"model\.metric is accuracy: .*; use mse"):
        rules.check(make_experiment(model__target="input", model__loss="l2"))
    with pytest.raises(ExperimentError, match=r"model\.target is input: training\.loop mine:train compares by itself"):
        rules.check(make_experiment(model__target="input", training__loop="mine:train"))
    fine = make_experiment(model__target="input", model__loss="l2", model__metric="mse", data__label_width=3)
    rules.check(fine)
    assert label_range(fine, 3) is None
