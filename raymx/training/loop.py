"""raymx's own training loop, and so the example for one's own: it uses the worker's context and nothing else."""

from __future__ import annotations

from collections import deque
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon

from raymx.training import nets
from raymx.training.context import DeviceBatch, WorkerContext
from raymx.training.sums import Sums

STEPS_AHEAD = 2  # how far the loop may queue work ahead of the engine: enough to keep it busy, and bounded


def train(ctx: WorkerContext) -> None:
    """Train and validate, an epoch a report."""
    net = ctx.build_net()
    trainer = ctx.trainer(net)
    whole = nets.as_input_net(net, ctx.experiment, ctx.devices, ready=ctx.images_are_ready)
    loss = nets.build_loss(ctx.experiment)
    metric, score = nets.build_metric(ctx.experiment)
    sums = Sums(ctx.sums)
    ahead: deque[Any] = deque(maxlen=STEPS_AHEAD)
    hybridized = False
    for epoch in ctx.epochs():
        for number, batch in enumerate(ctx.train_batches(epoch)):
            if not hybridized:
                nets.hybridize(whole, batch.parts[0].inputs, ctx.experiment)
                hybridized = True
            if len(ahead) == STEPS_AHEAD:
                ahead[0].wait_to_read()
                show_progress(ctx, number, ahead[0])
            ahead.append(train_step(whole, loss, score, batch, sums))
            trainer.step()
            ctx.report(sums=sums.values)
        ctx.settle(net)
        results = sums.means(ctx.total, "train", metric)
        if ctx.experiment.data.validation:
            results |= validate(ctx, whole, loss, score).means(ctx.total, "validation", metric)
        ctx.report(results)
        sums.clear()


def train_step(net: gluon.Block, loss: nets.Loss, score: nets.Metric, batch: DeviceBatch, sums: Sums) -> Any:
    """Forward and backward on every device; the sum of the losses of the first one."""
    outputs, losses = [], []
    with autograd.record():
        for part in batch.parts:
            outputs.append(net(*part.inputs))
            losses.append(loss(outputs[-1], part.labels))
    autograd.backward(
        losses, [part.scale.astype(value.dtype, copy=False) for part, value in zip(batch.parts, losses, strict=True)]
    )
    for part, output, value in zip(batch.parts, outputs, losses, strict=True):
        sums.add(value, score(output, part.labels), part.weights)
    sums.count(batch.samples)
    return losses[0]


def validate(ctx: WorkerContext, net: gluon.Block, loss: nets.Loss, score: nets.Metric) -> Sums:
    """Loss and metric over this worker's part of the validation records."""
    sums = Sums()
    for batch in ctx.validation_batches():
        for part in batch.parts:
            output = net(*part.inputs)
            sums.add(loss(output, part.labels), score(output, part.labels), part.weights)
        sums.count(batch.samples)
    return sums


def show_progress(ctx: WorkerContext, number: int, losses: mx.nd.NDArray) -> None:
    """Now and then read a loss that is already computed, for the live display."""
    if ctx.rank == 0 and number % ctx.experiment.report.disp_batches == 0:
        ctx.progress["loss"] = float(losses.mean().asscalar())
