"""The records of an experiment as its net takes them, for whoever looks at a trained one: no worker, no Ray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mxnet as mx

from raymx.experiment.loading import ExperimentConfig
from raymx.training import nets
from raymx.training.batches import DeviceBatches
from raymx.training.membership import Membership
from raymx.training.position import LoopPosition

_AT_ONCE = 32  # records in an array of `first`


def held_out(experiment: ExperimentConfig) -> Iterator[tuple[Any, Any]]:
    """(inputs of the net, labels) of each batch of validation records, all of them once; on the CPU.

    Where there are none, of training records. Raises DataError when they cannot be read from here.
    """
    alone = Membership(rank=0, num_workers=1, generation=0, distributed=False)
    batches = DeviceBatches(experiment, alone, [mx.cpu()], LoopPosition(), lambda: 1.0)
    prepare = nets.preparing(experiment, ready=batches.data.floats)
    prepare.initialize()
    found = batches.validation(padded=False) if experiment.data.validation else batches.train(0)
    for batch in found:
        for part in (whole for each in batch.parts if (whole := each.without_padding())):
            yield prepare(*part.inputs), part.labels


def first(experiment: ExperimentConfig, records: int) -> list[Any]:
    """Inputs of so many of these records, in arrays of one size, such as MXNet's quantization takes; fewer where there
    are fewer.
    """
    found: list[Any] = []
    for inputs, _ in held_out(experiment):
        found.append(inputs)
        if sum(map(len, found)) >= records:
            break
    whole = mx.nd.concat(*found, dim=0)[:records]
    size = min(len(whole), _AT_ONCE)
    return [whole[at : at + size] for at in range(0, len(whole) - size + 1, size)]
