"""What a Ray is started with that is for one run alone, and what a run says of itself."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from conftest import EXPERIMENTS

from raymx.driver import planning
from raymx.driver.display import Display
from raymx.driver.dry_run import dry_run
from raymx.driver.journal import Journal
from raymx.experiment.loading import load_experiment


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        ({}, 6),
        ({"data.cpus": 3}, 10),
        ({"sweep.space.training.base_lr": {"grid": [0.1, 0.2]}}, 6),
        ({"sweep.space.training.base_lr": {"grid": [0.1, 0.2]}, "sweep.max_concurrent_trials": 2}, 12),
    ],
)
def test_cpus_that_a_run_needs(overrides: dict[str, object], needed: int) -> None:
    assert planning.needed_cpus(load_experiment(EXPERIMENTS / "fashion_mnist.yaml", overrides)) == needed


@pytest.mark.parametrize(("cores", "data_cpus"), [(2, 1), (16, 6)])
def test_data_cpus_take_what_the_cores_have_left(cores: int, data_cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    said = "\n".join(dry_run(load_experiment(EXPERIMENTS / "fashion_mnist.yaml"), None))
    assert f"A worker's CPUs include {data_cpus} for reading data." in said


def test_a_submitted_run_tells_how_to_resume_a_submitted_run(tmp_path: Path) -> None:
    display = Display(io.StringIO())
    display.resume_with = "python -m raymx.submit EXPERIMENT --resume"
    assert Journal(display, "run", str(tmp_path), "/results/run").resume_with == display.resume_with
