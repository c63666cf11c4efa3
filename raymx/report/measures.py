"""The measures of one trial, out of its reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raymx.report.model import ObjectiveColumn, TrialResult, number
from raymx.results.rows import diverged, steady


@dataclass(frozen=True)
class TrialMeasures:
    """Seconds, bytes, parts (0 to 1) and money as the names say; None for what is not known.

    ``samples_per_sec``, the fractions of a step, ``step_s`` and the bytes a step are medians over the counted reports,
    all but the first where there are more. Totals of bytes are over all reports, those replaced later too: they went
    over the wire. Times to something are since the trial's start.
    """

    best: float | None
    best_epoch: float | None
    final: float | None
    time_to_best_s: float | None
    time_to_target_s: float | None
    samples_per_sec: float | None
    step_s: float | None
    first_step_s: float | None
    compute_fraction: float | None
    communication_fraction: float | None
    data_wait_fraction: float | None
    bytes_pushed: float | None
    bytes_pulled: float | None
    bytes_pushed_total: float | None
    bytes_pulled_total: float | None
    restarts: int
    skipped_steps: int
    steps: int
    slowest_worker: float | None
    epochs_done: float
    time_s: float | None
    cpu_s: float | None
    gpu_s: float | None
    cost: float | None
    peak_rate: float | None


def measure(
    trial: TrialResult, objective: ObjectiveColumn, target: float | None, prices: Mapping[str, float]
) -> TrialMeasures:
    """All measures of a trial. ``target`` is a value of the objective; ``prices`` of an hour of a "CPU" and a "GPU"."""
    series = trial.series(objective.metric)
    sound = [(row, value) for row, value in series if not diverged(row)]
    best = objective.best(value for _, value in sound)
    at_best = next((row for row, value in sound if value == best), None)
    at_target = next((row for row, value in series if target is not None and objective.gain(value, target) >= 0), None)
    time_s = trial.wall_s if trial.wall_s is not None else elapsed(trial, trial.rows[-1]) if trial.rows else None
    cpu_s, gpu_s = (None if time_s is None or count is None else count * time_s for count in (trial.cpus, trial.gpus))
    return TrialMeasures(
        best=best,
        best_epoch=None if at_best is None else number(at_best.get("epoch")),
        final=series[-1][1] if series else None,
        time_to_best_s=None if at_best is None else elapsed(trial, at_best),
        time_to_target_s=None if at_target is None else elapsed(trial, at_target),
        samples_per_sec=_steady(_numbers(trial.counted, "samples_per_sec")),
        step_s=_steady(_step_times(trial.counted)),
        first_step_s=next(iter(_numbers(trial.counted, "first_step_s")), None),
        compute_fraction=_steady(_numbers(trial.counted, "compute_fraction")),
        communication_fraction=_steady(_numbers(trial.counted, "communication_fraction")),
        data_wait_fraction=_steady(_numbers(trial.counted, "data_wait_fraction")),
        bytes_pushed=_steady(_numbers(trial.counted, "bytes_pushed")),
        bytes_pulled=_steady(_numbers(trial.counted, "bytes_pulled")),
        bytes_pushed_total=_total(trial.rows, "bytes_pushed"),
        bytes_pulled_total=_total(trial.rows, "bytes_pulled"),
        restarts=_restarts(trial.rows),
        skipped_steps=round(sum(_numbers(trial.counted, "skipped_steps"))),
        steps=round(sum(_numbers(trial.counted, "steps"))),
        slowest_worker=_steady(_balances(trial.counted)),
        epochs_done=max(_numbers(trial.rows, "epoch"), default=0.0),
        time_s=time_s,
        cpu_s=cpu_s,
        gpu_s=gpu_s,
        cost=_cost(cpu_s, gpu_s, prices),
        peak_rate=max(_numbers(trial.rows, "learning_rate"), default=None) if trial.peak_lr is None else trial.peak_lr,
    )


def elapsed(trial: TrialResult, row: Mapping[str, Any]) -> float | None:
    """Seconds from the trial's start to a report.

    Tune cuts its timestamps to whole seconds. Within that second, the time it spent in the trial's steps is nearer.
    """
    stamp, spent = number(row.get("timestamp")), number(row.get("time_total_s"))
    if stamp is None or trial.started is None:
        return spent
    since = stamp - trial.started
    return spent if spent is not None and since < spent <= since + 1 else max(since, 0.0)


def _numbers(rows: Sequence[Mapping[str, Any]], column: str) -> list[float]:
    found = (number(row.get(column)) for row in rows)
    return [value for value in found if value is not None]


def _steady(values: Sequence[float]) -> float | None:
    return steady(values) if values else None


def _step_times(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    pairs = ((number(row.get("train_s")), number(row.get("steps"))) for row in rows)
    return [seconds / steps for seconds, steps in pairs if seconds and steps]


def _total(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    pairs = ((number(row.get(column)), number(row.get("steps"))) for row in rows)
    products = [amount * steps for amount, steps in pairs if amount is not None and steps is not None]
    return sum(products) if products else None


def _restarts(rows: Sequence[Mapping[str, Any]]) -> int:
    """The column counts from the start of the trial's process, and begins again with the next process."""
    total, before = 0.0, 0.0
    for count in _numbers(rows, "restarts"):
        total += count - before if count >= before else count
        before = count
    return round(total)


def _balances(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Speed of the slowest worker as a part of the fastest one's, of each report that has it."""
    speeds = (row.get("worker_samples_per_sec") for row in rows)
    each = [[value for value in map(number, speed) if value is not None] for speed in speeds if isinstance(speed, list)]
    return [min(speed) / max(speed) for speed in each if len(speed) > 1 and max(speed) > 0]


def _cost(cpu_s: float | None, gpu_s: float | None, prices: Mapping[str, float]) -> float | None:
    parts = [
        seconds / 3600 * prices[name]
        for name, seconds in (("CPU", cpu_s), ("GPU", gpu_s))
        if prices.get(name) is not None and seconds is not None
    ]
    return sum(parts) if parts else None
