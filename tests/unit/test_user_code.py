"""What an experiment names of the user's own: functions where they are wanted, and modules that can be imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raymx.errors import ExperimentError
from raymx.experiment.user_code import load_function, load_object

MODULE = """
class Net:
    def __call__(self, images): ...
    def collect_params(self): ...
class Loss:
    def __init__(self): ...
net, number = Net(), 3
def make(classes, width=2): ...
def loss(outputs, labels): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "mine.py").write_text(MODULE)
    yield str(tmp_path)
    sys.modules.pop("mine", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


NET: dict[str, Any] = {"classes": 10}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("net", "model.net: mine:net is a Net; name a function that makes it"),
        ("number", "model.net: mine:number is a int; name a function that makes it"),
        ("Loss", r"model.net: mine:Loss\(\): got an unexpected keyword argument 'classes'; name a function"),
    ],
)
def test_a_net_is_made_by_a_function(folder: str, name: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said) as refused:
        load_function("model.net", f"mine:{name}", folder, "a function that makes it", **NET)
    assert "\n" not in str(refused.value)
    assert load_function("model.net", "mine:make", folder, "", **NET).__name__ == "make"
    assert load_function("model.net", "mine:Net", folder, "").__name__ == "Net"  # a class makes nets


def test_a_function_of_other_arguments_is_told_which_are_wanted(folder: str) -> None:
    assert load_function("model.loss", "mine:loss", folder, "", None, None)
    with pytest.raises(
        ExperimentError, match=r"training.loop: mine:loss\(outputs, labels\): missing a required argument"
    ):
        load_function("training.loop", "mine:loss", folder, "def train(ctx): ...", None)


def test_a_module_that_parses_arguments_is_told_where_to(folder: str) -> None:
    Path(folder, "mine.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--other'])\n")
    with pytest.raises(
        ExperimentError, match=r"importing mine ended the process \(exit code 2\): .*sys.argv is .*__main__"
    ):
        load_object("mine:train", folder)


def test_a_module_that_takes_a_role_of_its_own_is_refused_each_time(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    monkeypatch.delenv("DMLC_ROLE", raising=False)
    Path(folder, "mine.py").write_text("import os\nos.environ.update(DMLC_ROLE='server', DMLC_NUM_WORKER='9')\n")
    for _ in range(2):
        with pytest.raises(ExperimentError, match="importing mine sets DMLC_NUM_WORKER, DMLC_ROLE, which raymx sets"):
            load_object("mine:train", folder)
        assert (os.environ["DMLC_NUM_WORKER"], "DMLC_ROLE" in os.environ) == ("2", False)
