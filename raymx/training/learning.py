"""What raymx's own loop computes in training, which may be more than in validation: mixed pictures, several turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mxnet import gluon

from raymx.training import mixing, nets
from raymx.training.accumulation import turns_of
from raymx.training.batches import DeviceBatch, Part
from raymx.training.context import WorkerContext


@dataclass(frozen=True)
class Learning:
    """A net on ``Part.inputs``, with a loss and a score of what it gives and of ``Part.labels``.

    ``turns``: the parts of a batch that are computed together, one a device; all of them, or some at a time.
    """

    net: gluon.Block
    loss: nets.Loss
    score: nets.Metric
    turns: Callable[[DeviceBatch], Iterable[list[Part]]]


def learning_of(
    ctx: WorkerContext, net: gluon.Block, on_bytes: gluon.Block, loss: nets.Loss, score: nets.Metric
) -> Learning:
    """By ``training.accumulate``, ``data.augment.mixup`` and ``cutmix``; ``on_bytes`` is ``net`` as `as_input_net`."""
    training, augment = ctx.experiment.training, ctx.experiment.data.augment

    def turns(batch: DeviceBatch) -> Iterable[list[Part]]:
        return turns_of(batch, training.accumulate)

    def mixed_turns(batch: DeviceBatch) -> Iterator[list[Part]]:
        _, height, width = ctx.experiment.data.picture_shape
        for number, parts in enumerate(turns(batch)):
            seeds = (training.seed, *ctx.position, number)
            drawn = mixing.draw(augment.mixup, augment.cutmix, seeds, (height, width))
            yield [mixing.mixed(part, drawn) for part in parts]

    if not mixing.is_on(ctx.experiment):
        return Learning(on_bytes, loss, score, turns)
    mixing_net = nets.as_input_net(net, ctx.experiment, ctx.devices, ready=ctx.images_are_ready, mixes=True)
    return Learning(ctx.hybridize(mixing_net), mixing.loss_of(loss), mixing.score_of(score), mixed_turns)
