"""Which cells of a sweep can run on a cluster, and how many trials at once."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.cluster import placement
from raymx.cluster.placement import NodeResources
from raymx.cluster.waiting import Waiting, decide
from raymx.errors import ExperimentError, PlacementError
from raymx.experiment.loading import ExperimentConfig
from raymx.sweep import plan
from raymx.sweep.plan import prepare


def experiment(
    space: dict[str, Any], resources: dict[str, Any] | None = None, cpus: object = 1, **sweep: Any
) -> ExperimentConfig:
    """A trial of two workers needs 6 CPUs."""
    return make_experiment(
        data={"cpus": cpus},
        kvstore={"type": "dist_sync"},
        resources={"workers": 2, **(resources or {})},
        sweep={"space": space, **sweep},
    )


def nodes(*cpus: float, gpus: float = 0) -> list[NodeResources]:
    return [NodeResources(f"node{i}", cpu, gpus) for i, cpu in enumerate(cpus)]


DTYPES = {"precision.dtype": {"grid": ["float32", "float16"]}}
RATES = {"training.base_lr": {"grid": [0.1, 0.2]}}


def prepared(one: ExperimentConfig, there: list[NodeResources]) -> plan.RunPlan:
    return prepare(one, there, there)


def test_a_cell_that_cannot_run_is_skipped_with_its_reason() -> None:
    found = prepared(experiment(DTYPES, repeats=2), nodes(8))
    assert [bool(cell.reason) for cell in found.cells] == [False, True]
    assert "GPU" in found.cells[1].reason
    assert found.trials == 2


def test_what_fits_no_node_is_skipped() -> None:
    found = prepared(experiment({"resources.workers": {"grid": [1, 2, 9]}}), nodes(8))
    assert ["" if not cell.reason else "cannot hold" for cell in found.cells] == ["", "", "cannot hold"]
    assert "Asked: 20 CPU" in found.cells[2].reason
    assert placement.size(found.plan) == (0, 6)


def test_with_no_cell_left_all_reasons_are_said() -> None:
    with pytest.raises(ExperimentError, match="2 cells, and none can run") as error:
        prepared(experiment({"precision.dtype": {"grid": ["float16"]}, **RATES}), nodes(8))
    assert "dtype float16, base_lr 0.2: " in str(error.value)


def test_a_run_without_a_sweep_raises_its_own_error() -> None:
    with pytest.raises(PlacementError, match="The cluster cannot hold this experiment"):
        prepared(experiment({}), nodes(4))
    assert prepared(experiment({}), nodes(8)).trials == 1


@pytest.mark.parametrize(
    ("cpus", "at_once", "spare"),
    [
        ((8,), 1, 0),  # one node: one trial, and nothing to keep away
        ((8, 8), 2, 0),  # two of 6 CPUs never share one of 8
        ((16, 16), 2, 3),  # 9 CPUs each: no two on one node
        ((16, 16, 8), 2, 3),  # a trial that is made larger does not fit on the small one
        ((3, 3, 3), 1, 0),
    ],
)  # a trial over two nodes
def test_auto_is_a_trial_a_node(cpus: tuple[float, ...], at_once: int, spare: float) -> None:
    found = prepared(experiment(RATES), nodes(*cpus))
    assert (found.at_once, found.spare_cpus) == (at_once, spare)
    larger = placement.with_spare(found.plan, found.spare_cpus)
    assert placement.size(larger)[1] == 6 + spare
    assert larger.strategy == ("STRICT_PACK" if spare else "PACK")


@pytest.mark.parametrize(("asked", "share", "at_once"), [(2, 1.0, 2), (9, 1.0, 4), (4, 0.5, 2), (4, 0.01, 1)])
def test_as_many_at_once_as_are_asked_for_and_fit(asked: int, share: float, at_once: int) -> None:
    found = prepared(experiment(RATES, max_concurrent_trials=asked, max_share=share), nodes(12, 12))
    assert (found.at_once, found.spare_cpus) == (at_once, 0)


def test_data_cpus_leave_room_for_all_trials_at_once() -> None:
    one = experiment(RATES, cpus="auto")
    assert prepared(one, nodes(24)).base.data.read_cpus == 8
    two = one.model_copy(update={"sweep": one.sweep.model_copy(update={"max_concurrent_trials": 2})})
    assert prepared(two, nodes(24)).base.data.read_cpus == 4
    assert prepared(two, nodes(24)).at_once == 2


def test_auto_gpus_are_the_same_in_all_cells() -> None:
    one = experiment({"resources.workers": {"grid": [1, 2]}}, {"gpus_per_worker": "auto"})
    assert prepared(one, nodes(16, gpus=4)).gpus == 2


def test_the_grid_in_words() -> None:
    text = plan.describe(prepared(experiment({**DTYPES, **RATES}, repeats=3), nodes(8)))
    assert "float16  0.2" in text
    assert text.count("skipped (1)") == 2
    assert text.count("FP16 gemm on cpu") == 1
    assert "6 trials of 1 epochs (3 a cell), 1 at once; 2 of 4 cells skipped." in text


@pytest.mark.parametrize(
    ("priority", "other", "waited_s", "expected"),
    [(0, 0, 5, False), (0, 0, 31, True), (0, 1, 0, True), (1, 0, 1000, False)],
)
def test_between_two_trials_a_sweep_makes_room(priority: int, other: int, waited_s: float, expected: bool) -> None:
    assert decide(priority, 30, [Waiting(other, waited_s)]) == expected
    assert not decide(priority, 30, [])
