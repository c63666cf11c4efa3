"""Names of 0.1.0 in what Tune pickled: they can be imported while a run is restored, and at no other time."""

from __future__ import annotations

import importlib
import pickle
import sys

import pytest

from raymx.driver.old_runs import MOVED, RENAMED, importable


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in MOVED.items() for name in names])
def test_an_old_name(module: str, name: str) -> None:
    if MOVED[module][name] == "raymx.tracking.callbacks":
        pytest.importorskip("mlflow")
    pickled = f"c{module}\n{name}\n.".encode()
    with importable():
        found = pickle.loads(pickled)
    assert found is getattr(importlib.import_module(MOVED[module][name]), RENAMED.get(name, name))


def test_they_are_gone_after_it() -> None:
    before = set(sys.modules)
    with importable(), pytest.raises(AttributeError, match="Nonsense"):
        pickle.loads(b"craymx.watch\nNonsense\n.")
    assert not {name for name in MOVED if name in sys.modules} - before
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(b"craymx.watch\nTuneHooks\n.")
