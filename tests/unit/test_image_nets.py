"""The nets for pictures and their experiments: sizes against the papers', batch norm, hybridized or not, learning."""

from __future__ import annotations

import importlib
import sys
from math import prod
from pathlib import Path
from typing import Any

import cv2
import mxnet as mx
import numpy as np
import pytest
from conftest import EXPERIMENTS
from mxnet import autograd, gluon

from raymx.data.recordio.record import Record, read_payload, unpack
from raymx.experiment import rules, yaml_text
from raymx.experiment.loading import load_experiment, parse_experiment
from raymx.experiment.user_code import load_object

NETS = [
    ("resnet20", {}, 32),
    ("resnet20", {"shortcut": "projection"}, 32),
    ("vgg11", {"batch_norm": True}, 32),
    ("vgg11", {}, 32),
    ("leafnetwork", {}, 64),
]


def net_of(name: str, **options: Any) -> gluon.HybridBlock:
    return load_object(f"image_nets:{name}", str(EXPERIMENTS))(**options)


def parameters(net: gluon.HybridBlock, side: int) -> int:
    """Numbers that are trained, for RGB pictures of this side; nothing is allocated."""
    symbol = net(mx.sym.var("data"))
    shapes, _, _ = symbol.infer_shape(data=(1, 3, side, side))
    return sum(prod(shape) for name, shape in zip(symbol.list_arguments(), shapes, strict=True) if name != "data")


def pictures(side: int, rows: int = 8) -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
    random = np.random.default_rng(1)
    return mx.nd.array(random.normal(size=(rows, 3, side, side))), mx.nd.array(random.integers(0, 10, rows))


# Sizes


def test_resnet20_has_the_papers_parameters() -> None:
    assert parameters(net_of("resnet20"), 32) == 269_722  # 0.27 M in the paper
    assert parameters(net_of("resnet20", shortcut="projection"), 32) == 269_722 + 16 * 32 + 32 * 64 + 2 * (32 + 64)
    assert round(parameters(net_of("resnet20", blocks=9), 32) / 1e6, 2) == 0.85  # ResNet-56: 0.85 M


def test_vgg11_has_the_papers_parameters() -> None:
    assert parameters(net_of("vgg11", classes=1000, units=4096), 224) == 132_863_336  # configuration A: 133 M
    convolutions = 9_220_480
    assert parameters(net_of("vgg11"), 32) == convolutions + 2 * (512 * 512 + 512) + 512 * 10 + 10
    channels = 64 + 128 + 2 * 256 + 4 * 512  # a bias each goes, a scale and a shift each come
    assert parameters(net_of("vgg11", batch_norm=True), 32) == parameters(net_of("vgg11"), 32) + channels


def test_leafnetwork_is_small_and_does_not_grow_with_the_picture() -> None:
    assert parameters(net_of("leafnetwork"), 64) == parameters(net_of("leafnetwork"), 128) == 398_662


def test_a_wrong_shortcut_is_named() -> None:
    with pytest.raises(ValueError, match='shortcut is "C": it must be padding or projection'):
        net_of("resnet20", shortcut="C")


def test_option_a_takes_every_second_pixel_and_adds_empty_channels() -> None:
    net_of("resnet20")
    padding = importlib.import_module("image_nets")._Padding()
    images = mx.nd.arange(2 * 3 * 4 * 4).reshape((2, 3, 4, 4))
    found = padding(images).asnumpy()
    assert found.shape == (2, 6, 2, 2)
    assert (found[:, :3] == images.asnumpy()[:, :, ::2, ::2]).all()
    assert (found[:, 3:] == 0).all()


# What they compute


@pytest.mark.parametrize(("name", "options", "side"), NETS)
def test_hybridized_or_not_they_give_the_same(name: str, options: dict[str, Any], side: int) -> None:
    mx.random.seed(3)
    net = net_of(name, classes=7, **options)
    net.initialize(mx.init.MSRAPrelu())
    images, _ = pictures(side)
    with autograd.train_mode():
        net(images)  # running statistics of its own, not 0 and 1
    expected = net(images).asnumpy()
    assert expected.shape == (8, 7)
    net.hybridize(static_alloc=True, static_shape=True)
    np.testing.assert_allclose(net(images).asnumpy(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "options", "side"), NETS)
def test_training_lowers_the_loss(name: str, options: dict[str, Any], side: int) -> None:
    mx.random.seed(3)
    quiet = {} if name == "resnet20" else {"dropout": 0.0}
    net = net_of(name, **options, **quiet)
    net.initialize(mx.init.MSRAPrelu())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    loss_of, (images, labels) = gluon.loss.SoftmaxCrossEntropyLoss(), pictures(side)
    losses = []
    for _ in range(3):
        with autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(len(images))
        losses.append(float(loss.mean().asscalar()))
    assert losses[2] < losses[1] < losses[0]


@pytest.mark.parametrize("name", ["resnet20", "vgg11", "leafnetwork"])
def test_batch_norm_stays_float32_when_the_net_is_cast(name: str) -> None:
    net = net_of(name, **({"batch_norm": True} if name == "vgg11" else {}))
    net.initialize()
    net.cast("float16")
    types = {parameter.dtype for key, parameter in net.collect_params().items() if "batchnorm" in key}
    assert types == {"float32"}


# The experiments


@pytest.mark.parametrize("name", ["cifar10_resnet20", "cifar10_vgg11", "leaves_leafnetwork"])
def test_experiments_load_and_break_no_rule(name: str) -> None:
    experiment = load_experiment(EXPERIMENTS / f"{name}.yaml")
    assert (experiment.name, rules.problems(experiment), rules.notes(experiment)) == (name, [], [])
    net_of(experiment.model.net.split(":")[1], classes=experiment.model.classes, **experiment.model.options)


@pytest.mark.parametrize("name", ["cifar10_resnet20", "cifar10_vgg11", "leaves_leafnetwork"])
def test_each_value_of_a_sweep_is_one_that_an_experiment_takes(name: str) -> None:
    path = EXPERIMENTS / f"sweep_{name}.yaml"
    raw = yaml_text.parse(path.read_text(), str(path))
    sweep = raw.pop("sweep")
    assert raw["model"]["net"] == load_experiment(EXPERIMENTS / f"{name}.yaml").model.net
    for key, axis in sweep["space"].items():
        for value in next(iter(axis.values())):
            parse_experiment(raw, str(EXPERIMENTS), {key: value})


# CIFAR-10's files


def cifar_files(folder: Path, rows: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """All six files of CIFAR-10's binary version, with few images: (6, rows, 32, 32, 3) RGB and (6, rows)."""
    random = np.random.default_rng(5)
    images = random.integers(0, 256, (6, rows, 32, 32, 3), np.uint8)
    labels = random.integers(0, 10, (6, rows), np.uint8)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for name, pixels, classes in zip(names, images, labels, strict=True):
        planes = pixels.transpose(0, 3, 1, 2).reshape(rows, -1)  # all of red, then of green, then of blue
        (folder / name).write_bytes(np.concatenate([classes[:, None], planes], axis=1).tobytes())
    return images, labels


def records(prefix: Path) -> list[Record]:
    offsets = [int(line.split("\t")[1]) for line in Path(f"{prefix}.idx").read_text().splitlines()]
    with open(f"{prefix}.rec", "rb") as file:
        return [unpack(read_payload(file, offset)) for offset in offsets]


def pixels(record: Record) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(record.image, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


def pack_cifar10(*arguments: object) -> int:
    return load_object("pack_cifar10:main", str(EXPERIMENTS))([*map(str, arguments)])


def test_cifar10_is_packed_bit_for_bit(tmp_path: Path) -> None:
    images, labels = cifar_files(tmp_path)
    assert pack_cifar10("--source", tmp_path, "--out", tmp_path / "data") == 0
    train, validation = records(tmp_path / "data/cifar10_train"), records(tmp_path / "data/cifar10_val")
    assert (len(train), len(validation)) == (15, 3)
    assert [float(record.label) for record in train] == labels[:5].ravel().tolist()
    assert [record.id for record in train] == list(range(15))
    assert (np.stack([pixels(record) for record in train]) == images[:5].reshape(-1, 32, 32, 3)).all()
    assert (np.stack([pixels(record) for record in validation]) == images[5]).all()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x80\x04" * 1537, "has 3074 bytes"),
        (b"", "has 0 bytes"),
        (bytes([10]) + bytes(3072), "has the label 10"),
        (None, "cannot be read: No such file"),
    ],
)
def test_files_that_are_not_cifar10s_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    cifar_files(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(content) if content is not None else path.unlink()
    assert pack_cifar10("--source", tmp_path, "--out", tmp_path / "data") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"pack_cifar10: error: {path} {said}")
    assert not list((tmp_path / "data").iterdir())


@pytest.fixture(autouse=True)
def _no_module_stays() -> Any:
    """Modules beside the experiments have short names, which other tests' folders may have too."""
    yield
    for name in ("image_nets", "pack_cifar10"):
        sys.modules.pop(name, None)
