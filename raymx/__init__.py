"""raymx: elastic MXNet experiments on Ray. Importing it imports neither mxnet nor ray, nor numpy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raymx.data.tools.dataset import read_recordio, write_recordio
    from raymx.jobs.experiment import Experiment
    from raymx.jobs.run import Run
    from raymx.jobs.submitting import attach, runs, submit

__all__ = ["Experiment", "Run", "attach", "read_recordio", "runs", "submit", "write_recordio"]
__version__ = "0.1.0"

_MODULES = {  # imported when a name is first asked for
    **dict.fromkeys(("read_recordio", "write_recordio"), "raymx.data.tools.dataset"),
    "Experiment": "raymx.jobs.experiment",
    "Run": "raymx.jobs.run",
    **dict.fromkeys(("attach", "runs", "submit"), "raymx.jobs.submitting"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
