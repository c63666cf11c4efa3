"""Which labels the losses and metrics of raymx can use, known where raymx's own loop trains with them. Pure.

allowed = label_range(experiment, width)   # None where it is not known what labels mean
allowed.problem([34.0])                    # why, or None
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raymx.errors import DataError
from raymx.experiment import names
from raymx.experiment.schema import ExperimentConfig
from raymx.text.words import some

MAX_LABEL = 3.4028234663852886e38  # of float32
MAX_WHOLE = 2**24  # of float32, where the next whole number is another one


def float32_problem(label: float) -> str | None:
    """Why a label cannot be in a record, whose labels are float32, or None."""
    if not abs(label) <= MAX_LABEL:  # so that nan fails too
        return f"the label {label:g} is not a finite float32 number"
    if label == int(label) and struct.unpack("f", struct.pack("f", label))[0] != label:
        return (
            f"the label {label:.0f} would become another number: records have float32 labels, which tell whole numbers "
            f"apart up to {MAX_WHOLE}; number classes from 0, and scale numbers"
        )
    return None


@dataclass(frozen=True)
class LabelRange:
    """What the labels may be that a loss gets."""

    low: float
    high: float
    whole: bool
    why: str  # what asks for it, and its fix

    def problem(self, labels: Iterable[float]) -> str | None:
        """What is wrong with the labels of a record, or None."""
        return next((f"its label is {label:g}, but {self.why}" for label in labels if not self._fits(label)), None)

    def _fits(self, label: float) -> bool:
        return self.low <= label <= self.high and (not self.whole or label == int(label))


def label_range(experiment: ExperimentConfig, width: int) -> LabelRange | None:
    """What labels may be, of records with ``width`` of them; None where a loop or a loss of the user's has them, or
    nothing has.
    """
    loss, classes = experiment.model.loss, experiment.model.outputs
    named = len(experiment.data.labels)
    if experiment.training.loop != "default" or experiment.model.target == "input" or named > 1:
        return None
    if loss in names.TAKE_A_CLASS:
        key = experiment.model.outputs_key
        why = (
            f"{loss} takes the number of a class, and with {key} {classes} that is 0 to {classes - 1}: correct "
            f"it, set {key}, or leave such records out (data.on_bad_record: skip)"
        )
        return LabelRange(0, classes - 1, True, why) if width == 1 or named else None
    if loss == "sigmoid_bce":
        return LabelRange(0, 1, False, "sigmoid_bce takes labels from 0 to 1: correct it, or use another model.loss")
    if loss in names.LOSSES:
        return LabelRange(-MAX_LABEL, MAX_LABEL, False, f"{loss} takes numbers: correct it, or leave such records out")
    return None


def check_widths(experiment: ExperimentConfig, found: Mapping[int, int]) -> None:
    """Whether what ``data.label_width: auto`` comes to can be used; ``found``: label count -> records.

    Raises DataError when the loss or the metric takes one label, or would take the -1 that fill up for labels.
    """
    model = experiment.model
    if experiment.training.loop != "default" or model.target == "input" or max(found, default=1) == 1:
        return
    counts = f"data.label_width is auto, and records have {in_words(found)}"
    for key, name in take_a_class(experiment).items():
        raise DataError(f"{counts}, but {key} {name} takes one: {one_label_fix(key)}")
    if len(found) > 1 and (model.loss in names.LOSSES or model.metric in names.METRICS):
        name = model.loss if model.loss in names.LOSSES else model.metric
        raise DataError(
            f"{counts}: what is missing would be filled up with -1, and {name} would take that for labels: pack "
            "equally many, or use a loss and a metric of your own"
        )


def take_a_class(experiment: ExperimentConfig) -> dict[str, str]:
    """``model.loss`` and ``model.metric`` where they take one label, the number of a class, by key."""
    model = experiment.model
    given = {"model.loss": model.loss, "model.metric": model.metric}
    each_output = model.loss == "sigmoid_bce"  # accuracy is then that of each output
    return {
        key: name
        for key, name in given.items()
        if name in names.TAKE_A_CLASS and not (each_output and name == "accuracy")
    }


def one_label_fix(key: str) -> str:
    """What to do about a loss or a metric that takes one label where there are several."""
    others = "l2, sigmoid_bce" if key == "model.loss" else "mse"
    return f"use {others} or module:name of your own, or records with one label"


def in_words(found: Mapping[int, int]) -> str:
    """Label count -> records as ``1 label (900), 2 labels (100)``."""
    return some([f"{width} label{'s' * (width != 1)} ({count:,})" for width, count in sorted(found.items())], 5)
