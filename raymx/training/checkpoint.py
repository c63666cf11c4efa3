"""What a run goes on from, as files: parameters in Gluon's format, optimizer state as arrays, the rest as JSON.

    net.params       Gluon's parameter file: net.load_parameters reads it
    optimizer.npz    arrays by "structural name/number"; read with allow_pickle=False
    state.json       position, update counts, metrics, the loop's own state, and checksums of the other two

Nothing in it is ever unpickled, so a checkpoint cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raymx.errors import CheckpointError
from raymx.kvstore.state import OptimizerState

PARAMETERS, OPTIMIZER, STATE = "net.params", "optimizer.npz", "state.json"
FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """What a run goes on from."""

    parameters: bytes               # in Gluon's file format, by structural name
    optimizer: OptimizerState       # canonical, by structural name
    epoch: int
    step: int                       # steps of that epoch already done
    state: Mapping[str, Any] = field(default_factory=dict)      # the loop's own
    sums: Mapping[str, float] = field(default_factory=dict)     # of the epoch so far, added over workers
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last that were reported


def write(folder: str, saved: Saved) -> None:
    """Write the three files into an existing folder, each complete or not at all."""
    optimizer = io.BytesIO()
    np.savez(optimizer, **{f"{name}/{i}": array for name, arrays in saved.optimizer.arrays.items()
                           for i, array in enumerate(arrays)})
    files = {PARAMETERS: saved.parameters, OPTIMIZER: optimizer.getvalue()}
    state = {"format": FORMAT, "epoch": saved.epoch, "step": saved.step, "state": dict(saved.state),
             "sums": dict(saved.sums), "metrics": dict(saved.metrics),
             "update_counts": saved.optimizer.counts,
             "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}}
    for name, data in {**files, STATE: json.dumps(state, indent=1).encode()}.items():
        path = os.path.join(folder, name)
        with open(path + ".tmp", "wb") as file:
            file.write(data)
        os.replace(path + ".tmp", path)


def read(folder: str) -> Saved:
    """The inverse of `write`. Raises CheckpointError when a file is missing, damaged, or holds what is no array."""
    try:
        return _read_checked(folder)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{folder} is no checkpoint that can be read ({STATE} or {OPTIMIZER}): {error}") from None


def _read_checked(folder: str) -> Saved:
    state = json.loads(_read(folder, STATE))
    if state.get("format") != FORMAT:
        raise CheckpointError(f"{folder}: checkpoint format {state.get('format')}; this raymx reads format {FORMAT}")
    files = {name: _read(folder, name) for name in (PARAMETERS, OPTIMIZER)}
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != state["sha256"][name]:
            raise CheckpointError(f"{folder}/{name} is damaged: its checksum is not the one in {STATE}")
    arrays: defaultdict[str, list[NDArray[Any]]] = defaultdict(list)
    with np.load(io.BytesIO(files[OPTIMIZER]), allow_pickle=False) as stored:
        for label in sorted(stored.files, key=_label):
            arrays[_label(label)[0]].append(stored[label])
    return Saved(files[PARAMETERS], OptimizerState(dict(arrays), state["update_counts"]),
                 state["epoch"], state["step"], state["state"], state["sums"], state["metrics"])


def _label(label: str) -> tuple[str, int]:
    name, _, number = label.rpartition("/")
    return name, int(number)


def _read(folder: str, name: str) -> bytes:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()
    except OSError as error:
        raise CheckpointError(f"{folder}/{name} cannot be read: {error.strerror}") from None
