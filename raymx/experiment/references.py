"""Look at the files that an experiment names, before anything starts. Pure of mxnet, and it runs no user code.

Each function returns what is wrong in words, or None.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raymx.storage import (
    HEAD_BYTES,
    NO_RECORDS,
    RECORDS_BEGIN,
    is_uri,
    kind_of,
    local_matches,
    placeholder_of,
    why_no_match,
)
from raymx.text.nearest import did_you_mean, nearest


def data_problem(path: str, *, skips: bool = False) -> str | None:
    """Why the records at ``path`` (an absolute file or folder, a glob pattern, or a URI) cannot be read.

    A URI is looked at only when the run starts: perhaps the cluster alone may read it. With ``skips``, files that are
    damaged where they begin, and empty ones among others, are left to the run, which skips what is bad of them.
    """
    if is_uri(path):
        return None
    found = local_matches(path)
    if not found:
        return why_no_match(path)
    problems = (_file_problem(file, skips=skips, alone=len(found) == 1) for file in found)
    return next((problem for problem in problems if problem), None)


def _file_problem(path: str, *, skips: bool, alone: bool) -> str | None:
    if not os.access(path, os.R_OK):
        return f"{path} may not be read by this user: change its permissions"
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    if not head:
        return None if skips and not alone else f"{path} is empty"
    if kind := kind_of(head):
        return f"{path} is {NO_RECORDS}{kind}"
    if skips or head.startswith(RECORDS_BEGIN):
        return None
    return (
        f"{path} is no RecordIO file, or damaged: it begins with {head[:4].hex()}, not with {RECORDS_BEGIN.hex()}; "
        "python -m raymx.pack makes record files of images"
    )


def reference_problem(reference: str, directory: str) -> str | None:
    """Why ``module:name`` cannot be found: the module is looked for in ``directory``, then among installed ones."""
    module, name = reference.split(":")
    source = _module_file(module, directory)
    if source is None:
        return None if _installed(module) else _no_module(module, directory)
    text = source.read_bytes()
    if kind := placeholder_of(text[:HEAD_BYTES]):
        return f"{source} is no Python source, but {kind}"
    try:
        tree = ast.parse(text, filename=str(source))
    except SyntaxError as error:
        return f"{source}, line {error.lineno}: {error.msg}"
    except ValueError as error:  # null bytes
        return f"{source} is not Python source: {error}"
    names = list(_defined(tree.body))
    if name in names or "*" in names:
        return None
    public = list(dict.fromkeys(n for n in names if not n.startswith("_")))
    listed = ", ".join(dict.fromkeys(nearest(name, public, count=3) + public)) or "nothing"
    return f"{source} does not define {name}; it defines {listed}"


@dataclass(frozen=True)
class Signature:
    """How a function of the user's own is called: with so many positional arguments, or with these keywords; ``shown``
    as a message has it, and ``wanted`` as the message for something else that was named in its place."""

    shown: str
    wanted: str
    positional: int = 0
    keywords: tuple[str, ...] = ()
    fewest: int | None = None  # positional arguments, where not all need be taken

    @property
    def arguments(self) -> tuple[None, ...]:
        """As many as are given by position, to see whether a function takes them."""
        return (None,) * self.positional

    def takes(self, function: ast.FunctionDef) -> bool:
        """Whether a function can be called so."""
        given = function.args
        positional = [*given.posonlyargs, *given.args]
        needed = len(positional) - len(given.defaults)
        if self.keywords:
            names = {one.arg for one in (*given.args, *given.kwonlyargs)}
            return given.kwarg is not None or names.issuperset(self.keywords)
        most = math.inf if given.vararg else len(positional)
        fewest = self.positional if self.fewest is None else self.fewest
        keywords_have_defaults = all(default is not None for default in given.kw_defaults)
        return needed <= self.positional and fewest <= most and keywords_have_defaults


TRANSFORM = Signature(
    "f(image, label, rng), which returns the image, or (image, label)",
    "a function: def transform(image, label, rng): ... return image, label; or an instance of a Gluon transform",
    3,
)
DECODE = Signature(
    "f(header, payload, rng), which returns the sample's arrays",
    "a function: def decode(header, payload, rng): ... return {name: array} or a tuple of arrays",
    3,
)
SAMPLES = Signature(
    "f(folder), the experiment's, or f(), which returns arrays or a dataset",
    "a function: def samples(folder): ... return a Gluon Dataset, or a tuple or mapping of NumPy arrays",
    1,
    fewest=0,
)
SIGNATURES = {
    "model.net": Signature(
        "f(classes, ...), which returns a Gluon block",
        "a function that makes the net: def net(classes, **options): ... return block",
        keywords=("classes",),
    ),
    "model.loss": Signature(
        "f(outputs, labels), which returns a loss a row",
        "a function or Gluon loss: def loss(outputs, labels): ... return losses of shape (rows,)",
        2,
    ),
    "model.metric": Signature(
        "f(outputs, labels), which returns a score a row",
        "a function: def metric(outputs, labels): ... return scores of shape (rows,)",
        2,
    ),
    "training.loop": Signature("f(ctx)", "a function of the context: def train(ctx): ...", 1),
    "data.train": SAMPLES,
    "data.validation": SAMPLES,
    "data.decode": DECODE,
    "data.transform": TRANSFORM,
    "data.validation_transform": TRANSFORM,
}
"""How raymx calls what a key names."""


def call_problem(key: str, reference: str, directory: str) -> str | None:
    """Why what ``module:name`` defines cannot be called as ``key`` is; None where that is not known."""
    module, name = reference.split(":")
    source, wanted = _module_file(module, directory), SIGNATURES.get(key)
    if source is None or wanted is None:
        return None
    found = [one for one in ast.parse(source.read_bytes()).body if name in _defined([one])]
    function = found[-1] if found else None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list or wanted.takes(function):
        return None
    return f"it is {name}({ast.unparse(function.args)}), and raymx calls {wanted.shown}"


def _module_file(module: str, directory: str) -> Path | None:
    base = Path(directory, *module.split("."))
    candidates = (base.with_name(base.name + ".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _installed(module: str) -> bool:
    # Only the outermost package: to find a submodule, importlib would import the packages around it.
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    found = [*(spec.submodule_search_locations or ()), spec.origin or ""]
    return not any(os.path.dirname(path) == os.getcwd() for path in found) or _is_for_all(os.getcwd())


def _is_for_all(folder: str) -> bool:
    """Whether all processes import from a folder: Python adds that in which a command is given to that one alone."""
    return folder in (os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)


def _no_module(module: str, directory: str) -> str:
    beside = sorted(path.stem for path in Path(directory).glob("*.py"))
    there = f" (its modules: {', '.join(beside)})" if beside else ""
    return f"no module {module} in {directory}{there}, and none is installed{did_you_mean(module, beside)}"


def _defined(body: Iterable[ast.AST]) -> Iterator[str]:
    """Names that these statements bind at a module's top level; ``*`` for a star import, which may bind any."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in aliases)
            case ast.Assign() | ast.AnnAssign():
                yield from (
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                )
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While() | ast.ExceptHandler():
                yield from _nested(statement)


def _nested(statement: ast.AST) -> Iterator[str]:
    for field in ("body", "handlers", "orelse", "finalbody"):
        yield from _defined(getattr(statement, field, []))
