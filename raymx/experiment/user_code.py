"""Find what an experiment names: its folder on this node, and the objects of its ``module:function``."""

from __future__ import annotations

import importlib
import inspect
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


def load_function(key: str, name: str, directory: str, wanted: str, *arguments: Any, **named: Any) -> Any:
    """The function of ``key`` that ``name`` stands for. ``wanted`` says what it is, with its signature.

    Raises ExperimentError when it is none, or cannot be called with ``arguments`` and ``named`` where some are given.
    """
    found = load_object(name, directory)
    require_call(f"{key}: {name}", found, wanted, *arguments, **named)
    return found


def require_call(what: str, found: Any, wanted: str, *arguments: Any, **named: Any) -> None:
    """Raise ExperimentError when ``found`` is no function, or does not take these arguments where some are given."""
    made = type(found).__name__
    is_net = hasattr(found, "collect_params") and not isinstance(found, type) and named  # it takes images, no names
    if not callable(found) or is_net:
        raise ExperimentError(f"{what} is a {made}; name {wanted}")
    try:
        signature = inspect.signature(found)
        if arguments or named:
            signature.bind(*arguments, **named)
    except ValueError:  # of C's
        return
    except TypeError as error:
        raise ExperimentError(f"{what}{signature}: {error}; name {wanted}") from None


def load_object(name: str, directory: str) -> Any:
    """The object that ``name`` ("module:attribute") stands for; modules beside the experiment file come first.

    Errors inside the user's module are the user's and pass unchanged. Raises ExperimentError when the name is wrong,
    when the module ends the process while it is imported, or when it sets what raymx sets for a KVStore's roles.
    """
    module_name, _, attribute = name.partition(":")
    directory = code_folder(directory)
    if directory and (not sys.path or sys.path[0] != directory):
        sys.path.insert(0, directory)
    before = _roles_settings()
    try:
        module = importlib.import_module(module_name)
    except SystemExit as ended:
        raise ExperimentError(
            f"{name}: importing {module_name} ended the process (exit code {ended.code}): in a worker sys.argv is "
            f'{sys.argv[:3]}; call parse_args() below  if __name__ == "__main__":  only, or as parse_args([])'
        ) from None
    if changed := sorted(key for key in {*before, *_roles_settings()} if os.environ.get(key) != before.get(key)):
        for key in changed:
            os.environ.pop(key, None)
        os.environ.update(before)
        del sys.modules[module_name]
        raise ExperimentError(
            f"{name}: importing {module_name} sets {', '.join(changed)}, which raymx sets for each role of the "
            "KVStore: take that out (kvstore.env is for settings that concern no role)"
        )
    try:
        return getattr(module, attribute)
    except AttributeError:
        names = ", ".join(sorted(n for n in vars(module) if not n.startswith("_")))
        raise ExperimentError(f"{name}: {module.__file__} defines no {attribute!r}; it defines {names}") from None


def _roles_settings() -> dict[str, str]:
    """What tells a process its part in a KVStore."""
    return {key: value for key, value in os.environ.items() if key.startswith("DMLC_")}
