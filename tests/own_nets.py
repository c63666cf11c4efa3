"""Nets, a loss and a metric of a user's own, for tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mxnet import gluon
from mxnet.gluon import nn

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from nets import lenet, mlp

__all__ = ["lenet", "mlp"]  # found here too: processes that serve one folder are used again for the next test


def small(classes: int) -> gluon.HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Flatten(), nn.Dense(32, activation="tanh"), nn.Dense(classes))
    return net


class TwoHeads(gluon.HybridBlock):
    """Classes, and a number."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        with self.name_scope():
            self.body, self.kind, self.size = nn.Dense(32, activation="tanh"), nn.Dense(classes), nn.Dense(1)

    def hybrid_forward(self, F: Any, x: Any) -> dict[str, Any]:
        x = self.body(x)
        return {"kind": self.kind(x), "size": self.size(x)}


def loss_of_two(outputs: dict[str, Any], labels: Any) -> Any:
    size = gluon.loss.L2Loss()(outputs["size"], labels / 9)
    return gluon.loss.SoftmaxCrossEntropyLoss()(outputs["kind"], labels) + size


def hits_of_two(outputs: dict[str, Any], labels: Any) -> Any:
    return outputs["kind"].argmax(axis=1) == labels


def convolution(classes: int) -> gluon.HybridBlock:
    """Sixteen filters: after inference oneDNN keeps such weights in a layout of its own."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, strides=2, activation="relu"), nn.Dense(classes))
    return net


def not_hybrid(classes: int) -> gluon.Block:
    net = nn.Sequential()
    net.add(nn.Flatten(), nn.Dense(classes))
    return net


class _BreaksHybrid(gluon.HybridBlock):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.dense = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if F.__name__.endswith("symbol"):
            x.asnumpy()  # what an imperative net may do, and a symbol cannot
        return self.dense(x)


class _Cheats(gluon.HybridBlock):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.dense = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.dense(x) + (1 if F.__name__.endswith("symbol") else 0)


def breaks_hybrid(classes: int) -> gluon.Block:
    return _BreaksHybrid(classes)


def cheats(classes: int) -> gluon.Block:
    return _Cheats(classes)


def half_loss(outputs: Any, labels: Any) -> Any:
    return gluon.loss.SoftmaxCrossEntropyLoss()(outputs, labels) / 2


def confidence(outputs: Any, labels: Any) -> Any:
    return outputs.softmax(axis=1).max(axis=1)
