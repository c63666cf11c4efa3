"""`ray up`, `ray exec` and `ray down` with cluster-onprem.yaml itself, over ssh, on hosts made of namespaces."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hosts
import pytest
import yaml
from conftest import ROOT
from hosts import Host

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]
FILE = "/root/cluster.yaml"
EXPERIMENT = "checkout/experiments/fashion_mnist.yaml"
SSHD = "/usr/sbin/sshd"
WAIT_S = 180.0  # for a node that comes, or one that goes
MISSED_S = 10  # after so long without the head, in place of a minute, a node goes
ENVIRONMENT = {"PATH": f"{sys.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    missing = [name for name in ("ssh", "ssh-keygen", "rsync", SSHD) if not shutil.which(name)]
    if missing:
        pytest.skip(f"`ray up` needs the programs {', '.join(missing)}")
    if reason := hosts.why_not():
        pytest.skip(reason)


class Launcher:
    """Somebody's machine, from which a cluster is launched on others."""

    def __init__(self, laptop: Host, nodes: list[Host], shared: Path) -> None:
        self.nodes, self._laptop, self._shared = nodes, laptop, shared

    def ray(self, *arguments: str) -> str:
        """Run the `ray` command to its end, and give what it says. Raises RuntimeError when it fails."""
        return self._laptop.run(["ray", *arguments], timeout_s=300, env=ENVIRONMENT).stdout

    def refused(self, code: str) -> str:
        """What some Python code says that fails here, where no token is."""
        done = self._laptop.run([sys.executable, "-c", code], timeout_s=120, env=ENVIRONMENT, check=False)
        assert done.returncode, done.stdout
        return done.stderr

    def execute(self, command: str) -> str:
        return self.ray("exec", FILE, command)

    def wait_for_room(self) -> None:
        """Until the default experiment fits: a worker joins some time after `ray up`."""
        plan = f"python -m raymx.run {EXPERIMENT} --address auto --dry-run || true"
        self._wait(lambda: "It fits" in self.execute(plan))

    def train(self, *flags: str) -> dict[str, Any]:
        """Run the default experiment; its last row."""
        self.execute(f"python -m raymx.run {EXPERIMENT} --address auto --storage-path {self._shared} {' '.join(flags)}")
        (results,) = self._shared.glob("*/*/result.json")
        return dict(json.loads(results.read_text().splitlines()[-1]))

    def wait_for_silence(self) -> None:
        """Until nothing is left on any node but sshd."""
        self._wait(lambda: not self.left(), lambda: f"`ray down` has left {self.left()}")

    def left(self) -> dict[str, list[str]]:
        found = {
            node.name: [title for title in node.processes().values() if "sshd" not in title] for node in self.nodes
        }
        return {name: titles for name, titles in found.items() if titles}

    @staticmethod
    def _wait(done: Callable[[], bool], problem: Callable[[], str] = lambda: "it took too long") -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline, problem()
            time.sleep(1)


@contextlib.contextmanager
def launcher(scratch: Path, count: int, cpus: int) -> Iterator[Launcher]:
    """So many machines, which call themselves ``cpus`` CPUs each, and one more to launch a cluster from."""
    shared = scratch / "shared"
    shared.mkdir()
    with hosts.lan(scratch, count + 1, shared=shared) as (*nodes, laptop), contextlib.ExitStack() as stack:
        Path("/run/sshd").mkdir(exist_ok=True)  # Debian's sshd wants it; it stays empty
        _new_key(laptop.home / "key")
        for node in nodes:
            _prepare(node, (laptop.home / "key.pub").read_text())
            server = node.popen([SSHD, "-D", "-e", "-f", "/root/sshd_config"], stderr=subprocess.DEVNULL)
            stack.enter_context(server)
            stack.callback(server.kill)
        (laptop.home / "cluster.yaml").write_text(_config(nodes, shared, cpus))
        yield Launcher(laptop, nodes, shared)


def _new_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def _prepare(node: Host, key: str) -> None:
    """What cluster-onprem.yaml asks of a machine, and the environment that it would make there."""
    _new_key(node.home / "host_key")
    (node.home / "keys").write_text(key)
    (node.home / "sshd_config").write_text(
        "HostKey /root/host_key\nAuthorizedKeysFile /root/keys\nStrictModes no\n"
        "PasswordAuthentication no\nPidFile none\nUsePAM no\n"
    )
    (node.home / "raymx-env").symlink_to(sys.prefix)


def _config(nodes: list[Host], shared: Path, cpus: int) -> str:
    """cluster-onprem.yaml with its five lines changed, without pip, and with a number of CPUs."""
    text = (ROOT / "cluster-onprem.yaml").read_text()
    text = text.replace("ray start ", f"RAY_gcs_rpc_server_reconnect_timeout_s={MISSED_S} ray start --num-cpus={cpus} ")
    text = text.replace("/mnt/raymx", str(shared))
    config = yaml.safe_load(text)
    config["provider"] |= {"head_ip": nodes[0].address, "worker_ips": [node.address for node in nodes[1:]]}
    config["auth"] = {"ssh_user": "root", "ssh_private_key": "/root/key"}
    (pip,) = (i for i, command in enumerate(config["setup_commands"]) if "pip install" in command)
    config["setup_commands"][pip] = "python -m raymx.run --help > /dev/null"
    return yaml.safe_dump(config, sort_keys=False)


@pytest.mark.long
def test_one_machine(tmp_path: Path) -> None:
    with launcher(tmp_path, 1, cpus=6) as cluster:
        said = cluster.ray("up", "-y", FILE)
        assert f"ray down {FILE}" in said
        (token,) = (node.home / ".ray" / "auth_token" for node in cluster.nodes)
        assert token.read_text() not in said
        assert token.stat().st_mode & 0o777 == 0o600
        assert "InvalidAuthToken" in cluster.refused(f"import ray; ray.init('{cluster.nodes[0].address}:6379')")
        row = cluster.train()
        assert row["training_iteration"] == 5
        assert row["validation_accuracy"] > 0.8
        cluster.ray("down", "-y", FILE)
        cluster.wait_for_silence()


@pytest.mark.long
def test_two_machines(tmp_path: Path) -> None:
    with launcher(tmp_path, 2, cpus=3) as cluster:
        cluster.ray("up", "-y", FILE)
        cluster.wait_for_room()
        row = cluster.train("--num-epochs 2")
        assert set(str(row["nodes"]).split(",")) == {node.address for node in cluster.nodes}, row["nodes"]
        tokens = {(node.home / ".ray" / "auth_token").read_text() for node in cluster.nodes}
        assert len(tokens) == 1
        cluster.ray("down", "-y", FILE)
        cluster.wait_for_silence()
