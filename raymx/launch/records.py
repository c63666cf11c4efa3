"""The files of a run of `raymx.launch`: those that `raymx.report` reads, and the roles' output."""

from __future__ import annotations

import json
import os
import shlex
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from raymx import storage
from raymx.experiment import yaml_text
from raymx.launch import bundles, commands
from raymx.launch.bundles import Seat
from raymx.launch.points import Planned
from raymx.launch.script import Script
from raymx.results import run_folder
from raymx.results.run_files import ROWS

LOGS = "logs"


def log_name(seat: Seat) -> str:
    """The file of a role's output: ``worker_1.log``."""
    return seat.name.replace(" ", "_") + ".log"


class RunRecords:
    """The files of the run as a whole."""

    def __init__(self, storage_path: str, folder: str, script: Script, directory: str) -> None:
        self._storage, self._folder, self._script, self._directory = storage_path, folder, script, directory
        self._began = time.time()

    @property
    def path(self) -> str:
        return storage.child(self._storage, self._folder)

    def begin(self, trials: Sequence[Planned], objective: tuple[str, str]) -> None:
        experiment = {"name": self._script.name, run_folder.SCRIPT: self._script.as_dict()}
        text = yaml_text.dump({"directory": self._directory, "experiment": experiment})
        run_folder.write(self._storage, self._folder, run_folder.RUN, text)
        self.sweep(trials, objective)

    def sweep(self, trials: Sequence[Planned], objective: tuple[str, str]) -> None:
        """Write ``sweep.json``, again once it is known what the script prints."""
        cells = {trial.cell: dict(trial.point) for trial in trials}
        axes = [
            {"key": key, "kind": "grid", "labels": list(values), "low": None, "high": None}
            for key, values in self._script.sweep.items()
        ]
        self._write(
            run_folder.SWEEP,
            {
                "objective": {"metric": objective[0], "mode": objective[1]},
                "axes": axes,
                "cells": [
                    {"cell": cell, "axes": point, "verdict": "planned", "reason": None, "notes": []}
                    for cell, point in cells.items()
                ],
                "repeats": self._script.repeats,
                "trials_planned": len(trials),
                "started": self._began,
                "price_per_hour": None,
            },
        )

    def summary(self, state: str, error: str | None, told: Mapping[str, Any]) -> None:
        self._write(
            run_folder.SUMMARY,
            {
                "name": self._script.name,
                "state": state,
                "error": error,
                "wall_s": time.time() - self._began,
                **told,
                "experiment": {"name": self._script.name, run_folder.SCRIPT: self._script.as_dict()},
                "directory": self._directory,
            },
        )

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        run_folder.write(self._storage, self._folder, name, run_folder.as_json(content))


@dataclass
class TrialRecord:
    """One trial's files: its facts, its rows, and the output of its roles.

    Output goes into files as it comes; where the run's folder is a URI they are put there when the trial ends.
    """

    storage_path: str
    run: str
    script: Script
    planned: Planned
    rows: list[dict[str, Any]] = field(default_factory=list)
    state: str = "running"
    error: str | None = None
    started: float = 0.0
    ended: float | None = None

    def __post_init__(self) -> None:
        self._files: dict[Seat, TextIO] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="raymx-logs-") if "://" in self.storage_path else None

    @property
    def folder(self) -> str:
        return os.path.join(self.run, self.planned.folder)

    @property
    def path(self) -> str:
        return storage.child(self.storage_path, self.folder)

    def begin(self) -> None:
        self.started = time.time()
        self._write()

    def line(self, seat: Seat, text: str) -> None:
        if seat not in self._files:
            logs = Path(self._scratch.name if self._scratch else os.path.join(self.path, LOGS))
            logs.mkdir(parents=True, exist_ok=True)
            self._files[seat] = (logs / log_name(seat)).open("a", buffering=1, encoding="utf-8", errors="replace")
        self._files[seat].write(text + "\n")

    def row(self, row: Mapping[str, Any], restarts: int) -> dict[str, Any]:
        """Add a row, with what every row has; the whole row."""
        now = time.time()
        before = self.rows[-1]["timestamp"] if self.rows else self.started
        whole = {
            **row,
            "restarts": restarts,
            "trial_id": self.planned.trial_id,
            "training_iteration": len(self.rows) + 1,
            "time_total_s": now - self.started,
            "time_this_iter_s": now - before,
            "timestamp": now,
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
            "hostname": socket.gethostname(),
            "done": False,
        }
        self.rows.append(whole)
        self._write_rows()
        return whole

    def end(self, state: str, error: str | None) -> None:
        self.state, self.error, self.ended = state, error, time.time()
        if self.rows:
            self.rows[-1]["done"] = True
            self._write_rows()
        self._write()
        for file in self._files.values():
            file.close()
        if self._scratch:
            logs = {path.name: path.read_bytes() for path in Path(self._scratch.name).iterdir()}
            storage.write_files(storage.child(self.path, LOGS), logs)
            self._scratch.cleanup()

    def _write_rows(self) -> None:
        text = "".join(json.dumps(run_folder.plain(row)) + "\n" for row in self.rows)
        run_folder.write(self.storage_path, self.folder, ROWS, text)

    def _write(self) -> None:
        planned, script = self.planned, self.script
        epochs = [row["epoch"] for row in self.rows]
        facts: dict[str, Any] = {
            "trial_id": planned.trial_id,
            "cell": planned.cell,
            "repeat": planned.repeat,
            "axes": dict(planned.point),
            "state": self.state,
            "error": self.error,
            "started": self.started,
            "ended": self.ended,
            "wall_s": (self.ended - self.started) if self.ended else 0.0,
            "cpus": bundles.cpus(script),
            "gpus": bundles.gpus(script),
            "epochs": max(epochs) if epochs else None,
            "num_workers": script.workers,
            "kvstore_type": commands.flag_value(planned.command, "kv-store"),
            "settings": {f"--{key}": value for key, value in planned.point.items()},
            "command": shlex.join(["python", "-m", "raymx.launch", *script.flags(), *planned.command]),
            "notes": [],
        }
        run_folder.write(self.storage_path, self.folder, run_folder.TRIAL, run_folder.as_json(facts))
