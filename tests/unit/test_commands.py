"""What the command of a run says without starting anything: mistakes, and its plan."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import EXPERIMENTS

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
    assert main([FASHION_MNIST, "--dry-run", "--lr", "0.25"]) == 0
    said = capsys.readouterr().out
    assert "base_lr: 0.25" in said
    assert "trial and KVStore scheduler" in said
    assert list(tmp_path.iterdir()) == []
