"""A net's parameters by structural name, once it is known that Gluon sees them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mxnet import gluon

from raymx.errors import TrainingError
from raymx.training.graphs import changing_statistics


def parameters_of(net: Any) -> Mapping[str, gluon.Parameter]:
    """What of ``net`` is trained and saved, by structural name.

    Raises TrainingError when the net has parameters that MXNet would leave out, or layers that it cannot name.
    """
    if isinstance(net, gluon.Block):
        check_registered(net)
    params: Mapping[str, gluon.Parameter] = _by_name(net)
    for block in _blocks(net) if isinstance(net, gluon.Block) else ():
        _mark_statistics(block)
    return params


def check_registered(net: gluon.Block) -> None:
    """Raise TrainingError when ``net`` holds parameters, or blocks with some, that Gluon does not see.

    Gluon registers what is an attribute of a block. What lies in a list, tuple, set or dictionary, or was made with
    ``self.params.get`` and is no attribute, would be neither trained nor saved.
    """
    seen = {id(param) for param in _by_name(net).values()}
    for block in _blocks(net):
        for where, found in _kept(block):
            if hidden := [param.name for param in found if id(param) not in seen]:
                raise TrainingError(
                    f"{where} has {_shown(hidden)}, which Gluon does not see there, so it would be neither trained nor "
                    "saved: put blocks into gluon.nn.HybridSequential or give each to self.register_child(block), and "
                    "make parameters attributes: setattr(self, name, parameter)"
                )


def _by_name(net: Any) -> Mapping[str, gluon.Parameter]:
    try:
        params: Mapping[str, gluon.Parameter] = net._collect_params_with_prefix()
    except AttributeError:
        for block in _blocks(net):
            if isinstance(block, gluon.rnn.rnn_layer._RNNLayer) and block._num_layers > _MOST_RECURRENT:
                raise TrainingError(
                    f"{type(block).__name__} {block.name} has num_layers={block._num_layers}, and MXNet 1.9.1 can name "
                    f"the parameters of {_MOST_RECURRENT} at most: use two such layers, one after the other"
                ) from None
        raise
    return params


_MOST_RECURRENT = 10  # gluon.rnn.rnn_layer knows a layer in its names by one digit


def _blocks(net: gluon.Block) -> Iterator[gluon.Block]:
    yield net
    for child in net._children.values():
        yield from _blocks(child)


def _kept(block: gluon.Block) -> Iterator[tuple[str, list[gluon.Parameter]]]:
    """The parameters that a block keeps elsewhere than as attributes: where, and which."""
    kind = type(block).__name__
    for name, value in vars(block).items():
        if name not in _OF_GLUON and isinstance(value, (list, tuple, set, frozenset, dict)):
            yield f"the {type(value).__name__} {kind}.{name}", list(_inside(value))
    yield f"{kind}.params", list(block.params.values())


# Gluon's own bookkeeping of what it has registered, or of what it makes of that.
_OF_GLUON = frozenset(
    ("_children", "_reg_params", "_forward_hooks", "_forward_pre_hooks", "_cached_graph", "_cached_op_args")
)


def _inside(value: Any) -> Iterator[gluon.Parameter]:
    if isinstance(value, gluon.Parameter):
        yield value
    elif isinstance(value, gluon.Block):
        yield from value.collect_params().values()
    elif isinstance(value, dict):
        yield from _inside(list(value.values()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _inside(item)


def _shown(hidden: list[str]) -> str:
    names = list(dict.fromkeys(hidden))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _mark_statistics(block: gluon.Block) -> None:
    """Say of the statistics of a graph from a file what batch norm says of its own: no gradient, whatever is set."""
    if isinstance(block, gluon.SymbolBlock):
        graph = block._cached_graph[1]
        statistics = changing_statistics(graph.tojson(), graph.list_auxiliary_states())
        for param in block.params.values():
            if param.name in statistics:
                param._differentiable = False
