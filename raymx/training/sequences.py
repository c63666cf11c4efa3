"""A label a step of a sequence: outputs (rows, ..., classes), labels (rows, ...). A label of -1 is padding.

Each function gives a mean over a row's labels that are none, (rows,): so a row counts as much as another one, however
long it is, and what a batch is filled up to changes nothing.
"""

from __future__ import annotations

from typing import Any


def is_sequence(outputs: Any, labels: Any) -> bool:
    """Whether there is a label for each place of a row, and not one for the row."""
    return len(labels.shape) > 1 and outputs.shape[:-1] == labels.shape


def cross_entropy(outputs: Any, labels: Any, smoothing: float = 0.0) -> Any:
    """Softmax cross-entropy, a part ``smoothing`` of each label shared out over all classes."""
    logs = outputs.log_softmax(axis=-1)
    losses = -logs.pick((labels * _there(labels)).astype(logs.dtype), axis=-1)
    if smoothing:
        losses = (1.0 - smoothing) * losses - smoothing * logs.mean(axis=-1)
    return _mean(losses, labels)


def accuracy(outputs: Any, labels: Any) -> Any:
    """The part of the labels that the largest output is."""
    return _mean(outputs.argmax(axis=-1).astype("float32") == labels.astype("float32"), labels)


def _there(labels: Any) -> Any:
    return labels >= 0


def _mean(values: Any, labels: Any) -> Any:
    """Over the places that have a label; 0 where none has."""
    rows = labels.shape[0]
    there = _there(labels).astype(values.dtype).reshape((rows, -1))
    count = there.sum(axis=1)
    return (values.reshape((rows, -1)) * there).sum(axis=1) / (count + (count == 0))
