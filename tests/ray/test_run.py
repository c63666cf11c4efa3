"""The command as a user runs it: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import ROLES, Command, rows, the_run, wait_until
from conftest import EXPERIMENTS

from raymx.results import columns, file_table

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(240)]

FASHION_MNIST = EXPERIMENTS / "fashion_mnist.yaml"
ALONE = ["--num-workers", 1, "--kv-store", "local", "--set", "data.cpus=1"]
"""One process that imports MXNet in place of four, where the roles are not what is tested."""


def sockets() -> set[str]:
    """MXNet's socket files, named by ports, that nobody listens on any more."""
    listened_on = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()}
    return {path.name for path in Path("/tmp").iterdir() if path.name.isdigit() and str(path) not in listened_on}


@pytest.fixture(autouse=True)
def no_socket_is_left() -> Any:
    """But those of other runs, which may come and go meanwhile."""
    before = sockets()
    yield
    wait_until(lambda: sockets() <= before, 20, "the removal of socket files")


def checkpoints(storage: Path) -> list[Path]:
    return sorted(storage.glob("*/Trial*/checkpoint_*/state.json"))


def test_success(tmp_path: Path) -> None:
    command = Command("--storage-path", tmp_path / "runs", "--num-epochs", 2, cwd=tmp_path)
    assert command.wait() == 0, command.err
    assert command.err == ""
    assert len(command.out.splitlines()) <= 24
    assert command.left() == []
    run = the_run(tmp_path / "runs")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["state"] == "finished"
    assert summary["best"]["value"] > 0.7
    assert summary["versions"]["mxnet"] == "1.9.1"
    assert summary["hardware"][0]["cores"] == len(os.sched_getaffinity(0))
    assert summary["experiment"]["training"]["epochs"] == 2
    for text in (
        "2 workers and 1 server, dist_sync",
        "logical CPUs",
        "epoch 1/2",
        "epoch 2/2",
        summary["parameters"],
        str(run),
    ):
        assert text in command.out
    trial = Path(summary["trial"])
    assert (trial / "progress.csv").exists()
    assert list(trial.glob("events.out.tfevents*"))
    assert [row["training_iteration"] for row in rows(run)] == [1, 2]
    for column in (
        "first_step_s",
        "epoch",
        "train_loss",
        "train_accuracy",
        "validation_loss",
        "validation_accuracy",
        "samples_per_sec",
        "num_workers",
        "data_wait_fraction",
        "learning_rate",
        "bytes_pushed",
        "bytes_pulled",
    ):
        assert isinstance(rows(run)[-1][column], (int, float)), column
    assert [name for name in rows(run)[-1] if columns.find(name) is None] == []
    left = [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()]
    assert [path for path in left if not file_table.what_is(path)] == []
    assert len(checkpoints(tmp_path / "runs")) == 2
    load_in_gluon(summary["parameters"])


def load_in_gluon(parameters: str) -> None:
    """The trained net, as a user takes it up."""
    import mxnet as mx

    spec = importlib.util.spec_from_file_location("nets_of_a_user", EXPERIMENTS / "nets.py")
    assert spec is not None
    assert spec.loader is not None
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    net = nets.lenet(10)
    net.load_parameters(parameters)
    assert net(mx.nd.zeros((1, 1, 28, 28))).shape == (1, 10)


RUN = [FASHION_MNIST, "--num-epochs", 60, "--set", "data.train=data/fashion_mnist_val.rec"]
"""Epochs of a second at most, and roles in processes of their own."""


def in_a_later_epoch(command: Command, storage: Path) -> None:
    """Wait until there is one more checkpoint than now, and Tune has written that down."""
    before = {path.parent.name for path in checkpoints(storage)}
    wait_until(
        lambda: {path.parent.name for path in checkpoints(storage)} - before or command.process.poll() is not None,
        150,
        "an epoch",
    )
    time.sleep(1.5)
    assert command.process.poll() is None, command.wait() or command.err


def test_a_run_is_interrupted_resumed_and_killed(three_cpus: dict[str, str], tmp_path: Path) -> None:
    """It goes on where it was. Ctrl-C saves a checkpoint; a driver that is killed leaves no role, also on a cluster."""
    storage = tmp_path / "runs"
    command = Command(*RUN, *ALONE, "--storage-path", storage, cwd=tmp_path)
    in_a_later_epoch(command, storage)
    stopped = stop(command, signal.SIGINT, storage)

    command = Command("--resume", the_run(storage), cwd=tmp_path, **three_cpus)
    in_a_later_epoch(command, storage)
    command.process.kill()
    command.wait()
    assert "epoch 1/60" not in command.out
    wait_until(lambda: not command.left(*ROLES), 60, "the end of all roles")
    assert max(row["epoch"] for row in rows(the_run(storage))) > stopped


@pytest.mark.long
def test_a_run_whose_trial_and_driver_were_killed_is_resumed_to_its_end(tmp_path: Path) -> None:
    storage = tmp_path / "runs"
    command = Command(*RUN, "--storage-path", storage, cwd=tmp_path)
    in_a_later_epoch(command, storage)
    command.kill("ray::Trial")
    in_a_later_epoch(command, storage)
    command.process.kill()
    command.wait()
    command = Command("--resume", the_run(storage), cwd=tmp_path)
    assert command.wait() == 0, command.err
    assert command.left() == []
    assert "epoch 60/60" in command.out
    assert "epoch 1/60" not in command.out
    assert rows(the_run(storage))[-1]["epoch"] == 60


@pytest.mark.long
def test_sigterm_is_as_ctrl_c(tmp_path: Path) -> None:
    command = Command(*RUN, "--storage-path", tmp_path / "runs", cwd=tmp_path)
    in_a_later_epoch(command, tmp_path / "runs")
    stop(command, signal.SIGTERM, tmp_path / "runs")


def stop(command: Command, number: signal.Signals, storage: Path) -> int:
    """Send a signal; the epoch that the run has saved."""
    command.process.send_signal(number)
    assert command.wait(timeout_s=60) == 130
    assert command.left() == []
    assert "stopping: saving a checkpoint" in command.out
    assert command.err == ""
    epoch = int(json.loads(checkpoints(storage)[-1].read_text())["epoch"])
    assert 1 <= epoch < 60
    assert json.loads((the_run(storage) / "summary.json").read_text())["state"] == "interrupted"
    return epoch


def test_a_net_that_is_not_beside_the_experiment(three_cpus: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def net(classes):\n    raise ValueError('no such layer')\n")
    given = [*ALONE, "--storage-path", tmp_path / "runs", "--set", "model.net=own:net"]
    command = Command(FASHION_MNIST, *given, cwd=tmp_path, **three_cpus)
    assert command.wait() == 1
    assert "own" in command.err


@pytest.mark.long
def test_an_exception_in_the_net(three_cpus: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def net(classes):\n    raise ValueError('no such layer')\n")
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(
        FASHION_MNIST.read_text().replace("data/", f"{EXPERIMENTS}/data/").replace("nets:lenet", "own:net")
    )
    once = [*ALONE, "--set", "failures.max=0"]
    command = Command(experiment, *once, "--storage-path", tmp_path / "runs", cwd=tmp_path, **three_cpus)
    assert command.wait() == 1
    errors = command.err.splitlines()
    assert errors[0].startswith("raymx: error: worker ")
    assert "ValueError: no such layer" in errors[0]
    assert "own.py" in command.err
    assert len(errors) <= 6
    assert command.left() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "127.0.0.1:1"], "cannot connect to the Ray cluster at 127.0.0.1:1"),
        (["--gpus", "0,1"], "GPU"),
    ],
)
def test_a_users_mistake_is_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    """More of them: tests/unit/test_commands.py."""
    command = Command(FASHION_MNIST, "--storage-path", tmp_path / "runs", *arguments, cwd=tmp_path)
    assert command.wait() == 1
    assert message in command.err
    assert command.err.startswith("raymx: error: ")
    assert "Traceback" not in command.err
    assert command.left() == []


def test_a_storage_path_that_cannot_be_written(three_cpus: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    storage = tmp_path / "file" / "runs"
    command = Command(FASHION_MNIST, *ALONE, "--storage-path", storage, cwd=tmp_path, **three_cpus)
    assert command.wait() == 1
    assert command.err.startswith("raymx: error: --storage-path")
    assert command.left() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.long
def test_a_full_disk_is_one_message(three_cpus: dict[str, str], small_disk: Path, tmp_path: Path) -> None:
    command = Command(*RUN, *ALONE, "--storage-path", small_disk / "runs", cwd=tmp_path, **three_cpus)
    assert command.wait() == 1
    assert command.err.startswith("raymx: error: ")
    assert "MB are free in" in command.err
    assert "Traceback" not in command.err
    assert command.left() == []


@pytest.fixture
def cluster(no_ray: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of two nodes, neither of which holds the default experiment alone; its address."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 4})
    nodes.add_node(num_cpus=4)
    yield nodes.address
    nodes.shutdown()


@pytest.mark.long
def test_on_a_cluster_of_two_nodes(cluster: str, tmp_path: Path) -> None:
    too_much = Command(
        FASHION_MNIST, "--address", cluster, "--num-workers", 9, "--dry-run", cwd=tmp_path, RAY_AUTH_MODE="token"
    )
    assert too_much.wait() == 1
    assert "8 CPU" in too_much.err
    command = Command(
        FASHION_MNIST,
        "--address",
        cluster,
        "--storage-path",
        tmp_path / "runs",
        "--num-epochs",
        1,
        "--set",
        "model.net=nets:mlp",
        cwd=tmp_path,
        RAY_AUTH_MODE="token",
    )
    assert command.wait() == 0, command.err
    assert "started Ray" not in command.out
    assert "the cluster has 2 nodes" in command.out
    assert rows(the_run(tmp_path / "runs"))[0]["validation_accuracy"] > 0.5
