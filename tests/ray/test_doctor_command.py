"""``python -m raymx.doctor`` on this machine and on a cluster of two nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MARK, marked

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(240)]


def doctor(*arguments: str, **environment: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, findings and stderr of the command, which is given outside the project's folder."""
    done = subprocess.run(
        [sys.executable, "-m", "raymx.doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd="/tmp",
        env={**os.environ, **environment},
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def of(found: list[dict[str, Any]], what: str) -> dict[str, Any]:
    (one,) = [finding for finding in found if finding["what"] == what]
    return one


def test_this_machine(tmp_path: Path) -> None:
    code, found, stderr = doctor("--storage-path", str(tmp_path / "runs"), RAY_ADDRESS="")
    assert stderr == ""
    assert of(found, "numpy")["value"] == "1.23.5"
    assert of(found, "MXNet")["value"].startswith("1.9.1")
    assert str(tmp_path) in of(found, "storage path")["value"]
    assert code == any(one["level"] == "problem" for one in found)


def test_this_machine_with_a_storage_path_that_cannot_be_written() -> None:
    code, found, _ = doctor("--storage-path", "/proc/runs", RAY_ADDRESS="")
    assert code == 1
    assert of(found, "storage path")["level"] == "problem"


def test_no_cluster_at_the_address() -> None:
    code, found, stderr = doctor("--address", "127.0.0.1:1")
    assert (code, stderr) == (1, "")
    assert "Connection refused" in of(found, "cluster")["value"]


@pytest.fixture(scope="module")
def two_nodes(no_ray: None) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def on_nodes() -> dict[int, str]:
    """What the doctor has running on nodes."""
    return marked(MARK, "ray::Probe")


def test_a_cluster_of_two_nodes(two_nodes: Any, tmp_path: Path) -> None:
    _, found, stderr = doctor("--address", two_nodes.address, "--storage-path", str(tmp_path / "runs"))
    assert stderr == ""
    assert of(found, "nodes")["value"].startswith("2 nodes answered: ")
    assert of(found, "MXNet")["value"].startswith("1.9.1")
    assert of(found, "connections")["level"] == "ok"
    assert {one["level"] for one in found if one["what"] == "storage path"} == {"ok"}
    assert of(found, "clocks")["level"] == "ok"
    assert of(found, "token")["level"] == "ok"
    assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 30
    while on_nodes() and time.monotonic() < deadline:  # Ray ends a process a moment after it says so
        time.sleep(0.1)
    assert on_nodes() == {}


@pytest.mark.long
def test_a_cluster_whose_storage_path_cannot_be_written(two_nodes: Any) -> None:
    code, found, _ = doctor("--address", two_nodes.address, "--storage-path", "/proc/runs")
    assert code == 1
    one = of(found, "storage path")
    assert (one["level"], one["nodes"]) == ("problem", [])  # of all nodes


@pytest.mark.long
def test_a_cluster_that_wants_a_token(two_nodes: Any, tmp_path: Path) -> None:
    code, found, stderr = doctor("--address", two_nodes.address, RAY_AUTH_MODE="disabled", HOME=str(tmp_path))
    assert (code, stderr) == (1, "")
    assert "there is no token here" in of(found, "token")["value"]


@pytest.mark.long
def test_a_node_that_hangs_is_a_finding(two_nodes: Any) -> None:
    """The last test with this cluster: the node does not come back."""
    (_, hanging) = two_nodes.list_all_nodes()
    (raylet,) = hanging.all_processes["raylet"]
    os.kill(raylet.process.pid, signal.SIGSTOP)
    code = (
        "import sys\nfrom raymx.doctor import __main__ as command, cluster, cluster_checks, findings\n"
        "seen = cluster.look(sys.argv[1], None, command._here(), command._child(), start_timeout_s=15)\n"
        "print(findings.as_json(cluster_checks.check_cluster(seen, None)))\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, two_nodes.address],
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
            cwd="/tmp",
        )
    finally:
        os.kill(raylet.process.pid, signal.SIGCONT)
    answered, silent = [one for one in json.loads(done.stdout) if one["what"] == "nodes"]
    assert answered["value"].startswith("1 node answered")
    assert "does not answer: " in silent["value"]
