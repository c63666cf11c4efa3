"""From uint8 images to the net's input, inside the hybridized graph, in the training dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet import gluon


class Prepare(gluon.HybridBlock):
    """uint8 (rows, H, W, C) -> dtype (rows, C, H, W), ``(x - mean) / std`` a channel, in units of 0..255.

    Workers receive bytes, and the graph does the rest: a quarter of the traffic of float32, and on the device.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: str) -> None:
        super().__init__()
        self._dtype = dtype
        with self.name_scope():
            self.mean = self.params.get_constant("mean", [[[[m]] for m in mean]])
            self.std = self.params.get_constant("std", [[[[s]] for s in std]])

    def hybrid_forward(self, F: Any, x: Any, mean: Any, std: Any) -> Any:
        x = F.cast(F.transpose(x, axes=(0, 3, 1, 2)), "float32")
        x = F.broadcast_div(F.broadcast_sub(x, mean), std)
        return x if self._dtype == "float32" else F.cast(x, self._dtype)


def with_input(net: gluon.Block, mean: Sequence[float], std: Sequence[float],
               dtype: str, devices: Sequence[mx.Context]) -> gluon.Block:
    """``net`` behind a `Prepare`; one hybrid block when ``net`` is one. ``net`` keeps its own parameter names."""
    prepare = Prepare(mean, std, dtype)
    prepare.initialize(ctx=list(devices))
    whole = gluon.nn.HybridSequential() if isinstance(net, gluon.HybridBlock) else gluon.nn.Sequential()
    whole.add(prepare, net)
    return whole
