"""The table that ends a sweep of a script, and what is best in it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from raymx.results.rows import steady
from raymx.text.words import columns, count

_SMALLER = ("loss", "mse", "rmse", "mae", "perplexity", "entropy", "error", "likelihood", "_s")


@dataclass(frozen=True)
class Told:
    """A trial as the table needs it."""

    cell: int
    point: Mapping[str, str]
    state: str
    rows: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def speed(self) -> float:
        return steady([row["samples_per_sec"] for row in self.rows if _is_number(row.get("samples_per_sec"))])

    def last(self, metric: str) -> float:
        values = [row[metric] for row in self.rows if _is_number(row.get(metric))]
        return values[-1] if values else math.nan


def objective(given: str, names: Iterable[str]) -> tuple[str, str]:
    """(column, "max" or "min") by which trials are compared: ``given`` as METRIC or METRIC:MODE, else the first of what
    was printed: a validation metric, a training metric, speed.
    """
    if given:
        metric, _, mode = given.partition(":")
        return metric, mode or mode_of(metric)
    seen = list(dict.fromkeys(names))
    found = [
        *("validation_accuracy",) * ("validation_accuracy" in seen),
        *(name for name in seen if name.startswith("validation_")),
        *("train_accuracy",) * ("train_accuracy" in seen),
        *(name for name in seen if name.startswith("train_") and name != "train_s"),
        "samples_per_sec",
    ]
    return found[0], mode_of(found[0])


def mode_of(metric: str) -> str:
    return "min" if metric.endswith(_SMALLER) else "max"


def lines(trials: Sequence[Told], metric: str) -> list[str]:
    """A line a cell: its flags, samples/s and the last value of ``metric``, each as mean and, of repeats, spread."""
    cells: dict[int, list[Told]] = {}
    for trial in trials:
        cells.setdefault(trial.cell, []).append(trial)
    axes = list(trials[0].point) if trials else []
    shown = [] if metric == "samples_per_sec" else [metric]
    heads = [*axes, "samples/s", *shown, "trials"]
    rows = [
        [
            *(found[0].point[axis] for axis in axes),
            spread([one.speed for one in found], "{:.1f}"),
            *(spread([one.last(name) for one in found], "{:.4g}") for name in shown),
            _states(found),
        ]
        for found in cells.values()
    ]
    return columns([heads, *rows])


def spread(values: Sequence[float], form: str) -> str:
    """``0.91``, or ``0.91 ± 0.01`` of several: the standard deviation. NaN is left out; "-" of none."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return "-"
    mean = form.format(fmean(known))
    return f"{mean} ± {form.format(stdev(known))}" if len(known) > 1 else mean


def _states(found: Sequence[Told]) -> str:
    failed = sum(one.state != "finished" for one in found)
    return f"{len(found)}" + (f", {count(failed, 'failure')}" if failed else "")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
