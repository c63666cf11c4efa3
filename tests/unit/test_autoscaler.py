"""Nodes that an autoscaler could add: a run waits for what the cluster can get, and is refused what it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.cluster import autoscaler, placement
from raymx.cluster.placement import NodeResources
from raymx.driver.planning import ClusterRoom, prepare_on
from raymx.errors import PlacementError
from raymx.sweep.plan import largest

HEAD = NodeResources("head", 0, 0)
CONFIG: dict[str, Any] = {
    "max_workers": 5,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 0}, "max_workers": 0},
        "gpu": {"resources": {"CPU": 8, "GPU": 1}, "min_workers": 1, "max_workers": 2},
        "cpu": {"resources": {"CPU": 8}, "max_workers": 4},
    },
}


def sizes(found: list[NodeResources]) -> list[tuple[float, float]]:
    return [(node.cpu, node.gpu) for node in found]


def test_could_add_gpus_first_up_to_the_most() -> None:
    assert sizes(autoscaler.could_add(CONFIG, [HEAD])) == [(8, 1)] * 2 + [(8, 0)] * 3


def test_what_lives_is_not_added_again() -> None:
    living = [HEAD, NodeResources("a", 8, 1), NodeResources("b", 8, 0), NodeResources("c", 8, 0)]
    assert sizes(autoscaler.could_add(CONFIG, living)) == [(8, 1), (8, 0)]
    assert autoscaler.could_add(CONFIG, [HEAD, *[NodeResources("x", 8, 0)] * 5]) == []


def test_types_of_equal_size_count_together() -> None:
    spot = {
        **CONFIG,
        "available_node_types": {
            **CONFIG["available_node_types"],
            "spot": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 1},
        },
    }
    assert sizes(autoscaler.could_add(spot, [HEAD])).count((8, 1)) == 3


def test_without_an_autoscaler_nothing() -> None:
    assert autoscaler.could_add({}, [HEAD]) == []
    assert autoscaler.joining({}, 1) == 0
    assert autoscaler.config_here("127.0.0.1:1") == {}


@pytest.mark.parametrize(("living", "missing"), [(1, 1), (2, 0), (4, 0)])
def test_joining(living: int, missing: int) -> None:
    assert autoscaler.joining(CONFIG, living) == missing


def test_joining_of_nodes_of_unknown_size() -> None:
    """Provider local: the list of hosts says how many there are, and nothing of their size."""
    config = {
        "max_workers": 2,
        "available_node_types": {"local.cluster.node": {"resources": {}, "min_workers": 2, "max_workers": 2}},
    }
    assert autoscaler.joining(config, 1) == 2
    assert autoscaler.could_add(config, [HEAD]) == []
    assert autoscaler.could_add_unknown(config, [HEAD]) == ["local.cluster.node"] * 2
    assert autoscaler.could_add_unknown(config, [HEAD, NodeResources("a", 4, 0)]) == ["local.cluster.node"]


def test_an_unknown_size_is_not_nothing() -> None:
    kinds = CONFIG["available_node_types"]
    config = {
        **CONFIG,
        "available_node_types": {**kinds, "cloud": {"max_workers": 9}, "gpus": {"resources": {"GPU": 1}}},
    }
    living = [HEAD, NodeResources("a", 8, 1)]
    assert autoscaler.could_add_unknown(config, living) == ["cloud"] * 4  # 5 workers in all
    assert autoscaler.could_add_unknown(CONFIG, living) == []
    assert autoscaler.could_add_unknown({}, living) == []


@pytest.mark.parametrize("workers", [2, 6])
def test_what_a_node_of_unknown_size_may_hold_is_planned(workers: int) -> None:
    experiment = make_experiment(resources={"workers": workers}, kvstore={"type": "dist_sync"})
    head = (NodeResources("head", 1, 0),)
    with pytest.raises(PlacementError, match="cannot hold"):
        prepare_on(experiment, ClusterRoom(head), [])
    prepared = prepare_on(experiment, ClusterRoom(head, unknown=("cloud",)), [])
    assert prepared.at_once == 1
    assert placement.fits(prepared.plan, [NodeResources("cloud", *reversed(largest(experiment)))])
