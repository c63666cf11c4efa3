"""What a run goes on from, as files: parameters in Gluon's format, optimizer state as arrays, the rest as JSON.

    net.params       Gluon's parameter file: net.load_parameters reads it; float32 weights are the servers' own
    optimizer.npz    arrays "state/STRUCTURAL NAME/NUMBER" and "master/STRUCTURAL NAME"; read with allow_pickle=False
    state.json       position, update counts, metrics, the loop's own state, and checksums of all three

The folder may be on any file system of pyarrow's. It is a checkpoint once state.json is there, which is written last.
Nothing in it is ever unpickled, so a checkpoint cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raymx.checkpoint.masters import with_masters
from raymx.errors import CheckpointError
from raymx.experiment.names import PARAMETERS_FILE
from raymx.kvstore.state import OptimizerState
from raymx.storage import FILE_ERRORS, Location, location, reason

PARAMETERS, OPTIMIZER, STATE = PARAMETERS_FILE, "optimizer.npz", "state.json"
FORMAT = 2
_TEMPORARY = ".tmp"
_PLAIN = (
    "trial",
    "epoch",
    "step",
    "records",
    "num_workers",
    "global_batch_size",
    "schedule_shift",
    "state",
    "sums",
    "metrics",
)  # what of a Saved is JSON as it is
_UNSEALED = "0" * 64  # instead of state.json's own checksum, while that is reckoned


@dataclass(frozen=True)
class Position:
    """Where a run was when it was saved."""

    trial: str  # id of the trial that saved it
    epoch: int
    step: int  # steps of that epoch already done
    records: int  # training records of that epoch already done

    @property
    def reached(self) -> tuple[int, int]:
        """What tells which of two is further: steps do not, since a resized run may have another batch size."""
        return self.epoch, self.records


@dataclass(frozen=True)
class Saved:
    """What a run goes on from."""

    parameters: bytes  # in Gluon's file format, by structural name
    optimizer: OptimizerState  # canonical, by structural name
    epoch: int
    step: int  # steps of that epoch already done
    state: Mapping[str, Any] = field(default_factory=dict)  # the loop's own
    sums: Mapping[str, float] = field(default_factory=dict)  # of the epoch so far, added over workers
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last that were reported
    trial: str = ""  # id of the trial that saved it
    records: int = 0  # training records of that epoch already done
    num_workers: int = 0  # of the generation that saved it
    global_batch_size: int = 0  # of that generation
    schedule_shift: float = 0.0  # see raymx.kvstore.schedule

    @property
    def position(self) -> Position:
        return Position(self.trial, self.epoch, self.step, self.records)


# Writing


def write(folder: str, saved: Saved, filesystem: Any = None) -> None:
    """Write the three files into a folder, which is made when it is not there. ``filesystem`` None means local paths.

    Raises CheckpointError with the path and the reason when that fails; the folder's files are then as they were, or
    what is left is no checkpoint that `read` would take.
    """
    optimizer = io.BytesIO()
    np.savez(optimizer, **_labelled(saved.optimizer))
    files: dict[str, Any] = {
        PARAMETERS: with_masters(saved.parameters, saved.optimizer.masters),
        OPTIMIZER: optimizer.getbuffer(),
    }
    state = {
        "format": FORMAT,
        **{name: getattr(saved, name) for name in _PLAIN},
        "update_counts": saved.optimizer.counts,
        "optimizer_scalars": saved.optimizer.scalars,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    _write_files(location(folder, filesystem), {**files, STATE: _sealed(state)})


def _labelled(optimizer: OptimizerState) -> dict[str, NDArray[Any]]:
    """Every array under a name of its own, whatever the keys are."""
    labelled = {
        f"state/{name}/{i}": array for name, arrays in optimizer.arrays.items() for i, array in enumerate(arrays)
    }
    return labelled | {f"master/{name}": array for name, array in optimizer.masters.items()}


def _sealed(state: Mapping[str, Any]) -> bytes:
    """As JSON, with the checksum of all of its bytes in it."""
    data = json.dumps({"checksum": _UNSEALED, **state}, indent=1, default=dict).encode()
    return data.replace(_UNSEALED.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def _write_files(folder: Location, files: Mapping[str, Any]) -> None:
    """All under temporary names first, so that a disk which gets full leaves what is there; the last one named last."""
    parts = {name: folder / f"{name}{_TEMPORARY}" for name in files}
    at = folder
    try:
        folder.make_folder()
        for name, data in files.items():
            at = folder / name
            parts[name].write(data)
            parts[name].sync()
        for name, part in parts.items():
            at = folder / name
            part.move(at)
        folder.sync()
    except BaseException as error:
        for part in parts.values():
            with suppress(*FILE_ERRORS):
                part.remove_file()
        if isinstance(error, FILE_ERRORS):
            raise CheckpointError(f"{at.path} cannot be written: {reason(error)}") from error
        raise


# Reading


def read(folder: str, filesystem: Any = None) -> Saved:
    """The inverse of `write`. Raises CheckpointError when a file is missing, damaged, or holds what is no array."""
    with _one_error(folder):
        checkpoint = location(folder, filesystem)
        state = _read_state(checkpoint)
        files = {name: _read_file(checkpoint / name) for name in (PARAMETERS, OPTIMIZER)}
        for name, data in files.items():
            if hashlib.sha256(data).hexdigest() != state["sha256"][name]:
                raise CheckpointError(f"{folder}/{name} is damaged: its checksum is not the one in {STATE}")
        arrays, masters = _arrays(files[OPTIMIZER])
        optimizer = OptimizerState(arrays, state["update_counts"], masters, state["optimizer_scalars"])
        return Saved(files[PARAMETERS], optimizer, **{name: state[name] for name in _PLAIN})


def position(folder: str, filesystem: Any = None) -> Position:
    """Where a checkpoint was made, from state.json alone. Raises CheckpointError when that cannot be read."""
    with _one_error(folder):
        state = _read_state(location(folder, filesystem))
        return Position(state["trial"], state["epoch"], state["step"], state["records"])


@contextmanager
def _one_error(folder: str) -> Iterator[None]:
    """Whatever a damaged file raises inside json, zipfile or numpy as a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{folder} is no checkpoint that can be read ({STATE} or {OPTIMIZER}): "
            f"{type(error).__name__}: {reason(error)}"
        ) from None


def _read_file(file: Location) -> bytes:
    try:
        return file.read()
    except FILE_ERRORS as error:
        raise CheckpointError(f"{file.path} cannot be read: {reason(error)}") from None


def _read_state(checkpoint: Location) -> dict[str, Any]:
    folder, data = checkpoint.path, _read_file(checkpoint / STATE)
    try:
        state = json.loads(data)
        stored, checksum = state.get("format"), state.get("checksum")
    except Exception as error:  # cut, or no JSON object at all
        raise CheckpointError(f"{folder}/{STATE} is damaged: {reason(error)}") from None
    if stored != FORMAT:
        raise CheckpointError(f"{folder}: checkpoint format {stored}; this raymx reads format {FORMAT}")
    unsealed = data.replace(str(checksum).encode(), _UNSEALED.encode(), 1)
    if hashlib.sha256(unsealed).hexdigest() != checksum:
        raise CheckpointError(f"{folder}/{STATE} is damaged: its checksum is not the one in it")
    return dict(state)


def _arrays(data: bytes) -> tuple[dict[str, list[NDArray[Any]]], dict[str, NDArray[Any]]]:
    """(state, masters) by structural name."""
    numbered: defaultdict[str, dict[int, NDArray[Any]]] = defaultdict(dict)
    masters: dict[str, NDArray[Any]] = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        for label in stored.files:
            kind, _, name = label.partition("/")
            if kind == "master":
                masters[name] = stored[label]
            else:
                name, _, number = name.rpartition("/")
                numbered[name][int(number)] = stored[label]
    return {name: [arrays[i] for i in sorted(arrays)] for name, arrays in numbered.items()}, masters
