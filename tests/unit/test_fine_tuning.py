"""Weights to begin with, a new output layer, frozen parts, rates of their own: what moves and travels, and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from factories import make_experiment  # noqa: E402
from in_process import InProcess, parameters  # noqa: E402
from mxnet import gluon  # noqa: E402

from raymx.checkpoint import files  # noqa: E402
from raymx.data.tools.packing import pack_arrays  # noqa: E402
from raymx.errors import DataError, ExperimentError, TrainingError  # noqa: E402
from raymx.experiment import rules  # noqa: E402
from raymx.experiment.loading import ExperimentConfig, check_files, load_experiment  # noqa: E402
from raymx.experiment.weights_file import local_problem, weights_file  # noqa: E402
from raymx.kvstore.trainer import trained_parameters  # noqa: E402
from raymx.training import loop, nets  # noqa: E402
from raymx.training.context import WorkerContext  # noqa: E402
from raymx.training.graphs import changing_statistics, with_held_statistics  # noqa: E402
from raymx.training.parameters import running_statistics  # noqa: E402
from raymx.training.registered import parameters_of  # noqa: E402
from raymx.training.weights import by_structure  # noqa: E402

OWN = """
import mxnet as mx
from mxnet import gluon

class Net(gluon.HybridBlock):
    def __init__(self, classes, last="dense"):
        super().__init__()
        with self.name_scope():
            self.features = gluon.nn.HybridSequential()
            self.features.add(gluon.nn.Conv2D(4, 3), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"))
            if last == "dense":
                self.output = gluon.nn.Dense(classes)
            elif last == "conv":
                self.output = gluon.nn.HybridSequential()
                self.output.add(gluon.nn.Conv2D(classes, 1), gluon.nn.GlobalAvgPool2D(), gluon.nn.Flatten())
            else:
                self.output = gluon.nn.HybridLambda(lambda F, x: F.mean(x, axis=(2, 3)))
    def hybrid_forward(self, F, x):
        return self.output(self.features(x))

def net(classes, last="dense"): return Net(classes, last)
def begun(classes, hybridized=False):
    net = Net(classes)
    if hybridized:
        net.hybridize(static_alloc=True)
    net.initialize(mx.init.Constant(0.01))
    net(mx.nd.zeros((1, 1, 8, 8)))
    return net
def tied(classes):
    class Tied(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.output = gluon.nn.Dense(64)
            self.again = gluon.nn.Dense(64, params=self.output.params)
        def hybrid_forward(self, F, x): return self.again(self.output(F.flatten(x)))
    return Tied()
def symbol(classes):
    data = mx.sym.Variable("data")
    conv = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), no_bias=True, name="conv")
    norm = mx.sym.Flatten(mx.sym.BatchNorm(conv, fix_gamma=False, name="norm"))
    net = gluon.SymbolBlock(mx.sym.FullyConnected(norm, num_hidden=classes, no_bias=True, name="fc"), data)
    net.initialize(mx.init.Uniform(0.1))
    return net
class Counts(gluon.HybridBlock):
    def __init__(self, classes):
        super().__init__()
        self.dense = gluon.nn.Dense(classes)
        self.seen = self.params.get("seen", shape=(1,), init="zeros", differentiable=False)
    def hybrid_forward(self, F, x, seen): return self.dense(x)
def counts(classes): return Counts(classes)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    pack_arrays(random.integers(0, 256, (60, 8, 8), np.uint8), random.integers(0, 3, 60), tmp_path / "train.rec")
    (tmp_path / "tuned_objects.py").write_text(OWN)
    (tmp_path / "experiment.yaml").write_text(
        "name: tuned\nmodel: {net: 'tuned_objects:net', classes: 3}\n"
        "data: {train: train.rec, validation: train.rec, image_shape: [1, 8, 8]}\n"
        "training: {global_batch_size: 20, epochs: 2, optimizer: {name: sgd, momentum: 0.9, wd: 0.01}}\n"
    )
    return tmp_path


def made(folder: Path, **model: Any) -> ExperimentConfig:
    given = {f"model.{key}": value for key, value in model.items()}
    return load_experiment(folder / "experiment.yaml", given)


def built(folder: Path, **model: Any) -> gluon.Block:
    return nets.build_net(made(folder, **model), [mx.cpu()])


def values(net: gluon.Block) -> dict[str, np.ndarray[Any, Any]]:
    return {name: param.data().asnumpy() for name, param in net._collect_params_with_prefix().items()}


def written(folder: Path, classes: int = 10, **model: Any) -> Path:
    """Parameters of another net of the same kind, whose weights are no other's."""
    net = built(folder, classes=classes, **model)
    for number, param in enumerate(net.collect_params().values()):
        param.set_data(mx.nd.random.uniform(shape=param.shape) + number)
    net.save_parameters(str(folder / "w.params"))
    return folder / "w.params"


# ---- weights to begin with ----


@pytest.mark.parametrize("how", ["save_parameters", "export", "a checkpoint", "a run"])
def test_a_net_begins_with_the_weights_of_a_file(folder: Path, how: str) -> None:
    file = written(folder, classes=3)
    expected = {name: array.asnumpy() for name, array in mx.nd.load(str(file)).items()}
    given = "w.params"
    if how == "export":
        other = built(folder)
        other.load_parameters(str(file))
        other.hybridize()
        other(mx.nd.zeros((1, 1, 8, 8)))
        other.export(str(folder / "graph"))
        given = "graph-0000.params"
    elif how != "save_parameters":
        inside = folder / "old_run" / "trial_7" / "checkpoint_000002"
        inside.mkdir(parents=True)
        file.rename(inside / files.PARAMETERS)
        given = str(inside.relative_to(folder))
        if how == "a run":
            given = "old_run"
            (folder / given / "run.yaml").touch()
            moved = f"/elsewhere/old_run/trial_7/checkpoint_000002/{files.PARAMETERS}"
            (folder / given / "summary.json").write_text(json.dumps({"parameters": moved}))
    check_files(made(folder, parameters=given))
    found = values(built(folder, parameters=given))
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], name)


def test_names_with_the_prefix_of_a_net_that_was_made_otherwise() -> None:
    net = gluon.nn.HybridSequential(prefix="net7_")
    with net.name_scope():
        net.add(gluon.nn.Dense(2, in_units=3))
    net.initialize()
    params = net._collect_params_with_prefix()
    array = mx.nd.ones((2, 3))
    for name in (
        "0.weight",
        "net7_dense0_weight",
        "dense0_weight",
        "arg:net7_dense0_weight",
        "arg:net12_dense0_weight",
    ):
        assert list(by_structure({name: array}, params, net.prefix)) == ["0.weight"], name
    assert list(by_structure({"arg:net12_fc_weight": array}, params, net.prefix)) == ["net12_fc_weight"]


def test_weights_are_cast_to_the_type_of_the_net(folder: Path) -> None:
    written(folder, classes=3)
    experiment = load_experiment(
        folder / "experiment.yaml", {"model.parameters": "w.params", "precision.dtype": "float64"}
    )
    net = nets.build_net(experiment, [mx.cpu(0), mx.cpu(1)])
    for name, param in net._collect_params_with_prefix().items():
        assert param.data(mx.cpu(0)).dtype == np.float64, name
        assert all(np.array_equal(data.asnumpy(), param.list_data()[0].asnumpy()) for data in param.list_data())


@pytest.mark.parametrize(
    ("classes", "model", "said"),
    [
        (
            10,
            {},
            r"output\.weight is \(3, 144\) in the net and \(10, 144\) in .*w\.params; set model\.classes to 10, .* "
            r"model\.head to \{name: output, classes: 3\}",
        ),
        (3, {"options": {"last": "conv"}}, r"lacks output\.0\.weight \(3, 4, 1, 1\), output\.0\.bias \(3,\), which"),
        (
            3,
            {"options": {"last": "conv"}, "allow_missing": True},
            r"has output\.weight \(3, 144\), output\.bias .* which .* has not; set model\.ignore_extra to true",
        ),
        (
            3,
            {"net": "tuned_objects:tied", "allow_missing": True, "ignore_extra": True},
            r"output\.weight is \(64, 64\)",
        ),
        (
            3,
            {"net": "tuned_objects:symbol", "initializer": "uniform", "allow_missing": True, "ignore_extra": True},
            r"is of another net than model\.net tuned_objects:symbol: it has features\.0\.weight \(4, 1, 3, 3\),",
        ),
    ],
)
def test_weights_of_another_net_are_refused_by_name_and_shape(
    folder: Path, classes: int, model: dict[str, Any], said: str
) -> None:
    written(folder, classes)
    with pytest.raises(TrainingError, match=said) as refused:
        built(folder, parameters="w.params", **model)
    assert "\n" not in str(refused.value)


def test_what_is_missing_begins_as_the_initializer_says(folder: Path) -> None:
    written(folder, classes=3)
    plain = values(built(folder, options={"last": "conv"}))
    found = values(
        built(folder, options={"last": "conv"}, parameters="w.params", allow_missing=True, ignore_extra=True)
    )
    np.testing.assert_array_equal(found["output.0.weight"], plain["output.0.weight"])
    assert not np.array_equal(found["features.0.weight"], plain["features.0.weight"])


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"no such", "is no file of parameters of MXNet's, or damaged"), (None, "is not there on node")],
)
def test_a_file_that_cannot_be_read(folder: Path, content: bytes | None, said: str) -> None:
    if content:
        (folder / "w.params").write_bytes(content)
    with pytest.raises(DataError, match=said) as refused:
        built(folder, parameters="w.params")
    assert "\n" not in str(refused.value)


def test_where_no_weights_are_is_told_before_the_start(folder: Path) -> None:
    written(folder)
    with pytest.raises(ExperimentError, match=r'model\.parameters is "v\.params": .* does not exist; .* has w\.params'):
        check_files(made(folder, parameters="v.params"))
    check_files(made(folder, parameters="v.params"), resumed=True)
    (folder / "lfs.params").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "Git LFS" in str(local_problem(str(folder / "lfs.params")))
    assert local_problem("s3://bucket/w.params") is None
    with pytest.raises(DataError, match=r"a folder with neither net\.params, .*; it has .*train\.rec"):
        weights_file(str(folder))
    (folder / "run.yaml").touch()
    with pytest.raises(DataError, match="a run that has told no best checkpoint"):
        weights_file(str(folder))


def test_a_run_that_goes_on_needs_no_file_any_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(folder, classes=3)
    path, given = str(folder / "experiment.yaml"), {"model.parameters": "w.params"}
    whole = InProcess(monkeypatch, path, given, loop.train)
    part = InProcess(monkeypatch, path, {**given, "training.epochs": 1}, loop.train)
    file.unlink()
    resumed = InProcess(monkeypatch, path, given, loop.train, saved=part.end)
    assert parameters(resumed.end) == parameters(whole.end)
    trained = made(folder, parameters="w.params")
    nets.build_net(trained, [mx.cpu()], is_trained=True)


# ---- a new output layer ----


@pytest.mark.parametrize(("last", "name"), [("dense", "output"), ("conv", "output"), ("conv", "output.0")])
def test_a_new_head_keeps_the_features(folder: Path, last: str, name: str) -> None:
    file = written(folder, classes=10, options={"last": last})
    old = {key: array.asnumpy() for key, array in mx.nd.load(str(file)).items()}
    net = built(folder, classes=10, options={"last": last}, parameters="w.params", head={"name": name, "classes": 3})
    found = values(net)
    assert net(mx.nd.zeros((2, 1, 8, 8))).shape == (2, 3)
    assert found.keys() == old.keys()
    anew = [key for key in old if not np.array_equal(found[key], old[key])]
    assert {key.rpartition(".")[0] for key in anew} == {"output" if last == "dense" else "output.0"}
    assert {found[key].shape[0] for key in anew} == {3}
    assert not found[f"{anew[0].rpartition('.')[0]}.bias"].any()


@pytest.mark.parametrize("initializer", ["xavier", "none"])
def test_a_head_for_a_net_that_its_function_has_begun(folder: Path, initializer: str, recwarn: Any) -> None:
    net = built(
        folder, net="tuned_objects:begun", classes=10, initializer=initializer, head={"name": "output", "classes": 3}
    )
    found = values(net)
    assert np.all(found["features.0.weight"] == np.float32(0.01))
    assert found["output.weight"].shape == (3, 144)
    assert found["output.weight"].std() > 0.01
    assert not [str(one.message) for one in recwarn if "already initialized" in str(one.message)]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            {"head": {"name": "outputs", "classes": 3}},
            r"no such layer; did you mean output\?; it has output, features,",
        ),
        ({"options": {"last": "mean"}}, r"model\.head\.name is output, a HybridLambda: it must be a Dense or a Conv"),
        ({"net": "tuned_objects:tied"}, r"whose weights are those of again\.weight too"),
    ],
)
def test_a_layer_that_cannot_be_made_anew(folder: Path, model: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        built(folder, **{"head": {"name": "output", "classes": 3}, **model})


def test_labels_are_those_of_the_new_head(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, classes=10)
    given = {"model.classes": 10, "model.parameters": "w.params"}
    path = str(folder / "experiment.yaml")
    run = InProcess(monkeypatch, path, {**given, "model.head": {"name": "output", "classes": 3}}, loop.train)
    assert run.rows[-1]["validation_samples"] == 60
    with pytest.raises(DataError, match=r"with model\.head\.classes 2 that is 0 to 1"):
        InProcess(monkeypatch, path, {**given, "model.head": {"name": "output", "classes": 2}}, loop.train)
    with pytest.raises(ExperimentError, match=r"model\.head\.name is given without model\.head\.classes"):
        made(folder, head={"name": "output"})


# ---- frozen ----


@pytest.mark.parametrize("net", ["net", "symbol"])
@pytest.mark.parametrize("devices", [1, 2])
def test_what_is_frozen_stays_to_the_bit_and_does_not_travel(
    folder: Path, monkeypatch: pytest.MonkeyPatch, net: str, devices: int
) -> None:
    head = "output" if net == "net" else "fc"
    written(folder, classes=3, net=f"tuned_objects:{net}", initializer="uniform")
    before = {name: array.asnumpy() for name, array in mx.nd.load(str(folder / "w.params")).items()}
    seen: dict[str, Any] = {}

    def train(ctx: WorkerContext) -> None:
        totals: list[Mapping[str, Any]] = []
        total = ctx.total
        monkeypatch.setattr(ctx, "total", lambda values: (totals.append(values), total(values))[1])
        loop.train(ctx)
        assert ctx._trainer is not None
        seen.update(names=ctx._trainer.names, totals=[set(each) for each in totals])

    overrides = {
        "model.net": f"tuned_objects:{net}",
        "model.initializer": "uniform",
        "model.parameters": "w.params",
        "model.freeze": ["features.*"] if net == "net" else ["conv*", "norm*"],
        "resources.cpu_devices_per_worker": devices,
    }
    run = InProcess(monkeypatch, str(folder / "experiment.yaml"), overrides, train)
    after = {name: array.asnumpy() for name, array in mx.nd.load_frombuffer(run.end.parameters).items()}
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    trained = {name for name in before if name.startswith(head)}
    assert moved == trained == set(seen["names"])
    assert not set().union(*seen["totals"]) & set(before)
    assert set(run.end.optimizer.arrays) == trained


def test_a_net_that_its_function_has_hybridized_holds_its_statistics(folder: Path) -> None:
    net = built(folder, net="tuned_objects:begun", options={"hybridized": True}, freeze=["features.*"])
    before = values(net)
    with mx.autograd.record():
        net(mx.nd.random.uniform(shape=(4, 1, 8, 8)))
    mx.nd.waitall()
    after = values(net)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_without_freezing_statistics_and_weights_move(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, classes=3)
    before = {name: array.asnumpy() for name, array in mx.nd.load(str(folder / "w.params")).items()}
    run = InProcess(monkeypatch, str(folder / "experiment.yaml"), {"model.parameters": "w.params"}, loop.train)
    after = mx.nd.load_frombuffer(run.end.parameters)
    assert all(not np.array_equal(before[name], after[name].asnumpy()) for name in before)


def test_the_bytes_of_a_step_are_those_of_what_is_trained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {name: array.size for name, array in values(built(folder)).items()}
    for freeze, expected in (
        ([], sum(size for name, size in sizes.items() if "running" not in name)),
        (["features.*"], sizes["output.weight"] + sizes["output.bias"]),
        (["*weight", "*.gamma"], sizes["features.0.bias"] + sizes["features.1.beta"] + sizes["output.bias"]),
    ):
        params = parameters_of(built(folder, freeze=freeze))
        trained = trained_parameters(params)
        assert sum(int(np.prod(param.shape)) for param in trained.values()) == expected
        assert len(running_statistics(params)) == (0 if "features.*" in freeze else 2)


def test_a_new_head_is_never_frozen(folder: Path) -> None:
    written(folder, classes=10)
    net = built(folder, classes=10, parameters="w.params", head={"name": "output", "classes": 3}, freeze=["*"])
    assert set(trained_parameters(parameters_of(net))) == {"output.weight", "output.bias"}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            {"freeze": ["feature.*"]},
            r"model\.freeze has feature\.\*, which matches no parameter .* features\.0\.weight",
        ),
        ({"lr_mult": {"body.*": 0.1}}, r"model\.lr_mult has body\.\*, which matches no parameter of the net"),
        ({"freeze": ["*"]}, r"model\.freeze \['\*'\] freezes all of the net: there is nothing to train"),
        (
            {"net": "tuned_objects:counts", "freeze": ["seen"]},
            r"model\.freeze matches seen, which Counts changes itself while it trains",
        ),
    ],
)
def test_patterns_that_cannot_be_meant(folder: Path, model: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        built(folder, **model)


def test_the_statistics_of_a_graph() -> None:
    norm = mx.sym.BatchNorm(mx.sym.Variable("data"), name="one")
    graph = mx.sym.BatchNorm(norm, name="two")
    names = graph.list_auxiliary_states()
    assert changing_statistics(graph.tojson(), names) == set(names)
    held = with_held_statistics(graph.tojson(), {"one_moving_mean"}, lambda *_: AssertionError())
    assert changing_statistics(held, names) == {"two_moving_mean", "two_moving_var"}
    assert changing_statistics(mx.sym.load_json(held).tojson(), names) == {"two_moving_mean", "two_moving_var"}


# ---- rates ----


def test_a_pattern_learns_at_a_rate_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = built(folder, lr_mult={"*": 0.5, "features.*": 0.1, "features.0.bias": 2})
    rates = {name: param.lr_mult for name, param in net._collect_params_with_prefix().items()}
    assert rates["output.weight"] == 0.5
    assert (rates["features.0.weight"], rates["features.0.bias"], rates["features.1.gamma"]) == (0.1, 2, 0.1)
    moved: dict[float, float] = {}
    for factor in (1.0, 1e-3):
        overrides = {"model.lr_mult": {"output.*": factor}, "training.epochs": 1, "training.global_batch_size": 60}
        run = InProcess(
            monkeypatch,
            str(folder / "experiment.yaml"),
            {**overrides, "training.optimizer": {"name": "sgd"}},
            loop.train,
        )
        weight = np.array(parameters(run.end)["output.weight"])
        moved[factor] = float(np.abs(weight - values(built(folder))["output.weight"].ravel()).max())
    assert moved[1e-3] == pytest.approx(moved[1.0] * 1e-3, rel=1e-3)


# ---- the model zoo ----


ZOO: dict[str, Any] = {"model__net": "mobilenet0.25", "data__image_shape": [3, 32, 32]}


def zoo_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray[Any, Any]]:
    """A file of weights where MXNet looks for its own, with the checksum that it asks for."""
    import hashlib

    from mxnet.gluon.model_zoo import model_store, vision

    net = vision.mobilenet0_25()
    net.initialize()
    net(mx.nd.zeros((1, 3, 32, 32)))
    net.save_parameters(str(root / "saved"))
    digest = hashlib.sha1((root / "saved").read_bytes()).hexdigest()
    monkeypatch.setitem(model_store._model_sha1, "mobilenet0.25", digest)
    (root / "saved").rename(root / f"mobilenet0.25-{digest[:8]}.params")
    return values(net)


def test_the_zoos_own_weights_with_a_new_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    expected = zoo_file(tmp_path, monkeypatch)
    experiment = make_experiment(
        **ZOO,
        model__classes=1000,
        model__options={"pretrained": True, "root": str(tmp_path)},
        model__head={"name": "output", "classes": 7},
    )
    rules.check(experiment)
    net = nets.build_net(experiment, [mx.cpu()])
    found = values(net)
    assert net(mx.nd.zeros((2, 3, 32, 32))).shape == (2, 7)
    anew = {name for name in found if not np.array_equal(found[name], expected[name])}
    assert anew == {"output.weight", "output.bias"}
    assert not [str(one.message) for one in recwarn if "already initialized" in str(one.message)]


def test_no_file_and_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mxnet.gluon.model_zoo import model_store

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("Max retries exceeded: the network is unreachable")

    monkeypatch.setattr(model_store, "download", refuse)
    options = {"pretrained": True, "root": str(tmp_path)}
    with pytest.raises(
        TrainingError,
        match=r"mobilenet0\.25 are not in .* nor can they be fetched \(OSError: Max retries .*model\.param",
    ) as refused:
        nets.build_net(make_experiment(**ZOO, model__classes=1000, model__options=options), [mx.cpu()])
    assert "\n" not in str(refused.value)


def test_weights_of_the_zoo_have_a_thousand_classes() -> None:
    options: dict[str, Any] = {"model__options": {"pretrained": True}}
    with pytest.raises(
        ExperimentError, match=r"use model\.classes 1000 with model\.head \{name: output, classes: 10\}"
    ):
        rules.check(make_experiment(**options))
    with pytest.raises(ExperimentError, match=r"model\.parameters is w\.params: model\.options has pretrained: true"):
        rules.check(make_experiment(**options, model__classes=1000, model__parameters="w.params"))
