"""A training loop of one's own: ``training: {loop: "own_loop:train"}``. It runs once in every worker.

It is hybridized, keeps its sums on the device, and never waits for MXNet's engine inside a batch.
"""

from __future__ import annotations

from mxnet import autograd, gluon, nd

from raymx.training.context import WorkerContext
from raymx.training.sums import Sums


def train(ctx: WorkerContext) -> None:
    """Train and validate, an epoch a report."""
    net = ctx.hybridize(ctx.build_net())
    trainer = ctx.trainer(net)  # after a restore, weights and optimizer state are in it
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize()
    sums = Sums(ctx.sums)  # goes on where a restored run stopped
    for epoch in ctx.epochs():
        for batch in ctx.train_batches(epoch):
            for part in batch.parts:  # one a device
                with autograd.record():
                    outputs = net(to_input(part.images))
                    losses = loss_of(outputs, part.labels)
                losses.backward(part.scale)  # makes the update the mean over the real records
                sums.add(losses, hits(outputs, part.labels), part.weights)
            sums.count(batch.samples)
            trainer.step()
            ctx.show(losses)  # for the live display; bounds what is queued ahead of the engine
            ctx.report(sums=sums.values)  # between two steps: the run may be saved, resized, stopped here
        ctx.settle(net)  # now all workers hold the same weights
        results = sums.means(ctx.total, "train", "accuracy")
        ctx.report(results | validate(ctx, net, loss_of).means(ctx.total, "validation", "accuracy"))
        sums.clear()


def validate(ctx: WorkerContext, net: gluon.Block, loss_of: gluon.loss.Loss) -> Sums:
    """Loss and accuracy over this worker's part of the validation records."""
    sums = Sums()
    for batch in ctx.validation_batches():
        for part in batch.parts:
            outputs = net(to_input(part.images))
            sums.add(loss_of(outputs, part.labels), hits(outputs, part.labels), part.weights)
        sums.count(batch.samples)
    return sums


def to_input(images: nd.NDArray) -> nd.NDArray:
    """uint8 (rows, H, W, C) -> float32 (rows, C, H, W)."""
    return images.transpose((0, 3, 1, 2)).astype("float32") / 255


def hits(outputs: nd.NDArray, labels: nd.NDArray) -> nd.NDArray:
    """float32 (rows,): 1 where the largest output is the label's."""
    return outputs.argmax(axis=1) == labels
