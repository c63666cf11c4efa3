"""What a Ray is started with that is for one run alone, and what a run says of itself."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from conftest import EXPERIMENTS

from raymx.cli import machine
from raymx.cluster.placement import NodeResources
from raymx.driver import planning
from raymx.driver.display import Display
from raymx.driver.dry_run import dry_run
from raymx.driver.journal import Journal
from raymx.driver.planning import ClusterRoom
from raymx.errors import PlacementError
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
    monkeypatch.setattr(machine, "cores", lambda: cores)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    said = "\n".join(dry_run(load_experiment(EXPERIMENTS / "fashion_mnist.yaml"), None, fast=True))
    assert f"A worker's CPUs include {data_cpus} for reading data." in said


def test_a_submitted_run_tells_how_to_resume_a_submitted_run(tmp_path: Path) -> None:
    display = Display(io.StringIO())
    display.resume_with = "python -m raymx.submit EXPERIMENT --resume"
    assert Journal(display, "run", str(tmp_path), "/results/run").resume_with == display.resume_with


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            {"resources.cpus_per_worker": 1000},
            "resources.cpus_per_worker is 1000, and this machine has 2 cores: give at",
        ),
        ({"kvstore.cpus_per_server": 3}, "kvstore.cpus_per_server is 3, and this machine has 2 cores: give at most 2"),
        ({"data.cpus": 9}, "data.cpus is 9, and this machine has 2 cores: give at most 8"),
        ({"resources.workers": 100}, "raymx starts a Ray with at most 64 logical CPUs"),
        ({"resources.cpus_per_worker": 2, "resources.workers": 8}, ""),
    ],
)
def test_more_than_a_machine_can_be_asked_for_is_refused(
    overrides: dict[str, object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 2)
    experiment = load_experiment(EXPERIMENTS / "fashion_mnist.yaml", overrides)
    if not told:
        assert planning.cpus_here(experiment) > 2
        return
    with pytest.raises(PlacementError, match=told) as caught:
        planning.cpus_here(experiment)
    assert "\n" not in str(caught.value)


def test_a_run_that_an_earlier_ones_ray_is_too_small_for_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 2)
    experiment = load_experiment(EXPERIMENTS / "fashion_mnist.yaml", {"resources.workers": 3})
    here = ClusterRoom((NodeResources(planning.SUBMITTED_TO, 4, 0),))
    assert re.search(
        r"with 4 logical CPUs: end it with  ray stop  .* with 8", planning.restart_advice(here, experiment)
    )
    for elsewhere in (ClusterRoom((NodeResources("10.0.0.1", 4, 0),)), ClusterRoom(here.nodes * 2)):
        assert planning.restart_advice(elsewhere, experiment) == ""
    too_large = load_experiment(EXPERIMENTS / "fashion_mnist.yaml", {"resources.workers": 100})
    assert planning.restart_advice(here, too_large) == ""
