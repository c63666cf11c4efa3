"""Outputs, losses and scores of wrong shapes: refused in one line, where they would be added up to wrong numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from factories import make_experiment  # noqa: E402
from in_process import InProcess  # noqa: E402

from raymx.data.tools.packing import pack_arrays  # noqa: E402
from raymx.errors import ExperimentError, TrainingError  # noqa: E402
from raymx.experiment import rules  # noqa: E402
from raymx.training import loop, metrics, nets  # noqa: E402
from raymx.training.ahead import StepsAhead  # noqa: E402
from raymx.training.shapes import require_a_row_each, require_arrays  # noqa: E402
from raymx.training.sums import Sums  # noqa: E402

ROWS = 6
LABELS = mx.nd.array([0, 1, 1, 0, 1, 0])


# ---- metrics ----


def test_one_output_under_sigmoid_bce_has_its_threshold_at_probability_one_half() -> None:
    model: dict[str, Any] = {"model__loss": "sigmoid_bce", "model__classes": 1}
    experiment = make_experiment(**model)
    name, score = nets.build_metric(experiment)
    perfect = (LABELS * 2 - 1).reshape((ROWS, 1)) * 0.2
    assert name == "accuracy"
    assert score(perfect, LABELS).asnumpy().tolist() == [1.0] * ROWS
    assert score(-perfect, LABELS).asnumpy().tolist() == [0.0] * ROWS
    assert not rules.problems(experiment)


def test_several_labels_a_row_under_sigmoid_bce_are_scored_each() -> None:
    labels = mx.nd.array([[1, 0, 1, 0], [0, 0, 0, 1]])
    logits = mx.nd.array([[3, -3, 3, -3], [3, -3, -3, 3]])
    assert metrics.accuracy_of_logits(logits, labels).asnumpy().tolist() == [1.0, 0.75]


@pytest.mark.parametrize("metric", ["accuracy", "top5"])
@pytest.mark.parametrize(
    ("outputs", "labels"),
    [
        ((ROWS, 1), (ROWS,)),
        ((ROWS, 5), (ROWS, 5)),
        ((ROWS, 6), (ROWS, 6)),
        ((ROWS, 3, 4, 4), (ROWS,)),
        ((ROWS,), (ROWS,)),
    ],
)
def test_shapes_that_a_metric_would_make_a_wrong_number_of_are_refused(metric: str, outputs: Any, labels: Any) -> None:
    with pytest.raises(
        TrainingError, match=rf"model\.metric {metric} takes outputs of shape \(rows, classes\)"
    ) as refused:
        getattr(metrics, metric)(mx.nd.ones(outputs), mx.nd.ones(labels))
    assert "\n" not in str(refused.value)


def test_mse_is_of_pairs() -> None:
    assert metrics.mse(mx.nd.ones((ROWS, 1)), LABELS).shape == (ROWS,)
    with pytest.raises(TrainingError, match="as many labels as outputs"):
        metrics.mse(mx.nd.ones((ROWS, 10)), LABELS)


def test_a_label_may_be_a_column() -> None:
    outputs = mx.nd.one_hot(LABELS, 3)
    assert metrics.accuracy(outputs, LABELS.reshape((ROWS, 1))).asnumpy().tolist() == [1.0] * ROWS
    assert metrics.top5(outputs, LABELS.reshape((ROWS, 1))).shape == (ROWS,)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"model__loss": "l2"}, "model.loss l2"),
        ({"model__loss": "l2", "model__metric": "top5"}, "model.loss l2"),
        ({"model__classes": 1}, "model.classes is 1"),
        ({"model__loss": "sigmoid_bce", "model__metric": "top5"}, "takes each output for itself"),
    ],
)
def test_a_metric_that_cannot_fit_is_refused_before_the_start(overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExperimentError, match=rf"model\.metric is .*{reason}.*; use model\.loss sigmoid_bce with"):
        rules.check(make_experiment(**overrides))
    assert not rules.problems(make_experiment(**overrides, training__loop="mine:train"))


# ---- a number a row ----


@pytest.mark.parametrize("values", [mx.nd.ones((ROWS, 1)), mx.nd.ones((ROWS, ROWS)), mx.nd.ones(1), [mx.nd.ones(ROWS)]])
def test_what_is_added_up_is_a_number_a_row(values: Any) -> None:
    fine, weights = mx.nd.ones(ROWS), mx.nd.ones(ROWS)
    require_a_row_each("it", fine, ROWS)
    for losses, scores, what in ((values, fine, "loss"), (fine, values, "score")):
        with pytest.raises(TrainingError, match=rf"the {what} that Sums.add got gives .* for 6 rows: .*shape \(6,\)"):
            Sums().add(losses, scores, weights)


def test_what_is_shown_is_an_array() -> None:
    from raymx.training.batches import DeviceBatches
    from raymx.training.step_clock import StepClock

    batches: Any = DeviceBatches.__new__(DeviceBatches)
    batches.num_given, batches._ahead, batches.clock = 1, StepsAhead(every=1), StepClock(distributed=False)
    batches.queued(mx.nd.ones(3))
    with pytest.raises(TrainingError, match=r"show\(\) got a list: give it one NDArray"):
        batches.queued([mx.nd.ones(3)])


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "l2", "sigmoid_bce"])
def test_labels_that_a_loss_cannot_take_are_told_in_one_line(loss: str) -> None:
    call = nets.build_loss(make_experiment(model__loss=loss))
    outputs, fitting = mx.nd.ones((ROWS, 3)), LABELS if loss.startswith("softmax") else mx.nd.ones((ROWS, 3))
    assert call(outputs, fitting).shape == (ROWS,)
    with pytest.raises(TrainingError, match=rf"model\.loss {loss} takes .* labels \(6, 2\): look at") as refused:
        call(outputs, mx.nd.ones((ROWS, 2)))
    assert "\n" not in str(refused.value)


# ---- in raymx's own loop ----

OWN = """
import mxnet as mx
from mxnet import gluon, autograd

class Two(gluon.HybridBlock):
    def __init__(self, when):
        super().__init__()
        self.when = when
        with self.name_scope():
            self.dense = gluon.nn.Dense(10)
    def hybrid_forward(self, F, x):
        y = self.dense(x)
        return (y, y) if self.when == "always" or autograd.is_training() else y

def two(classes, when): return Two(when)
def mlp(classes):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(classes))
    return net
def sigmoid(classes, layer):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(classes, activation="sigmoid" if layer else None))
    if not layer:
        net.add(gluon.nn.HybridLambda("sigmoid"))
    return net
def softmax(classes, how):
    class Softmax(gluon.HybridBlock if how == "graph" else gluon.Block):
        def __init__(self):
            super().__init__()
            self.dense = gluon.nn.Dense(classes)
        def hybrid_forward(self, F, x): return F.softmax(self.dense(x)).reshape((0, -1))
        if how != "graph":
            def forward(self, x): return mx.nd.softmax(self.dense(x))
    return Softmax()
def symbol(classes, last):
    data = mx.sym.Variable("data")
    scores = mx.sym.FullyConnected(data, num_hidden=classes, no_bias=True, name="scores")
    net = gluon.SymbolBlock(getattr(mx.sym, last)(scores, name="last"), data)
    net.initialize(mx.init.Uniform(0.1))
    return net
def scale(classes):
    class Scale(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.dense, self.scale = gluon.nn.Dense(classes), self.params.get("scale", shape=(1,))
        def hybrid_forward(self, F, x, scale): return F.broadcast_mul(self.dense(x), F.exp(scale))
    return Scale()
class Centres(gluon.loss.Loss):
    def __init__(self, trained=True):
        super().__init__(None, 0)
        with self.name_scope():
            self.centres = self.params.get("centres", shape=(10, 10), grad_req="write" if trained else "null")
        self.initialize(mx.init.Xavier())
    def hybrid_forward(self, F, outputs, labels, centres):
        return F.mean(F.square(outputs - F.Embedding(F.squeeze(labels), centres, 10, 10)), axis=1)
centres, fixed = Centres(), Centres(trained=False)
def column(outputs, labels): return gluon.loss.SoftmaxCrossEntropyLoss()(outputs, labels).reshape((-1, 1))
def wide(outputs, labels): return (outputs.argmax(axis=1) == labels).reshape((-1, 1))
"""


@pytest.fixture
def experiment(tmp_path: Path) -> dict[str, object]:
    random = np.random.default_rng(1)
    pack_arrays(random.integers(0, 256, (40, 8, 8), np.uint8), random.integers(0, 10, 40), tmp_path / "train.rec")
    (tmp_path / "shape_objects.py").write_text(OWN)
    (tmp_path / "experiment.yaml").write_text(
        "name: shapes\nmodel: {net: 'shape_objects:mlp', classes: 10}\n"
        "data: {train: train.rec, image_shape: [1, 8, 8]}\ntraining: {global_batch_size: 20}\n"
    )
    return {"path": str(tmp_path / "experiment.yaml")}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"model.loss": "shape_objects:column"}, r"model\.loss shape_objects:column gives shape \(20, 1\) for 20 rows"),
        ({"model.metric": "shape_objects:wide"}, r"model\.metric shape_objects:wide gives shape \(20, 1\) for 20 rows"),
        (
            {"model.net": "shape_objects:two", "model.options": {"when": "always"}},
            r"model\.loss softmax_cross_entropy takes one array, and the net returns a tuple of 2",
        ),
        (
            {"model.net": "shape_objects:two", "model.options": {"when": "training"}, "model.hybridize": False},
            r"the net returns a tuple of 2: name a module:function of your own",
        ),
    ],
)
def test_the_first_batch_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any], overrides: dict[str, object], said: str
) -> None:
    with pytest.raises(TrainingError, match=said) as refused:
        InProcess(monkeypatch, experiment["path"], overrides, loop.train)
    assert "\n" not in str(refused.value)


def refused(experiment: dict[str, Any], monkeypatch: pytest.MonkeyPatch, net: str, **model: object) -> str:
    overrides = {"model.net": f"shape_objects:{net}", **{f"model.{key}": value for key, value in model.items()}}
    with pytest.raises(TrainingError) as error:
        InProcess(monkeypatch, experiment["path"], overrides, loop.train)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("how", ["graph", "imperative"])
def test_a_net_that_ends_in_a_softmax_is_refused_under_a_loss_that_has_one(
    monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any], how: str
) -> None:
    said = refused(experiment, monkeypatch, "softmax", options={"how": how})
    assert said.startswith("model.net shape_objects:softmax gives probabilities")
    made = make_experiment(
        model__net="shape_objects:softmax", model__options={"how": how}, data__image_shape=[1, 8, 8]
    ).model_copy(update={"directory": str(Path(experiment["path"]).parent)})
    nets.build_net(made, [mx.cpu()], is_trained=True)  # one of a run of before can still be looked at


@pytest.mark.parametrize("loss", ["centres", "Centres"])
def test_a_loss_with_weights_of_its_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any], loss: str
) -> None:
    said = refused(experiment, monkeypatch, "mlp", loss=f"shape_objects:{loss}")
    assert said.startswith(f"model.loss shape_objects:{loss} has a parameter ")
    assert "_centres, which would be neither trained nor saved" in said


def test_a_loss_with_weights_that_never_change_is_fine(
    monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any]
) -> None:
    InProcess(monkeypatch, experiment["path"], {"model.loss": "shape_objects:fixed"}, loop.train)


@pytest.mark.parametrize("last", ["SoftmaxOutput", "LogisticRegressionOutput", "MakeLoss", "BlockGrad"])
def test_a_net_whose_last_operator_takes_no_gradient_is_refused(
    monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any], last: str
) -> None:
    said = refused(experiment, monkeypatch, "symbol", options={"last": last}, initializer="none")
    assert said.startswith(f"model.net shape_objects:symbol ends in {last}, which takes no gradient from model.loss")


def test_a_parameter_that_an_initializer_cannot_make_is_named(
    monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any]
) -> None:
    said = refused(experiment, monkeypatch, "scale")
    assert said.startswith("model.initializer xavier cannot make a parameter of model.net shape_objects:scale (")
    assert "scale" in said.partition("(")[2]
    assert 'init="zeros"' in said


def test_several_outputs_are_a_loops_of_ones_own(monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any]) -> None:
    found = []

    def train(ctx: Any) -> None:
        net = ctx.hybridize(ctx.build_net())
        ctx.trainer(net)
        found.append(net(mx.nd.ones((2, 1, 8, 8))))
        ctx.report({"train_loss": 1.0})

    overrides = {
        "model.net": "shape_objects:two",
        "model.options": {"when": "always"},
        "training.loop": "shape_objects:mlp",
    }
    InProcess(monkeypatch, experiment["path"], overrides, train)
    assert len(found[0]) == 2


def test_what_a_net_gives_is_made_of_arrays() -> None:
    require_arrays("mine:net", mx.nd.ones(3))
    require_arrays("mine:net", {"a": (mx.nd.ones(3), [mx.nd.ones(2)])})
    for outputs, what in (({}, "a dict of 0"), ((mx.nd.ones(3), 2.0), "a float"), (None, "a NoneType")):
        with pytest.raises(TrainingError, match=rf"mine:net returns {what}: a net gives an array, or a list, tuple or"):
            require_arrays("mine:net", outputs)


@pytest.mark.parametrize("layer", [True, False])
def test_a_second_sigmoid_is_refused(monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any], layer: bool) -> None:
    """All its outputs are above 0, so its accuracy would be that of a guess."""
    overrides = {
        "model.net": "shape_objects:sigmoid",
        "model.classes": 1,
        "model.options": {"layer": layer},
        "model.loss": "sigmoid_bce",
    }
    with pytest.raises(
        TrainingError, match=r"shape_objects:sigmoid ends in a sigmoid, and model\.loss sigmoid_bce has one"
    ):
        InProcess(monkeypatch, experiment["path"], overrides, loop.train)
    InProcess(monkeypatch, experiment["path"], {**overrides, "model.loss": "l2", "model.metric": "mse"}, loop.train)


def test_one_logit_is_trained_and_scored(monkeypatch: pytest.MonkeyPatch, experiment: dict[str, Any]) -> None:
    images = np.random.default_rng(2).integers(0, 256, (40, 8, 8), np.uint8)
    pack_arrays(images, np.arange(40) % 2, Path(experiment["path"]).with_name("halves.rec"))
    overrides = {"model.classes": 1, "model.loss": "sigmoid_bce", "data.train": "halves.rec"}
    (row,) = InProcess(monkeypatch, experiment["path"], overrides, loop.train).rows
    assert 0 <= row["train_accuracy"] <= 1
