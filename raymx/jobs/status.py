"""How a run stands: by its cluster's dashboard, or by what is left of it in its folder."""

from __future__ import annotations

import math
import os
from dataclasses import replace

from raymx.driver.journal import view_file
from raymx.jobs.dashboard import Dashboard
from raymx.report import load
from raymx.report.model import SweepResult, TrialResult, label_of
from raymx.results import run_files, run_folder
from raymx.results.rows import steady
from raymx.results.view import TrialView, View

_STATES = {
    "PENDING": "pending",
    "RUNNING": "starting",
    "SUCCEEDED": "finished",
    "FAILED": "failed",
    "STOPPED": "interrupted",
}
_LAST_LINES = 5


def at_job(dashboard: Dashboard, run_id: str) -> View:
    """A run on its cluster. Raises JobError when there is no such job."""
    job = dashboard.job(run_id)
    text = dashboard.file(job, view_file(run_id))
    written = View.from_dict(run_folder.mapping(text)) if text else View(run_id)
    view = joined(written, str(job.status), job.message or "")
    if view.state == "failed" and not written.is_over:  # before it could write that down
        view = replace(view, error=_error_in(dashboard.logs(run_id)) or view.error)
    if view.is_over and math.isnan(view.ended) and job.end_time:
        view = replace(view, ended=job.end_time / 1000)
    return replace(view, address=dashboard.address, name=view.name or (job.metadata or {}).get("name", ""))


def joined(written: View, status: str, message: str) -> View:
    """What the run wrote last, together with the ``status`` of its job in Ray's words."""
    state = _STATES.get(status, "pending")
    if written.is_over:
        return written
    if state in ("pending", "starting"):
        return replace(written, state="running" if written.state == "running" else state)
    return replace(written, state=state, error=message if state == "failed" else "")


def at_folder(path: str) -> View:
    """A run of which the results are left. Raises ExperimentError when no run is there."""
    files = run_files.read_run(path)
    sweep = load.load(files, os.path.basename(path))
    trials = tuple(_trial(sweep, one) for one in sweep.trials)
    return View(
        os.path.basename(path.rstrip("/")),
        name=str(load.experiment_of(files).get("name", "")),
        state=str(sweep.summary.get("state", "lost")),
        is_sweep=bool(sweep.axes),
        axes=tuple(axis.key for axis in sweep.axes),
        metric=sweep.objective.metric,
        mode=sweep.objective.mode,
        planned=sweep.planned,
        skipped=len(sweep.skipped),
        trials=trials,
        error=sweep.summary.get("error") or "",
        started=min((one.started for one in sweep.trials if one.started), default=math.nan),
        ended=max((one.ended for one in sweep.trials if one.ended), default=math.nan),
        path=path,
        rows=sum(len(one.rows) for one in sweep.trials),
        summary=sweep.summary,
    )


def _trial(sweep: SweepResult, one: TrialResult) -> TrialView:
    curve = [(float(row["epoch"]), value) for row, value in one.series(sweep.objective.metric)]
    speeds = [value for _, value in one.series("samples_per_sec")]
    best = sweep.objective.best(value for _, value in curve)
    state = "interrupted" if one.state in ("running", "paused") and not sweep.summary else one.state
    return TrialView(
        one.trial_id,
        label_of(sweep.axes, one.axes) if sweep.axes else "",
        state,
        epoch=max((row.get("epoch", 0.0) for row in one.rows), default=0.0),
        epochs=one.epochs or 1,
        samples_per_sec=steady(speeds),
        objective=math.nan if best is None else best,
        error=one.error or "",
        curve=tuple(curve),
    )


def _error_in(text: str) -> str:
    """The message of raymx.run's error in its output, or its last lines."""
    _, found, message = text.rpartition("raymx: error: ")
    return message.strip() if found else "\n".join(text.strip().splitlines()[-_LAST_LINES:])
