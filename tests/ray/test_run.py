"""The command as a user runs it: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EXPERIMENTS, long_form, marked

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(240)]

FASHION_MNIST = EXPERIMENTS / "fashion_mnist.yaml"
ROLES = ("ray::Worker", "ray::Server", "ray::KVScheduler", "ray::Trial")


class Command:
    """One ``python -m raymx.run``, and every process that it leads to, known by a mark in their environment."""

    def __init__(self, *arguments: object, cwd: Path, **environment: str) -> None:
        self._mark = f"RAYMX_TEST={uuid.uuid4().hex}"
        name, value = self._mark.split("=")
        clean = {key: text for key, text in os.environ.items() if not key.startswith("RAY")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "raymx.run", *map(str, arguments)],
            cwd=cwd,
            text=True,
            env=clean | environment | {name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self.out = self.err = ""

    def wait(self, timeout_s: float = 180) -> int:
        try:
            self.out, self.err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode

    def left(self, *names: str) -> list[str]:
        """Processes that still run, by title; those that begin with ``names`` when there are any."""
        return list(marked(self._mark, *names).values())


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.2)
    return value


def sockets() -> set[str]:
    return {path.name for path in Path("/tmp").iterdir() if path.name.isdigit()}


@pytest.fixture(autouse=True)
def no_socket_is_left() -> Any:
    before = sockets()
    yield
    assert sockets() <= before


def rows(run: Path) -> list[dict[str, Any]]:
    """The rows of the run's only trial so far, from where Tune keeps them while it runs."""
    return [json.loads(line) for file in run.glob("Trial*/result.json") for line in file.read_text().splitlines()]


def the_run(storage: Path) -> Path:
    return next(path for path in storage.iterdir() if path.is_dir())


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
    assert len(checkpoints(tmp_path / "runs")) == 2
    load_in_gluon(summary["parameters"])


def load_in_gluon(parameters: str) -> None:
    """The trained net, as a user takes it up."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import mxnet as mx, nets; net = nets.lenet(10); "
        "net.load_parameters(sys.argv[2]); print(net(mx.nd.zeros((1, 1, 28, 28))).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(EXPERIMENTS), parameters],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "(1, 10)"


@pytest.fixture
def training(tmp_path: Path) -> tuple[Command, Path]:
    """A run that has done its first epoch and goes on."""
    command = Command(FASHION_MNIST, "--storage-path", tmp_path / "runs", "--num-epochs", 6, cwd=tmp_path)
    wait_until(lambda: checkpoints(tmp_path / "runs") or command.process.poll() is not None, 150, "a first epoch")
    time.sleep(3)  # into a later epoch, and until Tune has written down that checkpoint
    return command, tmp_path / "runs"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=long_form)])
def test_ctrl_c_saves_and_resume_goes_on(training: tuple[Command, Path], number: signal.Signals) -> None:
    command, storage = training
    command.process.send_signal(number)
    assert command.wait(timeout_s=60) == 130
    assert command.left() == []
    assert "stopping: saving a checkpoint" in command.out
    assert command.err == ""
    run = the_run(storage)
    newest = json.loads(checkpoints(storage)[-1].read_text())
    assert 1 <= newest["epoch"] < 6
    assert json.loads((run / "summary.json").read_text())["state"] == "interrupted"
    if number == signal.SIGTERM:
        return
    resumed = Command("--resume", run, cwd=storage.parent)
    assert resumed.wait() == 0, resumed.err
    assert "epoch 6/6" in resumed.out
    assert "epoch 1/6" not in resumed.out
    assert rows(run)[-1]["epoch"] == 6
    assert resumed.left() == []


def test_a_killed_driver_leaves_no_role_and_can_be_resumed(training: tuple[Command, Path]) -> None:
    command, storage = training
    command.process.kill()
    command.wait()
    wait_until(lambda: not command.left(*ROLES), 60, "the end of all roles")
    resumed = Command("--resume", the_run(storage), cwd=storage.parent)
    assert resumed.wait() == 0, resumed.err
    assert "epoch 1/6" not in resumed.out
    assert rows(the_run(storage))[-1]["epoch"] == 6


def test_an_exception_in_the_net(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def net(classes):\n    raise ValueError('no such layer')\n")
    command = Command(FASHION_MNIST, "--storage-path", tmp_path / "runs", "--set", "model.net=own:net", cwd=tmp_path)
    assert command.wait() == 1  # refused at once: the module is not beside the experiment file
    assert "own" in command.err
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(
        FASHION_MNIST.read_text().replace("data/", f"{EXPERIMENTS}/data/").replace("nets:lenet", "own:net")
    )
    command = Command(experiment, "--storage-path", tmp_path / "runs", cwd=tmp_path)
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
        (["--set", "data.train=data/missing.rec"], "missing.rec does not exist"),
        (["--set", "training.base_lrr=0.1"], "training.base_lr"),
        (["--kv-store", "dist_snyc"], "dist_sync"),
        (["--kv-store", "local"], "kvstore.type is local"),
        (["--resume", "/nowhere"], "/nowhere"),
        (["--address", "127.0.0.1:1"], "cannot connect to the Ray cluster at 127.0.0.1:1"),
        (["--gpus", "0,1"], "GPU"),
    ],
)
def test_a_users_mistake_is_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    command = Command(FASHION_MNIST, "--storage-path", tmp_path / "runs", *arguments, cwd=tmp_path)
    assert command.wait() == 1
    assert message in command.err
    assert command.err.startswith("raymx: error: ")
    assert "Traceback" not in command.err
    assert command.left() == []


def test_a_storage_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = Command(FASHION_MNIST, "--storage-path", tmp_path / "file" / "runs", cwd=tmp_path)
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


def test_a_full_disk_is_one_message(small_disk: Path, tmp_path: Path) -> None:
    command = Command(FASHION_MNIST, "--storage-path", small_disk / "runs", "--num-epochs", 3, cwd=tmp_path)
    assert command.wait() == 1
    assert command.err.startswith("raymx: error: ")
    assert "MB are free in" in command.err
    assert "Traceback" not in command.err
    assert command.left() == []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of two nodes, neither of which holds the default experiment alone; its address.

    It asks for no token, as it would when this process had started another Ray before it.
    """
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 4})
    nodes.add_node(num_cpus=4)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


def test_on_a_cluster_of_two_nodes(cluster: str, tmp_path: Path) -> None:
    too_much = Command(
        FASHION_MNIST, "--address", cluster, "--num-workers", 9, "--dry-run", cwd=tmp_path, RAY_AUTH_MODE="disabled"
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
        cwd=tmp_path,
        RAY_AUTH_MODE="disabled",
    )
    assert command.wait() == 0, command.err
    assert "started Ray" not in command.out
    assert "the cluster has 2 nodes" in command.out
    assert rows(the_run(tmp_path / "runs"))[0]["validation_accuracy"] > 0.5


def test_dry_run_starts_nothing(tmp_path: Path) -> None:
    command = Command(FASHION_MNIST, "--dry-run", "--lr", 0.25, cwd=tmp_path)
    assert command.wait() == 0
    assert "base_lr: 0.25" in command.out
    assert "trial and KVStore scheduler" in command.out
    assert list(tmp_path.iterdir()) == []
