"""A Ray cluster whose nodes are hosts of `hosts.lan`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hosts import Host

RAY = Path(sys.executable).parent / "ray"
START_TIMEOUT_S = 120.0
# Ray sends its token to an address that was named only when told to.
TOKEN = {"RAY_AUTH_MODE": "token"}

HEAD_CPUS, OTHER_CPUS = 4, 2  # the trial, a worker with its data CPU and the server; the other worker with its own


@dataclass(frozen=True)
class ClusterOfHosts:
    """A head and another node, which have the folder ``shared``, and a client with nothing of theirs but a cable."""

    nodes: list[Host]
    client: Host
    shared: Path


def start(
    hosts: Sequence[Host], cpus: Sequence[float], env: Mapping[str, str] | None = None, dashboard: bool = False
) -> None:
    """Start Ray on all of them, the head on the first, with so many logical CPUs; ``env`` is for Ray's settings."""
    head, *others = hosts
    head.run([RAY, "get-auth-token", "--generate"], START_TIMEOUT_S)
    head.run(
        [
            RAY,
            "start",
            "--head",
            f"--node-ip-address={head.address}",
            f"--num-cpus={cpus[0]}",
            f"--dashboard-host={head.address}" if dashboard else "--include-dashboard=false",
        ],
        START_TIMEOUT_S,
        {**TOKEN, **(env or {})},
    )
    for host, number in zip(others, cpus[1:], strict=True):
        join(host, head, number, env)


def join(host: Host, head: Host, cpus: float, env: Mapping[str, str] | None = None) -> None:
    """Make a host one more node of the head's cluster; it gets the cluster's token."""
    token = Path(".ray") / "auth_token"
    (host.home / token).parent.mkdir(exist_ok=True)
    (host.home / token).write_text((head.home / token).read_text())
    host.run(
        [RAY, "start", f"--address={head.address}:6379", f"--node-ip-address={host.address}", f"--num-cpus={cpus}"],
        START_TIMEOUT_S,
        {**TOKEN, **(env or {})},
    )
