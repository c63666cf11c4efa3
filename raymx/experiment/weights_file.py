"""Which file ``model.parameters`` stands for: itself, or what a checkpoint or a run has. Pure of mxnet."""

from __future__ import annotations

import json
import os

from raymx.errors import DataError
from raymx.experiment.names import PARAMETERS_FILE, RUN_FILE, SUMMARY_FILE
from raymx.storage import HEAD_BYTES, child, is_uri, names_in, placeholder_of, text
from raymx.text.nearest import nearest
from raymx.text.words import some

_FROM_A_RUN = 3  # the last parts of a checkpoint's path: trial, checkpoint, file
_MOST_NAMED = 5


def weights_file(path: str) -> str:
    """The path or URI of Gluon's file: ``path`` itself, or in a folder that of a checkpoint or of a run's best one.

    Raises DataError for a folder that has neither.
    """
    folders, files = names_in(path)
    if PARAMETERS_FILE in files:
        return child(path, PARAMETERS_FILE)
    if RUN_FILE in files:
        return _best_of_run(path)
    if folders or files:
        raise DataError(
            f"{path} is a folder with neither {PARAMETERS_FILE}, as a checkpoint has it, nor {RUN_FILE}, as a run has "
            f"it; it has {some(folders + files, _MOST_NAMED)}"
        )
    return path


def _best_of_run(path: str) -> str:
    """By the summary, as seen from where the run's folder is now."""
    found = json.loads(text(child(path, SUMMARY_FILE)) or "{}").get("parameters")
    if not found:
        raise DataError(
            f"{path} is the folder of a run that has told no best checkpoint in {SUMMARY_FILE}, which comes with its "
            "end: give the folder of one of its checkpoints, TRIAL/checkpoint_NUMBER"
        )
    return child(path, *str(found).partition("?")[0].split("/")[-_FROM_A_RUN:])


def local_problem(path: str) -> str | None:
    """Why nothing can begin with the weights at ``path``; None for a URI, which perhaps the cluster alone can read."""
    if is_uri(path):
        return None
    try:
        file = weights_file(path)
    except DataError as error:
        return str(error)
    if not os.path.exists(file):
        return f"{file} does not exist{_beside(file)}"
    if not os.access(file, os.R_OK):
        return f"{file} may not be read by this user: change its permissions"
    with open(file, "rb") as opened:
        head = opened.read(HEAD_BYTES)
    return f"{file} is no file of parameters, but {kind}" if (kind := placeholder_of(head)) else None


def symbol_problem(path: str) -> str | None:
    """Why ``model.symbol`` cannot be read; None for a URI."""
    if is_uri(path) or os.path.isfile(path):
        return None
    return f"{path} is a folder" if os.path.isdir(path) else f"{path} does not exist{_beside(path, '.json')}"


def _beside(path: str, ending: str = ".params") -> str:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return ""
    here = sorted(name for name in os.listdir(folder) if name.endswith(ending))
    ordered = list(dict.fromkeys(nearest(os.path.basename(path), here, count=3) + here))
    return f"; {folder} has {some(ordered, _MOST_NAMED)}" if ordered else f"; there is no *{ending} in {folder}"
