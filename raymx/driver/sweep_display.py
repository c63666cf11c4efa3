"""What a sweep prints: a live table in a terminal, else a line for each trial that has ended."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from raymx import __version__
from raymx.driver.display import Display, trace_lines
from raymx.driver.leaderboard import FIRST_NUMBER, Leaderboard, leaderboard
from raymx.sweep.axis import in_words
from raymx.sweep.plan import SAME_AS, RunPlan, epochs_in_words
from raymx.sweep.trial_records import TrialRecord
from raymx.text.words import count


class SweepDisplay(Display):
    """A sweep's display."""

    def head(self, prepared: RunPlan, started: str) -> None:
        base = prepared.base
        self._leaderboard = leaderboard(prepared)
        self.say(
            f"raymx {__version__}: {base.name}, a sweep of {count(prepared.trials, 'trial')} over "
            f"{', '.join(base.sweep.space)}; {prepared.at_once} at once, each {epochs_in_words(prepared)}"
        )
        if started:
            self.say(started)
        skipped = (cell.reason.partition(SAME_AS)[0] for cell in prepared.cells if cell.reason)
        for reason, number in Counter(skipped).items():
            self.say(f"skipped {count(number, 'cell')}: {reason}")
        self._draw("")

    def note(self, trial_id: str, text: str) -> None:
        self.say(f"{trial_id[-5:]}: {text}")

    def trial(self, record: TrialRecord) -> None:
        self._leaderboard.trial(record)
        if record.ended is not None and record.state != "paused" and not self._in_place:
            self.say(self._ended(record))

    def _ended(self, record: TrialRecord) -> str:
        standing, error = self._leaderboard.standings[record.trial_id], f": {record.error}" if record.error else ""
        trial, settings, state, epoch, speed, best, last, _ = standing.cells(math.nan)
        return (
            f"[{self._leaderboard.ended}/{self._leaderboard.planned}] {settings}: {state}{error}  epoch {epoch}  "
            f"{self._leaderboard.metric} best {best or 'none'}, last {last or 'none'}  {speed} samples/s  "
            f"{record.wall_s:.0f} s  ({trial})"
        )

    def progress(self, trial_id: str, progress: Mapping[str, Any]) -> None:
        self._leaderboard.progress(trial_id, progress)

    def row(self, row: Mapping[str, Any]) -> None:
        self._leaderboard.row(row)

    def refresh(self) -> None:
        if self._in_place:
            self._draw(as_rich(self._leaderboard, time.time()))

    def end(self, summary: Mapping[str, Any], path: str) -> None:
        self.close()
        if self._in_place:
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
        for text in trace_lines(summary):
            self.say(text)
        self.say(f"results     {path}")
        if summary["state"] == "interrupted":
            self.say(f"go on with  {self.resume_with} {path}")


def as_rich(leaderboard: Leaderboard, now: float) -> Table:
    table = Table(caption=leaderboard.caption(now), caption_justify="left", box=None, pad_edge=False)
    for at, head in enumerate(leaderboard.heads):
        table.add_column(head, justify="right" if at >= FIRST_NUMBER else "left", overflow="ellipsis", no_wrap=True)
    for row in leaderboard.cells(now):
        table.add_row(*row)
    return table
