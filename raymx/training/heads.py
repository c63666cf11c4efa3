"""A new output layer in the place of one that had other classes, as fine-tuning needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mxnet import gluon
from mxnet.gluon.nn.conv_layers import _Conv

from raymx.errors import TrainingError
from raymx.text.nearest import did_you_mean
from raymx.text.words import some

_MOST_NAMED = 8


def make_anew(net: gluon.Block, name: str, classes: int) -> list[str]:
    """Give the layer ``name`` of ``net`` ``classes`` outputs and no weights; the structural names of those to come.

    The layer is a Dense or a convolution, or blocks one after the other, of which the last of those is meant. All else
    of it stays: its input, its bias, its activation, its initializers. Raises TrainingError for another one.
    """
    found = _output_layer(_block(net, name), name)
    if found is None:
        raise TrainingError(
            f"model.head.name is {name}, a {type(_block(net, name)).__name__}: it must be a Dense or a Conv layer, or "
            "a (Hybrid)Sequential with one; make another one anew in the function of model.net"
        )
    where, layer = found
    if isinstance(layer, gluon.nn.Dense):
        layer._units = classes
    else:
        layer._channels = layer._kwargs["num_filter"] = classes
    params: dict[str, gluon.Parameter] = dict(layer._reg_params)
    _require_its_own(net, where, params)
    for param in params.values():
        _forget(param, (classes, *param.shape[1:]))
    for block in _blocks(net):
        if isinstance(block, gluon.HybridBlock):
            block._clear_cached_op()
    return [f"{where}.{key}" for key in params]


def _block(net: gluon.Block, name: str) -> gluon.Block:
    block = net
    for part in name.split("."):
        if part not in block._children:
            layers = [layer for layer, _ in _named(net)]
            raise TrainingError(
                f"model.head.name is {name}, and the net has no such layer{did_you_mean(name, layers)}; it has "
                f"{some(layers[::-1], _MOST_NAMED) or 'none that Gluon can name'}"
            )
        block = block._children[part]
    return block


def _named(block: gluon.Block, prefix: str = "") -> Iterator[tuple[str, gluon.Block]]:
    """All blocks below one, by structural name, the deepest before those around them."""
    for name, child in block._children.items():
        yield from _named(child, f"{prefix}{name}.")
        yield f"{prefix}{name}", child


def _blocks(net: gluon.Block) -> Iterator[gluon.Block]:
    yield net
    yield from (block for _, block in _named(net))


def _output_layer(block: gluon.Block, name: str) -> tuple[str, Any] | None:
    """(structural name, layer) of what gives ``block`` its outputs."""
    if isinstance(block, gluon.nn.Dense) or (isinstance(block, _Conv) and block._op_name == "Convolution"):
        return name, block
    if isinstance(block, (gluon.nn.Sequential, gluon.nn.HybridSequential)):
        below = [(f"{name}.{key}", child) for key, child in block._children.items() if list(child.collect_params())]
        return _output_layer(below[-1][1], below[-1][0]) if below else None
    return None


def _require_its_own(net: gluon.Block, where: str, params: dict[str, gluon.Parameter]) -> None:
    mine = {id(param) for param in params.values()}
    for name, param in net._collect_params_with_prefix().items():
        if id(param) in mine and name.rpartition(".")[0] != where:
            raise TrainingError(
                f"model.head.name is {where}, whose weights are those of {name} too: a layer that shares them "
                "cannot be made anew"
            )


def _forget(param: gluon.Parameter, shape: tuple[int, ...]) -> None:
    """As if it had just been made, with another shape."""
    param._shape = shape
    param._data = param._grad = None
    param._deferred_init = ()
