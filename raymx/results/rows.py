"""Rows of results out of what the workers' loops report, and what a row tells at once. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from raymx.results import step_parts, worker_columns

CHANCE = 1.2  # times 1 / classes: an accuracy up to that is what guessing gives
SLOW_TWIN = 0.7  # of the median speed of a trial's repeats: below that something else used its node


HUGE = 1e10  # a loss above that is none that training comes back from


def diverged(row: Mapping[str, Any]) -> bool:
    """Whether a training loss is NaN or infinite: no later epoch mends that."""
    return any(not math.isfinite(loss) for loss in _losses(row).values())


def ends_trial(row: Mapping[str, Any], nan: str) -> bool:
    """Whether a trial ends with this row since it has diverged; ``nan`` is ``failures.nan``."""
    return nan == "stop" and diverged(row)


def divergence(row: Mapping[str, Any]) -> str:
    """What a row's losses say of a net that has no sensible weights any more, in words; "" when they are fine."""
    bad = {name: loss for name, loss in _losses(row).items() if not abs(loss) <= HUGE}
    if not bad:
        return ""
    name, loss = next(iter(bad.items()))
    if math.isfinite(loss):
        return f"{name} is {loss:.3g} in epoch {row['epoch']:g}: training has most likely diverged; {_LOWER}"
    return f"{name} is {loss} in epoch {row['epoch']:g}, and no later epoch mends that; {_LOWER}"


_LOWER = "lower training.base_lr or lengthen training.warmup_epochs, and look for such values in the data"


def _losses(row: Mapping[str, Any]) -> dict[str, float]:
    """By name: of raymx's own loop ``train_loss``, of others what they call so. That of validation may overflow."""
    return {
        name: value
        for name, value in row.items()
        if name.endswith("loss") and not name.startswith("validation") and isinstance(value, float)
    }


def row(reports: Sequence[Mapping[str, Any]], metrics: Mapping[str, float], *, in_step: bool) -> dict[str, Any]:
    """The row of one report of all workers; ``metrics`` are the newest of each name. ``in_step``: workers are sync."""
    meters = [report["meter"] for report in reports]
    train_s = max(meter["train_s"] for meter in meters)
    return {
        "epoch": reports[0]["epoch"],
        **metrics,
        "num_workers": len(reports),
        "samples_per_sec": _rate(sum(meter["samples"] for meter in meters), train_s),
        "worker_samples_per_sec": [_rate(meter["samples"], meter["train_s"]) for meter in meters],
        "first_step_s": max(meter["first_step_s"] for meter in meters),
        "first_batch_s": max(meter["first_batch_s"] for meter in meters),
        **step_parts.columns_of(
            [report["parts"] for report in reports],
            in_step=in_step,
            reading_s=[worker_columns.reading_s(report["input"]) for report in reports],
        ),
        "bytes_pushed": sum(report["bytes"][0] for report in reports),
        "bytes_pulled": sum(report["bytes"][1] for report in reports),
        **worker_columns.columns_of(reports, train_s),
        "host_waits": reports[0]["host_waits"],
        "bad_records": sum(report["bad_records"] for report in reports),
        "steps": meters[0]["steps"],
        "train_s": train_s,
        **_scaling([report["scaling"] for report in reports]),
    }


def steady(values: Sequence[float]) -> float:
    """What a trial's speed is everywhere: the median of its reports without the first, in which things are set up and
    caches filled; NaN of none. The same of other figures of a step.
    """
    return median(values[1:] or values) if values else math.nan


def _rate(samples: float, seconds: float) -> float:
    return samples / seconds if seconds else math.nan


def _scaling(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The loss scale, of async workers the smallest, and the skipped updates of all; nothing without a scale."""
    if not told[0]:
        return {}
    return {
        "loss_scale": min(figures["loss_scale"] for figures in told),
        "skipped_steps": sum(figures["skipped_steps"] for figures in told),
    }


def epochs_done(epoch: int, step: int, steps: int) -> float:
    """Epochs done, with the part of the current one."""
    return round(epoch + step / max(steps, 1), 4)
