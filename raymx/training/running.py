"""The loop that an experiment names, what an error in it is for the user, and what raymx warns of meanwhile.

No mxnet until a loop is asked for.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from raymx.errors import TrainingError
from raymx.experiment.references import SIGNATURES
from raymx.experiment.user_code import as_written, code_folder, load_function

_RAYMX = os.path.dirname(os.path.dirname(__file__))  # it may lie in the experiment's folder


def _is_in(file: str, folder: str) -> bool:
    return file.startswith(folder + os.sep)


def loop_of(experiment: Mapping[str, Any], directory: str) -> Callable[[Any], None]:
    """A function of the worker's context. Raises ExperimentError when a loop of the user's own is none."""
    name = experiment["training"]["loop"]
    if name == "default":
        from raymx.training.loop import train

        return train
    called = SIGNATURES["training.loop"]
    found: Callable[[Any], None] = load_function("training.loop", name, directory, called.wanted, *called.arguments)
    return found


def users_error(where: str, error: BaseException, directory: str) -> TrainingError:
    """A picklable error out of any: the message, then the frames that are the user's (all when none is)."""
    frames = traceback.extract_tb(error.__traceback__)
    there = code_folder(directory)
    own = [frame for frame in frames if there and _is_in(frame.filename, there) and not _is_in(frame.filename, _RAYMX)]
    text = "".join(traceback.format_list(own or frames[-3:])).rstrip()
    return TrainingError(as_written(f"{where}: {type(error).__name__}: {str(error).strip()}\n{text}", directory))


class KeptWarnings(logging.Handler):
    """Keeps raymx's warnings of this process until somebody asks for them."""

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

    def take(self) -> list[str]:
        messages, self._messages = self._messages, []
        return messages
