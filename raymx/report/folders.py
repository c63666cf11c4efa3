"""The files of a run's folder, locally or by URI: what is read and what is written. Nothing is understood here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raymx import storage
from raymx.errors import ExperimentError
from raymx.results import run_folder
from raymx.text.words import some

ROWS = "result.json"  # Tune's
FOLDER = "report"
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
    with storage.errors_name(path, "read"):
        folders, names = _entries(path)
    run = text(child(path, run_folder.RUN))
    if run is None:
        raise ExperimentError(_no_run(path, folders, names))
    trials = storage.map_ahead(lambda folder: _trial(path, folder), folders)
    return RunFiles(
        path,
        run,
        text(child(path, run_folder.SWEEP)),
        text(child(path, run_folder.SUMMARY)),
        tuple(trial for trial in trials if trial.trial is not None or trial.rows is not None),
    )


def child(path: str, *names: str) -> str:
    """The path of something below a folder; the options of a URI stay behind it."""
    base, mark, options = path.partition("?") if storage.is_uri(path) else (path, "", "")
    return "/".join([base.rstrip("/"), *names]) + mark + options


def write(folder: str, contents: Mapping[str, bytes]) -> None:
    """Write files into ``folder``, which is made; each is complete or not there. Raises a DataError that names it."""
    with storage.errors_name(folder, "written"):
        system, place = _system(folder)
        system.create_dir(place)
    for name, content in contents.items():
        with storage.open_output(child(folder, name)) as file:
            file.write(content)


def folders_in(path: str) -> list[str]:
    """The names of the folders in a folder, sorted; none where there is no folder."""
    with storage.errors_name(path, "read"):
        return _entries(path)[0]


def content(path: str) -> bytes | None:
    """A file's bytes; None when it is not there."""
    with storage.errors_name(path, "read"):
        system, place = _system(path)
        if not system.get_file_info(place).is_file:
            return None
        with system.open_input_stream(place, compression=None) as file:
            return bytes(file.read())


def text(path: str) -> str | None:
    """A file's text; None when it is not there."""
    found = content(path)
    return None if found is None else found.decode(errors="replace")


def _trial(path: str, folder: str) -> TrialFiles:
    return TrialFiles(folder, text(child(path, folder, run_folder.TRIAL)), text(child(path, folder, ROWS)))


def _system(path: str) -> tuple[Any, str]:
    from pyarrow import fs

    return storage.file_system(path) if storage.is_uri(path) else (fs.LocalFileSystem(), path)


def _entries(path: str) -> tuple[list[str], list[str]]:
    """Names of the folders and of the files in a folder, sorted; none where there is no folder."""
    from pyarrow import fs

    system, place = _system(path)
    if system.get_file_info(place).type != fs.FileType.Directory:
        return [], []
    found = sorted(system.get_file_info(fs.FileSelector(place)), key=lambda info: str(info.base_name))
    return (
        [info.base_name for info in found if info.type == fs.FileType.Directory],
        [info.base_name for info in found if info.is_file],
    )


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
