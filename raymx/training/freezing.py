"""Parameters that are not trained, or at another rate than others, by patterns of their structural names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

import mxnet as mx
from mxnet import gluon

from raymx.errors import TrainingError
from raymx.text.words import some
from raymx.training.graphs import with_held_statistics

_MOST_NAMED = 5
_SCALES = ("gamma", "beta")  # of a normalising layer without them: they are there, and never change


def matches(key: str, pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern matches. Raises TrainingError, with some names, when there is none."""
    names = list(names)
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise TrainingError(
            f"{key} has {pattern}, which matches no parameter of the net: it has {some(names, _MOST_NAMED)}; * stands "
            "for any characters, as in features.*"
        )
    return found


def freeze(net: gluon.Block, patterns: Iterable[str], spared: Collection[str] = ()) -> None:
    """Take what the patterns match, all but the names ``spared``, out of training: it gets no gradient.

    Batch norm uses statistics that are matched as they are, in training too; they are no running statistics any more.
    Raises TrainingError when a pattern matches nothing, or nothing would be left to train.
    """
    params: Mapping[str, gluon.Parameter] = net._collect_params_with_prefix()
    matched = [name for pattern in patterns for name in matches("model.freeze", pattern, params)]
    frozen = {name for name in matched if name not in spared}
    if not frozen:
        return
    _hold_statistics(net, {id(params[name]) for name in frozen})
    for name in frozen:
        params[name].grad_req = "null"
    if all(param.grad_req == "null" for param in params.values()):
        raise TrainingError(f"model.freeze {list(patterns)} freezes all of the net: there is nothing to train")


def _hold_statistics(net: gluon.Block, frozen: Collection[int]) -> None:
    """Have the running statistics among the parameters ``frozen``, by id, not change while the net trains."""
    changed = False
    for where, block in _blocks(net):
        if isinstance(block, gluon.SymbolBlock):
            changed |= _hold_in_graph(block, {param.name for param in block.params.values() if id(param) in frozen})
            continue
        held = {key: param for key, param in block._reg_params.items() if id(param) in frozen and _is_statistic(param)}
        if statistics := [key for key in held if key not in _SCALES]:
            if "use_global_stats" not in getattr(block, "_kwargs", {}):
                raise _changed_by(f"{where}{statistics[0]}", type(block).__name__)
            block._kwargs["use_global_stats"] = True
            changed = True
        for param in held.values():
            param._differentiable = True  # as a weight is that is frozen: `running_statistics`
    for _, block in _blocks(net) if changed else ():
        if isinstance(block, gluon.HybridBlock):
            block._clear_cached_op()  # of a net that its function has hybridized, made of the layers as they were


def _is_statistic(param: gluon.Parameter) -> bool:
    return not param._differentiable and not isinstance(param, gluon.Constant)


def _hold_in_graph(block: gluon.SymbolBlock, names: Collection[str]) -> bool:
    """Whether there was anything to hold."""
    inputs, graph = block._cached_graph
    held = set(graph.list_auxiliary_states()) & set(names)
    if held:
        block._cached_graph = inputs, mx.sym.load_json(with_held_statistics(graph.tojson(), held, _changed_by))
        return True
    return False


def _changed_by(name: str, what: str) -> TrainingError:
    return TrainingError(
        f"model.freeze matches {name}, which {what} changes itself while it trains: have it not do so, or freeze by "
        "patterns that leave it out"
    )


def _blocks(block: gluon.Block, prefix: str = "") -> Iterator[tuple[str, gluon.Block]]:
    """All blocks, each with what the structural names of its own parameters begin with."""
    yield prefix, block
    for name, child in block._children.items():
        yield from _blocks(child, f"{prefix}{name}.")


def multiply_rates(net: gluon.Block, factors: Mapping[str, float]) -> None:
    """Have what a pattern matches learn at the rate times its factor; the last pattern that matches counts."""
    params: Mapping[str, gluon.Parameter] = net._collect_params_with_prefix()
    for pattern, factor in factors.items():
        for name in matches("model.lr_mult", pattern, params):
            params[name].lr_mult = factor
