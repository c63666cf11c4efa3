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


def load_object(name: str, directory: str) -> Any:
    """The object that ``name`` ("module:attribute") stands for; modules beside the experiment file come first.

    Errors inside the user's module are the user's and pass unchanged.
    """
    module_name, _, attribute = name.partition(":")
    if directory and (not sys.path or sys.path[0] != directory):
        sys.path.insert(0, directory)
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        names = ", ".join(sorted(n for n in vars(module) if not n.startswith("_")))
        raise ExperimentError(f"{name}: {module.__file__} defines no {attribute!r}; it defines {names}") from None
