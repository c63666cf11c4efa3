"""How many pictures a second a net computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx

from raymx.training.structure import leaves

_DRY_RUNS, _RUNS = 5, 10  # those of MXNet's benchmark_score: example/image-classification/benchmark_score.py


def images_per_s(net: Callable[[Any], Any], x: Any, least_s: float) -> float:
    """Of a batch ``x`` (rows, ...), as MXNet's benchmark_score measures it: one batch after the other, each waited for.

    The mean over ten batches, or over more until ``least_s`` seconds have gone.
    """
    for _ in range(_DRY_RUNS):
        _wait(net(x))
    runs, began = 0, time.perf_counter()
    while runs < _RUNS or time.perf_counter() - began < least_s:
        _wait(net(x))
        runs += 1
    return runs * len(x) / (time.perf_counter() - began)


def _wait(outputs: Any) -> None:
    for array in leaves(outputs):
        array.wait_to_read()


def mean_score(
    net: Callable[[Any], Any], score: Callable[[Any, Any], Any], batches: Sequence[tuple[Any, Any]]
) -> float:
    """The mean of a score a row, over (inputs, labels)."""
    sums = [float(score(net(inputs), labels).astype("float64").sum().asscalar()) for inputs, labels in batches]
    mx.nd.waitall()
    return sum(sums) / sum(len(inputs) for inputs, _ in batches)
