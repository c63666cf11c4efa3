"""Nets out of a symbol's file: whole, without the loss at their end, or as far as a layer with a new one on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from in_process import InProcess  # noqa: E402

from raymx.data.tools.packing import pack_arrays  # noqa: E402
from raymx.errors import DataError, ExperimentError, TrainingError  # noqa: E402
from raymx.experiment.loading import check_files, load_experiment  # noqa: E402
from raymx.experiment.source_files import named_files  # noqa: E402
from raymx.jobs.trained import Trained  # noqa: E402
from raymx.training import loop, nets  # noqa: E402


def graph(prefix: str = "") -> Any:
    """As a script for Modules has it, with a SoftmaxOutput at its end."""
    data = mx.sym.Variable("data")
    conv = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), name=f"{prefix}conv")
    norm = mx.sym.Activation(mx.sym.BatchNorm(conv, fix_gamma=False, name=f"{prefix}norm"), "relu", name=f"{prefix}act")
    scores = mx.sym.FullyConnected(mx.sym.Flatten(norm, name=f"{prefix}flat"), num_hidden=5, name=f"{prefix}fc")
    return mx.sym.SoftmaxOutput(scores, name="softmax")


@pytest.fixture(params=["", "old_"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A Module's checkpoint, and an experiment with it."""
    random = np.random.default_rng(1)
    pack_arrays(random.integers(0, 256, (40, 8, 8), np.uint8), random.integers(0, 3, 40), tmp_path / "train.rec")
    module = mx.mod.Module(graph(request.param), context=mx.cpu())
    module.bind([("data", (2, 1, 8, 8))], [("softmax_label", (2,))])
    module.init_params(mx.init.Uniform(0.3))
    module.save_checkpoint(str(tmp_path / "old"), 3)
    (tmp_path / "experiment.yaml").write_text(
        "name: symbols\nmodel: {symbol: old-symbol.json, classes: 5, parameters: old-0003.params}\n"
        "data: {train: train.rec, validation: train.rec, image_shape: [1, 8, 8]}\n"
        "training: {global_batch_size: 20, epochs: 1}\n"
    )
    return tmp_path


def made(folder: Path, **model: Any) -> Any:
    return load_experiment(folder / "experiment.yaml", {f"model.{key}": value for key, value in model.items()})


def test_a_symbol_is_a_net_without_its_loss(folder: Path) -> None:
    experiment = made(folder)
    assert experiment.model.net == "symbol"
    check_files(experiment)
    net = nets.build_net(experiment, [mx.cpu()])
    x = mx.nd.random.uniform(shape=(2, 1, 8, 8))
    symbol, arguments, auxiliary = mx.model.load_checkpoint(str(folder / "old"), 3)
    module = mx.mod.Module(symbol, context=mx.cpu())
    module.bind([("data", x.shape)], for_training=False)
    module.set_params(arguments, auxiliary)
    module.forward(mx.io.DataBatch([x]), is_train=False)
    np.testing.assert_allclose(mx.nd.softmax(net(x)).asnumpy(), module.get_outputs()[0].asnumpy(), rtol=1e-5, atol=1e-6)


def test_a_new_layer_on_features(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "old_flat" if "old_conv" in (folder / "old-symbol.json").read_text() else "flat"
    given = {"model.features": name, "model.classes": 3, "model.freeze": ["features.*"]}
    run = InProcess(monkeypatch, str(folder / "experiment.yaml"), given, loop.train)
    after = mx.nd.load_frombuffer(run.end.parameters)
    before = {key.partition(":")[2]: array for key, array in mx.nd.load(str(folder / "old-0003.params")).items()}
    assert {"output.weight", "output.bias"} < set(after)
    assert after["output.weight"].shape == (3, 4 * 6 * 6)
    frozen = {key.rpartition(".")[2]: array.asnumpy() for key, array in after.items() if key.startswith("features.")}
    assert len(frozen) == 6
    for key, array in frozen.items():
        (was,) = (old for full, old in before.items() if full.endswith(key))
        np.testing.assert_array_equal(array, was.asnumpy())
    (folder / "net.params").write_bytes(run.end.parameters)
    best = Trained("t0", {}, 1.0, run.rows[-1], str(folder / "net.params"), run.experiment)
    assert best.predict(np.zeros((4, 8, 8), np.uint8)).shape == (4, 3)


def test_a_symbol_without_weights_begins_by_the_names_of_its_parameters(folder: Path) -> None:
    net = nets.build_net(made(folder, parameters=None), [mx.cpu()])
    values = {name: param.data().asnumpy() for name, param in net.collect_params().items()}
    for name, array in values.items():
        expected = 1.0 if name.endswith(("gamma", "var")) else 0.0 if not name.endswith("weight") else None
        assert expected is None or (array == expected).all(), name
        assert expected is not None or array.std() > 0


def test_the_files_travel(folder: Path) -> None:
    assert set(named_files(made(folder))) == {"old-symbol.json", "old-0003.params"}


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        (
            {"features": "flet"},
            TrainingError,
            r"model\.features is flet, and .* has no such layer.*; its last ones are",
        ),
        ({"symbol": "train.rec"}, DataError, r"train\.rec is no symbol of MXNet's .*: give the \.\.\.-symbol\.json"),
        ({"symbol": "gone.json"}, DataError, r"model\.symbol: .*gone\.json is not there on node"),
        ({"symbol": "other.json"}, TrainingError, r"has no input named data; its first arguments are picture"),
    ],
)
def test_what_is_no_net(folder: Path, model: dict[str, Any], error: type[Exception], said: str) -> None:
    mx.sym.FullyConnected(mx.sym.Variable("picture"), num_hidden=3).save(str(folder / "other.json"))
    with pytest.raises(error, match=said):
        nets.build_net(made(folder, **model), [mx.cpu()])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"net": "alexnet"}, r'model\.net is alexnet and model\.symbol "old-symbol\.json": give one of them'),
        ({"symbol": None, "net": "symbol"}, r"model\.net is symbol and model\.symbol null: give one of them"),
        ({"symbol": None, "net": "alexnet", "features": "flat"}, r"model\.features is flat: it is a layer of model\.s"),
    ],
)
def test_one_net_is_given(folder: Path, model: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        made(folder, **model)


def test_a_symbol_that_is_not_there_is_told_before_the_start(folder: Path) -> None:
    with pytest.raises(ExperimentError, match=r"model\.symbol is \"odd-symbol\.json\": .*; .* has old-symbol\.json"):
        check_files(made(folder, symbol="odd-symbol.json"))
