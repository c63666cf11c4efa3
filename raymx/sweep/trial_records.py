"""What the driver writes down of a sweep and of each of its trials, for the report and for whoever looks later.

``sweep.json`` in the run's folder has the axes and the cells, those that cannot run with their reasons. ``trial.json``
in each trial's folder says what it is, how it ended and what it used.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from raymx.cluster import placement
from raymx.errors import ExperimentError
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.without_effect import idle
from raymx.kvstore import schedule
from raymx.results import run_folder
from raymx.sweep.axis import Point, label
from raymx.sweep.plan import Cell, RunPlan
from raymx.sweep.space import Space, gpus_of, repeat_of

State = Literal["running", "paused", "finished", "stopped", "failed", "interrupted"]


@dataclass(frozen=True)
class TrialRecord:
    """A trial, as far as it is known. Times are in seconds since 1970; ``wall_s`` is how long it held its place."""

    trial_id: str
    cell: int
    repeat: int
    axes: Point
    experiment: ExperimentConfig
    cpus: float
    gpus: float
    settings: Mapping[str, object] = field(default_factory=dict)
    code: str = ""  # the version of the experiment's own modules
    state: State = "running"
    error: str | None = None
    started: float = 0.0
    ended: float | None = None
    wall_s: float = 0.0
    since: float | None = None  # it holds its place since then

    def begun(self, now: float) -> TrialRecord:
        return replace(self, state="running", started=self.started or now, ended=None, error=None, since=now)

    def over(self, state: State, error: str | None, now: float) -> TrialRecord:
        held = now - self.since if self.since is not None else 0.0
        return replace(self, state=state, error=error, ended=now, wall_s=self.wall_s + held, since=None)

    def as_dict(self) -> dict[str, Any]:
        one = self.experiment
        return {
            "trial_id": self.trial_id,
            "cell": self.cell,
            "repeat": self.repeat,
            "seed": one.training.seed,
            "axes": dict(self.axes),
            "state": self.state,
            "error": self.error,
            "started": self.started,
            "ended": self.ended,
            "wall_s": self.wall_s,
            "cpus": self.cpus,
            "gpus": self.gpus,
            "epochs": one.training.epochs,
            "peak_lr": schedule.from_experiment(one, 1).peak,
            "warmup_epochs": rules.warmup_epochs(one),
            "settings": dict(self.settings),
            "code": self.code or None,
            "lr_factor": rules.batch_factor(one),
            "global_batch_size": one.training.global_batch_size,
            "num_workers": one.resources.min_workers,
            "kvstore_type": rules.resolved_store_type(one),
            "dtype": one.precision.dtype,
            "notes": rules.notes(one),
            "compression": label(one.kvstore.compression.model_dump()),
        }


class TrialRecords:
    """All trials of a run, written down as they change."""

    def __init__(self, storage: str, folder: str, prepared: RunPlan, code: str = "") -> None:
        self._code = code
        self._storage, self._folder, self._prepared = storage, folder, prepared
        self._space = Space(prepared.base)
        self._records: dict[str, TrialRecord] = {}
        self._folders: dict[str, str] = {}
        self._cells = list(prepared.cells)
        self._started, self._problem = time.time(), ""

    @property
    def records(self) -> Mapping[str, TrialRecord]:
        return self._records

    def write_sweep(self) -> None:
        """Write ``sweep.json``; of a resumed sweep the cells that a search library chose before stay."""
        before = run_folder.read_json(self._storage, self._folder, run_folder.SWEEP)
        self._started = before.get("started", self._started)
        if self._space.searched:
            self._cells = [
                Cell(one["cell"], one["axes"], one["reason"] or "", tuple(one["notes"]))
                for one in before.get("cells", [])
            ]
        self._write_sweep()

    def add_cell(self, cell: Cell) -> None:
        """One that a search library has chosen."""
        self._cells.append(cell)
        self._write_sweep()

    def _write_sweep(self) -> None:
        sweep, (metric, mode) = self._prepared.base.sweep, run_folder.best_metric(self._prepared.base)
        price = {"CPU": sweep.price_per_hour.cpu, "GPU": sweep.price_per_hour.gpu}
        self._write(
            run_folder.SWEEP,
            {
                "objective": {"metric": metric, "mode": mode},
                "axes": [axis.as_dict() for axis in self._space.axes],
                "cells": [_cell(cell) for cell in self._cells],
                "repeats": sweep.repeats,
                "trials_planned": self._prepared.trials,
                "started": self._started,
                "price_per_hour": price if any(price.values()) else None,
            },
        )

    def begun(self, trial_id: str, folder: str, config: Mapping[str, Any]) -> TrialRecord:
        """A trial has its place, for the first time or again; its config may have changed since."""
        point, repeat = config["point"], repeat_of(config)
        experiment = self._space.at(point["axes"], repeat)
        plan = placement.plan(experiment, gpus_of(experiment, config["cluster"]["gpus_per_worker"]))
        gpus, cpus = placement.size(placement.with_spare(plan, config["cluster"]["spare_cpus"]))
        settings = effective_settings(self._space, point["axes"])
        new = TrialRecord(trial_id, point["cell"], repeat, point["axes"], experiment, cpus, gpus, settings, self._code)
        old = self._records.get(trial_id) or self._read(new, folder)
        self._folders[trial_id] = folder
        return self._keep(replace(new, started=old.started, wall_s=old.wall_s).begun(time.time()))

    def _read(self, new: TrialRecord, folder: str) -> TrialRecord:
        """A trial of a run that is resumed."""
        before = run_folder.read_json(self._storage, os.path.join(self._folder, folder), run_folder.TRIAL)
        return replace(new, started=before.get("started", 0.0), wall_s=before.get("wall_s", 0.0))

    def over(self, trial_id: str, state: State, error: str | None = None) -> TrialRecord | None:
        """A trial has given up its place; its record, None when it never had one or has ended before."""
        record = self._records.get(trial_id)
        if record is None or record.state not in ("running", "paused"):
            return None
        return self._keep(record.over(state, error, time.time()))

    def interrupted(self) -> None:
        """The run ends: so do all trials that have not."""
        for trial_id, record in list(self._records.items()):
            if record.state in ("running", "paused"):
                self.over(trial_id, "interrupted")

    def _keep(self, record: TrialRecord) -> TrialRecord:
        self._records[record.trial_id] = record
        self._write(os.path.join(self._folders[record.trial_id], run_folder.TRIAL), record.as_dict())
        return record

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """A file that cannot be written now is a warning, and is written with the next change."""
        try:
            run_folder.write(
                self._storage,
                os.path.join(self._folder, os.path.dirname(name)),
                os.path.basename(name),
                json.dumps(content, indent=1) + "\n",
            )
        except ExperimentError as error:
            self._problem = str(error)

    def take_problem(self) -> str:
        """Why a file could not be written, once; "" when all were."""
        problem, self._problem = self._problem, ""
        return problem


def effective_settings(space: Space, point: Point) -> dict[str, object]:
    """The keys that a point sets, without those that change nothing at it, which a command line would be refused."""
    without = idle(space.at(point))
    return {key: value for key, value in space.settings(point).items() if key not in without}


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "cell": cell.number,
        "axes": dict(cell.point),
        "verdict": "skipped" if cell.reason else "planned",
        "reason": cell.reason or None,
        "notes": list(cell.notes),
    }
