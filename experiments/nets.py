"""Nets of this folder's experiments: ``model: {net: "nets:lenet", classes: 10}``."""

from __future__ import annotations

from collections.abc import Sequence

from mxnet.gluon import nn


def _stack(*blocks: nn.HybridBlock) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


def lenet(classes: int = 10) -> nn.HybridSequential:
    """LeNet: two convolutions and two dense layers. Takes (batch, C, H, W) of 16x16 pixels or more."""
    return _stack(
        nn.Conv2D(20, kernel_size=5, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(50, kernel_size=5, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Flatten(),
        nn.Dense(500, activation="relu"),
        nn.Dense(classes),
    )


def lenet_bn(classes: int = 10) -> nn.HybridSequential:
    """A small LeNet with batch norm, whose running statistics workers must agree on."""
    return _stack(
        nn.Conv2D(8, kernel_size=5, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(16, kernel_size=5, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Flatten(),
        nn.Dense(classes),
    )


def mlp(classes: int = 10, hidden: Sequence[int] = (64, 32)) -> nn.HybridSequential:
    """Dense layers with tanh: smooth, so that sums in another order change the weights very little."""
    return _stack(nn.Flatten(), *(nn.Dense(units, activation="tanh") for units in hidden), nn.Dense(classes))
