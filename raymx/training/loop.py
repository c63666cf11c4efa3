"""raymx's own training loop, and so the example for one's own: it uses the worker's context and nothing else."""

from __future__ import annotations

from itertools import chain

from mxnet import autograd, gluon

from raymx.training import nets
from raymx.training.accumulation import turns_of
from raymx.training.context import DeviceBatch, WorkerContext
from raymx.training.learning import Learning, learning_of
from raymx.training.sums import Sums


def train(ctx: WorkerContext) -> None:
    """Train and validate, an epoch a report."""
    net = ctx.build_net()
    trainer = ctx.trainer(net)
    on_bytes = ctx.hybridize(nets.as_input_net(net, ctx.experiment, ctx.devices, ready=ctx.images_are_ready))
    loss = nets.build_loss(ctx.experiment)
    metric, score = nets.build_metric(ctx.experiment)
    learning = learning_of(ctx, net, on_bytes, loss, score)
    sums = Sums(ctx.sums)
    for epoch in ctx.epochs():
        for batch in ctx.train_batches(epoch):
            train_step(ctx, learning, batch, sums)
            trainer.step()
            ctx.report(sums=sums.values)
        ctx.settle(net)
        results = sums.means(ctx.total, "train", metric)
        if ctx.experiment.data.validation:
            results |= validate(ctx, on_bytes, loss, score).means(ctx.total, "validation", metric)
        ctx.report(results)
        sums.clear()


def train_step(ctx: WorkerContext, learning: Learning, batch: DeviceBatch, sums: Sums) -> None:
    """Forward and backward on every device. Nothing here waits for MXNet's engine."""
    for parts in learning.turns(batch):  # one, but for training.accumulate
        outputs, losses = [], []
        with autograd.record():
            for part in parts:
                outputs.append(learning.net(*part.inputs))
                losses.append(learning.loss(outputs[-1], part.labels))
        scales = [part.scale.astype(value.dtype, copy=False) for part, value in zip(parts, losses, strict=True)]
        autograd.backward(losses, scales)
        for part, output, value in zip(parts, outputs, losses, strict=True):
            sums.add(value, learning.score(output, part.labels), part.weights)
    sums.count(batch.samples)
    ctx.show(losses[0])


def validate(ctx: WorkerContext, net: gluon.Block, loss: nets.Loss, score: nets.Metric) -> Sums:
    """Loss and metric over this worker's part of the validation records."""
    sums = Sums()
    for batch in ctx.validation_batches(padded=True):
        for part in chain(*turns_of(batch, ctx.experiment.training.accumulate)):
            output = net(*part.inputs)
            sums.add(loss(output, part.labels), score(output, part.labels), part.weights)
        sums.count(batch.samples)
    return sums
