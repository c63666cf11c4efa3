"""Runs on two machines, which here are hosts made of namespaces: over TCP, and with a cable that is pulled."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray_hosts
from conftest import EXPERIMENTS
from hosts import Host
from ray_hosts import OTHER_CPUS, ClusterOfHosts

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]

WAIT_S = 180.0  # Ray itself would take a minute to notice that a machine is silent
LISTENS, CONNECTED = "0A", "01"


@pytest.fixture(scope="module")
def hosts(cluster_of_hosts: ClusterOfHosts) -> list[Host]:
    return cluster_of_hosts.nodes


@pytest.fixture(scope="module")
def shared(cluster_of_hosts: ClusterOfHosts) -> Path:
    return cluster_of_hosts.shared


class Run:
    """``python -m raymx.run`` on the head."""

    def __init__(self, hosts: list[Host], storage: Path, **changes: object) -> None:
        self.storage, self._lines = storage, list[str]()
        settings = {"data.cpus": 1, "resources.standby": False, **changes}
        flags = [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}")]
        self.process = hosts[0].popen(
            [
                sys.executable,
                "-u",
                "-m",
                "raymx.run",
                EXPERIMENTS / "fashion_mnist.yaml",
                "--address",
                "auto",
                "--storage-path",
                storage,
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self._lines.extend(self.process.stdout)  # line by line, as they come

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def until(self, pattern: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until the output has this somewhere."""
        deadline = time.monotonic() + WAIT_S
        while not re.search(pattern, self.output):
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            meanwhile()
            time.sleep(0.2)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 130, self.output

    def rows(self) -> list[dict[str, Any]]:
        (path,) = self.storage.glob("*/*/result.json")
        return [row for row in map(json.loads, path.read_text().splitlines()) if row["epoch"] == int(row["epoch"])]


@pytest.fixture
def start(hosts: list[Host], shared: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Run]]:
    """Start a run in a storage folder of its own; one that the test leaves behind is ended."""
    runs: list[Run] = []

    def start(**changes: object) -> Run:
        runs.append(Run(hosts, shared / request.node.name, **changes))
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.process.wait()


def roles(host: Host) -> dict[int, str]:
    """KVScheduler, Server and Worker processes of a host, by id."""
    found = {}
    for pid, title in host.processes().items():
        if role := re.match(r"ray::(KVScheduler|Server|Worker)\b", title):
            found[pid] = role[1]
    return found


def sockets(pid: int) -> list[tuple[str, str, str]]:
    """(local address, remote address, state) of a process's TCP sockets; addresses as ``10.0.0.1:80``."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(descriptor))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [(_address(line[1]), _address(line[2]), line[3]) for line in lines if f"socket:[{line[9]}]" in own]


def _address(hexadecimal: str) -> str:
    host, _, port = hexadecimal.partition(":")
    return f"{'.'.join(str(byte) for byte in reversed(bytes.fromhex(host)))}:{int(port, 16)}"


def are_connected(one: int, other: int, address: str) -> bool:
    """Whether the first process is connected to a port that the second one listens on at exactly this address."""
    ports = {local for local, _, state in sockets(other) if state == LISTENS and local.startswith(f"{address}:")}
    return any(remote in ports for _, remote, state in sockets(one) if state == CONNECTED)


def bring_back(hosts: list[Host]) -> None:
    """Join the other host again when Ray has given it up: its processes there then end, once they hear of that."""
    if not any("/raylet " in title for title in hosts[1].processes().values()):
        hosts[1].run([ray_hosts.RAY, "stop", "--force"], 60, check=False)
        ray_hosts.join(hosts[1], hosts[0], OTHER_CPUS)


def check_epochs(rows: list[dict[str, Any]]) -> None:
    """Every epoch was done, and every record seen once in it."""
    assert list(dict.fromkeys(row["epoch"] for row in rows)) == list(range(1, len({row["epoch"] for row in rows}) + 1))
    assert {row["train_samples"] for row in rows} == {6000}


@pytest.mark.long
def test_trains_over_tcp_between_the_addresses_of_both(hosts: list[Host], start: Callable[..., Run]) -> None:
    run = start(**{"training.epochs": 4})
    run.until("epoch 1/4")
    head, other = map(roles, hosts)
    assert sorted(head.values()) == ["KVScheduler", "Server", "Worker"]
    assert sorted(other.values()) == ["Worker"]
    address = dict.fromkeys(head, hosts[0].address) | dict.fromkeys(other, hosts[1].address)
    scheduler, server, worker = (next(pid for pid in head if head[pid] == role) for role in sorted(head.values()))
    for one, others in ((scheduler, (server, worker, *other)), (server, (worker, *other))):
        for another in others:
            assert are_connected(one, another, address[another])
            assert are_connected(another, one, address[one])
    for pid in (*head, *other):
        assert not re.search(r" /tmp/\d+$", Path(f"/proc/{pid}/net/unix").read_text(), re.MULTILINE)
    assert run.process.wait(120) == 0, run.output

    (summary,) = run.storage.glob("*/summary.json")
    assert json.loads(summary.read_text())["state"] == "finished"
    check_epochs(run.rows())
    assert {(row["num_workers"], row["nodes"]) for row in run.rows()} == {(2, ",".join(host.address for host in hosts))}


@pytest.mark.long
def test_an_elastic_run_goes_on_without_a_host_and_grows_when_it_is_back(
    hosts: list[Host], start: Callable[..., Run]
) -> None:
    run = start(
        **{
            "model.net": "nets:mlp",
            "training.epochs": 10000,
            "resources.workers": {"min": 1, "max": 2},
            "resources.resize_cooldown_s": 1,
            "checkpoint.every_steps": 10,
        }
    )
    run.until("with 2 workers in")
    run.until(r"epoch [2-9]/")
    hosts[1].cut()
    run.until("went on with 1 worker in")
    hosts[1].mend()
    run.until("grew from 1 to 2 workers in", lambda: bring_back(hosts))
    begun = len(run.rows())
    run.until(f"epoch {begun + 2}/")
    run.interrupt()
    check_epochs(run.rows())
    assert [row["num_workers"] for row in run.rows()][-1] == 2
    assert {1, 2} <= {row["num_workers"] for row in run.rows()}


@pytest.mark.long
def test_a_run_of_two_workers_waits_until_the_host_is_back(hosts: list[Host], start: Callable[..., Run]) -> None:
    run = start(**{"model.net": "nets:mlp", "training.epochs": 10000, "checkpoint.every_steps": 10})
    run.until(r"epoch [2-9]/")
    hosts[1].cut()
    run.until("a node is gone: waiting for room for 2 workers, the least that this run may have")
    hosts[1].mend()
    run.until(r"with 2 workers in [0-9.]+ s, from epoch", lambda: bring_back(hosts))
    begun = len(run.rows())
    run.until(f"epoch {begun + 2}/")
    run.interrupt()
    check_epochs(run.rows())
    assert {row["num_workers"] for row in run.rows()} == {2}


@pytest.mark.long
def test_a_host_on_which_workers_die_again_and_again_is_left_out_and_taken_again_later(
    hosts: list[Host], start: Callable[..., Run]
) -> None:
    run = start(
        **{
            "model.net": "nets:mlp",
            "training.epochs": 10000,
            "resources.workers": {"min": 1, "max": 2},
            "resources.resize_cooldown_s": 1,
            "checkpoint.every_steps": 10,
        }
    )
    run.until("with 2 workers in")
    for deaths in (1, 2):
        (worker,) = roles(hosts[1])
        begun = len(run.rows())
        os.kill(worker, signal.SIGKILL)
        if deaths == 1:
            run.until(rf"epoch {begun + 2}/", lambda: time.sleep(1))
            run.until("(?s)(with 2 workers in.*){2}|grew from 1 to 2 workers")
    run.until(rf"{re.escape(hosts[1].address)}: processes died there 2 times, it gets no worker for \d+ s")
    run.until("went on with 1 worker in")
    assert not roles(hosts[1])
    left_out = len(re.findall("grew from 1 to 2 workers", run.output))
    run.until(f"(?s)(grew from 1 to 2 workers.*){{{left_out + 1}}}")
    assert list(roles(hosts[1]).values()) == ["Worker"]
    run.interrupt()
    check_epochs(run.rows())
