"""Nets of data that are not pictures: they get the arrays of data.inputs, in that order, each (rows, ...)."""

from __future__ import annotations

from typing import Any

from mxnet import gluon
from mxnet.gluon import nn, rnn


class TextNet(gluon.HybridBlock):
    """A vector a word, the mean over the words that are there, and two layers: tokens (rows, T), lengths (rows,)."""

    def __init__(self, classes: int, words: int, size: int = 32) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(words, size)
            self.hidden = nn.Dense(32, activation="tanh")
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, tokens: Any, lengths: Any) -> Any:
        vectors = F.transpose(self.embedding(tokens), (1, 0, 2))  # (T, rows, size), as SequenceMask takes them
        lengths = F.cast(lengths, "float32")
        there = F.SequenceMask(vectors, lengths, use_sequence_length=True)
        return self.output(self.hidden(F.broadcast_div(F.sum(there, axis=0), F.expand_dims(lengths, 1))))


def text(classes: int, words: int) -> gluon.HybridBlock:
    return TextNet(classes, words)


class Forecaster(gluon.HybridBlock):
    """An LSTM over the past, (rows, T, 1), whose last state gives the next value, (rows, 1)."""

    def __init__(self, classes: int, size: int = 24) -> None:
        super().__init__()
        with self.name_scope():
            self.lstm = rnn.LSTM(size, layout="NTC", input_size=1)
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, past: Any) -> Any:
        states = self.lstm(past)  # (rows, T, size)
        return self.output(F.slice_axis(states, axis=1, begin=-1, end=None))


def forecaster(classes: int) -> gluon.HybridBlock:
    return Forecaster(classes)


def table(classes: int) -> gluon.HybridBlock:
    """Three layers over the columns of a table, (rows, columns)."""
    net = nn.HybridSequential()
    net.add(nn.Dense(64, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(classes))
    return net
