"""The trials of a sweep as they stand: what its table shows, and what a run's watchers are told. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from raymx.results import run_folder
from raymx.results.rows import CHANCE, SLOW_TWIN, diverged, steady
from raymx.sweep.axis import in_words
from raymx.sweep.plan import RunPlan
from raymx.sweep.trial_records import TrialRecord
from raymx.text.words import duration

MOST_ROWS = 16
_OBJECTIVE = "objective"  # in its place stands the metric
_HEADS = ("trial", "settings", "state", "epoch", "samples/s", _OBJECTIVE, "last", "left")
FIRST_NUMBER = 3  # of the columns


@dataclass
class TrialStanding:
    """A trial as the table shows it."""

    record: TrialRecord
    epoch: float = 0.0
    now_samples_per_sec: float = math.nan  # before the first report
    reported: dict[float, float] = field(default_factory=dict)  # samples/s by epoch, the newest of each
    best: float = math.nan
    last: float = math.nan
    flag: str = ""

    @property
    def speed(self) -> float:
        """Samples a second, as the report has it once there are reports."""
        return steady(list(self.reported.values())) if self.reported else self.now_samples_per_sec

    def cells(self, left_s: float) -> tuple[str, ...]:
        record = self.record
        epochs = record.experiment.training.epochs
        running = record.state == "running"
        return (
            record.trial_id[-5:],
            in_words(record.axes) + (f" #{record.repeat + 1}" if record.repeat else ""),
            record.state + (f": {self.flag}" if self.flag else ""),
            f"{self.epoch:.3g}/{epochs}",
            _number(self.speed, ",.0f"),
            _number(self.best, ".4f"),
            _number(self.last, ".4f"),
            duration(left_s) if running else "",
        )


@dataclass
class Leaderboard:
    """All trials of a sweep, as they stand. Pure but for the clock that it is given."""

    metric: str
    sign: int
    planned: int
    at_once: int
    classes: int = 0
    standings: dict[str, TrialStanding] = field(default_factory=dict)

    def trial(self, record: TrialRecord) -> None:
        standing = self.standings.setdefault(record.trial_id, TrialStanding(record))
        standing.record = record

    def progress(self, trial_id: str, progress: Mapping[str, Any]) -> None:
        standing = self.standings.get(trial_id)
        if standing and progress.get("steps"):
            standing.epoch = progress["epoch"] + progress["step"] / progress["steps"]
            standing.now_samples_per_sec = progress.get("samples_per_sec") or standing.now_samples_per_sec

    def row(self, row: Mapping[str, Any]) -> None:
        standing = self.standings[row["trial_id"]]
        standing.epoch = row.get("epoch", standing.epoch)
        speed, value = row.get("samples_per_sec", math.nan), row.get(self.metric, math.nan)
        if math.isfinite(speed):
            standing.reported.pop(standing.epoch, None)  # an epoch that was trained again comes last
            standing.reported[standing.epoch] = speed
        if not math.isnan(value):
            standing.last = value
        if not math.isnan(value) and not diverged(row):
            standing.best = (
                value if math.isnan(standing.best) else self.sign * max(self.sign * value, self.sign * standing.best)
            )
        standing.flag = self._flag(row) or self._slow(standing)

    def _slow(self, standing: TrialStanding) -> str:
        twins = [
            other.speed
            for other in self.standings.values()
            if other.record.cell == standing.record.cell and other is not standing and other.reported
        ]
        return "slower than its twins" if twins and standing.speed < SLOW_TWIN * median(twins) else ""

    def _flag(self, row: Mapping[str, Any]) -> str:
        if diverged(row):
            return "loss is NaN"
        at_chance = self.classes > 1 and row.get("validation_accuracy", 1.0) <= CHANCE / self.classes
        return "at chance" if at_chance else ""

    @property
    def ended(self) -> int:
        return sum(
            standing.record.ended is not None and standing.record.state != "paused"
            for standing in self.standings.values()
        )

    def left_s(self, now: float) -> float:
        """Seconds until all trials have ended, by the mean of those that have; NaN before the first one."""
        done = [standing.record.wall_s for standing in self.standings.values() if standing.record.state == "finished"]
        if not done:
            return math.nan
        each = sum(done) / len(done)
        running = [
            now - standing.record.since for standing in self.standings.values() if standing.record.since is not None
        ]
        waiting = max(0, self.planned - self.ended - len(running))
        return (waiting * each + sum(max(0.0, each - so_far) for so_far in running)) / max(1, self.at_once)

    def trial_left_s(self, standing: TrialStanding, now: float) -> float:
        epochs, since = standing.record.experiment.training.epochs, standing.record.since
        return (now - since) / standing.epoch * (epochs - standing.epoch) if since and standing.epoch else math.nan

    def shown(self) -> list[TrialStanding]:
        """Those that run, then the best of the others, as many as fit."""
        standings = sorted(
            self.standings.values(),
            key=lambda standing: (
                standing.record.state != "running",
                math.isnan(standing.best),
                -self.sign * standing.best,
            ),
        )
        return standings[:MOST_ROWS]

    @property
    def heads(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(f"best {self.metric}" if head == _OBJECTIVE else head for head in _HEADS)

    def cells(self, now: float) -> list[tuple[str, ...]]:
        """Of each trial that is shown, a text for each of ``heads``."""
        return [standing.cells(self.trial_left_s(standing, now)) for standing in self.shown()]

    def caption(self, now: float) -> str:
        states = [standing.record.state for standing in self.standings.values()]
        parts = [f"{self.ended} of {self.planned} trials ended"]
        parts += [f"{states.count(state)} {state}" for state in ("running", "paused", "failed") if state in states]
        hidden = len(states) - MOST_ROWS
        parts += [f"{hidden} not shown"] if hidden > 0 else []
        left = self.left_s(now)
        known = not math.isnan(left) and self.ended < self.planned
        return ", ".join(parts) + (f"; about {duration(left)} left" if known else "")


def leaderboard(prepared: RunPlan) -> Leaderboard:
    """An empty leaderboard for the trials of a run."""
    base = prepared.base
    metric, mode = run_folder.best_metric(base)
    classes = base.model.outputs if base.model.metric == "accuracy" else 0
    return Leaderboard(metric, 1 if mode == "max" else -1, prepared.trials, prepared.at_once, classes)


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}}"
