"""What the command of a run says without starting anything: mistakes, and its plan."""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import EXPERIMENTS

from raymx import __main__ as commands
from raymx import __version__
from raymx.driver.connection import quieten
from raymx.jobs import cli
from raymx.run import main

FASHION_MNIST = str(EXPERIMENTS / "fashion_mnist.yaml")


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name in list(os.environ):  # what a run sets for Ray is undone
        monkeypatch.setenv(name, os.environ[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "data.train=data/missing.rec"], "missing.rec does not exist"),
        (["--set", "training.base_lrr=0.1"], "training.base_lr"),
        (["--kv-store", "dist_snyc"], "dist_sync"),
        (["--kv-store", "local"], "kvstore.type is local"),
        (["--resume", "/nowhere"], "/nowhere"),
    ],
)
def test_a_users_mistake_is_one_message(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([FASHION_MNIST, "--storage-path", str(tmp_path / "runs"), *arguments]) == 1
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.startswith("raymx: error: ")
    assert not (tmp_path / "runs").exists()


def test_dry_run_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([FASHION_MNIST, "--dry-run=fast", "--lr", "0.25"]) == 0
    said = capsys.readouterr().out
    assert "base_lr: 0.25" in said
    assert "trial and KVStore scheduler" in said
    assert list(tmp_path.iterdir()) == []


def test_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([]) == 0
    said = capsys.readouterr().out
    for name in commands.COMMANDS:
        assert f"python -m raymx.{name}" in said
        assert importlib.util.find_spec(f"raymx.{name}") is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("run", "run is written with a dot: python -m raymx.run"),
        ("train", "train is no command: one of run, launch, submit"),
    ],
)
def test_a_command_is_written_with_a_dot(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([given, "--lr", "0.1"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", [commands.main, main, cli.main])
def test_the_version_is_shown(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command(["--version"])
    assert (left.value.code, capsys.readouterr().out) == (0, f"raymx {__version__}\n")


def test_tensorboard_does_not_repeat_that_a_number_is_nan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ray", "ray.tune", "ray.train", "tensorboardX"):  # as they were, when the test is over
        monkeypatch.setattr(logging.getLogger(name), "level", logging.getLogger(name).level)
    with warnings.catch_warnings():
        quieten()
    assert not logging.getLogger("tensorboardX.x2num").isEnabledFor(logging.WARNING)
