"""What of an experiment travels to a cluster with a submitted job: one zip file, measured before it is sent.

    with pack(experiment, objects) as parcel:
        parcel.path, parcel.size, parcel.left_out

In it are the experiment file, resolved, and what of the files beside it belongs to it: see
`raymx.experiment.source_files`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raymx import storage
from raymx.errors import ExperimentError
from raymx.experiment import loading, source_files
from raymx.experiment.loading import ExperimentConfig
from raymx.jobs import by_value

EXPERIMENT = "raymx_experiment.yaml"
LIMIT_BYTES = 100 * 2**20  # what Ray's dashboard takes in one request
_MARGIN_BYTES = 64 * 2**10
_OFFENDERS = 5
_FILES = {EXPERIMENT, by_value.MODULE_FILE, by_value.VALUES_FILE}


@dataclass(frozen=True)
class Parcel:
    """A zip file; ``size`` in bytes, ``left_out`` in words."""

    path: str
    size: int
    left_out: tuple[str, ...] = ()


@contextlib.contextmanager
def pack(
    experiment: ExperimentConfig,
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
    data = source_files.data_files(experiment)
    with tempfile.TemporaryDirectory(prefix="raymx_") as scratch:
        path = os.path.join(scratch, "experiment.zip")
        for travels in [data, {}] if data and data_stays else [data]:
            if _write(path, {**code, **travels}, _generated(experiment, objects, travels), limit_bytes):
                stays: tuple[str, ...] = (
                    () if travels or not data else (f"the data ({_mib(data.values())}) is read where it lies",)
                )
                stays += _stays_behind(experiment, {**code, **data})
                yield Parcel(path, os.path.getsize(path), stays)
                return
        brought = _brought(experiment, objects, limit_bytes)
        raise ExperimentError(brought or _too_large(experiment, {**code, **travels}, travels, limit_bytes))


def code_files(experiment: ExperimentConfig) -> dict[str, str]:
    """What travels besides data: the file for each name in the zip."""
    found = {**source_files.module_files(experiment.directory), **source_files.named_files(experiment)}
    return {name: file for name, file in found.items() if name not in _FILES}


def _stays_behind(experiment: ExperimentConfig, travels: Mapping[str, str]) -> tuple[str, ...]:
    """What of the experiment's folder does not travel, in a sentence; none where everything does."""
    found = source_files.left_out(experiment.directory, travels)
    more = f" and {len(found) - _OFFENDERS} more" if len(found) > _OFFENDERS else ""
    return (f"left behind: {', '.join(found[:_OFFENDERS])}{more}",) if found else ()


def _generated(experiment: ExperimentConfig, objects: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, bytes]:
    """The files that are made for the job. Paths to data that does not travel become absolute."""
    moved = {
        f"data.{key}": [path if _travels(experiment, path, data) else experiment.resolve(path) for path in paths]
        for key, paths in source_files.data_paths(experiment).items()
        if paths
    }
    sent = loading.parse_experiment(experiment.to_dict(), experiment.directory, moved)
    return {EXPERIMENT: loading.to_yaml(sent).encode(), **by_value.files(objects)}


def _travels(experiment: ExperimentConfig, path: str, data: Mapping[str, str]) -> bool:
    return storage.is_uri(path) or (bool(data) and source_files.lies_inside(experiment, path))


def _write(path: str, found: Mapping[str, str], generated: Mapping[str, bytes], limit_bytes: int) -> bool:
    """Write the zip file, and stop where it is above the limit; whether it is not."""
    with open(path, "wb") as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in generated.items():
            archive.writestr(name, content)
        if target.tell() > limit_bytes:
            return False
        for name, file in found.items():
            with open(file, "rb") as read, archive.open(zipfile.ZipInfo.from_file(file, name), "w") as entry:
                while piece := read.read(2**20):
                    entry.write(piece)
                    if target.tell() > limit_bytes:
                        return False
    return os.path.getsize(path) <= limit_bytes


def _brought(experiment: ExperimentConfig, objects: Mapping[str, Any], limit_bytes: int) -> str:
    """What is said of objects of a notebook that are too large themselves, mostly by an array that a function uses."""
    sizes = sorted(((size, name) for name, size in by_value.sizes(objects).items()), reverse=True)
    if sum(size for size, _ in sizes) < limit_bytes / 2:
        return ""
    size, name = sizes[0]
    key = next((key for key, value in loading.references(experiment) if value == f"{by_value.MODULE}:{name}"), "")
    return (
        f"{key} {name} brings {size / 1e6:,.0f} MB by value, and Ray takes {limit_bytes / 1e6:.0f} MB (zipped): pass "
        "it as a file, which the function loads: beside the experiment, or where every node can read it"
    ).lstrip()


def _too_large(
    experiment: ExperimentConfig, found: Mapping[str, str], data: Mapping[str, str], limit_bytes: int
) -> str:
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
