"""Roles, whole nodes and the trial are killed, and nodes come, all through a run: it ends as an undisturbed one.

RAYMX_CHAOS_SEED says which.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ROLES, Command, rows, the_run
from conftest import EXPERIMENTS, kill_node, marked

SEED = int(os.environ.get("RAYMX_CHAOS_SEED", "31"))
VICTIMS = ("Worker", "Worker", "Server", "KVScheduler", "Trial", "node", "node")

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1500)]

ALONE = ["--num-workers", 1, "--kv-store", "local", "--set", "data.cpus=1"]
MLP = ["--set", "model.net=nets:mlp", "--set", "training.optimizer={name: adam}", "--lr", 0.001]
ELASTIC = [
    "--set",
    "resources.resize_cooldown_s=1",
    "--set",
    "checkpoint.every_steps=10",
]


class Chaos:
    """A cluster whose nodes come and go, and a run on it whose processes do not live long."""

    def __init__(self, folder: Path, mark: str, nodes: int) -> None:
        """``mark`` is in the environment of every process that the nodes start."""
        from ray.cluster_utils import Cluster

        self.random, self._mark = random.Random(SEED), mark
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.nodes = [self.cluster.add_node(num_cpus=4) for _ in range(nodes)]
        self.folder = folder
        self.command: Command
        self.done = list[str]()

    def run(self, victims: Iterable[str], *arguments: object) -> list[dict[str, Any]]:
        """Start the run, kill these one after the other, let it end; its rows."""
        self.command = Command(
            EXPERIMENTS / "fashion_mnist.yaml",
            "--address",
            self.cluster.address,
            "--storage-path",
            self.folder,
            *arguments,
            cwd=self.folder.parent,
            RAY_AUTH_MODE="token",
        )
        for victim in victims:
            self._wait_for_progress()
            self._kill(victim)
        assert self.command.wait(240) == 0, self.command.err + self.command.out
        assert marked(self._mark, *ROLES) == {}
        return rows(the_run(self.folder))

    def _wait_for_progress(self) -> None:
        """Until there is a newer checkpoint than now."""
        before, deadline = self._checkpoints(), time.monotonic() + 120
        while not self._checkpoints() - before:
            if self.command.process.poll() is not None or time.monotonic() > deadline:
                self.command.process.kill()
                self.command.wait()
                pytest.fail(f"no checkpoint within 120 s after {self.done}:\n{self.command.out}{self.command.err}")
            time.sleep(0.2)
        time.sleep(self.random.uniform(0, 1))

    def _checkpoints(self) -> set[str]:
        return {str(path) for path in self.folder.glob("*/Trial*/*/**/state.json")}

    def _kill(self, what: str) -> None:
        self.done.append(what)
        if what == "node":
            kill_node(self.cluster, self.nodes.pop(self.random.randrange(len(self.nodes))))
            time.sleep(self.random.uniform(0, 2))
            self.nodes.append(self.cluster.add_node(num_cpus=4))
            return
        pids = list(marked(self._mark, f"ray::{what}"))
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(pids), signal.SIGKILL)

    def close(self) -> None:
        self.cluster.shutdown()


@pytest.fixture
def nodes() -> int:
    return 3


@pytest.fixture
def chaos(no_ray: None, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chaos]:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("RAYMX_TEST", mark)
    made = Chaos(tmp_path / "runs", mark, nodes)
    yield made
    made.close()


def undisturbed(folder: Path, *arguments: object) -> list[dict[str, Any]]:
    command = Command(
        EXPERIMENTS / "fashion_mnist.yaml", "--storage-path", folder, *ALONE, *arguments, cwd=folder.parent
    )
    assert command.wait(240) == 0, command.err
    return rows(the_run(folder))


def last_of_each_epoch(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row whose checkpoint was lost is there twice: the later one counts."""
    return list({row["epoch"]: row for row in found}.values())


def weights(folder: Path) -> dict[str, np.ndarray]:
    import mxnet as mx

    summary = json.loads((the_run(folder) / "summary.json").read_text())
    newest = sorted(Path(summary["trial"]).glob("checkpoint_*"))[-1]
    return {name: array.asnumpy() for name, array in mx.nd.load(str(newest / "net.params")).items()}


@pytest.mark.long
@pytest.mark.parametrize("nodes", [2])
def test_a_trial_and_a_node_are_lost(chaos: Chaos, nodes: int, tmp_path: Path) -> None:
    """Roles alone are killed in test_trial.py."""
    check(chaos, tmp_path, ("Trial", "node"), nodes, "mlp", epochs=4)


@pytest.mark.long
@pytest.mark.parametrize(("net", "epochs"), [("mlp", 40), ("lenet", 10)])
def test_all_that_can_be_lost(chaos: Chaos, nodes: int, tmp_path: Path, net: str, epochs: int) -> None:
    victims = [victim for _ in range(3) for victim in chaos.random.sample(VICTIMS, len(VICTIMS))]
    check(chaos, tmp_path, victims, nodes, net, epochs)


def check(chaos: Chaos, folder: Path, victims: Sequence[str], most: int, net: str, epochs: int) -> None:
    """The run ends as one that nothing disturbs."""
    elastic = ["--set", f"resources.workers={{min: 1, max: {most}}}", *ELASTIC]
    arguments = ["--num-epochs", epochs, *(MLP if net == "mlp" else [])]
    found = last_of_each_epoch(chaos.run(victims, *elastic, *arguments))
    expected = undisturbed(folder / "calm", *arguments)
    assert [row["epoch"] for row in found] == list(range(1, epochs + 1)), chaos.done
    assert {row["train_samples"] for row in found} == {expected[0]["train_samples"]} == {6000}
    assert {row["validation_samples"] for row in found} == {expected[0]["validation_samples"]}
    assert abs(found[-1]["validation_accuracy"] - expected[-1]["validation_accuracy"]) <= 0.01
    if net == "mlp":
        left, right = weights(folder / "runs"), weights(folder / "calm")
        for name, array in right.items():
            np.testing.assert_allclose(left[name], array, atol=1e-5, rtol=0, err_msg=name)
