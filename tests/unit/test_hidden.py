"""Modules beside an experiment that would hide Python's own, or a package that raymx needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EXPERIMENTS, ROOT
from factories import make_experiment

from raymx.errors import ExperimentError
from raymx.experiment import hidden
from raymx.experiment.loading import check_files


@pytest.mark.parametrize("name", ["queue", "types", "copy", "json", "random", "stat"])
def test_a_module_that_hides_pythons_own_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("")
    with pytest.raises(ExperimentError) as error:
        check_files(make_experiment(directory=tmp_path, data={"train": str(EXPERIMENTS / "data" / "*val.rec")}))
    assert str(error.value) == f"{tmp_path / name}.py would hide Python's own {name}: rename it"


@pytest.mark.parametrize("name", ["numpy", "ray", "mxnet", "pydantic_core"])
def test_so_is_one_that_hides_a_package_that_raymx_needs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    assert hidden.problems(str(tmp_path)) == [
        f"{tmp_path / name} would hide the package {name}, which raymx needs: rename it"
    ]


def test_what_hides_nothing_is_left_alone(tmp_path: Path) -> None:
    for name in ("nets.py", "train.py", "test.py", "queue.txt", "my-net.py", "sys.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "json").mkdir()  # a folder alone hides no module
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").write_text("")
    assert hidden.problems(str(tmp_path)) == []
    assert hidden.problems(str(tmp_path / "nowhere")) == []
    assert hidden.problems(str(EXPERIMENTS)) == []


@pytest.mark.parametrize("command", ["run", "submit", "pack"])
def test_a_command_says_so_before_anything_is_hidden(tmp_path: Path, command: str) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('this is not the queue that was meant')\n")
    done = subprocess.run(
        [sys.executable, "-m", f"raymx.{command}", "x.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"raymx: error: {tmp_path / 'queue'}.py would hide Python's own queue: rename it\n"
