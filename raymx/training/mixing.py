"""Mixup and cutmix: each picture of a batch with a part of another one, and the labels of both.

What is drawn for a batch is a function of seed, epoch and step, so it is the same in all workers, and when a run goes
on from a checkpoint. Which rows meet depends on which ones a device has, and so on the number of workers. A row of
weight 0 meets itself alone.

Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization"; Yun et al. 2019, "CutMix".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from raymx.experiment.loading import ExperimentConfig
from raymx.training.batches import Part
from raymx.training.structure import mapped

_OWN = 0x6D6978  # this module's part of a seed


@dataclass(frozen=True)
class Drawn:
    """What is drawn for one batch: pixel (y, x) keeps ``1 - rows[y] * columns[x] * taken`` of its own picture."""

    rows: NDArray[np.float32]  # (height,): 1 where another picture comes in
    columns: NDArray[np.float32]  # (width,)
    taken: float  # how much of another picture comes in there
    turn: float  # from 0 to 1: how far away the other row is

    @property
    def share(self) -> float:
        """What is left of the own picture, and so of its label."""
        return 1.0 - self.taken * float(self.rows.mean() * self.columns.mean())


def draw(mixup: float, cutmix: float, seeds: Sequence[int], size: tuple[int, int]) -> Drawn:
    """Draw for a batch of pictures of ``size`` (height, width); with both above 0 each batch has one of both.

    ``mixup`` and ``cutmix`` are the numbers of their Beta distributions, as in the papers.
    """
    rng = np.random.default_rng([_OWN, *seeds])
    cuts, turn = rng.random() * ((mixup > 0) + (cutmix > 0)) >= (mixup > 0), rng.random()
    alpha, centres = cutmix if cuts else mixup, rng.random(2)
    own = float(rng.beta(alpha, alpha))
    if not cuts:
        return Drawn(np.ones(size[0], np.float32), np.ones(size[1], np.float32), 1.0 - own, turn)
    sides = [_side(length, centre, math.sqrt(1.0 - own)) for length, centre in zip(size, centres, strict=True)]
    return Drawn(sides[0], sides[1], 1.0, turn)


def _side(length: int, centre: float, part: float) -> NDArray[np.float32]:
    """1 within a box around ``centre`` of so large a ``part`` of the side, cut at the picture's ends."""
    middle, half = centre * length, part * length / 2
    ends = np.clip(np.round([middle - half, middle + half]), 0, length).astype(int)
    side = np.zeros(length, np.float32)
    side[ends[0] : ends[1]] = 1
    return side


def partners(rows: int, real: Sequence[int] | None, turn: float) -> NDArray[np.int32]:
    """For each of so many rows another one: of the ``real`` ones (None: all) one of them, of others itself."""
    found = np.arange(rows, dtype=np.int32)
    among = found.copy() if real is None else np.array(real, np.int32)
    if len(among) > 1:
        found[among] = np.roll(among, 1 + int(turn * (len(among) - 1)))
    return found


@dataclass(frozen=True)
class Mixed:
    """Labels of rows that were mixed: their own, those of the other rows, and how much of their own is left."""

    own: Any
    others: Any
    share: float


def mixed(part: Part, drawn: Drawn) -> Part:
    """``part`` with labels that are `Mixed`, and the inputs that have the graph mix pictures (`precision.Prepare`)."""
    device = part.weights.context
    rows = partners(len(part.weights), part.real_rows, drawn.turn)
    other = mx.nd.from_numpy(rows).as_in_context(device)
    places = (mx.nd.from_numpy(side).as_in_context(device) for side in (drawn.rows, drawn.columns))
    taken = mx.nd.from_numpy(np.array([drawn.taken], np.float32)).as_in_context(device)
    labels = Mixed(part.labels, mapped(lambda each: mx.nd.take(each, other), part.labels), drawn.share)
    return replace(part, inputs=(*part.inputs, other, *places, taken), labels=labels)


def loss_of(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Mixed], Any]:
    """A loss of `Mixed` labels: the mean of those of both, each with its share."""

    def call(outputs: Any, labels: Mixed) -> Any:
        return labels.share * loss(outputs, labels.own) + (1.0 - labels.share) * loss(outputs, labels.others)

    return call


def score_of(score: Callable[[Any, Any], Any]) -> Callable[[Any, Mixed], Any]:
    """A score by the label that has the larger share."""
    return lambda outputs, labels: score(outputs, labels.own if labels.share >= 0.5 else labels.others)


def is_on(experiment: ExperimentConfig) -> bool:
    """Whether pictures are mixed in training."""
    return experiment.data.augment.mixup > 0 or experiment.data.augment.cutmix > 0
