"""raymx's own training loop, and so the example for one's own: it uses the worker's context and nothing else."""

from __future__ import annotations

from mxnet import autograd, gluon

from raymx.training import nets
from raymx.training.context import DeviceBatch, WorkerContext
from raymx.training.sums import Sums


def train(ctx: WorkerContext) -> None:
    """Train and validate, an epoch a report."""
    net = ctx.build_net()
    trainer = ctx.trainer(net)
    on_bytes = ctx.hybridize(nets.as_input_net(net, ctx.experiment, ctx.devices, ready=ctx.images_are_ready))
    loss = nets.build_loss(ctx.experiment)
    metric, score = nets.build_metric(ctx.experiment)
    sums = Sums(ctx.sums)
    for epoch in ctx.epochs():
        for batch in ctx.train_batches(epoch):
            train_step(ctx, on_bytes, loss, score, batch, sums)
            trainer.step()
            ctx.report(sums=sums.values)
        ctx.settle(net)
        results = sums.means(ctx.total, "train", metric)
        if ctx.experiment.data.validation:
            results |= validate(ctx, on_bytes, loss, score).means(ctx.total, "validation", metric)
        ctx.report(results)
        sums.clear()


def train_step(
    ctx: WorkerContext, net: gluon.Block, loss: nets.Loss, score: nets.Metric, batch: DeviceBatch, sums: Sums
) -> None:
    """Forward and backward on every device. Nothing here waits for MXNet's engine."""
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
    ctx.show(losses[0])


def validate(ctx: WorkerContext, net: gluon.Block, loss: nets.Loss, score: nets.Metric) -> Sums:
    """Loss and metric over this worker's part of the validation records."""
    sums = Sums()
    for batch in ctx.validation_batches(padded=True):
        for part in batch.parts:
            output = net(*part.inputs)
            sums.add(loss(output, part.labels), score(output, part.labels), part.weights)
        sums.count(batch.samples)
    return sums
