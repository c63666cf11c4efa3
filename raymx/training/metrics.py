"""The metrics that an experiment may name: functions of (outputs, labels) that give a score a sample, (rows,).

``raymx.experiment.names.METRICS`` lists them.
"""

from __future__ import annotations

from typing import Any


def accuracy(outputs: Any, labels: Any) -> Any:
    return outputs.argmax(axis=1).astype("float32") == labels.astype("float32")


def top5(outputs: Any, labels: Any) -> Any:
    best = outputs.topk(k=min(5, outputs.shape[1]), axis=1)
    return (best == labels.astype("float32").expand_dims(1)).max(axis=1)


def mse(outputs: Any, labels: Any) -> Any:
    return ((outputs.reshape((outputs.shape[0], -1)) - labels.reshape((outputs.shape[0], -1))) ** 2).mean(axis=1)
