"""What a submitted run writes for whoever watches it from outside, in the log folder of its driver's node.

Ray's dashboard serves that folder, so a client needs no more than the dashboard's address. Two files a run: the newest
`raymx.results.view.View`, and its reports, a line each.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from raymx.driver.display import Display
from raymx.driver.leaderboard import Leaderboard, TrialStanding, leaderboard
from raymx.results import reports, run_folder
from raymx.results.view import TrialView, View
from raymx.sweep.axis import in_words
from raymx.sweep.plan import RunPlan
from raymx.sweep.trial_records import TrialRecord

EVERY_S = 1.0
MOST_MESSAGES = 20


def view_file(run_id: str) -> str:
    """The name of a run's view in the log folder."""
    return f"raymx-{run_id}.view.json"


def rows_file(run_id: str) -> str:
    """The name of a run's reports there."""
    return f"raymx-{run_id}.rows.jsonl"


class Journal(Display):
    """A display that writes down what it is told, and passes it on to another one.

    A file that cannot be written costs the watchers their view, never the run.
    """

    def __init__(self, shown: Display, run_id: str, folder: str, path: str) -> None:
        """``folder`` is where the files go, ``path`` the run's own folder or URI."""
        self._shown, self.resume_with = shown, shown.resume_with
        self._view_path, self._rows_path = Path(folder, view_file(run_id)), Path(folder, rows_file(run_id))
        self._view = View(run_id, state="starting", started=time.time(), path=path)
        self._leaderboard: Leaderboard | None = None
        self._now: dict[str, Mapping[str, Any]] = {}  # newest progress of each trial
        self._curves: dict[str, dict[float, float]] = {}
        self._rows = 0
        self._said: set[str] = set()
        self._written_at = 0.0
        self._lock = threading.Lock()
        self._write()

    def say(self, text: str) -> None:
        self._shown.say(text)

    def close(self) -> None:
        self._write()
        self._shown.close()

    def head(self, prepared: RunPlan, started: str) -> None:
        base = prepared.base
        self._leaderboard = leaderboard(prepared)
        self._view = replace(
            self._view,
            name=base.name,
            state="running",
            is_sweep=bool(base.sweep.space),
            axes=tuple(base.sweep.space),
            metric=self._leaderboard.metric,
            mode=run_folder.best_metric(base)[1],
            planned=prepared.trials,
            skipped=sum(bool(cell.reason) for cell in prepared.cells),
        )
        for row in reports.of_folder(self._view.path, missing_ok=True):  # of a run that is resumed
            self._add_row(row)
        self._write()
        self._shown.head(prepared, started)

    def warnings(self, texts: Iterable[str], word: str = "warning") -> None:
        texts = list(texts)
        for text in texts:
            if text not in self._said:
                self._said.add(text)
                self._add_message(f"{word}: {text}")
        self._shown.warnings(texts, word)

    def note(self, trial_id: str, text: str) -> None:
        self._add_message(f"{trial_id[-5:]}: {text}" if self._view.is_sweep else text)
        self._shown.note(trial_id, text)

    def trial(self, record: TrialRecord) -> None:
        if self._leaderboard:
            self._leaderboard.trial(record)
        self._write()
        self._shown.trial(record)

    def progress(self, trial_id: str, progress: Mapping[str, Any]) -> None:
        self._now[trial_id] = progress
        if self._leaderboard:
            self._leaderboard.progress(trial_id, progress)
        self._shown.progress(trial_id, progress)

    def row(self, row: Mapping[str, Any]) -> None:
        if self._leaderboard:
            self._leaderboard.row(row)
        self._add_row(reports.lean(row))
        self._now[row["trial_id"]] = {**self._now.get(row["trial_id"], {}), "loss": row.get("train_loss")}
        self._shown.row(row)

    def refresh(self) -> None:
        if time.time() - self._written_at > EVERY_S:
            self._write()
        self._shown.refresh()

    def end(self, summary: Mapping[str, Any], path: str) -> None:
        self._view = replace(
            self._view,
            state=summary["state"],
            error=summary["error"] or "",
            ended=time.time(),
            summary=json.loads(run_folder.as_json(summary)),
        )
        self._write()
        self._shown.end(summary, path)

    def _add_message(self, text: str) -> None:
        with self._lock:
            self._view = replace(self._view, messages=(*self._view.messages, text)[-MOST_MESSAGES:])

    def _add_row(self, row: Mapping[str, Any]) -> None:
        value = row.get(self._view.metric)
        if isinstance(value, float) and math.isfinite(value):
            self._curves.setdefault(row["trial_id"], {})[row.get("epoch", math.nan)] = value
        self._rows += 1
        with contextlib.suppress(OSError), self._rows_path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _write(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._written_at = time.time()
            part = self._view_path.with_suffix(".tmp")
            part.write_text(json.dumps(self._whole().as_dict()))
            os.replace(part, self._view_path)

    def _whole(self) -> View:
        shown, now = self._leaderboard, time.time()
        if shown is None:
            return self._view
        trials = tuple(self._trial(shown, standing, now) for standing in list(shown.standings.values()))
        left_s = shown.left_s(now) if self._view.is_sweep else trials[0].left_s if trials else math.nan
        return replace(self._view, rows=self._rows, left_s=left_s, trials=trials)

    def _trial(self, shown: Leaderboard, standing: TrialStanding, now: float) -> TrialView:
        record, progress = standing.record, self._now.get(standing.record.trial_id, {})
        running = record.state == "running"
        loss = progress.get("loss")
        return TrialView(
            record.trial_id,
            in_words(record.axes) + (f" #{record.repeat + 1}" if record.repeat else ""),
            record.state,
            str(progress.get("phase", "")) if running else "",
            standing.epoch,
            record.experiment.training.epochs,
            standing.speed,
            math.nan if loss is None else loss,
            standing.best,
            standing.flag,
            record.error or "",
            shown.trial_left_s(standing, now) if running else math.nan,
            tuple(sorted(self._curves.get(record.trial_id, {}).items())),
        )
