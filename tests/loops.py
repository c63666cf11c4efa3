"""Loops of a user's own, for tests: `module:function` in an experiment whose folder is this one."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from raymx.training.sums import Sums


class _Net:
    """As much of a Gluon block as a trainer needs: parameters by structural name."""

    def __init__(self, **params: gluon.Parameter) -> None:
        self._params = params

    def _collect_params_with_prefix(self) -> dict[str, gluon.Parameter]:
        return self._params


def _parameter(name: str, values: list[float], devices: list[mx.Context], **options: Any) -> gluon.Parameter:
    parameter = gluon.Parameter(name, shape=(len(values),), init=mx.init.Constant(0), **options)
    parameter.initialize(ctx=devices)
    parameter.set_data(mx.nd.array(values))
    return parameter


def push_fixed(ctx: Any) -> None:
    """Push one gradient three times; report what comes back, each time, as values of rank 0."""
    weight = _parameter("weight", [0.0] * 4, ctx.devices)
    trainer = ctx.trainer(_Net(weight=weight))
    for _ in range(3):
        for grad in weight.list_grad():
            grad[:] = mx.nd.array([0.6, -0.6, 0.3, -0.01], ctx=grad.context)
        trainer.step()
        came_back = (
            weight.list_data() if ctx.experiment.kvstore.update_on_kvstore is not False else weight.list_grad()
        )[0].asnumpy()
        ctx.report({f"value_{i}": float(value) for i, value in enumerate(came_back)})


def slowly(ctx: Any) -> None:
    """Train for ever and leave the cores to others."""
    weight = _parameter("weight", [0.0] * 4, ctx.devices)
    trainer = ctx.trainer(_Net(weight=weight))
    while True:
        trainer.step()
        ctx.report({"value": 1.0})
        time.sleep(0.2)


def rates(ctx: Any) -> None:
    """Five steps with gradient -1 on weights with multipliers of their own; then a rate by hand."""
    plain = _parameter("plain", [0.0], ctx.devices, wd_mult=0.0)
    doubled = _parameter("doubled", [0.0], ctx.devices, lr_mult=2.0, wd_mult=0.0)
    frozen = _parameter("frozen", [1.0], ctx.devices, lr_mult=0.0)
    decayed = _parameter("decayed", [1.0], ctx.devices, wd_mult=3.0)
    params = {"plain": plain, "doubled": doubled, "frozen": frozen, "decayed": decayed}
    trainer = ctx.trainer(_Net(**params))

    def step() -> None:
        before = {name: p.data().asscalar() for name, p in params.items()}
        for p in params.values():
            for grad in p.list_grad():
                grad[:] = -1.0 if p is not decayed else 0.0
        trainer.step()
        mx.nd.waitall()
        ctx.report({f"moved_{name}": float(p.data().asscalar() - before[name]) for name, p in params.items()})

    for _ in range(5):
        step()
    trainer.set_learning_rate(0.5)
    step()


def plain_gluon(ctx: Any) -> None:
    """A user's loop as short as it can be: it trains, validates and reports, with its own names of metrics."""
    net = ctx.hybridize(ctx.build_net())
    trainer = ctx.trainer(net)
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    trained = Sums(ctx.sums)
    for epoch in ctx.epochs():
        for batch in ctx.train_batches(epoch):
            for part in batch.parts:
                with autograd.record():
                    outputs = net(_floats(part.images))
                    loss = loss_fn(outputs, part.labels)
                loss.backward(part.scale)
                trained.add(loss, outputs.argmax(axis=1) == part.labels, part.weights)
            trained.count(batch.samples)
            trainer.step()
            ctx.show(loss)
            ctx.report(sums=trained.values)
        ctx.settle(net)
        correct = np.zeros(2)
        for batch in ctx.validation_batches():
            for part in batch.parts:
                hits = (net(_floats(part.images)).argmax(axis=1) == part.labels) * part.weights
                correct += hits.sum().asscalar(), part.weights.sum().asscalar()
        totals = ctx.total({"correct": correct})["correct"]
        figures = {"validation_accuracy": totals[0] / totals[1], "validated": float(totals[1])}
        ctx.report(figures | trained.means(ctx.total, "train", "accuracy"))
        trained.clear()


def _floats(images: mx.nd.NDArray) -> mx.nd.NDArray:
    return images.transpose((0, 3, 1, 2)).astype("float32") / 255


def fails_at_step_three(ctx: Any) -> None:
    """Raises in rank 1 alone, in the middle of an epoch."""
    net = ctx.build_net()
    trainer = ctx.trainer(net)
    for number, batch in enumerate(ctx.train_batches(0)):
        with autograd.record():
            loss = net(_floats(batch.parts[0].images)).sum()
        loss.backward()
        trainer.step()
        if number == 2 and ctx.rank == 1:
            raise ValueError("the third step went wrong")
        ctx.report()


def keeps_store(ctx: Any) -> None:
    """A user's mistake: a reference to the store outlives the loop."""
    import loops

    loops.kept = ctx._store
    push_fixed(ctx)


def two_trainers(ctx: Any) -> None:
    for name in ("first", "second"):
        ctx.trainer(_Net(**{name: _parameter(name, [0.0], ctx.devices)}))


def reports_text(ctx: Any) -> None:
    ctx.trainer(_Net(weight=_parameter("weight", [0.0], ctx.devices)))
    ctx.report({"train_loss": "low"})


def reports_numpy(ctx: Any) -> None:
    ctx.trainer(_Net(weight=_parameter("weight", [0.0], ctx.devices)))
    ctx.report({"train_loss": mx.nd.array([0.5]).asscalar()})


class _Payload:
    """What a stranger would send: unpickled, it writes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def sends_a_command(ctx: Any) -> None:
    """Send the servers what MXNet's own ones unpickle and run, then train on."""
    weight = _parameter("weight", [0.0] * 4, ctx.devices)
    trainer = ctx.trainer(_Net(weight=weight))
    if ctx.rank == 0:
        ctx._store._send_command_to_servers(0, pickle.dumps(_Payload(ctx.experiment.model.options["path"]), 0).decode())
    for grad in weight.list_grad():
        grad[:] = 1.0
    trainer.step()
    mx.nd.waitall()
    ctx.report({"moved": float(weight.data().asnumpy()[0])})


class Exploding(mx.optimizer.Optimizer):
    """An optimizer with a bug."""

    def create_state(self, index: int, weight: mx.nd.NDArray) -> None:
        return None

    def update(self, index: int, weight: mx.nd.NDArray, grad: mx.nd.NDArray, state: None) -> None:
        raise ArithmeticError("this optimizer has a bug")


def reads(ctx: Any) -> None:
    """Read the epochs and train nothing; report what came."""
    ctx.trainer(_Net(weight=_parameter("weight", [0.0], ctx.devices)))
    for epoch in ctx.epochs():
        labels, flags = 0.0, 0
        for batch in ctx.train_batches(epoch):
            for part in batch.parts:
                labels += float((part.labels.reshape((len(part.weights), -1))[:, 0] * part.weights).sum().asscalar())
                flags += len(part.inputs) - 1
            ctx.report()
        sums = ctx.total({"labels": labels, "flags": flags})
        ctx.report({"labels": sums["labels"], "flags": sums["flags"], "width": ctx.label_width})


def shifted(image: Any, label: Any, rng: Any) -> Any:
    return image, label + 1


def breaks_on_the_sixth(image: Any, label: Any, rng: Any) -> Any:
    time.sleep(0.4)  # so that records are streamed, and not decoded in the worker: it fails in a read task
    return 1 / (label[0] - 5).item() and image


def _first_time(ctx: Any) -> bool:
    """Whether this is the first call with the experiment's ``options.mark``, a path."""
    mark = Path(ctx.experiment.model.options["mark"])
    if mark.exists():
        return False
    mark.touch()
    return True


def hangs_once(ctx: Any) -> None:
    """Rank 1 stands still in its third step, in the first generation."""
    _disturbed_in_the_third_step(ctx, lambda: time.sleep(1000))


def fails_once(ctx: Any) -> None:
    """Rank 1 raises in its third step, in the first generation."""

    def fail() -> None:
        raise OSError("the file server is away")

    _disturbed_in_the_third_step(ctx, fail)


def _disturbed_in_the_third_step(ctx: Any, disturb: Callable[[], None]) -> None:
    weight = _parameter("weight", [0.0], ctx.devices)
    trainer = ctx.trainer(_Net(weight=weight))
    for epoch in ctx.epochs():
        for number, _ in enumerate(ctx.train_batches(epoch)):
            if number == 2 and ctx.rank == 1 and _first_time(ctx):
                disturb()
            weight.list_grad()[0][:] = 1.0
            trainer.step()
            ctx.report()
        mx.nd.waitall()
        ctx.report({"moved": float(weight.data().asscalar())})


def push_half(ctx: Any) -> None:
    """Push small gradients to a float16 weight; what they add up to shows in its float32 master first."""
    weight = _parameter("weight", [1.0] * 4, ctx.devices, dtype="float16")
    trainer = ctx.trainer(_Net(weight=weight))
    for _ in range(8):
        weight.list_grad()[0][:] = mx.nd.array([1e-3, 2e-3, 3e-3, 4e-3], dtype="float16")
        trainer.step()
        ctx.report({f"value_{i}": float(value) for i, value in enumerate(weight.data().asnumpy())})
