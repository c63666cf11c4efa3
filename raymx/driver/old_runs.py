"""Runs of raymx 0.1.0 are resumed: Tune pickled a part of them under the names that modules had then.

Needed for as long as runs that 0.1.0 began are to be resumed. What raymx itself writes into a run's folder is plain
text and arrays, which name no module.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

_SCHEDULERS = ("FairFIFO", "FairASHA", "FairHyperBand", "FairBOHB", "FairMedian", "FairPBT", "_Explore")
_SECTIONS = (
    *("Experiment", "Model", "Data", "Augment", "Training", "Optimizer", "Decay", "Precision", "KVStore"),
    *("Compression", "Env", "Resources", "WorkerRange", "Failures", "Report", "Tracking", "Checkpoint"),
)

MOVED: Mapping[str, Mapping[str, str]] = {
    "raymx.sweep": {"_folder": "raymx.sweep.tuning"},
    "raymx.watch": {"TuneHooks": "raymx.driver.monitor"},
    "raymx.trial_schedulers": dict.fromkeys(_SCHEDULERS, "raymx.sweep.schedulers"),
    "raymx.search": dict.fromkeys(("Judge", "Checked"), "raymx.sweep.search"),
    "raymx.space": {"Space": "raymx.sweep.space", "Axis": "raymx.sweep.axis"},
    "raymx.schema": dict.fromkeys(_SECTIONS, "raymx.experiment.schema"),
    "raymx.sweep_schema": dict.fromkeys(
        ("Sweep", "TrialScheduler", "Objective", "Price"), "raymx.experiment.sweep_schema"
    ),
    "raymx.tracking_callbacks": dict.fromkeys(("MLflow", "WandB"), "raymx.tracking.callbacks"),
}
"""By old module: the names of it that are in pickles of Tune's, and the modules in which they are now."""

RENAMED: Mapping[str, str] = {"Experiment": "ExperimentConfig"}
"""Those that have another name there."""


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """The old names can be imported within the block, as unpickling does."""
    gone = [name for name in MOVED if importlib.util.find_spec(name) is None]
    added = [
        (importlib.import_module(module), name, where)
        for module, names in MOVED.items()
        if module not in gone  # a package of today has the name
        for name, where in names.items()
    ]
    for package, name, where in added:
        setattr(package, name, _now(name, where))
    sys.modules.update({name: _Stub(name, MOVED[name]) for name in gone})
    try:
        yield
    finally:
        for name in gone:
            del sys.modules[name]
        for package, name, _ in added:
            delattr(package, name)


class _Stub(ModuleType):
    """An old module: what of it is asked for is imported from where it is now."""

    def __init__(self, name: str, where: Mapping[str, str]) -> None:
        super().__init__(name)
        self._where = where

    def __getattr__(self, name: str) -> Any:
        if name not in self._where:
            raise AttributeError(f"{self.__name__} of raymx 0.1.0 had no {name} that Tune pickled")
        return _now(name, self._where[name])


def _now(name: str, module: str) -> Any:
    return getattr(importlib.import_module(module), RENAMED.get(name, name))
