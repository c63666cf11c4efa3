"""Loops of a user's own, for tests of precision: `module:function` in an experiment whose folder is this one."""

from __future__ import annotations

import os
from typing import Any

import mxnet as mx
from loops import _Net, _parameter


def overflows(ctx: Any) -> None:
    """Eight steps with gradient 0.5 on weights 1; in the steps ``options.at``, rank 1's is inf in one element.

    Rank 0's weights come back with each report, as they are and as a sum over the workers.
    """
    weight = _parameter("weight", [1.0] * 4, ctx.devices)
    other = _parameter("other", [1.0] * 3, ctx.devices)
    trainer = ctx.trainer(_Net(weight=weight, other=other))
    for number in range(int(ctx.state.get("done", 0)), 8):
        for parameter in (weight, other):
            parameter.list_grad()[0][:] = 0.5 * trainer.loss_scale
        if number in ctx.experiment.model.options["at"] and ctx.rank == ctx.num_workers - 1:
            weight.list_grad()[0][2] = float("inf")
        trainer.step()
        mx.nd.waitall()
        if ctx.asynchronous:
            ctx._store._barrier()
            trainer.pull()
        values = [float(value) for p in (weight, other) for value in p.data().asnumpy()]
        ctx.report({f"value_{i}": value for i, value in enumerate(values)}, state={"done": number + 1})


def tells_amp(ctx: Any) -> None:
    """In how many workers AMP is on, and a number that tells the workers' processes."""
    from mxnet.contrib import amp

    ctx.trainer(_Net(weight=_parameter("weight", [1.0], ctx.devices)))
    ctx.report(ctx.total({"amp": float(amp.amp._amp_initialized), "processes": float(os.getpid())}))
