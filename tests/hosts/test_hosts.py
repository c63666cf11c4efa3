"""Hosts made of namespaces: apart from each other and from this machine, and gone without a trace."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, lan, why_not

pytestmark = pytest.mark.timeout(120)

LISTEN = """
import socket
listening = socket.create_server(("0.0.0.0", 5000))
print("ready", flush=True)
while listening.accept():
    pass
"""
CONNECT = "import socket, sys; s = socket.socket(); s.settimeout(2); print(s.connect_ex((sys.argv[1], 5000)))"


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def hosts(scratch: Path) -> Iterator[list[Host]]:
    (scratch / "shared").mkdir()
    with lan(scratch, 2, shared=scratch / "shared") as made:
        yield made


def shell(host: Host, command: str) -> str:
    return host.run(["sh", "-c", command], timeout_s=20).stdout.strip()


def connect(host: Host, other: Host) -> int:
    return int(host.run([sys.executable, "-c", CONNECT, other.address], timeout_s=20).stdout)


def listen(host: Host) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = host.popen([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_each_has_its_own_name_files_and_processes(hosts: list[Host], scratch: Path) -> None:
    one, other = hosts
    assert [shell(host, "hostname") for host in hosts] == [one.name, other.name]
    for place in ("/tmp", "~", "/dev/shm"):
        shell(one, f"touch {place}/a_file")
        assert "a_file" not in shell(other, f"ls {place}")
    assert (one.home / "a_file").exists()
    shell(one, f"touch {scratch}/shared/a_file")
    assert shell(other, f"ls {scratch}/shared") == "a_file"
    process = listen(one)
    assert [LISTEN.strip() in title for title in one.processes().values()] == [True]
    assert not other.processes()
    assert shell(other, f"getent hosts {one.name}").split()[0] == one.address
    process.kill()


def test_a_link_is_slowed_down_cut_and_mended(hosts: list[Host]) -> None:
    one, other = hosts
    assert connect(one, other) == errno.ECONNREFUSED
    listen(other)
    assert connect(one, other) == 0
    one.limit(10)
    other.delay(5)
    assert connect(one, other) == 0
    other.cut()
    assert connect(one, other) == errno.EAGAIN
    other.mend()
    assert connect(one, other) == 0
    other.delay(0)
    assert connect(one, other) == 0


def test_a_command_gets_signals_and_gives_its_exit_code(hosts: list[Host]) -> None:
    assert hosts[0].run(["sh", "-c", "exit 3"], timeout_s=20, check=False).returncode == 3
    with pytest.raises(RuntimeError, match="host1: sh -c echo why; exit 3 gave 3\nwhy"):
        shell(hosts[0], "echo why; exit 3")
    process = hosts[0].popen(
        ["sh", "-c", "trap 'exit 7' INT; echo ready; while :; do sleep 0.1; done"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 7


def test_a_power_cut_ends_all_that_runs_and_nothing_is_left(tmp_path: Path) -> None:
    with lan(tmp_path, 2) as (one, other):
        process = listen(one)
        shell(one, "setsid sleep 1000 > /dev/null 2>&1 &")
        assert len(one.processes()) == 2
        one.kill()
        assert process.wait(20) != 0
        assert not one.processes()
        assert connect(other, one) != 0
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert not re.search(r"port-|switch", Path("/proc/self/net/dev").read_text())
