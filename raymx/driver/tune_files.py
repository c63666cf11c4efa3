"""Tune's own files in a run's folder, looked at before Tune restores the run from them: one may be cut short.

tuner.pkl                   what was to be run: it can be made anew from run.yaml
experiment_state-*.json     how the trials stand, a file for each time that the run was started
"""

from __future__ import annotations

import json
import pickletools
from dataclasses import dataclass
from fnmatch import fnmatchcase

from raymx.errors import CheckpointError
from raymx.results.run_folder import RUN
from raymx.storage import FILE_ERRORS, Location

TUNER, STATES = "tuner.pkl", "experiment_state-*.json"
_ASIDE = ".damaged"
_TRIAL = "Trial_"


@dataclass(frozen=True)
class TuneFiles:
    """What Tune can do with a run's folder. ``is_begun``: a trial's state is there, from which it goes on."""

    has_tuner: bool
    is_begun: bool
    warnings: tuple[str, ...] = ()


def look(run: Location) -> TuneFiles:
    """Look at the files of a run; a damaged state is put aside, so that Tune takes the one before it.

    Raises CheckpointError when all states are damaged and trials have begun.
    """
    folders, names = run.names()
    states = sorted((name for name in names if fnmatchcase(name, STATES)), reverse=True)
    warnings = []
    damaged = []
    for name in states:
        if _is_json(run / name):
            break
        damaged.append(name)
    if damaged and len(damaged) == len(states) and any(name.startswith(_TRIAL) for name in folders):
        raise CheckpointError(
            f"{(run / damaged[0]).path} is damaged, and no older one is there: Tune cannot tell how the trials stand; "
            "take the file from a backup, or start a new run (the checkpoints in the folders of the trials stay)"
        )
    for name in damaged:
        (run / name).move(run / f"{name}{_ASIDE}")
        warnings.append(f"{(run / name).path} is damaged: the run goes on from how its trials stood before that start")
    has_tuner = TUNER in names and _is_pickle(run / TUNER)
    if not has_tuner:
        how = "is damaged" if TUNER in names else "is missing"
        warnings.append(f"{(run / TUNER).path} {how}: it is made anew from {RUN}, and nothing is lost")
    return TuneFiles(has_tuner, len(damaged) < len(states), tuple(warnings))


def _is_json(file: Location) -> bool:
    try:
        return isinstance(json.loads(file.read()), dict)
    except (*FILE_ERRORS, RecursionError):
        return False


def _is_pickle(file: Location) -> bool:
    """Whether it is whole. It is not unpickled: that is Tune's to do."""
    try:
        return sum(1 for _ in pickletools.genops(file.read())) > 1
    except (*FILE_ERRORS, EOFError):
        return False
