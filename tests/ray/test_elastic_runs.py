"""Runs on a cluster whose nodes come and go: they grow, shrink and share, and no record is lost or seen twice."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from by_hand import TrialByHand
from conftest import kill_node
from factories import make_experiment, make_trial

from raymx.experiment.loading import ExperimentConfig

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(240)]

OWN = (1, 3)  # the trial and the KVStore scheduler; a worker with its data CPU and the server
SLOT_CPUS = 2


class Nodes:
    """A cluster with one node that stays, which holds a run of one worker."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        # Ray's default takes fifteen seconds to see that a node is gone.
        quickly = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 2,
        }
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "_system_config": quickly})
        ray.init(self.cluster.address, logging_level="ERROR", log_to_driver=False)

    def add(self, num_cpus: int) -> Any:
        return self.cluster.add_node(num_cpus=num_cpus)

    def remove(self, node: Any) -> None:
        kill_node(self.cluster, node)

    def drain(self, node: Any) -> None:
        """What a cloud's preemption notice leads to."""
        command = [
            Path(sys.executable).parent / "ray",
            "drain-node",
            "--address",
            self.cluster.address,
            "--node-id",
            node.node_id,
            "--reason",
            "DRAIN_NODE_REASON_PREEMPTION",
            "--reason-message",
            "a test",
            "--deadline-remaining-seconds",
            "600",
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def nodes(no_ray: None) -> Iterator[Nodes]:
    import ray

    made = Nodes()
    yield made
    ray.shutdown()
    made.cluster.shutdown()


@pytest.fixture(scope="module")
def trial(nodes: Nodes) -> Iterator[TrialByHand]:
    by_hand = make_trial(*OWN)
    yield by_hand
    by_hand.close()


def elastic(**changes: object) -> ExperimentConfig:
    return make_experiment(
        {
            "model.net": "nets:mlp",
            "training.epochs": 1000,
            "resources.workers": {"min": 1, "max": 3},
            "data.cpus": 1,
            "resources.resize_cooldown_s": 0.0,
            "checkpoint.every_steps": 10,
            "resources.standby": False,
            **changes,
        },
        file="fashion_mnist",
    )


def step_until(trial: TrialByHand, condition: Callable[[dict[str, Any]], bool], rows: list[dict[str, Any]]) -> None:
    deadline = time.monotonic() + 120
    while not rows or not condition(rows[-1]):
        assert time.monotonic() < deadline, (trial.notes(), rows[-1:])
        rows.append(trial.step())


def check(rows: list[dict[str, Any]]) -> None:
    """Every epoch was done, and every record seen once in it. One whose weights were lost with a node is done again."""
    epochs = list(dict.fromkeys(row["epoch"] for row in rows))
    assert epochs == list(range(1, len(epochs) + 1))
    assert {row["train_samples"] for row in rows} == {6000}


@pytest.mark.long
def test_grows_and_shrinks_as_nodes_come_and_drain(nodes: Nodes, trial: TrialByHand) -> None:
    trial.begin(elastic())
    rows: list[dict[str, Any]] = []
    step_until(trial, lambda row: row["num_workers"] == 1, rows)
    added = nodes.add(2 * SLOT_CPUS)
    step_until(trial, lambda row: row["num_workers"] == 3, rows)
    assert re.match(
        r"room for [12] more workers? appeared: grew from [12] to 3 workers in [0-9.]+ s, from epoch", trial.notes()[-1]
    )

    nodes.drain(added)
    step_until(trial, lambda row: row["num_workers"] == 1, rows)
    assert re.fullmatch(
        r"the nodes of 2 workers are being drained: shrank from 3 to 1 worker in [0-9.]+ s, from epoch "
        r"\d+ step \d+",
        trial.notes()[-1],
    )
    nodes.remove(added)
    check(rows)


def test_grows_onto_a_node_that_comes_and_goes_on_without_it(nodes: Nodes, trial: TrialByHand) -> None:
    trial.begin(elastic())
    rows: list[dict[str, Any]] = []
    step_until(trial, lambda row: row["num_workers"] == 1, rows)
    added = nodes.add(SLOT_CPUS)
    step_until(trial, lambda row: row["num_workers"] == 2, rows)
    assert re.match(
        r"room for 1 more worker appeared: grew from 1 to 2 workers in [0-9.]+ s, from epoch", trial.notes()[-1]
    )
    nodes.remove(added)
    step_until(trial, lambda row: row["num_workers"] == 1, rows)
    assert "went on with 1 worker in" in trial.notes()[-1]
    assert rows[-1]["restarts"] == 1
    check(rows)


@pytest.mark.long
def test_two_elastic_runs_share_a_cluster(nodes: Nodes, trial: TrialByHand) -> None:
    """The first takes all there is; when the second comes, it gives back what the second needs at least."""
    added = nodes.add(6)
    trial.begin(elastic())
    rows: list[dict[str, Any]] = []
    step_until(trial, lambda row: row["num_workers"] == 3, rows)
    other: list[TrialByHand] = []
    came = threading.Thread(target=lambda: other.append(make_trial(*OWN)))
    came.start()
    step_until(trial, lambda row: bool(other), rows)
    came.join()
    try:
        assert any("another job is waiting for room: shrank from 3 to 1 worker" in note for note in trial.notes())
        theirs = [other[0].begin(elastic()).step()]
        step_until(trial, lambda row: len(rows) > 3, rows)
        theirs.append(other[0].step())
        check(rows)
        check(theirs)
        assert all(row["num_workers"] >= 1 for row in [*rows, *theirs])
    finally:
        other[0].close()
    nodes.remove(added)


@pytest.mark.long
def test_waits_for_room_when_its_own_bundle_is_lost_and_goes_on(nodes: Nodes, trial: TrialByHand) -> None:
    """The only worker's node dies, and the server with it: the trial, on another node, waits for one more."""
    trial.begin(elastic(**{"resources.workers": 1}))  # it asks for no more room now
    stays, added = nodes.add(1), nodes.add(5)
    by_hand = make_trial(1, 5)
    try:
        by_hand.begin(elastic(**{"resources.workers": 1, "resources.cpus_per_worker": 3, "kvstore.type": "dist_sync"}))
        rows = [by_hand.step()]
        nodes.remove(added)
        step = threading.Thread(target=lambda: rows.append(by_hand.step()))
        step.start()
        time.sleep(4)
        nodes.add(5)
        step.join()
        assert any("a node is gone: waiting for room for 1 worker" in note for note in by_hand.notes())
        check(rows)
    finally:
        by_hand.close()
    nodes.remove(stays)
