"""The table of learning-rate rules: what a larger global batch makes of the rate. Pure.

To add one: a row here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class LearningRateRule:
    """One rule: ``factor`` of (batch / base batch) multiplies ``training.base_lr``. ``meaning`` is a sentence."""

    name: str
    meaning: str
    factor: Callable[[float], float]


_ROWS = (
    LearningRateRule(
        "linear",
        'In proportion to the batch: Goyal et al. 2017, "Accurate, Large Minibatch SGD".',
        lambda ratio: ratio,
    ),
    LearningRateRule(
        "sqrt",
        'With its square root: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks".',
        math.sqrt,
    ),
    LearningRateRule("none", "The batch does not change the rate.", lambda ratio: 1.0),
)

LR_RULES: dict[str, LearningRateRule] = {row.name: row for row in _ROWS}
"""By name, in the order in which a message lists them."""
