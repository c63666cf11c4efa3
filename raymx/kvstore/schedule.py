"""The learning rate of every step: the batch rule, linear warmup, then decay.

    schedule = from_experiment(experiment, steps_per_epoch=47)
    schedule.lr(1)      # the first step

The peak is ``base_lr * rule(B / base_batch_size)`` for the samples B of one update (`rules.batch_factor`): linear
(Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour") or square root (Krizhevsky 2014, "One
weird trick for parallelizing convolutional neural networks"). Async training has a lower peak and a longer warmup,
since its gradients are stale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.rules import batch_factor, is_async, warmup_epochs


@dataclass(frozen=True)
class Schedule:
    """Learning rate by global step. All lengths are in global steps, and may be fractions of one."""

    peak: float
    warmup_steps: float = 0.0
    total_steps: float = math.inf
    decay: Literal["none", "cosine", "step", "poly"] = "none"
    milestones: tuple[float, ...] = ()
    """Step decay: the rate falls once this many steps are done, counted from the start of the run."""
    factor: float = 0.1
    power: float = 2.0
    final_lr: float = 0.0
    shift: float = 0.0
    """Global steps to add to the count of updates: the earlier ones of a resized run had batches of another size."""

    def lr(self, update: float) -> float:
        """The rate of step ``update``, counted from 1 like MXNet's ``num_update``: 1 is the first step.

        Warmup is ``peak * update / warmup_steps``, so the first step already moves the weights and step
        ``warmup_steps`` runs at the peak. Cosine and poly decay start at the peak in the step after it and would be at
        ``final_lr`` in the step after the last, so that the last step still moves the weights. A fractional
        ``update`` (an async server counts every worker's push: its count over the number of workers) lies between.
        """
        update += self.shift
        if update < self.warmup_steps:
            return self.peak * max(update, 0.0) / self.warmup_steps
        if self.decay == "step":
            return self.peak * self.factor ** sum(update - 1 >= done for done in self.milestones)
        return self.final_lr + (self.peak - self.final_lr) * self._remaining(self._progress(update))

    def describe(self) -> str:
        """One sentence about the whole run."""
        warmup = f" after {self.warmup_steps:g} steps of linear warmup" if self.warmup_steps else ""
        decay = {
            "none": "then constant",
            "cosine": f"then cosine decay to {self.final_lr:g} at step {self.total_steps:g}",
            "poly": f"then decay with power {self.power:g} to {self.final_lr:g} at step {self.total_steps:g}",
            "step": f"then times {self.factor:g} after step {', '.join(f'{m:g}' for m in self.milestones)}",
        }[self.decay]
        return f"Learning rate {self.peak:g}{warmup}, {decay}."

    def _progress(self, update: float) -> float:
        """The part (0 to 1) of the steps after warmup that is done before step ``update``."""
        done, steps = update - 1 - self.warmup_steps, self.total_steps - self.warmup_steps
        return min(max(done / steps, 0.0), 1.0) if steps > 0 else 0.0

    def _remaining(self, progress: float) -> float:
        if self.decay == "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        return (1 - progress) ** self.power if self.decay == "poly" else 1.0


def from_experiment(
    experiment: ExperimentConfig, steps_per_epoch: int, *, position_epochs: float = 0.0, updates: float = 0
) -> Schedule:
    """The schedule of a run with ``steps_per_epoch`` global steps an epoch.

    Where it goes on from a checkpoint, that was at ``position_epochs`` (epochs done, with the part of the current one)
    after ``updates`` (global steps).
    """
    training, decay = experiment.training, experiment.training.decay
    return Schedule(
        peak=training.base_lr * batch_factor(experiment) * (training.async_lr_factor if is_async(experiment) else 1.0),
        warmup_steps=warmup_epochs(experiment) * steps_per_epoch,
        total_steps=training.epochs * steps_per_epoch,
        decay=decay.type,
        milestones=tuple(epoch * steps_per_epoch for epoch in decay.epochs),
        factor=decay.factor,
        power=decay.power,
        final_lr=decay.final_lr,
        shift=_whole(position_epochs * steps_per_epoch - updates),
    )


def _whole(steps: float) -> float:
    """Without the noise of floats: exactly 0 where all batches had one size."""
    nearest = round(steps)
    return float(nearest) if abs(steps - nearest) < 1e-6 else steps
