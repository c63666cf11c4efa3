"""A trained net as others take it: graphs, ONNX, fused by oneDNN, int8, and the table of `python -m raymx.score`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from in_process import InProcess  # noqa: E402
from mxnet import gluon  # noqa: E402

from raymx.data.tools.packing import pack_arrays  # noqa: E402
from raymx.errors import ExperimentError, TrainingError  # noqa: E402
from raymx.jobs import scores, trained  # noqa: E402
from raymx.jobs.trained import Trained  # noqa: E402
from raymx.score import main  # noqa: E402
from raymx.training import deploy, held_out, loop, speed  # noqa: E402

OWN = """
from mxnet import gluon

def convolutional(classes, last=None):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 3, padding=1), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"), gluon.nn.MaxPool2D())
    net.add(gluon.nn.Dense(classes))
    if last: net.add(gluon.nn.HybridLambda(last))
    return net
class Two(gluon.HybridBlock):
    def __init__(self, classes):
        super().__init__()
        with self.name_scope():
            self.kind, self.size = gluon.nn.Dense(classes), gluon.nn.Dense(1)
    def hybrid_forward(self, F, x): return {"kind": self.kind(x), "size": self.size(x)}
class Plain(gluon.Block):
    def __init__(self, classes):
        super().__init__()
        self.dense = gluon.nn.Dense(classes)
    def forward(self, x): return self.dense(x)
class Eager(gluon.HybridBlock):
    def __init__(self, classes):
        super().__init__()
        self.dense = gluon.nn.Dense(classes)
    def forward(self, x): return self.dense(x) * float(x.sum().asscalar())
def loss(outputs, labels): return gluon.loss.L2Loss()(outputs["size"], labels)
def metric(outputs, labels): return outputs["kind"].argmax(axis=1) == labels
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with pictures that say their label, and its modules."""
    path = tmp_path_factory.mktemp("deployed")
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 80)
    pictures = (random.integers(0, 60, (80, 8, 8)) + 80 * labels[:, None, None]).astype(np.uint8)
    pack_arrays(pictures, labels, path / "train.rec")
    (path / "deployed_objects.py").write_text(OWN)
    (path / "experiment.yaml").write_text(
        "name: deployed\nmodel: {net: 'deployed_objects:convolutional', classes: 3}\n"
        "data: {train: train.rec, validation: train.rec, image_shape: [1, 8, 8]}\n"
        "training: {global_batch_size: 20, epochs: 4, base_lr: 0.2}\n"
    )
    return path


def of(folder: Path, monkeypatch: pytest.MonkeyPatch, **overrides: Any) -> Trained:
    """What a run has trained."""
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    run = InProcess(monkeypatch, str(folder / "experiment.yaml"), given, loop.train)
    file = folder / f"{len(list(folder.glob('*.params')))}.params"
    file.write_bytes(run.end.parameters)
    return Trained("t0", {}, 4.0, run.rows[-1], str(file), run.experiment)


TWO: dict[str, Any] = {
    "model__net": "deployed_objects:Two",
    "model__loss": "deployed_objects:loss",
    "model__metric": "deployed_objects:metric",
}


def pictures(rows: int = 5) -> Any:
    return mx.nd.random.uniform(shape=(rows, 1, 8, 8))


def test_a_graph_gives_what_the_net_gives(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = of(folder, monkeypatch, precision__dtype="float64")
    files = found.export("symbol", str(tmp_path / "below" / "net"))
    assert files == [f"{tmp_path}/below/net-symbol.json", f"{tmp_path}/below/net-0000.params"]
    x = pictures()
    block = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    expected = found.load_net()(x.astype("float64"))
    np.testing.assert_allclose(block(x).asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


def test_several_outputs_are_a_list_in_a_graph(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = of(folder, monkeypatch, **TWO)
    files = found.export(path=str(tmp_path / "net"))
    x = pictures()
    kind, size = gluon.SymbolBlock.imports(files[0], ["data"], files[1])(x)
    expected = found.load_net()(x)
    np.testing.assert_allclose(kind.asnumpy(), expected["kind"].asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(size.asnumpy(), expected["size"].asnumpy(), rtol=1e-5)


def test_what_cannot_be_exported(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = of(folder, monkeypatch, model__net="deployed_objects:Plain")
    with pytest.raises(TrainingError, match="a Block and no HybridBlock: it has no graph to export"):
        plain.export("symbol", str(tmp_path / "net"))
    eager = of(folder, monkeypatch, model__net="deployed_objects:Eager")
    with pytest.raises(TrainingError, match=r"the net cannot be made a graph .*must be made of HybridBlocks"):
        eager.export("symbol", str(tmp_path / "net"))
    with pytest.raises(ExperimentError, match=r"export\('pdf'\): it must be one of symbol, onnx"):
        plain.export("pdf")  # type: ignore[arg-type]
    with pytest.raises(ExperimentError, match="MXNet writes local files only"):
        plain.export("symbol", "s3://bucket/net")


def test_onnx_without_its_package(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = of(folder, monkeypatch)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(TrainingError, match=r"pip install 'onnx>=1\.13,<1\.17'"):
        found.export("onnx", str(tmp_path / "net"))


def test_onnx_computes_what_the_net_does(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    found = of(folder, monkeypatch)
    (file,) = found.export("onnx", str(tmp_path / "net"))
    model = onnx.load(file)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 13)]
    model.opset_import[0].version = 15  # the package's own evaluator takes a batch norm of 13 for one that trains
    for rows in (1, 5):
        x = pictures(rows)
        (outputs,) = ReferenceEvaluator(model).run(None, {"data": x.asnumpy()})
        np.testing.assert_allclose(outputs, found.load_net()(x).asnumpy(), rtol=1e-4, atol=1e-5)
    unknown = of(folder, monkeypatch, model__options={"last": "arcsinh"})
    with pytest.raises(TrainingError, match=r"MXNet 1\.9\.1 cannot write this net as ONNX .*use the form symbol"):
        unknown.export("onnx", str(tmp_path / "net"))


@pytest.mark.parametrize("several", [False, True])
def test_forms_of_a_net_give_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch, several: bool) -> None:
    found = of(folder, monkeypatch, **(TWO if several else {}))
    x = pictures(8)
    with found.opened() as (net, _):
        expected = net(x)
        for form in (deploy.fused(net, x), deploy.AsModule(net, x), deploy.AsModule(net, x[:1])):
            outputs = form(x)
            for mine, other in (
                [(outputs[key], expected[key]) for key in expected] if several else [(outputs, expected)]
            ):
                np.testing.assert_allclose(mine.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5)


def test_int8_is_calibrated_by_the_runs_own_records(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = of(folder, monkeypatch)
    quantized = found.quantize(path=str(tmp_path / "int8"))
    assert "quantized" in (tmp_path / "int8-symbol.json").read_text()
    with found.opened() as (net, experiment):
        examples = held_out.first(experiment, 256)
        assert {len(each) for each in examples} == {32}
        batches = list(held_out.held_out(experiment))
    assert sum(len(labels) for _, labels in batches) == 80
    (inputs, _), *_ = batches
    exact, rough = net(inputs).asnumpy(), quantized(inputs).asnumpy()
    assert 0 < np.abs(exact - rough).max() < 0.1 * np.abs(exact).max()
    images = np.random.default_rng(1).integers(0, 256, (20, 8, 8), np.uint8)
    assert found.quantize(images)(inputs).shape == (20, 3)


def test_speed_waits_for_each_batch() -> None:
    calls: list[int] = []

    def net(x: Any) -> Any:
        calls.append(len(x))
        return {"a": (x, x)}

    assert speed.images_per_s(net, pictures(4), 0.0) > 0
    assert calls == [4] * 15


def test_the_table_of_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = of(folder, monkeypatch)
    monkeypatch.setattr(trained, "best", lambda run: found)
    path = tmp_path / "score.json"
    assert main(["RUN", "--batch-sizes", "1,4", "--seconds", "0", "--json", str(path)]) == 0
    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[2] == ["batch", "float32", "module", "fused", "int8"]
    assert [line[0] for line in lines[3:7]] == ["1", "4", "accuracy", "difference"]
    assert "int8: MXNet's own quantization" in shown.err
    figures = json.loads(path.read_text())
    by_form = {form["form"]: form for form in figures["forms"]}
    assert by_form["float32"]["score"] == pytest.approx(found.metrics["validation_accuracy"])
    assert by_form["fused"]["score"] == by_form["module"]["score"] == by_form["float32"]["score"]
    assert by_form["int8"]["score"] == pytest.approx(by_form["float32"]["score"], abs=0.1)
    assert (figures["records"], figures["metric"]) == (80, "accuracy")
    assert all(speed > 0 for form in figures["forms"] for speed in form["images_per_s"].values())


def test_a_score_without_records_or_a_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(folder, monkeypatch, model__net="deployed_objects:Plain")
    moved = found.experiment.model_copy(update={"data": found.experiment.data.model_copy(update={"train": "gone.rec"})})
    without = moved.model_copy(update={"data": moved.data.model_copy(update={"validation": "gone.rec"})})
    plain = Trained("t0", {}, 4.0, {}, found.parameters, without)
    shown = scores.table(scores.score("RUN", plain, (1,), 0.0))
    assert "int8: not to be had (the net is a Plain, a Block and no HybridBlock" in shown
    assert "note: no score, and int8 is not calibrated by records: " in shown
    assert "accuracy" not in shown
