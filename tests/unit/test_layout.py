"""What the code itself must keep to: the order of imports, one place for files, one for Ray's private names."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from raymx._ray import PRIVATE_NAMES

RAYMX = ROOT / "raymx"
FILES = sorted(RAYMX.rglob("*.py"))
AT_THE_ROOT = {"__init__", "__main__", "_ray", "errors", "mx", "pack", "run", "score", "submit", "why"}
MOST_METHODS = 20

# These travel to nodes by their source, where raymx may not be.
DOCTOR_STORAGE, DOCTOR_PROBE = RAYMX / "doctor" / "storage_trial.py", RAYMX / "doctor" / "probe.py"
WITHOUT_UNDERSCORE = ("ray.autoscaler", "ray.core", "ray.dashboard", "ray.experimental")  # private all the same


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(tree: ast.AST) -> Iterator[str]:
    """The full name of everything that is imported, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def check(look: Callable[[Path, ast.Module], Iterator[str]], but: Collection[Path] = ()) -> None:
    """Fail with all that ``look`` finds in files ``but`` these."""
    found = [
        f"{path.relative_to(ROOT)}: {what}" for path in FILES if path not in but for what in look(path, tree_of(path))
    ]
    assert not found, "\n" + "\n".join(found)


def test_only_commands_and_what_all_rooms_use_lie_at_the_root() -> None:
    assert {path.stem for path in RAYMX.glob("*.py")} <= AT_THE_ROOT


def test_imports_go_down_only() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_class_has_many_methods() -> None:
    def look(path: Path, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)
                if methods > MOST_METHODS:
                    yield f"{node.name} has {methods} methods"

    check(look)


# ---- files ----


def test_files_are_opened_through_storage_alone() -> None:
    def look(path: Path, tree: ast.Module) -> Iterator[str]:
        yield from (name for name in imported(tree) if name.startswith("pyarrow.fs"))

    check(look, {DOCTOR_STORAGE, *(RAYMX / "storage").glob("*.py")})


# ---- Ray's private names ----


def is_private(name: str) -> bool:
    return name.startswith("__ray") or (name.startswith("_") and not name.startswith("__"))


def test_private_names_of_rays_are_in_one_module() -> None:
    def look(path: Path, tree: ast.Module) -> Iterator[str]:
        of_ray = [name for name in imported(tree) if name.split(".")[0] == "ray"]
        for name in of_ray:
            if name.startswith(WITHOUT_UNDERSCORE) or any(map(is_private, name.split("."))):
                yield f"imports {name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
                if of_ray or node.attr in LAST_PARTS:
                    yield f"line {node.lineno} uses {ast.unparse(node)}"
            elif isinstance(node, ast.Constant) and node.value in LAST_PARTS:
                yield f"line {node.lineno} names {node.value!r}"

    check(look, {RAYMX / "_ray.py", DOCTOR_PROBE})


LAST_PARTS = {re.split("[.:]", name)[-1] for name in PRIVATE_NAMES if is_private(re.split("[.:]", name)[-1])}


def is_own(value: ast.expr) -> bool:
    """Whether it is self, cls or super(), whose private names a class may use."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def test_what_subclasses_use_of_rays_classes_is_listed() -> None:
    """A name that both have is Ray's: the subclass uses it, or overwrites it without knowing."""

    def look(path: Path, tree: ast.Module) -> Iterator[str]:
        for node, base in subclasses(tree):
            for name in sorted(private_names(node) & private_names_of(base)):
                if not any(listed.endswith(f".{name}") for listed in PRIVATE_NAMES):
                    yield f"{node.name}.{name} is a name of {base.__module__}.{base.__qualname__}"

    check(look, {RAYMX / "_ray.py"})


def subclasses(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, type[Any]]]:
    """The classes of a module with each class of Ray's that they are made from."""
    names = {name.rpartition(".")[2]: name for name in imported(tree) if name.split(".")[0] == "ray"}
    for node in ast.walk(tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            first, *rest = ast.unparse(base).split(".")
            if first in names:
                yield node, resolved(".".join([names[first], *rest]))  # type: ignore[misc]


def resolved(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def private_names(node: ast.ClassDef) -> set[str]:
    """What a class uses as self.NAME or defines."""
    used = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and is_own(one.value)}
    return set(filter(is_private, used | {one.name for one in node.body if isinstance(one, ast.FunctionDef)}))


@functools.cache
def private_names_of(base: type[Any]) -> set[str]:
    nodes = [node for one in base.__mro__ if one.__module__.startswith("ray.") for node in class_nodes(one)]
    return {name for node in nodes for name in private_names(node)}


def class_nodes(one: type[Any]) -> Iterator[ast.ClassDef]:
    path = inspect.getsourcefile(sys.modules[one.__module__])
    for node in tree_of(Path(path)).body if path else ():
        if isinstance(node, ast.ClassDef) and node.name == one.__name__:
            yield node


def test_this_ray_has_every_private_name() -> None:
    """After an upgrade: all that is missing at once, with what to do."""
    missing = {name: what for name, what in PRIVATE_NAMES.items() if not is_there(name)}
    assert not missing, "".join(f"\n{name}\n    {what}" for name, what in missing.items())


@pytest.mark.parametrize(
    "name",
    [
        "ray._private.no_such_module",
        "ray._private.state:no_such_function",
        "ray.tune.schedulers.pbt:PopulationBasedTraining._no_such_attribute",
        "ray.actor:_modify_class.__ray_no_such_method__",
    ],
)
def test_a_missing_name_is_noticed(name: str) -> None:
    assert not is_there(name)


def is_there(name: str) -> bool:
    """Whether ``module:attributes`` is there; the last may be of the instances, or of what a function makes."""
    module, _, attributes = name.partition(":")
    try:
        at: Any = importlib.import_module(module)
    except ImportError:
        return False
    for attribute in filter(None, attributes.split(".")):
        if not hasattr(at, attribute):
            return bool(re.search(rf"self\.{attribute}\b[^=\n]*=|def {attribute}\b", source_of(at)))
        at = getattr(at, attribute)
    return True


def source_of(owner: Any) -> str:
    if inspect.isclass(owner):
        return "\n".join(inspect.getsource(one) for one in owner.__mro__ if one.__module__.startswith("ray."))
    return inspect.getsource(owner) if inspect.isfunction(owner) else ""
