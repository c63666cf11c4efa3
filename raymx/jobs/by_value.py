"""Objects that were defined in a notebook travel by value, as a module that a job's experiment file can name.

files({"net": my_net})      # {"raymx_objects.py": ..., "raymx_objects.pkl": ...}: net is raymx_objects:net there
"""

from __future__ import annotations

import os
import pickle
import platform
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment import names

MODULE = names.OBJECTS
MODULE_FILE, VALUES_FILE = f"{MODULE}.py", f"{MODULE}.pkl"
_HEAD = '"""Objects of a notebook, by value; raymx.submit wrote it."""\n\nfrom raymx.jobs.by_value import load\n\n'


def files(objects: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of the module's files, by name; none without objects.

    Raises ExperimentError for what cannot travel.
    """
    if not objects:
        return {}
    values = pickle.dumps((_python(), {name: _dump(name, value) for name, value in objects.items()}))
    lines = (f"{name} = load(__file__, {name!r})\n" for name in objects)
    return {MODULE_FILE: (_HEAD + "".join(lines)).encode(), VALUES_FILE: values}


def sizes(objects: Mapping[str, Any]) -> dict[str, int]:
    """How many bytes each object brings with it, by its name."""
    return {name: len(_dump(name, value)) for name, value in objects.items()}


def load(module_file: str, name: str) -> Any:
    """One object, in the process of a job. Raises ExperimentError when that has another Python than the notebook."""
    python, values = pickle.loads(Path(module_file).with_name(VALUES_FILE).read_bytes())
    if python != _python():
        raise ExperimentError(
            f"{name} was defined in a notebook with Python {python}, and this node has {_python()}: "
            "what travels by value needs the same one; put it in a module beside the experiment file"
        )
    return pickle.loads(values[name])


def name_of(value: Callable[..., Any], taken: Mapping[str, Any]) -> str:
    """A name for an object in the module: its own where it has one, and another than those taken by other objects."""
    own = getattr(value, "__name__", type(value).__name__)
    name = own if own.isidentifier() and not own.startswith("_") else "own"
    number = 1
    while (chosen := name if number == 1 else f"{name}_{number}") in taken and taken[chosen] is not value:
        number += 1
    return chosen


def _dump(name: str, value: Any) -> bytes:
    from ray import cloudpickle

    module = sys.modules.get(getattr(value, "__module__", None) or "")
    travels = module is not None and _is_local(module)
    if travels:
        cloudpickle.register_pickle_by_value(module)
    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise ExperimentError(
            f"{name} cannot travel by value: {type(error).__name__}: {error}; define what it needs "
            "inside of it, or put it in a module beside the experiment file"
        ) from None
    finally:
        if travels:
            cloudpickle.unregister_pickle_by_value(module)
    return content


def _is_local(module: ModuleType) -> bool:
    """Whether a module is no installed one, so that the cluster does not have it; __main__ travels anyway."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None:
        return False
    paths = sysconfig.get_paths()
    installed = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(Path(file).resolve().is_relative_to(os.path.realpath(folder)) for folder in installed)


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])
