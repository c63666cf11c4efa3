"""What a loss scale costs: raymx with one and without, beside Gluon's Trainer with AMP's look for an overflow.

    python benchmarks/loss_scale.py [--json PATH] [--check] [--repeats 5]

A small convolutional net in float32, in one process on one machine, so that only the way of looking differs. The
systems take turns; a ratio is of one round. *Steps in flight*: those that the loop has queued and MXNet has not yet
computed, when it queues the next one; with none the device stands still until Python has queued something.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

import mxnet as mx
import numpy as np
from common import Figure, arguments, finish, spread
from mxnet import autograd, gluon
from mxnet.contrib.amp.loss_scaler import LossScaler

from raymx.kvstore.loss_scale import loss_scale
from raymx.kvstore.schedule import Schedule
from raymx.kvstore.spec import OptimizerSpec, StoreSettings
from raymx.kvstore.trainer import Trainer
from raymx.training import marks
from raymx.training.ahead import StepsAhead

ROWS, STEPS, WARM, SCALE = 64, 120, 10, 128.0
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def made() -> gluon.nn.HybridSequential:
    mx.random.seed(1)
    net = gluon.nn.HybridSequential()
    for channels in (32, 64):
        net.add(gluon.nn.Conv2D(channels, 3, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.MaxPool2D())
    net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def by_raymx(setting: float | None) -> Callable[[Any], tuple[Callable[[], None], Callable[[], None]]]:
    def begin(net: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        params = {name: param for name, param in net._collect_params_with_prefix().items() if param.grad_req != "null"}
        spec = OptimizerSpec("sgd", {"momentum": 0.9}, rescale_grad=1 / ROWS, schedule=Schedule(peak=0.05))
        settings = StoreSettings(distributed=False, update_on_kvstore=False)
        trainer = Trainer(params, mx.kv.create("local"), spec, settings, scale=loss_scale(setting, {}))
        return trainer.step, trainer.close

    return begin


def by_amp(net: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """As amp.init_trainer does it: look at all gradients, wait, update."""
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9, "learning_rate": 0.05}, kvstore=None)
    trainer._scale = 1 / SCALE
    scaler = LossScaler()
    params = [param for param in net.collect_params().values() if param.grad_req != "null"]

    def step() -> None:
        if not scaler.has_overflow(params):
            trainer.step(ROWS)

    return step, lambda: None


@dataclass
class System:
    begin: Callable[[Any], tuple[Callable[[], None], Callable[[], None]]]
    scale: float
    samples_per_sec: list[float] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)

    def run(self, images: Any, labels: Any) -> None:
        """One round, which is added to the figures."""
        net = made()
        net(images)
        step, close = self.begin(net)
        ahead, head = StepsAhead(STEPS), mx.nd.ones((ROWS,)) * self.scale
        queued: list[float] = []
        numbers: list[int] = []
        for number in range(WARM + STEPS):
            if number == WARM:
                mx.nd.waitall()
                began = time.perf_counter()
            ahead.wait(number)
            with autograd.record():
                losses = LOSS(net(images), labels)
            losses.backward(head)
            numbers.append(marks.mark([losses]))
            queued.append(time.perf_counter())
            step()
            ahead.add(number, losses)
        mx.nd.waitall()
        self.samples_per_sec.append(ROWS * STEPS / (time.perf_counter() - began))
        computed = [marks.take(number) or 0.0 for number in numbers]
        self.in_flight.append(
            mean(sum(computed[i] > queued[k] for i in range(max(0, k - 5), k)) for k in range(WARM + 1, WARM + STEPS))
        )
        close()


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    images = mx.nd.array(rng.normal(size=(ROWS, 1, 28, 28)))
    labels = mx.nd.array(rng.integers(0, 10, ROWS))
    none, scaled, peer = System(by_raymx(None), 1.0), System(by_raymx(SCALE), SCALE), System(by_amp, SCALE)
    for _ in range(args.repeats):
        for system in (none, scaled, peer):
            system.run(images, labels)
    speed = median(scaled.samples_per_sec)
    against_amp, against_none = _ratios(scaled, peer), _ratios(scaled, none)
    flight = (median(scaled.in_flight), median(peer.in_flight))
    figures = [
        Figure(
            "samples/s with a scale; peer: AMP's way",
            speed,
            median(peer.samples_per_sec),
            median(against_amp),
            ">= 1, each round",
            min(against_amp) >= 1,
        ),
        Figure("samples/s with a scale; peer: none", speed, median(none.samples_per_sec), median(against_none)),
        Figure("steps in flight; peer: AMP's way", *flight, None, ">= 1", min(scaled.in_flight) >= 1),
    ]
    systems = {"no scale": none, "a scale": scaled, "AMP's way": peer}
    notes = [
        f"- {name}: samples/s {spread(system.samples_per_sec)}; steps in flight {spread(system.in_flight)}"
        for name, system in systems.items()
    ]
    return finish(args, figures, notes)


def _ratios(system: System, peer: System) -> list[float]:
    return [one / other for one, other in zip(system.samples_per_sec, peer.samples_per_sec, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
