"""What experiment trackers are told of a trial: its settings and the numbers of its rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from raymx.experiment.values import show
from raymx.results.columns import NOT_TRACKED
from raymx.sweep.space import repeat_of

MAIN_SETTINGS = (
    "model.net",
    "training.epochs",
    "training.global_batch_size",
    "training.optimizer.name",
    "training.base_lr",
    "training.lr_rule",
    "training.seed",
    "precision.dtype",
    "kvstore.type",
    "kvstore.servers",
    "kvstore.compression.type",
    "resources.workers",
    "resources.gpus_per_worker",
)
"""Settings that a tracker shows for every trial, beside the sweep's axes."""


def parameters(config: Mapping[str, Any]) -> dict[str, str | float]:
    """What a tracker shows of a trial's config: the sweep's axes, cell and repeat, then `MAIN_SETTINGS`. Flat."""
    axes = config["point"]["axes"]
    shown = {**axes, "cell": config["point"]["cell"], "repeat": repeat_of(config)}
    for key in MAIN_SETTINGS:
        if not any(f"{key}.".startswith(f"{axis}.") for axis in axes):
            shown[key] = _at(config["experiment"], key)
    return {key: value if isinstance(value, str | int | float) else show(value) for key, value in shown.items()}


def _at(tree: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        tree = tree[key]
    return tree


def metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row of results, NaN of a diverged loss too; no text, flags, lists or bookkeeping of Tune's."""
    return {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, Real) and not isinstance(value, bool) and name not in NOT_TRACKED
    }
