"""A net's parameters by structural name: their running statistics, and MXNet's parameter file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon
from numpy.typing import NDArray

from raymx.errors import CheckpointError

Parameters = Mapping[str, gluon.Parameter]


def running_statistics(params: Parameters) -> dict[str, gluon.Parameter]:
    """The parameters that training changes without a gradient: batch norm's running mean and variance.

    MXNet makes those with ``differentiable=False``; a weight that is frozen, with ``grad_req`` null, is none of them.
    """
    return {
        name: param
        for name, param in params.items()
        if not param._differentiable and not isinstance(param, gluon.Constant)
    }


def mean_over_devices(param: gluon.Parameter) -> NDArray[Any]:
    """In float64, where the mean of equal float32 numbers is that number to the bit."""
    return np.mean([data.asnumpy().astype("float64") for data in param.list_data()], axis=0)


def average_statistics(params: Parameters, total: Callable[[Mapping[str, Any]], Any], num_workers: int) -> None:
    """Give the running statistics the mean over all workers, which ``total`` adds over."""
    averaged = running_statistics(params)
    if averaged:
        sums = total({name: mean_over_devices(param) for name, param in averaged.items()})
        for name, param in averaged.items():
            param.set_data(mx.nd.array(sums[name] / num_workers, dtype=param.dtype))


def dump(params: Parameters, statistics: Mapping[str, NDArray[Any]]) -> bytes:
    """Gluon's parameter file, with these running statistics; MXNet writes to a path only."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.params")
        mx.nd.save(
            path,
            {
                name: mx.nd.array(statistics[name], dtype=param.dtype)
                if name in statistics
                else param.list_data()[0].as_in_context(mx.cpu())
                for name, param in params.items()
            },
        )
        with open(path, "rb") as file:
            return file.read()


def load(params: Parameters, dumped: bytes) -> None:
    """The inverse of `dump`. Raises CheckpointError when the file is another net's."""
    saved = mx.nd.load_frombuffer(dumped)
    if set(saved) != set(params):
        raise CheckpointError(
            "the checkpoint is of another net: it lacks "
            f"{sorted(set(params) - set(saved))[:5]} and has {sorted(set(saved) - set(params))[:5]}"
        )
    for name, param in params.items():
        if param.shape is not None and tuple(saved[name].shape) != tuple(param.shape):
            raise CheckpointError(
                f"the checkpoint is of another net: {name} is {saved[name].shape} in it and {param.shape} in the net"
            )
        param.set_data(saved[name])
