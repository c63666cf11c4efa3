"""Nets for pictures: ``model: {net: "image_nets:resnet20", classes: 10, options: {shortcut: padding}}``.

Each takes (batch, C, H, W), with a number of channels that it learns from its first batch, and gives (batch, classes)
without softmax.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mxnet.gluon import HybridBlock, nn


def _stack(blocks: Iterable[HybridBlock]) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


def _convolution(channels: int, kernel: int = 3, stride: int = 1, *, bias: bool = False) -> nn.Conv2D:
    """One that keeps the size of the picture, but for its stride."""
    return nn.Conv2D(channels, kernel, strides=stride, padding=kernel // 2, use_bias=bias)


# --- ResNet for CIFAR -----------------------------------------------------------------------------------------------


class _Padding(HybridBlock):
    """He's option A: every second pixel, and as many zero channels again. It has no parameters."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.Pooling(x, kernel=(1, 1), stride=(2, 2), pool_type="avg")
        return F.concat(x, F.zeros_like(x), dim=1)


def _projection(channels: int) -> nn.HybridSequential:
    """He's option B: a 1x1 convolution."""
    return _stack((_convolution(channels, kernel=1, stride=2), nn.BatchNorm()))


class _BasicBlock(HybridBlock):
    def __init__(self, channels: int, stride: int, shortcut: HybridBlock) -> None:
        super().__init__()
        self.body = _stack(
            (
                _convolution(channels, stride=stride),
                nn.BatchNorm(),
                nn.Activation("relu"),
                _convolution(channels),
                nn.BatchNorm(),
            )
        )
        self.shortcut = shortcut

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.relu(self.body(x) + self.shortcut(x))


def _stage(channels: int, blocks: int, shortcut: HybridBlock | None) -> list[HybridBlock]:
    """``blocks`` of these channels; the first halves the picture and doubles the channels where it has a shortcut."""
    first = _BasicBlock(channels, 2, shortcut) if shortcut else _BasicBlock(channels, 1, nn.HybridLambda("identity"))
    return [first, *(_BasicBlock(channels, 1, nn.HybridLambda("identity")) for _ in range(blocks - 1))]


def resnet20(classes: int = 10, shortcut: str = "padding", blocks: int = 3, channels: int = 16) -> nn.HybridSequential:
    """ResNet-20 as He et al. (2016) made it for CIFAR: three stages of ``blocks`` basic blocks.

    ``channels`` are the first stage's; the second and third have twice and four times as many. ``blocks`` n makes a
    ResNet of 6n+2 layers. ``shortcut`` between stages is "padding" (option A, the paper's for CIFAR) or "projection"
    (option B). Takes pictures of 4x4 pixels or more whose sides 4 divides. Raises ValueError for another shortcut.
    """
    if shortcut not in ("padding", "projection"):
        raise ValueError(f'model.options.shortcut is "{shortcut}": it must be padding or projection')
    between = [_Padding() if shortcut == "padding" else _projection(channels * factor) for factor in (2, 4)]
    return _stack(
        (
            _convolution(channels),
            nn.BatchNorm(),
            nn.Activation("relu"),
            *_stage(channels, blocks, None),
            *_stage(channels * 2, blocks, between[0]),
            *_stage(channels * 4, blocks, between[1]),
            nn.GlobalAvgPool2D(),
            nn.Flatten(),
            nn.Dense(classes),
        )
    )


# --- VGG ------------------------------------------------------------------------------------------------------------

_VGG_A = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def vgg11(classes: int = 10, batch_norm: bool = False, units: int = 512, dropout: float = 0.5) -> nn.HybridSequential:
    """VGG-11: configuration A of Simonyan and Zisserman (2015), for 32x32 pixels.

    The two hidden dense layers have ``units`` each; the paper's 4096 are for 224x224 pixels. ``dropout`` follows each.
    With ``batch_norm`` one stands behind every convolution. Takes pictures of 32x32 pixels or more.
    """
    layers: list[HybridBlock] = []
    for step in _VGG_A:
        if isinstance(step, str):
            layers.append(nn.MaxPool2D(pool_size=2, strides=2))
        else:
            layers += [
                _convolution(step, bias=not batch_norm),
                *([nn.BatchNorm()] if batch_norm else []),
                nn.Activation("relu"),
            ]
    hidden = [layer for _ in range(2) for layer in (nn.Dense(units, activation="relu"), nn.Dropout(dropout))]
    return _stack((*layers, nn.Flatten(), *hidden, nn.Dense(classes)))


# --- leaves ---------------------------------------------------------------------------------------------------------


def leafnetwork(
    classes: int = 38, channels: Sequence[int] = (32, 64, 128, 256), dropout: float = 0.3
) -> nn.HybridSequential:
    """A small convnet for pictures of leaves: a block a number in ``channels``, global pooling, dropout, dense.

    A block is a 3x3 convolution, batch norm, ReLU and 2x2 max pooling. Made for 64x64 or 128x128 pixels; four blocks
    take 16x16 or more.
    """
    blocks = [
        layer
        for count in channels
        for layer in (_convolution(count), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(pool_size=2, strides=2))
    ]
    return _stack((*blocks, nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dropout(dropout), nn.Dense(classes)))
