"""Bundles of a trial's placement group, and whether a cluster can hold them."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.cluster.placement import (
    NodeResources,
    auto_gpus,
    check_fit,
    describe,
    logical_cpus,
    needs,
    plan,
    with_data_cpus,
)
from raymx.errors import PlacementError
from raymx.experiment.loading import ExperimentConfig, parse_experiment

ELASTIC = {"min": 2, "max": 8}


def experiment(
    workers: int | dict[str, int] = 2, kvstore: dict[str, Any] | None = None, **resources: Any
) -> ExperimentConfig:
    return make_experiment(kvstore=kvstore or {}, resources={"workers": workers, **resources})


def nodes(*resources: tuple[float, float]) -> list[NodeResources]:
    return [NodeResources(f"n{i}", cpu, gpu) for i, (cpu, gpu) in enumerate(resources)]


def refusal(wanted: ExperimentConfig, gpus: int, *have: tuple[float, float]) -> str:
    with pytest.raises(PlacementError) as error:
        check_fit(plan(wanted, gpus), nodes(*have))
    return str(error.value)


def test_servers_sit_beside_workers_in_turn() -> None:
    wanted = plan(experiment(2, {"servers": 3, "cpus_per_server": 0.5}, cpus_per_worker=2), 1)
    assert wanted.bundles == ({"CPU": 1.0}, {"CPU": 4.0, "GPU": 1.0}, {"CPU": 3.5, "GPU": 1.0})
    assert (wanted.controller_bundle, wanted.worker_bundles, wanted.server_bundles) == (0, (1, 2), (1, 2, 1))
    assert wanted.strategy == "PACK"
    assert logical_cpus(wanted) == 9


def test_dedicated_servers_have_bundles_of_their_own() -> None:
    wanted = plan(experiment(2, {"servers": 2, "cpus_per_server": 2, "server_placement": "dedicated"}), 0)
    assert wanted.bundles == ({"CPU": 1.0}, {"CPU": 2.0}, {"CPU": 2.0}, {"CPU": 2.0}, {"CPU": 2.0})
    assert (wanted.worker_bundles, wanted.server_bundles) == ((1, 2), (3, 4))


@pytest.mark.parametrize("placement", ["with_workers", "dedicated"])
def test_a_store_in_one_process_has_no_servers(placement: str) -> None:
    wanted = plan(experiment(1, {"type": "local", "servers": 4, "server_placement": placement}), 0)
    assert wanted.bundles == ({"CPU": 1.0}, {"CPU": 2.0})
    assert wanted.server_bundles == ()


def test_fits_exactly_and_over_several_nodes() -> None:
    wanted = plan(experiment(2), 0)  # bundles of 1, 3 and 2 CPUs
    check_fit(wanted, nodes((6, 0)))
    check_fit(wanted, nodes((3, 0), (3, 0)))


def test_the_tightest_node_is_taken_so_that_the_rest_still_fits() -> None:
    three = plan(experiment(3, {"servers": 1}), 0)  # 1, 3, 2, 2
    check_fit(three, nodes((4, 0), (3, 0), (1, 0)))


def test_cpu_bundles_stay_off_gpu_nodes_while_there_is_room() -> None:
    check_fit(plan(experiment(1), 1), nodes((2, 1), (1, 0)))


def test_refusal_has_asked_there_and_what_would_fit() -> None:
    text = refusal(experiment(4, {"servers": 2}), 0, (4, 0), (2, 0))
    assert "Asked: 11 CPU: trial and KVStore scheduler 1 CPU; 4 workers with 2 CPU each; 2 servers with 1 CPU" in text
    assert "There: 6 CPU and 0 GPU on 2 nodes (n0 4 CPU, n1 2 CPU)" in text
    assert "Not even one worker would fit: lower" in refusal(experiment(1), 0, (2, 0))
    assert "kvstore.servers" not in refusal(experiment(1), 0, (2, 0))


def test_refusal_says_how_many_workers_fit() -> None:
    text = refusal(experiment(9), 0, (6, 0))
    assert "2 of 9 workers would fit: set resources.workers (--num-workers) to 2" in text
    assert "resources.cpus_per_worker" in text


def test_enough_in_all_but_not_on_one_node() -> None:
    assert "A bundle must fit on one node" in refusal(experiment(1, cpus_per_worker=4), 0, (3, 0), (3, 0), (3, 0))


def test_no_gpu_at_all_is_said_in_words() -> None:
    text = refusal(experiment(2), 2, (64, 0))
    assert "There is no GPU in this cluster, and each worker asks for 2" in text
    assert "There: no node" in refusal(experiment(2), 0)


def test_auto_gpus_takes_the_most_that_all_workers_can_have() -> None:
    wanted = experiment(2, gpus_per_worker="auto")
    assert auto_gpus(wanted, nodes((64, 8))) == 4
    assert auto_gpus(wanted, nodes((64, 8), (64, 1))) == 4
    assert auto_gpus(wanted, nodes((64, 3), (64, 2))) == 2
    assert auto_gpus(wanted, nodes((64, 1))) == 0
    assert auto_gpus(wanted, nodes((64, 0))) == 0
    assert auto_gpus(wanted, []) == 0


def test_describe_is_a_table_with_a_verdict() -> None:
    wanted = experiment(2)
    text = describe(wanted, plan(wanted, 0), nodes((6, 0)))
    assert "trial and KVStore scheduler" in text
    assert "beside a worker" in text
    assert text.endswith("It fits, on n0.")
    assert "6 logical CPUs" in describe(wanted, plan(wanted, 0), None)
    assert "It does not fit." in describe(wanted, plan(wanted, 0), nodes((2, 0)))
    assert all(len(line) <= 120 for line in text.splitlines())


def test_an_elastic_plan_has_the_fewest_workers_and_slots_for_the_rest() -> None:
    wanted = plan(experiment(ELASTIC, {"servers": 3, "cpus_per_server": 0.5}, cpus_per_worker=2), 1)
    fixed = plan(experiment(2, {"servers": 3, "cpus_per_server": 0.5}, cpus_per_worker=2), 1)
    assert (wanted.bundles, wanted.worker_bundles, wanted.server_bundles) == (
        fixed.bundles,
        fixed.worker_bundles,
        fixed.server_bundles,
    )
    assert (wanted.slot_bundle, wanted.max_slots) == ({"CPU": 3.0, "GPU": 1.0}, 6)
    assert (fixed.max_slots, logical_cpus(wanted)) == (0, logical_cpus(fixed))


def test_an_elastic_plan_of_one_worker_has_servers() -> None:
    assert plan(experiment({"min": 1, "max": 2}), 0).server_bundles == (1,)


def test_an_elastic_plan_in_words() -> None:
    wanted = experiment(ELASTIC)
    elastic = plan(wanted, 0)
    check_fit(elastic, nodes((6, 0)))
    text = describe(wanted, elastic, nodes((6, 0), (7, 0)))
    assert "2 to 8  2" in text
    assert "all, with 2 workers" in text
    assert text.endswith(
        "2 to 8 workers: starts with 2, grows when room appears.\nIt fits, on n0; the cluster has room for 5 workers."
    )
    assert describe(wanted, elastic, nodes((600, 0))).endswith("room for 8 workers.")
    assert "6 logical CPUs, or one a core where that is more." in describe(wanted, elastic, None)
    assert "the run needs 6 CPU (" in needs(elastic)
    assert "2 to 8 workers with 2 CPU each: starts with 2, grows when room appears" in needs(elastic)
    assert "1 of 2 workers would fit: set resources.workers.min (--num-workers 1:8) to 1" in refusal(wanted, 0, (4, 0))


def test_auto_gpus_counts_the_fewest_workers() -> None:
    assert auto_gpus(experiment(ELASTIC, gpus_per_worker="auto"), nodes((64, 8))) == 4


@pytest.mark.parametrize(
    ("have", "cpus"), [([(18, 0)], 1), ([(26, 0)], 2), ([(25, 0)], 1), ([(6, 0)], 1), ([(200, 0)], 8)]
)
def test_auto_data_cpus_leave_room_for_all_workers_of_an_elastic_run(
    have: list[tuple[float, float]], cpus: int
) -> None:
    """Eight workers and one server: 1 + 8 + 1 CPUs beside those for data."""
    assert with_data_cpus(experiment(ELASTIC), 0, nodes(*have)).data.cpus == cpus


@pytest.mark.parametrize(
    ("have", "cpus"),
    [
        ([(6, 0)], 1),
        ([(8, 0)], 2),
        ([(64, 0)], 8),
        ([(3, 0)], 1),  # the last holds nothing, and is refused with 1
        ([(10, 0), (7, 0)], 6),  # a bundle of 8 beside the controller's, and one of 7
    ],
)
def test_auto_data_cpus_takes_what_is_left_within_bounds(have: list[tuple[float, float]], cpus: int) -> None:
    """Two workers, one server: 1 + 2 + 1 CPUs beside those for data."""
    found = with_data_cpus(experiment(2), 0, nodes(*have))
    assert found.data.cpus == cpus
    assert plan(found, 0).roles.worker_cpus == 1 + cpus
    assert with_data_cpus(found, 0, nodes((1, 0))) is found  # a number stays


def test_data_cpus_are_counted_in_the_bundles() -> None:
    data = {"train": "a", "image_shape": [3, 8, 8], "cpus": 3}
    wanted = parse_experiment(experiment(1).to_dict() | {"data": data}, "/")
    assert plan(wanted, 0).bundles == ({"CPU": 1.0}, {"CPU": 4.0})
    assert "lower resources.cpus_per_worker or data.cpus" in refusal(wanted, 0, (4, 0))


def test_workers_may_share_a_gpu() -> None:
    wanted = plan(experiment(4, gpus_per_worker=0.5), 0.5)
    assert [bundle.get("GPU") for bundle in wanted.bundles] == [None, 0.5, 0.5, 0.5, 0.5]
    check_fit(wanted, nodes((32, 2)))
    with pytest.raises(PlacementError):
        check_fit(wanted, nodes((32, 1)))
