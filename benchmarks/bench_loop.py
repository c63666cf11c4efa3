"""The loops of launch.py and recovery.py."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon


def synthetic(ctx: Any) -> None:
    """Fully connected layers on one batch of noise, the same net and batch as the peer's.

    One step, then rounds of steps: report the samples a second of each. "mark" names a file for the first's time.
    """
    options = ctx.experiment.model.options
    net = gluon.nn.HybridSequential()
    for width in options["layers"]:
        net.add(gluon.nn.Dense(width, activation="relu"))
    net.add(gluon.nn.Dense(10))
    net.initialize()
    net.hybridize(static_alloc=True, static_shape=True)
    images = mx.nd.random.uniform(shape=(options["batch_size"], 1024))
    labels = mx.nd.array(np.arange(options["batch_size"]) % 10)
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    net(images)
    trainer = ctx.trainer(net)

    def step() -> None:
        with autograd.record():
            loss = loss_fn(net(images), labels)
        loss.backward()
        trainer.step()
        ctx.report()

    step()
    mx.nd.waitall()
    if "mark" in options and ctx.rank == 0:
        Path(options["mark"]).write_text(str(time.time()))
    ctx.report({"step_s": 0.0})
    for _ in range(options.get("rounds", 1_000)):
        begun = time.perf_counter()
        for _ in range(options["steps"]):
            step()
        mx.nd.waitall()
        seconds = (time.perf_counter() - begun) / options["steps"]
        ctx.report({"samples_a_second": options["batch_size"] * ctx.num_workers / seconds, "step_s": seconds})


def marked(ctx: Any) -> None:
    """raymx's own loop, whose first worker writes down when each step is finished."""
    from raymx.training import loop

    report, path = ctx.report, os.environ["DMLC_BENCH_MARKS"]

    def noted(*arguments: Any, **more: Any) -> None:
        if not arguments and ctx.rank == 0:
            mx.nd.waitall()
            with open(path, "a") as file:
                file.write(f"{time.time()} {os.getpid()}\n")
        report(*arguments, **more)

    ctx.report = noted
    loop.train(ctx)


def unused(**_: Any) -> None:
    """The experiment's net, which this loop does not build."""
