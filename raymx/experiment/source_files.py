"""Which files beside an experiment belong to it: the modules that may travel to a cluster, and the data that it names.

Left out are version control, virtual environments, caches, results of runs, other RecordIO files, and what a .gitignore
or .rayignore names, but for what the experiment itself names.
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from raymx import _ray, storage
from raymx.errors import RaymxError
from raymx.experiment import data_rules
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.names import PARAMETERS_FILE, REFERENCE, RUN_FILE

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
_IGNORED = "as a .gitignore or .rayignore says"
_LONGEST_PATH = 4096


def module_files(directory: str) -> dict[str, str]:
    """The files that may travel, by their names in the zip, in order; no RecordIO files. Links are followed."""
    top = Path(directory)
    found = sorted((str(path.relative_to(top)), str(path)) for path, why in _below(top) if not why)
    return {name: file for name, file in found if not name.endswith(_RECORDS)}


def named_but_ignored(experiment: ExperimentConfig) -> list[str]:
    """What the experiment names and Ray's own working directory leaves out, as a .gitignore or .rayignore says."""
    top = Path(experiment.directory)
    ignored = [str(path.relative_to(top)) for path, why in _below(top) if why == _IGNORED]
    named = {**named_files(experiment), **data_files(experiment)}
    return sorted(name for name in named if any(name == one or name.startswith(f"{one}/") for one in ignored))


def left_out(directory: str, named: Collection[str] = ()) -> list[str]:
    """The files and folders that stay behind though nobody knows them as of no use, each with why.

    ``named``: what travels all the same.
    """
    top = Path(directory)
    found = sorted((str(path.relative_to(top)), why) for path, why in _below(top) if why)
    return [f"{name} ({why})" for name, why in found if name not in named and not name.endswith(_RECORDS)]


def named_files(experiment: ExperimentConfig) -> dict[str, str]:
    """The files below the experiment's folder that it names besides its data, by their names in the zip: modules, and
    what any of its settings is the path of, such as a file of parameters in ``model.options``."""
    found: dict[str, str] = {}
    for text in (*_texts(experiment.to_dict()), *_in_checkpoint(experiment)):
        module = text.partition(":")[0].replace(".", "/") if REFERENCE.fullmatch(text) else ""
        for path in (f"{module}.py", f"{module}/__init__.py") if module else (text,):
            file = experiment.resolve(path)
            if path and lies_inside(experiment, path) and os.path.isfile(file):
                found[os.path.relpath(file, experiment.directory)] = file
    return {name: file for name, file in found.items() if not name.endswith(_RECORDS)}


def _in_checkpoint(experiment: ExperimentConfig) -> Iterator[str]:
    """The file that ``model.parameters`` means where it is the folder of a checkpoint."""
    path = experiment.model.parameters or ""
    if path and lies_inside(experiment, path) and os.path.isdir(experiment.resolve(path)):
        yield os.path.join(path, PARAMETERS_FILE)


def _texts(value: object) -> Iterator[str]:
    """All texts in plain data that may be a path or a reference."""
    if isinstance(value, str) and "\n" not in value and len(value) < _LONGEST_PATH:
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            yield from _texts(one)


def _below(
    folder: Path, ignored: Sequence[Callable[[Path], bool]] = (), inside: Sequence[Path] = ()
) -> Iterator[tuple[Path, str]]:
    """(path, "") of what travels, (path, why) of what stays behind. ``inside``: the folders on the way, links resolved.

    A linked folder is followed, as Ray follows it, unless the experiment lies in what it points to.
    """
    ignored, inside = [*ignored, *_ignore_files(folder)], [*inside, folder.resolve()]
    for path in folder.iterdir():
        if path.is_dir():
            if is_left_out(path):
                continue
            if any(is_ignored(path) for is_ignored in ignored):
                yield path, _IGNORED
            elif path.is_symlink() and any(each.is_relative_to(path.resolve()) for each in inside):
                yield path, f"a link to {path.resolve()}, in which this folder lies"
            else:
                yield from _below(path, ignored, inside)
        elif path.is_file():
            yield path, _IGNORED if any(is_ignored(path) for is_ignored in ignored) else ""
        elif path.is_symlink():
            yield path, f"a link to {os.readlink(path)}, which does not exist"


def is_left_out(folder: Path) -> bool:
    """Whether a folder holds nothing of an experiment's: caches, version control, environments, runs."""
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
    data = experiment.data
    return {"train": data_rules.listed(data.train), "validation": data_rules.listed(data.validation)}


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
