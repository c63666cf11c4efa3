"""Modules in a folder that would hide Python's own, or one of a package that raymx needs, from whoever starts there.

    problems("/home/me/experiment")      # ["/home/me/experiment/queue.py would hide Python's own queue: rename it"]

The folder of an experiment comes first where its processes look for modules, and so does the current folder. This
module is imported before what may be hidden: at its top it imports only what Python itself has loaded by then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

_NOBODY_IMPORTS = {"test", "tests", "docs", "example", "examples", "this", "antigravity", "turtledemo", "idlelib"}
_DIRECT = (  # for a raymx that was never installed, which has no metadata
    *("ray", "mxnet", "mxnet-cu112", "numpy", "pandas", "pyarrow", "pydantic", "PyYAML"),
    *("opencv-python-headless", "simplejpeg", "rich", "Jinja2", "matplotlib"),
)
_EXTRAS_OF_RAY = ("default", "data", "tune", "train")


def problems(folder: str) -> list[str]:
    """A sentence for each module in ``folder`` that hides another one; [] for a folder that cannot be read."""
    return of_python(folder) or [
        f"{path} would hide the package {name}, which raymx needs: rename it"
        for name, path in _modules(folder)
        if _is_elsewhere(name, folder) and name in _needed()
    ]


def of_python(folder: str) -> list[str]:
    """As `problems`, for Python's own modules alone: this needs nothing that may be hidden."""
    return [f"{path} would hide Python's own {name}: rename it" for name, path in _modules(folder) if _is_pythons(name)]


def _modules(folder: str) -> Iterator[tuple[str, str]]:
    """(name, path) of the modules and packages in a folder."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".py") and os.path.isfile(path):
            yield name[:-3], path
        elif "." not in name and os.path.isfile(os.path.join(path, "__init__.py")):
            yield name, path


def _is_pythons(name: str) -> bool:
    """Whether the standard library has it; what is built into Python itself cannot be hidden."""
    return name in sys.stdlib_module_names and name not in sys.builtin_module_names and name not in _NOBODY_IMPORTS


def _is_elsewhere(name: str, folder: str) -> bool:
    from importlib.machinery import PathFinder

    if not name.isidentifier() or name in _NOBODY_IMPORTS:
        return False
    here = os.path.realpath(folder)
    paths = [path for path in sys.path if os.path.realpath(path or os.getcwd()) != here]
    try:
        spec = PathFinder.find_spec(name, paths)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _needed() -> set[str]:
    """The modules of raymx, of what it needs, and of what that needs. It takes a moment: asked only about a name that
    an installed package has too."""
    from importlib import metadata

    wanted, names = [*_DIRECT, *_requirements("raymx", ())], set[str]()
    while wanted:
        name = wanted.pop()
        if _plain(name) not in names:
            names.add(_plain(name))
            wanted += _requirements(name, _EXTRAS_OF_RAY if name == "ray" else ())
    return {"raymx"} | {
        module for module, packages in metadata.packages_distributions().items() if names & set(map(_plain, packages))
    }


def _requirements(name: str, extras: tuple[str, ...]) -> list[str]:
    import re
    from importlib import metadata

    try:
        found = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    chosen = [text for text in found if "extra" not in text.partition(";")[2] or any(f'"{e}"' in text for e in extras)]
    return [match[0] for text in chosen if (match := re.match(r"[A-Za-z0-9._-]+", text))]


def _plain(name: str) -> str:
    """A distribution's name in its one spelling."""
    return name.lower().replace("_", "-").replace(".", "-")
