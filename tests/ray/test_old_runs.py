"""Runs that raymx 0.1.0 made: they are reported, looked at, loaded and resumed."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from commands import Command, epochs_of, records, rows
from conftest import EXPERIMENTS, TESTS

import raymx
from raymx import report
from raymx.data.recordio.record import iter_payloads, unpack

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

MADE_IN = "/tmp/before"  # where they were made
DATA = "fashion_mnist_val"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The runs and their experiments in a folder whose path is as long as the one in them: pickles have lengths."""
    folder = tmp_path_factory.mktemp("old")
    short = Path(f"/tmp/{uuid.uuid4().hex[: len(MADE_IN) - len('/tmp/')]}")
    with tarfile.open(TESTS / "data" / "runs_0.1.0.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    for suffix in ("rec", "idx"):
        shutil.copy(EXPERIMENTS / "data" / f"{DATA}.{suffix}", folder / "exp")
    before, now = (os.fsencode(path) for path in (MADE_IN, short))
    for path in (path for path in (folder / "runs").rglob("*") if path.is_file()):
        content = path.read_bytes()
        path.write_bytes(content.replace(before, now).replace(before.hex().encode(), now.hex().encode()))
    short.symlink_to(folder)
    yield short
    short.unlink()


def run_of(folder: Path, name: str) -> Path:
    (path,) = (folder / "runs").glob(f"{name}_*")
    return path


def test_they_are_read(folder: Path, tmp_path: Path) -> None:
    for name, trials in (("single", 1), ("sweep", 3)):
        page = report.build([str(run_of(folder, name))], str(tmp_path / name))
        assert Path(page).exists()
        assert len(json.loads((tmp_path / name / "findings.json").read_text())["trials"]) == trials
        run = raymx.attach(str(run_of(folder, name)))
        assert run.state == "interrupted"
        assert len(run.view().trials) == trials
        assert len(run.results(by="epoch")) >= 5


def test_their_nets_give_what_they_gave(folder: Path) -> None:
    best = raymx.attach(str(run_of(folder, "single"))).best()
    found = [unpack(payload) for payload in iter_payloads(str(folder / "exp" / f"{DATA}.rec"))]
    images = np.stack([cv2.imdecode(np.frombuffer(one.image, np.uint8), cv2.IMREAD_GRAYSCALE) for one in found])
    hits = best.predict(images).argmax(axis=1) == [one.label[0] for one in found]
    assert best.epoch == 5
    assert hits.mean() == pytest.approx(best.metrics["validation_accuracy"], abs=1e-6)


@pytest.mark.long
def test_a_single_run_is_resumed_to_its_end(folder: Path) -> None:
    run = run_of(folder, "single")
    before = rows(run)
    command = Command("--resume", run, cwd=folder)
    assert command.wait() == 0, command.err
    assert "epoch 1/40" not in command.out
    found = rows(run)
    assert [row["epoch"] for row in found if row["epoch"] == int(row["epoch"])] == list(range(1, 41))
    assert found[: len(before)] == before
    assert found[-1]["train_loss"] < before[-1]["train_loss"]
    assert json.loads((run / "summary.json").read_text())["state"] == "finished"


@pytest.mark.long
def test_a_sweep_is_resumed_to_its_end(three_cpus: dict[str, str], folder: Path) -> None:
    run = run_of(folder, "sweep")
    before = records(run)
    command = Command("--resume", run, cwd=folder, **three_cpus)
    assert command.wait() == 0, command.err
    found = records(run)
    assert [one["ended"] for one in found[:2]] == [one["ended"] for one in before[:2]]  # they were not run again
    assert len(found) == 4
    assert {one["state"] for one in found} <= {"finished", "stopped"}
    assert all(epochs_of(one)[-1] == 20 for one in found if one["state"] == "finished")
    assert "report" in command.out
