"""The metrics that an experiment may name: functions of (outputs, labels) that give a score a sample, (rows,).

``raymx.experiment.names.METRICS`` lists them. Each refuses shapes that it would make a wrong number of.
"""

from __future__ import annotations

from typing import Any

from raymx.errors import TrainingError
from raymx.training import sequences


def accuracy(outputs: Any, labels: Any) -> Any:
    if sequences.is_sequence(outputs, labels):
        return sequences.accuracy(outputs, labels)
    _require_classes("accuracy", outputs, labels)
    return outputs.argmax(axis=1).astype("float32") == labels.reshape((-1,)).astype("float32")


def accuracy_of_logits(outputs: Any, labels: Any) -> Any:
    """``accuracy`` under sigmoid_bce: the part of a row's outputs that are on their labels' side of probability 0.5."""
    _require_pairs("accuracy", outputs, labels)
    return ((_flat(outputs) > 0) == (_flat(labels) > 0.5)).mean(axis=1)


def top5(outputs: Any, labels: Any) -> Any:
    _require_classes("top5", outputs, labels)
    best = outputs.topk(k=min(5, outputs.shape[1]), axis=1)
    return (best == labels.reshape((-1, 1)).astype("float32")).max(axis=1)


def mse(outputs: Any, labels: Any) -> Any:
    _require_pairs("mse", outputs, labels)
    return ((_flat(outputs) - _flat(labels)) ** 2).mean(axis=1)


def _flat(values: Any) -> Any:
    return values.reshape((values.shape[0], -1))


def _require_classes(name: str, outputs: Any, labels: Any) -> None:
    rows = outputs.shape[0]
    if len(outputs.shape) != 2 or outputs.shape[1] < 2 or labels.shape not in ((rows,), (rows, 1)):
        raise TrainingError(
            f"model.metric {name} takes outputs of shape (rows, classes), two classes at least, and a label a row, and "
            f"got outputs {outputs.shape} and labels {labels.shape}: use model.loss sigmoid_bce with accuracy for "
            "labels of 0 and 1, mse for numbers, or a metric of your own"
        )


def _require_pairs(name: str, outputs: Any, labels: Any) -> None:
    if outputs.shape[0] != labels.shape[0] or outputs.size != labels.size:
        raise TrainingError(
            f"model.metric {name} takes as many labels as outputs, and got outputs {outputs.shape} and labels "
            f"{labels.shape}: look at model.classes and data.label_width, or use a metric of your own"
        )
