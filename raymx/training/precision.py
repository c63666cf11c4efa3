"""AMP; and from uint8 images to the net's input, inside the hybridized graph, in the training dtype."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet import gluon

from raymx.errors import TrainingError
from raymx.experiment import this_machine
from raymx.training.structure import filled, form_of, leaves


def start_amp(dtype: str) -> None:
    """Have MXNet's operators cast to ``dtype``, float16 or bfloat16, where AMP's lists say so, from now on.

    It cannot be undone in a process, nor be changed. Parameters, and so gradients and what travels, stay float32.
    """
    from mxnet.contrib import amp

    amp.init(dtype)
    # AMP multiplies the gradients of output operators (SoftmaxOutput) by its own scale; raymx has one for all.
    amp.amp._loss_scaler._loss_scale = 1.0


def require_avx512() -> None:
    """Raise TrainingError where this node's processor cannot compute in bfloat16."""
    if this_machine.has_avx512() is False:
        raise TrainingError(
            "precision.dtype is amp_bfloat16, which MXNet computes with AVX-512, and the processor "
            f"of node {os.uname().nodename} has none; use float32"
        )


MIX_INPUTS = 4  # row, rows and columns of the place, how much


class Prepare(gluon.HybridBlock):
    """uint8 (rows, H, W, C) -> dtype (rows, C, H, W), ``(x - mean) / std`` a channel, in units of 0..255.

    Workers receive bytes, and the graph does the rest: a quarter of the traffic of float32, and on the device. Rows
    whose flag in the second input, uint8 (rows,), is 1 are mirrored. With ``ready`` the input is float32
    (rows, C, H, W) that a transform of the user's has normalised, and is only cast. With ``mixes`` four inputs more say
    which row each is mixed with and where (`raymx.training.mixing`).
    """

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], dtype: str, *, ready: bool = False, mixes: bool = False
    ) -> None:
        super().__init__()
        self._dtype, self._ready, self._mixes = dtype, ready, mixes
        if not ready:
            with self.name_scope():
                self.mean = self.params.get_constant("mean", [[[[m]] for m in mean]])
                self.std = self.params.get_constant("std", [[[[s]] for s in std]])

    def hybrid_forward(self, F: Any, x: Any, *more: Any, mean: Any = None, std: Any = None) -> Any:
        mirror, mix = (more[:-MIX_INPUTS], more[-MIX_INPUTS:]) if self._mixes else (more, ())
        if not self._ready:
            x = F.cast(F.transpose(x, axes=(0, 3, 1, 2)), "float32")
            x = F.broadcast_div(F.broadcast_sub(x, mean), std)
        if mirror:
            x = F.where(F.cast(mirror[0], "float32"), F.flip(x, axis=3), x)
        if mix:
            x = _mixed(F, x, *mix)
        return x if self._dtype == "float32" else F.cast(x, self._dtype)


def _mixed(F: Any, x: Any, other: Any, rows: Any, columns: Any, taken: Any) -> Any:
    """Each row with what it takes of the row ``other``: see `raymx.training.mixing.Drawn`."""
    place = F.broadcast_mul(rows.reshape((1, 1, -1, 1)), columns.reshape((1, 1, 1, -1)))
    part = F.broadcast_mul(place, taken.reshape((1, 1, 1, 1)))
    return x + F.broadcast_mul(part, F.take(x, other) - x)


class CastInputs(gluon.HybridBlock):
    """The arrays of a sample, those at ``floats`` in ``dtype``; whole numbers, such as a word's, stay what they are."""

    def __init__(self, net: gluon.HybridBlock, floats: Sequence[int], dtype: str) -> None:
        super().__init__()
        self.net, self._floats, self._dtype = net, frozenset(floats), dtype

    def hybrid_forward(self, F: Any, x: Any, *others: Any) -> Any:
        given = (x, *others)
        return self.net(*(F.cast(one, self._dtype) if at in self._floats else one for at, one in enumerate(given)))


class _CastForBlock(gluon.Block):
    def __init__(self, net: gluon.Block, floats: Sequence[int], dtype: str) -> None:
        super().__init__()
        self.net, self._floats, self._dtype = net, frozenset(floats), dtype

    def forward(self, x: Any, *others: Any) -> Any:
        given = (x, *others)
        return self.net(*(one.astype(self._dtype) if at in self._floats else one for at, one in enumerate(given)))


def with_cast(net: gluon.Block, floats: Sequence[int], dtype: str) -> gluon.Block:
    """``net`` taking arrays whose inputs at ``floats`` are of another type than ``dtype``; itself where none are."""
    if not floats:
        return net
    return (CastInputs if isinstance(net, gluon.HybridBlock) else _CastForBlock)(net, floats, dtype)


class _HybridWhole(gluon.HybridBlock):
    """A graph gives a list of arrays, whatever the net gives: its form is put together again outside of the graph."""

    def __init__(self, prepare: Prepare, net: gluon.HybridBlock, gives_input: bool) -> None:
        super().__init__()
        self.prepare, self.net, self._gives_input = prepare, net, gives_input
        self._form: Any = None  # of one array

    def forward(self, x: Any, *mirror: Any) -> Any:
        given = super().forward(x, *mirror)
        return given if self._form is None else filled(self._form, given)

    def hybrid_forward(self, F: Any, x: Any, *mirror: Any) -> Any:
        x = self.prepare(x, *mirror)
        given = (self.net(x), x) if self._gives_input else self.net(x)
        self._form = form_of(given)
        return given if self._form is None else leaves(given)


class _Whole(gluon.Block):
    def __init__(self, prepare: Prepare, net: gluon.Block, gives_input: bool) -> None:
        super().__init__()
        self.prepare, self.net, self._gives_input = prepare, net, gives_input

    def forward(self, x: Any, *mirror: Any) -> Any:
        x = self.prepare(x, *mirror)
        return (self.net(x), x) if self._gives_input else self.net(x)


def with_input(
    net: gluon.Block, prepare: Prepare, devices: Sequence[mx.Context], *, gives_input: bool = False
) -> gluon.Block:
    """``net`` behind ``prepare``; one hybrid block when ``net`` is one. ``net`` keeps its own parameter names.

    With ``gives_input`` it returns (what ``net`` gives, what ``net`` got).
    """
    prepare.initialize(ctx=list(devices))
    return (_HybridWhole if isinstance(net, gluon.HybridBlock) else _Whole)(prepare, net, gives_input)
