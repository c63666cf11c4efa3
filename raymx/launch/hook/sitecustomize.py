"""Python imports this when it starts in a worker of `raymx.launch`. It waits for an import of mxnet.

Scripts set DMLC_* themselves, for the machine that they were written for, and would then wait for a KVStore scheduler
that is not there. So what says where this worker's is, is set again before mxnet is imported, and before each store is
made. A script that fails must end: MXNet's store would keep its process waiting for workers that wait for it, so a
process that ends with an exception or by ``sys.exit`` with a code does so at once. Where the servers are raymx's own
(``--guard``), mxnet is changed to suit them. Standard library alone, and of any Python from 3.7 on: the script's
interpreter need not be raymx's.
"""

from __future__ import annotations

import atexit
import builtins
import importlib.machinery
import json
import os
import sys
import threading
from typing import Any

_FIXED = "RAYMX_LAUNCH_FIXED"
_GUARD = "RAYMX_LAUNCH_GUARD"
_ROOT = "RAYMX_LAUNCH_ROOT"
_here = os.path.dirname(os.path.abspath(__file__))


def set_again() -> list[str]:
    """Set what this worker was given, where the script has changed it; the names of what was changed."""
    fixed = json.loads(os.environ[_FIXED])
    changed = [name for name, value in fixed.items() if os.environ.get(name) != value]
    os.environ.update(fixed)
    if changed:
        told = "raymx: note: the script sets {}; raymx.launch says where the KVStore is, so these are set again\n"
        sys.stderr.write(told.format(", ".join(changed)))
    return changed


class _OnImport:
    """A finder that is asked for mxnet once."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "mxnet":
            return None
        sys.meta_path.remove(self)
        set_again()
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            _then(spec.loader, _patch)
        return spec


def _then(loader: Any, action: Any) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        action(module)

    loader.exec_module = exec_module


class _Exit(SystemExit):
    """What sys.exit raises. One that nobody has caught is freed when no frame is left."""

    def __del__(self) -> None:
        if sys._getframe().f_back is None and self.code is not None:
            _exit_code[:] = [self.code if isinstance(self.code, int) else 1]


_exit_code: list[int] = []
_sys_exit, _excepthook = sys.exit, sys.excepthook


def _exit(code: Any = None) -> None:
    if threading.current_thread() is not threading.main_thread():
        _sys_exit(code)
    raise _Exit(code)


def _on_exception(*what: Any) -> None:
    _exit_code[:] = [1]
    _excepthook(*what)


def _leave() -> None:
    """Runs after all that the script registers, before what waits for the other workers."""
    if _exit_code and _exit_code[0] and "mxnet" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):  # closed, or none
                continue
        os._exit(_exit_code[0] & 0xFF)


def _end_at_once() -> None:
    """Have a script that fails end at once."""
    atexit.register(_leave)
    sys.excepthook, sys.exit = _on_exception, _exit  # type: ignore[assignment]
    builtins.exit = builtins.quit = _exit  # type: ignore[assignment]


def _patch(mxnet: Any) -> None:
    create = mxnet.kvstore.create

    def create_where_it_is(name: Any = "local") -> Any:
        set_again()
        return create(name)

    create_where_it_is.__doc__ = create.__doc__
    mxnet.kvstore.create = create_where_it_is
    if os.environ.get(_GUARD):
        sys.path.append(os.environ[_ROOT])
        try:
            from raymx.launch import guarded
        finally:
            sys.path.remove(os.environ[_ROOT])
        guarded.apply(mxnet)


def _next() -> None:
    """Import the module of this name that is hidden by this one, if there is any."""
    rest = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__spec__, module.__file__ = spec, spec.origin
        spec.loader.exec_module(module)


if os.environ.get(_FIXED):
    sys.meta_path.insert(0, _OnImport())
    _end_at_once()
_next()
