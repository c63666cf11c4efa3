"""What a sweep prints: a live table in a terminal, HTML in a notebook, else a line for each trial that has ended."""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from raymx import __version__
from raymx.driver.display import Display
from raymx.results import run_folder
from raymx.results.rows import CHANCE, SLOW_TWIN, diverged
from raymx.sweep.axis import in_words
from raymx.sweep.plan import RunPlan
from raymx.sweep.trial_records import TrialRecord
from raymx.text.words import count, duration

MOST_ROWS = 16
HEADS = ("trial", "settings", "state", "epoch", "samples/s", "objective", "left")


@dataclass
class Line:
    """A trial as the table shows it."""

    record: TrialRecord
    epoch: float = 0.0
    samples_per_sec: float = math.nan
    best: float = math.nan
    flag: str = ""

    def cells(self, left_s: float) -> tuple[str, ...]:
        record = self.record
        epochs = record.experiment.training.epochs
        running = record.state == "running"
        return (
            record.trial_id[-5:],
            in_words(record.axes) + (f" #{record.repeat + 1}" if record.repeat else ""),
            record.state + (f": {self.flag}" if self.flag else ""),
            f"{self.epoch:.3g}/{epochs}",
            _number(self.samples_per_sec, ",.0f"),
            _number(self.best, ".4f"),
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
    lines: dict[str, Line] = field(default_factory=dict)

    def trial(self, record: TrialRecord) -> None:
        line = self.lines.setdefault(record.trial_id, Line(record))
        line.record = record

    def progress(self, trial_id: str, progress: Mapping[str, Any]) -> None:
        line = self.lines.get(trial_id)
        if line and progress.get("steps"):
            line.epoch = progress["epoch"] + progress["step"] / progress["steps"]
            line.samples_per_sec = progress.get("samples_per_sec") or line.samples_per_sec

    def row(self, row: Mapping[str, Any]) -> None:
        line = self.lines[row["trial_id"]]
        line.epoch = row.get("epoch", line.epoch)
        line.samples_per_sec = row.get("samples_per_sec", line.samples_per_sec)
        value = row.get(self.metric, math.nan)
        if not math.isnan(value):
            line.best = value if math.isnan(line.best) else self.sign * max(self.sign * value, self.sign * line.best)
        line.flag = self._flag(row) or self._slow(line)

    def _slow(self, line: Line) -> str:
        twins = [
            other.samples_per_sec
            for other in self.lines.values()
            if other.record.cell == line.record.cell and other is not line and not math.isnan(other.samples_per_sec)
        ]
        return "slower than its twins" if twins and line.samples_per_sec < SLOW_TWIN * median(twins) else ""

    def _flag(self, row: Mapping[str, Any]) -> str:
        if diverged(row):
            return "loss is NaN"
        at_chance = self.classes > 1 and row.get("validation_accuracy", 1.0) <= CHANCE / self.classes
        return "at chance" if at_chance else ""

    @property
    def ended(self) -> int:
        return sum(line.record.ended is not None and line.record.state != "paused" for line in self.lines.values())

    def left_s(self, now: float) -> float:
        """Seconds until all trials have ended, by the mean of those that have; NaN before the first one."""
        done = [line.record.wall_s for line in self.lines.values() if line.record.state == "finished"]
        if not done:
            return math.nan
        each = sum(done) / len(done)
        running = [now - line.record.since for line in self.lines.values() if line.record.since is not None]
        waiting = max(0, self.planned - self.ended - len(running))
        return (waiting * each + sum(max(0.0, each - so_far) for so_far in running)) / max(1, self.at_once)

    def trial_left_s(self, line: Line, now: float) -> float:
        epochs, since = line.record.experiment.training.epochs, line.record.since
        return (now - since) / line.epoch * (epochs - line.epoch) if since and line.epoch else math.nan

    def shown(self) -> list[Line]:
        """Those that run, then the best of the others, as many as fit."""
        lines = sorted(
            self.lines.values(),
            key=lambda line: (line.record.state != "running", math.isnan(line.best), -self.sign * line.best),
        )
        return lines[:MOST_ROWS]

    def rows(self, now: float) -> list[tuple[str, ...]]:
        return [line.cells(self.trial_left_s(line, now)) for line in self.shown()]

    def caption(self, now: float) -> str:
        states = [line.record.state for line in self.lines.values()]
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
    classes = base.model.classes if base.model.metric == "accuracy" else 0
    return Leaderboard(metric, 1 if mode == "max" else -1, prepared.trials, prepared.at_once, classes)


class SweepDisplay(Display):
    """A sweep's display."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console = Console(file=stream)
        self._table: Live | None = None
        self._notebook = _notebook_handle()
        self._drawn_at = 0.0

    def head(self, prepared: RunPlan, started: str) -> None:
        base = prepared.base
        self._leaderboard = leaderboard(prepared)
        skipped = [cell for cell in prepared.cells if cell.reason]
        self.say(
            f"raymx {__version__}: {base.name}, a sweep of {count(prepared.trials, 'trial')} over "
            f"{', '.join(base.sweep.space)}; {prepared.at_once} at once, each {base.training.epochs} epochs"
        )
        if started:
            self.say(started)
        for reason, number in _reasons(cell.reason for cell in skipped):
            self.say(f"skipped {count(number, 'cell')}: {reason}")
        if self._live:
            self._table = Live(console=self._console, auto_refresh=False, transient=True)
            self._table.start()

    def say(self, text: str) -> None:
        if self._table:
            self._table.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            super().say(text)

    def note(self, trial_id: str, text: str) -> None:
        self.say(f"{trial_id[-5:]}: {text}")

    def trial(self, record: TrialRecord) -> None:
        self._leaderboard.trial(record)
        if record.ended is not None and record.state != "paused" and not self._table and not self._notebook:
            self.say(self._ended(record))

    def _ended(self, record: TrialRecord) -> str:
        line, error = self._leaderboard.lines[record.trial_id], f": {record.error}" if record.error else ""
        trial, settings, state, epoch, speed, best, _ = line.cells(math.nan)
        return (
            f"[{self._leaderboard.ended}/{self._leaderboard.planned}] {settings}: {state}{error}  epoch {epoch}  "
            f"{self._leaderboard.metric} {best}  {speed} samples/s  {record.wall_s:.0f} s  ({trial})"
        )

    def progress(self, trial_id: str, progress: Mapping[str, Any]) -> None:
        self._leaderboard.progress(trial_id, progress)

    def row(self, row: Mapping[str, Any]) -> None:
        self._leaderboard.row(row)

    def refresh(self) -> None:
        now = time.time()
        if self._table:
            self._table.update(as_rich(self._leaderboard, now), refresh=True)
        elif self._notebook and now - self._drawn_at > 1.0:
            self._drawn_at = now
            self._notebook.update(_Html(as_html(self._leaderboard, now)))

    def close(self) -> None:
        if self._table:
            self._table.stop()
            self._table = None

    def end(self, summary: Mapping[str, Any], path: str) -> None:
        self.close()
        if self._live or self._notebook:
            self._console.print(as_rich(self._leaderboard, time.time()))
        best = summary["best"]
        self.say(
            f"{summary['state']} after {summary['wall_s']:.0f} s"
            + (
                f": best {best['metric']} {best['value']:.4f} with {in_words(best['axes'])}"
                if best and "findings" not in summary
                else ""
            )
        )
        if "findings" in summary:
            self.say(summary["findings"])
        for name in ("report", "parameters"):
            if summary.get(name):
                self.say(f"{name:<11} {summary[name]}")
        self.say(f"results     {path}")
        if summary["state"] == "interrupted":
            self.say(f"go on with  {self.resume_with} {path}")


def as_rich(leaderboard: Leaderboard, now: float) -> Table:
    table = Table(caption=leaderboard.caption(now), caption_justify="left", box=None, pad_edge=False)
    for head in HEADS:
        table.add_column(
            leaderboard.metric if head == "objective" else head,
            justify="right" if head in HEADS[3:] else "left",
            overflow="ellipsis",
            no_wrap=True,
        )
    for row in leaderboard.rows(now):
        table.add_row(*row)
    return table


def as_html(leaderboard: Leaderboard, now: float) -> str:
    """A table for a notebook."""
    heads = _cells("th", [leaderboard.metric if head == "objective" else head for head in HEADS])
    rows = "".join(f"<tr>{_cells('td', row)}</tr>" for row in leaderboard.rows(now))
    caption = html.escape(leaderboard.caption(now))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table><p>{caption}</p>"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}}"


def _reasons(reasons: Iterable[str]) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for reason in reasons:
        found[reason] = found.get(reason, 0) + 1
    return list(found.items())


@dataclass
class _Html:
    text: str

    def _repr_html_(self) -> str:
        return self.text


def in_notebook() -> bool:
    """Whether this is a kernel, whose outputs can be updated; IPython in a terminal has none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _notebook_handle() -> Any:
    """Where a notebook shows what changes; None outside of one."""
    if not in_notebook():
        return None
    from IPython.display import display

    return display(_Html(""), display_id=True)
