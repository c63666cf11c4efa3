"""From a batch's bytes to the net's input: normalised, mirrored, cast, inside the graph and outside of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")
gluon = mx.gluon

from raymx.experiment.loading import parse_experiment  # noqa: E402
from raymx.training import nets  # noqa: E402
from raymx.training.batches import Part  # noqa: E402
from raymx.training.precision import Prepare, with_input  # noqa: E402

MEAN, STD = [10.0, 20.0, 30.0], [2.0, 4.0, 8.0]


def images(rows: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, 5, 6, 3), np.uint8)


def expected(pixels: np.ndarray, mirror: list[int]) -> np.ndarray:
    turned = np.stack([row[:, ::-1] if flag else row for row, flag in zip(pixels, mirror, strict=True)])
    return ((turned - np.array(MEAN)) / np.array(STD)).transpose(0, 3, 1, 2)


class Identity(gluon.HybridBlock):  # type: ignore[misc, name-defined]
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x


class ImperativeIdentity(gluon.Block):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("net", [Identity, ImperativeIdentity])
def test_flagged_rows_are_mirrored_and_all_are_normalised(net: type, hybrid: bool) -> None:
    whole = with_input(net(), Prepare(MEAN, STD, "float32"), [mx.cpu()])
    if hybrid:
        whole.hybridize(static_alloc=True, static_shape=True)
    for mirror in ([1, 0, 0, 1], [0, 0, 0, 0]):
        out = whole(mx.nd.array(images(), dtype="uint8"), mx.nd.array(mirror, dtype="uint8"))
        np.testing.assert_allclose(out.asnumpy(), expected(images(), mirror), rtol=1e-6)
        assert out.dtype == np.float32


def test_without_flags_nothing_is_mirrored() -> None:
    whole = with_input(Identity(), Prepare(MEAN, STD, "float64"), [mx.cpu()])
    whole.hybridize()
    out = whole(mx.nd.array(images(), dtype="uint8"))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out.asnumpy(), expected(images(), [0] * 4), rtol=1e-6)


def test_ready_images_are_only_cast() -> None:
    ready = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)
    whole = with_input(Identity(), Prepare(MEAN, STD, "float64", ready=True), [mx.cpu()])
    out = whole(mx.nd.array(ready))
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out.asnumpy(), ready)


@pytest.mark.parametrize("mirror", [None, [1, 0, 1, 0]])
def test_a_loop_of_ones_own_gets_mirrored_images(mirror: list[int] | None) -> None:
    inputs = [mx.nd.array(images(), dtype="uint8")]
    if mirror:
        inputs.append(mx.nd.array(mirror, dtype="uint8"))
    part = Part(tuple(inputs), *[mx.nd.zeros(4)] * 3)
    assert part.images.dtype == np.uint8
    turned = np.stack([row[:, ::-1] if flag else row for row, flag in zip(images(), mirror or [0] * 4, strict=True)])
    np.testing.assert_array_equal(part.images.asnumpy(), turned)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("loss", "metric"), [("l2", "mse"), ("sigmoid_bce", "accuracy"), ("softmax_cross_entropy", "top5")]
)
def test_losses_and_metrics_take_every_type(dtype: str, loss: str, metric: str) -> None:
    experiment = parse_experiment(
        {
            "name": "x",
            "model": {"net": "alexnet", "classes": 3, "loss": loss, "metric": metric},
            "precision": {"dtype": dtype},
            "data": {"train": "a", "image_shape": [3, 8, 8]},
        },
        "/",
    )
    outputs = mx.nd.array([[1, 0, 0], [0, 1, 0]], dtype=dtype)
    labels = mx.nd.array([0, 2]) if loss.startswith("softmax") else mx.nd.array([[1, 0, 0], [0, 0, 1]])
    assert nets.build_loss(experiment)(outputs, labels).shape == (2,)
    assert nets.build_metric(experiment)[1](outputs, labels).shape == (2,)
