"""The loop, the net, the transform and the optimizer of why.py: steps whose time is known, and what makes them longer.

Computing is an operator of MXNet's engine that waits and holds no core, so that several workers and a server have room
on two cores; gradients and weights are of real size, and really travel. The loop of tiny layers computes really.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

SIZE = 200_000  # numbers of each of the parameters
LARGE = 448  # pixels of a side
TINY_LAYERS, TINY_UNITS = 60, 32


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
def _wait(_: Any, microseconds: int) -> None:
    time.sleep((microseconds or 0) / 1e6)


def compute(seconds: float, reads: Sequence[Any], writes: Sequence[Any]) -> None:
    """Queue an operator that takes so long."""

    def handles(arrays: Sequence[Any]) -> Any:
        return (ctypes.c_void_p * len(arrays))(*(array.handle for array in arrays))

    cpu = (ctypes.c_int * 2)(1, 0)
    delay = ctypes.c_void_p(int(seconds * 1e6))
    sizes = len(reads), len(writes)
    check_call(
        _LIB.MXEnginePushSyncND(
            _wait, delay, None, ctypes.byref(cpu), handles(reads), sizes[0], handles(writes), sizes[1], None, 0, b"wait"
        )
    )


class Net(mx.gluon.Block):
    """Parameters that nothing but `train` looks at."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for number in range(count):
            setattr(self, f"weight{number}", self.params.get(f"weight{number}", shape=(SIZE,), init="zeros"))


def train(ctx: Any) -> None:
    """Steps of ``options.step_s``, two fifths of it forward; more by what ``options`` say."""
    options = ctx.experiment.model.options
    net = Net(2)
    net.initialize(ctx=ctx.devices)
    trainer = ctx.trainer(net)
    slow = options.get("slow_worker_s", 0.0) if ctx.rank == 1 else 0.0
    loss = mx.nd.zeros((1,))
    params = list(net.collect_params().values())
    for epoch in ctx.epochs():
        for _ in ctx.train_batches(epoch):
            if "loop_s" in options:
                mx.nd.waitall()
                time.sleep(options["loop_s"])
            with mx.autograd.record():
                compute(0.4 * options["step_s"], [param.data() for param in params], [loss])
            compute(0.6 * options["step_s"] + slow, [loss], [param.grad() for param in params])
            trainer.step()
            ctx.show(loss)
            if options.get("reads_weights"):
                params[0].data().sum().asscalar()
            time.sleep(options.get("host_s", 0.0))
            ctx.report()
        ctx.report({"train_loss": 1.0})


def tiny(ctx: Any) -> None:
    """Steps of a net of many tiny layers, which Python queues one operator after the other unless it is hybridized."""
    options = ctx.experiment.model.options
    net = mx.gluon.nn.HybridSequential()
    for _ in range(TINY_LAYERS):
        net.add(mx.gluon.nn.Dense(TINY_UNITS, activation="relu", use_bias=False, in_units=TINY_UNITS))
    net.initialize(ctx=ctx.devices)
    if options.get("hybridized"):
        net.hybridize(static_alloc=True, static_shape=True)
    trainer = ctx.trainer(net)
    images = mx.nd.ones((TINY_UNITS, TINY_UNITS))
    for epoch in ctx.epochs():
        for _ in ctx.train_batches(epoch):
            with mx.autograd.record():
                loss = net(images).mean()
            loss.backward()
            trainer.step()
            ctx.show(loss)
            ctx.report()
        ctx.report({"train_loss": 1.0})


def slow_transform(image: Any, label: Any, rng: Any) -> Any:
    """Reading a record takes 10 ms. Its image is large: of small ones a hundred batches would come at once."""
    time.sleep(0.01)
    return np.zeros((LARGE, LARGE, 1), np.uint8), label


class SlowSGD(mx.optimizer.SGD):
    """Each update of a weight takes 30 ms of the server's thread."""

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        time.sleep(0.03 * (len(index) if isinstance(index, (list, tuple)) else 1))
        super().update_multi_precision(index, weight, grad, state)
