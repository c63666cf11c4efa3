"""Gradients of one update computed in several turns, each of some of a device's rows: less memory, the same update."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

import mxnet as mx
from mxnet import gluon

from raymx.training.batches import DeviceBatch, Part


def add_up(net: gluon.Block) -> None:
    """Have backward passes add to gradients, which the trainer sets to 0 after each update."""
    for param in net.collect_params().values():
        if param.grad_req == "write":
            param.grad_req = "add"


def turns_of(batch: DeviceBatch, count: int) -> Iterable[list[Part]]:
    """The parts of a batch in at most ``count`` turns, all of as many rows on a device.

    Rows that are missing in the last one repeat one at weight 0.
    """
    if count == 1:
        return [batch.parts]
    by_turn = zip_longest(*(_cut(part, count) for part in batch.parts))
    return ([part for part in parts if part is not None] for parts in by_turn)


def _cut(part: Part, count: int) -> Iterator[Part]:
    rows = len(part.weights)
    size = math.ceil(rows / count)
    for begin in range(0, rows, size):
        yield _rows(part, begin, size, rows)


def _rows(part: Part, begin: int, size: int, rows: int) -> Part:
    end = min(begin + size, rows)
    there = range(begin, end) if part.real_rows is None else [row for row in part.real_rows if begin <= row < end]
    real = None if len(there) == size else tuple(row - begin for row in there)

    def of(values: Any) -> Any:
        some = values[begin:end]
        return (
            some if end - begin == size else mx.nd.concat(some, *[values[end - 1 : end]] * (size - end + begin), dim=0)
        )

    weights, scale = of(part.weights), of(part.scale)
    if end - begin < size:
        is_there = mx.nd.array([1.0] * (end - begin) + [0.0] * (size - end + begin), ctx=weights.context)
        weights, scale = weights * is_there, scale * is_there
    labels = tuple(map(of, part.labels)) if isinstance(part.labels, tuple) else of(part.labels)
    return Part(tuple(of(values) for values in part.inputs), labels, weights, scale, real, part.names)
