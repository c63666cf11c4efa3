"""The files of a run's folder, locally or by URI, as they are read for a report. Nothing is understood here."""

from __future__ import annotations

import os
from dataclasses import dataclass

from raymx.errors import ExperimentError
from raymx.results import run_folder
from raymx.storage import child, map_ahead, names_in, text
from raymx.text.words import some

ROWS = "result.json"  # Tune's
_MOST_NAMED = 5


@dataclass(frozen=True)
class TrialFiles:
    """The text of a trial's files; None for one that is not there."""

    folder: str
    trial: str | None
    rows: str | None


@dataclass(frozen=True)
class RunFiles:
    """The text of a run's files."""

    path: str
    run: str
    sweep: str | None
    summary: str | None
    trials: tuple[TrialFiles, ...]


def read_run(path: str) -> RunFiles:
    """All of a run's folder that a report needs. Raises ExperimentError, saying what is there, when it holds no run."""
    path = run_folder.storage_path(path.rstrip("/") or path)
    folders, names = names_in(path)
    run = text(child(path, run_folder.RUN))
    if run is None:
        raise ExperimentError(_no_run(path, folders, names))
    trials = map_ahead(lambda folder: _trial(path, folder), folders)
    return RunFiles(
        path,
        run,
        text(child(path, run_folder.SWEEP)),
        text(child(path, run_folder.SUMMARY)),
        tuple(trial for trial in trials if trial.trial is not None or trial.rows is not None),
    )


def _trial(path: str, folder: str) -> TrialFiles:
    return TrialFiles(folder, text(child(path, folder, run_folder.TRIAL)), text(child(path, folder, ROWS)))


def _no_run(path: str, folders: list[str], names: list[str]) -> str:
    told = f"{path}: no run is there (it has no {run_folder.RUN})"
    runs = [folder for folder in folders if text(child(path, folder, run_folder.RUN)) is not None]
    if runs:
        return f"{told}, but it holds {some(runs, _MOST_NAMED)}; name one of them, such as {child(path, runs[-1])}"
    if ROWS in names or run_folder.TRIAL in names:
        return f"{told}; it is the folder of one trial: give its run's, {os.path.dirname(path)}"
    held = some(folders + names, _MOST_NAMED)
    there = f"it has {held}" if held else "there is no such folder, or it is empty"
    return f"{told}; {there}; give the folder that raymx.run printed after the word results"
