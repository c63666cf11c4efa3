"""What of an experiment travels to a cluster with a submitted job: one zip file, measured before it is sent.

    with pack(experiment, objects) as parcel:
        parcel.path, parcel.size, parcel.left_out

In it are the experiment file, resolved, and what lies beside it: modules, and the data files that the experiment names.
Left out are version control, virtual environments, caches, results of runs, other RecordIO files, and what a .gitignore
or .rayignore names.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raymx import storage
from raymx.errors import ExperimentError, RaymxError
from raymx.experiment import loading
from raymx.experiment.loading import Experiment
from raymx.jobs import by_value
from raymx.report import folders
from raymx.results import run_folder

EXPERIMENT = "raymx_experiment.yaml"
SOURCE = "source.zip"  # in a submitted run's folder
LIMIT_BYTES = 100 * 2**20  # what Ray's dashboard takes in one request
_MARGIN_BYTES = 64 * 2**10
_SOURCE_LIMIT_BYTES = 20 * 2**20
_OFFENDERS = 5
_FOLDERS = {
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "node_modules",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "mlruns",
    "wandb",
}
_FILES = {EXPERIMENT, by_value.MODULE_FILE, by_value.VALUES_FILE}
_RECORDS = (".rec", ".idx", ".lst")


@dataclass(frozen=True)
class Parcel:
    """A zip file; ``size`` in bytes, ``left_out`` in words."""

    path: str
    size: int
    left_out: tuple[str, ...] = ()


@contextlib.contextmanager
def pack(
    experiment: Experiment,
    objects: Mapping[str, Any],
    *,
    data_stays: bool = False,
    limit_bytes: int = LIMIT_BYTES - _MARGIN_BYTES,
) -> Iterator[Parcel]:
    """The parcel of an experiment, for as long as the context lasts.

    ``objects`` travel by value, see `raymx.jobs.by_value`. ``data_stays``: where the data would make it too large, the
    job reads it where it lies, as on this machine it can. Raises ExperimentError when it is too large, with the largest
    files.
    """
    code = code_files(experiment)
    data = data_files(experiment)
    with tempfile.TemporaryDirectory(prefix="raymx_") as scratch:
        path = os.path.join(scratch, "experiment.zip")
        for travels in [data, {}] if data and data_stays else [data]:
            if _write(path, {**code, **travels}, _generated(experiment, objects, travels), limit_bytes):
                stays = () if travels or not data else (f"the data ({_mib(data.values())}) is read where it lies",)
                yield Parcel(path, os.path.getsize(path), stays)
                return
        raise ExperimentError(_too_large(experiment, {**code, **travels}, travels, limit_bytes))


def keep_source(directory: str, run_path: str) -> None:
    """Keep the modules of a job's working directory with its results, for whoever loads its net later.

    A folder that is large, or cannot be written, is left alone: the net then needs its modules from elsewhere.
    """
    found = _modules(directory)
    if sum(map(os.path.getsize, found.values())) > _SOURCE_LIMIT_BYTES:
        return
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in found.items():
            archive.write(file, name)
    with contextlib.suppress(RaymxError):
        folders.write(run_path, {SOURCE: content.getvalue()})


def code_files(experiment: Experiment) -> dict[str, str]:
    """What travels besides data: the file for each name in the zip."""
    return {name: file for name, file in _modules(experiment.directory).items() if name not in _FILES}


def data_files(experiment: Experiment) -> dict[str, str]:
    """The data that the experiment names, with the indexes beside it, as far as it lies below the experiment file."""
    found: dict[str, str] = {}
    for path in (path for paths in _data(experiment).values() for path in paths):
        inside = _inside(experiment, path)
        if inside is None:
            continue
        for file in storage.expand([experiment.resolve(path)]):
            for near in (file, storage.with_suffix(file, ".idx"), storage.with_suffix(file, ".lst")):
                if os.path.isfile(near):
                    found[os.path.relpath(near, experiment.directory)] = near
    return found


def _generated(experiment: Experiment, objects: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, bytes]:
    """The files that are made for the job. Paths to data that does not travel become absolute."""
    moved = {
        f"data.{key}": [path if _travels(experiment, path, data) else experiment.resolve(path) for path in paths]
        for key, paths in _data(experiment).items()
        if paths
    }
    sent = loading.parse_experiment(experiment.to_dict(), experiment.directory, moved)
    return {EXPERIMENT: loading.to_yaml(sent).encode(), **by_value.files(objects)}


def _travels(experiment: Experiment, path: str, data: Mapping[str, str]) -> bool:
    return storage.is_uri(path) or (bool(data) and _inside(experiment, path) is not None)


def _data(experiment: Experiment) -> dict[str, list[str]]:
    """The paths of data.train and data.validation."""
    given = {"train": experiment.data.train, "validation": experiment.data.validation or ()}
    return {key: [paths] if isinstance(paths, str) else list(paths) for key, paths in given.items()}


def _inside(experiment: Experiment, path: str) -> str | None:
    """A local path relative to the experiment's folder, when it is below that."""
    if storage.is_uri(path):
        return None
    relative = os.path.relpath(experiment.resolve(path), experiment.directory)
    return None if relative.startswith("..") or os.path.isabs(os.path.expanduser(path)) else relative


def _modules(directory: str) -> dict[str, str]:
    """The files that may travel, by their names in the zip, in order; no RecordIO files."""
    top = Path(directory)
    found = sorted((str(path.relative_to(top)), str(path)) for path in _below(top, []))
    return {name: file for name, file in found if not name.endswith(_RECORDS)}


def _below(folder: Path, ignored: Sequence[Any]) -> Iterator[Path]:
    ignored = [*ignored, *_ignore_files(folder)]
    for path in folder.iterdir():
        if any(is_ignored(path) for is_ignored in ignored):
            continue
        if path.is_dir():
            if not path.is_symlink() and not _is_left_out(path):
                yield from _below(path, ignored)
        elif path.is_file():
            yield path


def _is_left_out(folder: Path) -> bool:
    return (
        folder.name in _FOLDERS
        or folder.name.endswith(".egg-info")
        or (folder / "pyvenv.cfg").exists()
        or (folder / run_folder.RUN).exists()
    )


def _ignore_files(folder: Path) -> list[Any]:
    """What .gitignore and .rayignore in this folder say, as Ray understands them: functions of a path."""
    if not any((folder / name).exists() for name in (".gitignore", ".rayignore")):
        return []
    from ray._private.runtime_env.packaging import get_excludes_from_ignore_files

    found: list[Any] = get_excludes_from_ignore_files(folder, include_gitignore=True, logger=_Silent())
    return found


class _Silent:
    def info(self, *_: object) -> None:
        """Ray logs each ignore file."""


def _write(path: str, found: Mapping[str, str], generated: Mapping[str, bytes], limit_bytes: int) -> bool:
    """Write the zip file, and stop where it is above the limit; whether it is not."""
    with open(path, "wb") as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in generated.items():
            archive.writestr(name, content)
        for name, file in found.items():
            with open(file, "rb") as read, archive.open(zipfile.ZipInfo.from_file(file, name), "w") as entry:
                while piece := read.read(2**20):
                    entry.write(piece)
                    if target.tell() > limit_bytes:
                        return False
    return os.path.getsize(path) <= limit_bytes


def _too_large(experiment: Experiment, found: Mapping[str, str], data: Mapping[str, str], limit_bytes: int) -> str:
    sizes = sorted(((os.path.getsize(file), name) for name, file in found.items()), reverse=True)
    largest = "\n".join(f"  {size / 2**20:8.1f} MiB  {name}" for size, name in sizes[:_OFFENDERS])
    fix = (
        "put data where every node can read it (a shared folder, or a URI) and name that in data.train and "
        "data.validation; "
        if data
        else ""
    )
    return (
        f"{experiment.directory} travels to the cluster, and is above the {limit_bytes / 2**20:.0f} MiB (zipped) "
        f"that Ray takes. The largest files:\n{largest}\n{fix}name what is not needed in "
        f"{os.path.join(experiment.directory, '.rayignore')}"
    )


def _mib(paths: Any) -> str:
    return f"{sum(map(os.path.getsize, paths)) / 2**20:.0f} MiB"
