"""raymx: elastic MXNet experiments on Ray. Importing it imports neither mxnet nor ray, nor numpy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raymx.data.dataset import read_recordio, write_recordio

__all__ = ["read_recordio", "write_recordio"]
__version__ = "0.1.0"

_MODULES = dict.fromkeys(__all__, "raymx.data.dataset")  # imported when a name is first asked for


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
