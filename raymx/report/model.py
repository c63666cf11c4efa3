"""What a run or a sweep is to its report: the objective, the axes, the trials and their reports. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SWEEP = "sweep"
"""Key of the axis that says which of several compared sweeps a trial is of."""

SLACK = 0.01
"""How far from the best objective is near enough: one point of accuracy. The target is that far from the best, and so
is what counts as equal where no repeats show the noise."""

SPEED_SLACK = 0.05
"""The part by which something must be faster to count as that, where no repeats show the noise of speed."""

Value = str | float
"""A value on an axis: a label, or a number that was drawn."""


@dataclass(frozen=True)
class ObjectiveColumn:
    """A column of the reports, and whether "max" or "min" of it is best."""

    metric: str
    mode: str

    @property
    def in_points(self) -> bool:
        """Whether it is a part of one (an accuracy), whose differences are told in points, hundredths of it."""
        return self.mode == "max" and self.metric.rsplit("_", 1)[-1].startswith(("accuracy", "top"))

    def best(self, values: Iterable[float]) -> float | None:
        """The best of finite numbers, None of none."""
        found = list(values)
        return (max(found) if self.mode == "max" else min(found)) if found else None

    def gain(self, value: float, against: float) -> float:
        """By how much ``value`` is better; negative where it is worse."""
        return value - against if self.mode == "max" else against - value

    def moved(self, value: float, worse_by: float) -> float:
        """``value``, made worse by ``worse_by``."""
        return value - worse_by if self.mode == "max" else value + worse_by


@dataclass(frozen=True)
class ComparedAxis:
    """A setting that differs between trials. ``labels`` in their order, the first is what others are compared with;
    None for numbers that were drawn."""

    key: str
    kind: str
    labels: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """The last part of the key: base_lr of training.base_lr."""
        return self.key.rsplit(".", 1)[-1]

    @property
    def logarithmic(self) -> bool:
        return "log" in self.kind


@dataclass(frozen=True)
class TrialResult:
    """One trial: its facts (trial.json, or what else is known) and its reports.

    Times are unix seconds, ``wall_s`` seconds. ``warmup_epochs`` is the warmup as it is run, lengthened; ``code`` is
    the version of the experiment's own modules; ``command`` is that of a script's trial; ``settings`` are the keys of
    the experiment that the trial's cell sets. Each of ``rows`` is one report with a column ``counts``: not those of an
    interrupted epoch, nor those that a later report of the same epoch replaced after a restart.
    """

    sweep: str
    trial_id: str
    state: str
    axes: Mapping[str, Value]
    cell: int | None = None
    repeat: int = 0
    seed: int | None = None
    error: str | None = None
    started: float | None = None
    ended: float | None = None
    wall_s: float | None = None
    cpus: float | None = None
    gpus: float | None = None
    epochs: int | None = None
    peak_lr: float | None = None
    lr_factor: float | None = None
    global_batch_size: int | None = None
    num_workers: int | None = None
    kvstore_type: str | None = None
    dtype: str | None = None
    compression: str | None = None
    warmup_epochs: float | None = None
    code: str | None = None
    command: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()

    @property
    def counted(self) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if row["counts"]]

    def series(self, column: str) -> list[tuple[Mapping[str, Any], float]]:
        """(report, value) of those counted reports whose ``column`` is a finite number."""
        found = ((row, number(row.get(column))) for row in self.counted)
        return [(row, value) for row, value in found if value is not None]


@dataclass(frozen=True)
class SkippedCell:
    """A cell that was not trained, since its settings cannot work together."""

    label: str
    reason: str


@dataclass(frozen=True)
class SweepResult:
    """One run's folder."""

    name: str
    path: str
    objective: ObjectiveColumn
    axes: tuple[ComparedAxis, ...]
    trials: tuple[TrialResult, ...]
    skipped: tuple[SkippedCell, ...] = ()
    planned: int = 1
    price_per_hour: Mapping[str, float] = field(default_factory=dict)
    classes: int | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def label_of(axes: Iterable[ComparedAxis], values: Mapping[str, Value]) -> str:
    """Settings in words: "dtype float32, compression 2bit 0.5, base_lr 0.031"."""
    words = [f"{axis.name} {show(values[axis.key])}" for axis in axes if axis.key in values]
    return ", ".join(words) or "the experiment as it is"


def show(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
