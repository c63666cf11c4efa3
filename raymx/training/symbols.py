"""A net out of a symbol's file, as Module and ``export`` write it: whole, or as far as a layer with a new one on it."""

from __future__ import annotations

import json
import os
from typing import Any

import mxnet as mx
from mxnet import gluon

from raymx import storage
from raymx.errors import DataError, TrainingError
from raymx.experiment.loading import ExperimentConfig
from raymx.text.nearest import did_you_mean
from raymx.text.words import some

NEW = ("output.weight", "output.bias")
"""The parameters of the new output layer, by structural name."""
LOSSES = ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SVMOutput")
"""Operators that are a loss of their own."""
_INPUT = "data"
_MOST_NAMED = 5
_BEGIN = {"_gamma": "ones", "_beta": "zeros", "_bias": "zeros", "_mean": "zeros", "_var": "ones"}


class OnFeatures(gluon.HybridBlock):
    """A graph as far as its features, and a dense layer on them."""

    def __init__(self, features: gluon.SymbolBlock, classes: int) -> None:
        super().__init__()
        with self.name_scope():
            self.features, self.output = features, gluon.nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def net_of(experiment: ExperimentConfig) -> gluon.HybridBlock:
    """The net of ``model.symbol``, whose input is the variable ``data``, without a loss at its end.

    Raises TrainingError where it cannot be one, and DataError when the file cannot be read.
    """
    model, path = experiment.model, experiment.resolve(experiment.model.symbol or "")
    symbol = _read(path)
    if _INPUT not in symbol.list_arguments():
        raise TrainingError(
            f"model.symbol: {path} has no input named {_INPUT}; its first arguments are "
            f"{some(symbol.list_arguments(), _MOST_NAMED)}: make the net in a function of your own (model.net), as a "
            "gluon.SymbolBlock"
        )
    symbol = _layer(symbol, model.features, path) if model.features else _without_loss(symbol)
    block = gluon.SymbolBlock(symbol, mx.sym.var(_INPUT, dtype="float32"))
    for param in block.params.values():
        param.init = next((begin for end, begin in _BEGIN.items() if param.name.endswith(end)), None)
    return OnFeatures(block, model.classes) if model.features else block


def _read(path: str) -> mx.sym.Symbol:
    text = storage.text(path)
    if text is None:
        raise DataError(f"model.symbol: {path} is not there on node {os.uname().nodename}")
    try:
        return mx.sym.load_json(text)
    except mx.MXNetError as error:
        raise DataError(
            f"model.symbol: {path} is no symbol of MXNet's ({str(error).strip().splitlines()[-1]}): give the "
            "...-symbol.json that export or save_checkpoint wrote"
        ) from None


def _without_loss(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """What a loss at its end gets: labels are none of a net's inputs here, and the loss is model.loss."""
    graph = json.loads(symbol.tojson())
    last = graph["nodes"][graph["heads"][0][0]]["op"]
    return symbol.get_children()[0] if last in LOSSES else symbol


def _layer(symbol: mx.sym.Symbol, name: str, path: str) -> mx.sym.Symbol:
    internals = symbol.get_internals()
    layers = [output for output in internals.list_outputs() if output not in symbol.list_inputs()]
    found = next((each for each in (name, f"{name}_output") if each in layers), None)
    if found is None:
        raise TrainingError(
            f"model.features is {name}, and {path} has no such layer{did_you_mean(f'{name}_output', layers)}; its last "
            f"ones are {some(layers[::-1], _MOST_NAMED)}"
        )
    return internals[found]
