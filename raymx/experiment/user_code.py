"""Find what an experiment names: its folder on this node, and the objects of its ``module:function``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from raymx.errors import ExperimentError


def folder_here(directory: str) -> str:
    """The experiment's folder on this node: the same path where it exists, else where Ray unpacked it.

    Ray starts a process in the job's working directory, which is the experiment's folder on a cluster (see
    raymx.driver.connection.connect). Call it before anything changes the directory.
    """
    return directory if os.path.isdir(directory) else os.getcwd()


_code = ""  # of this process


def use_code(copy: str, in_working_dir: bool) -> None:
    """From now on this process imports the modules of ``copy``, which the driver made when the run began.

    On another node than the driver's there is none: ``in_working_dir`` says that Ray has unpacked the experiment's
    folder, as it was then, where this process was started.
    """
    global _code
    readable = bool(copy) and os.access(copy, os.R_OK | os.X_OK)  # it may be another user's cluster
    _code = copy if readable else os.getcwd() if copy and in_working_dir else ""


def code_folder(directory: str) -> str:
    """Where the modules of the experiment in ``directory`` are for this process."""
    return _code or directory


def as_written(text: str, directory: str) -> str:
    """``text`` with the files of the experiment's folder in place of their copies, in a traceback say."""
    return text.replace(_code + os.sep, directory + os.sep) if _code else text


def load_object(name: str, directory: str) -> Any:
    """The object that ``name`` ("module:attribute") stands for; modules beside the experiment file come first.

    Errors inside the user's module are the user's and pass unchanged.
    """
    module_name, _, attribute = name.partition(":")
    directory = code_folder(directory)
    if directory and (not sys.path or sys.path[0] != directory):
        sys.path.insert(0, directory)
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        names = ", ".join(sorted(n for n in vars(module) if not n.startswith("_")))
        raise ExperimentError(f"{name}: {module.__file__} defines no {attribute!r}; it defines {names}") from None
