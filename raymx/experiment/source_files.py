"""Which files beside an experiment belong to it: the modules that may travel to a cluster, and the data that it names.

Left out are version control, virtual environments, caches, results of runs, other RecordIO files, and what a .gitignore
or .rayignore names.
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from raymx import _ray, storage
from raymx.errors import RaymxError
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.names import RUN_FILE

SOURCE = "source.zip"  # in a submitted run's folder
_SOURCE_LIMIT_BYTES = 20 * 2**20
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
_RECORDS = (".rec", ".idx", ".lst")


def module_files(directory: str) -> dict[str, str]:
    """The files that may travel, by their names in the zip, in order; no RecordIO files."""
    top = Path(directory)
    found = sorted((str(path.relative_to(top)), str(path)) for path in _below(top, []))
    return {name: file for name, file in found if not name.endswith(_RECORDS)}


def _below(folder: Path, ignored: Sequence[Callable[[Path], bool]]) -> Iterator[Path]:
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
        or (folder / RUN_FILE).exists()
    )


def _ignore_files(folder: Path) -> list[Callable[[Path], bool]]:
    """What .gitignore and .rayignore in this folder say, as Ray understands them: functions of a path."""
    if not any((folder / name).exists() for name in (".gitignore", ".rayignore")):
        return []
    return _ray.ignore_rules(folder)


def data_files(experiment: ExperimentConfig) -> dict[str, str]:
    """The data that the experiment names, with the indexes beside it, as far as it lies below the experiment file."""
    found: dict[str, str] = {}
    for path in (path for paths in data_paths(experiment).values() for path in paths):
        if not lies_inside(experiment, path):
            continue
        for file in storage.expand([experiment.resolve(path)]):
            for near in (file, storage.with_suffix(file, ".idx"), storage.with_suffix(file, ".lst")):
                if os.path.isfile(near):
                    found[os.path.relpath(near, experiment.directory)] = near
    return found


def data_paths(experiment: ExperimentConfig) -> dict[str, list[str]]:
    """The paths of data.train and data.validation."""
    given = {"train": experiment.data.train, "validation": experiment.data.validation or ()}
    return {key: [paths] if isinstance(paths, str) else list(paths) for key, paths in given.items()}


def lies_inside(experiment: ExperimentConfig, path: str) -> bool:
    """Whether a path of the experiment's is local, relative, and below its folder."""
    if storage.is_uri(path) or os.path.isabs(os.path.expanduser(path)):
        return False
    return not os.path.relpath(experiment.resolve(path), experiment.directory).startswith("..")


def keep_source(directory: str, run_path: str) -> None:
    """Keep the modules of a job's working directory with its results, for whoever loads its net later.

    A folder that is large, or cannot be written, is left alone: the net then needs its modules from elsewhere.
    """
    found = module_files(directory)
    if sum(map(os.path.getsize, found.values())) > _SOURCE_LIMIT_BYTES:
        return
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in found.items():
            archive.write(file, name)
    with contextlib.suppress(RaymxError):
        storage.write_files(run_path, {SOURCE: content.getvalue()})
