"""Every environment variable that a KVStore role reads, in one place. Pure: no mxnet, no ray.

ps-lite reads its settings from the environment each time a store is created, so a warm process can take part in one
generation after another: `role_env` says what must be set, `obsolete` what an earlier generation left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ROLE = "DMLC_ROLE"  # scheduler, server or worker
ROOT_HOST = "DMLC_PS_ROOT_URI"  # where the KVStore scheduler listens
ROOT_PORT = "DMLC_PS_ROOT_PORT"
NUM_WORKERS = "DMLC_NUM_WORKER"
NUM_SERVERS = "DMLC_NUM_SERVER"
NODE_HOST = "DMLC_NODE_HOST"  # the address that this role binds to and is reached at
INTERFACE = "DMLC_INTERFACE"  # or the network interface to take that address from
UNIX_SOCKETS = "DMLC_LOCAL"  # 1: ipc:///tmp/PORT instead of tcp://HOST:PORT
OWN_PORT = "PORT"  # the port of a server or worker; ps-lite picks one when it is not set
RANK = "DMLC_RANK"  # written by ps-lite itself
BIGARRAY_BOUND = "MXNET_KVSTORE_BIGARRAY_BOUND"
BIGARRAY_BOUND_DEFAULT = 1_000_000  # elements, as in kvstore_dist.h

# One generation's settings: what is not set for this generation must not remain from an earlier one.
_PER_GENERATION = (
    ROLE,
    ROOT_HOST,
    ROOT_PORT,
    NUM_WORKERS,
    NUM_SERVERS,
    NODE_HOST,
    INTERFACE,
    UNIX_SOCKETS,
    OWN_PORT,
    RANK,
)


@dataclass(frozen=True)
class Topology:
    """One generation of a KVStore: who takes part and where the KVStore scheduler listens."""

    num_workers: int
    num_servers: int
    root_host: str
    root_port: int
    unix_sockets: bool = False


def role_env(
    role: str,
    topology: Topology,
    host: str,
    *,
    own_port: int | None = None,
    interface: str | None = None,
    settings: Mapping[str, str] | None = None,
    bound: int = BIGARRAY_BOUND_DEFAULT,
) -> dict[str, str]:
    """The environment of one role ("scheduler", "server" or "worker") in a generation.

    ``host`` is the address of the role's own node. ``own_port`` is needed with Unix sockets, where ps-lite's own pick
    is not reserved and two roles could take the same one. ``settings`` are the user's, and win where they do not
    concern the topology. ``bound`` is always set, so that a value from the shell cannot cut arrays where nobody knows.
    """
    env = dict(settings or {})
    interface = interface or env.pop(INTERFACE, None)
    env |= {
        ROLE: role,
        ROOT_HOST: topology.root_host,
        ROOT_PORT: str(topology.root_port),
        NUM_WORKERS: str(topology.num_workers),
        NUM_SERVERS: str(topology.num_servers),
        BIGARRAY_BOUND: str(bound),
    }
    if interface and not topology.unix_sockets:
        env[INTERFACE] = interface
    else:
        env[NODE_HOST] = host
    if topology.unix_sockets:
        env[UNIX_SOCKETS] = "1"
        if own_port is not None:
            env[OWN_PORT] = str(own_port)
    return env


def obsolete(present: Iterable[str], wanted: Mapping[str, str]) -> list[str]:
    """Names to remove from a process's environment before a new generation: those only the last one needed."""
    return [name for name in present if name in _PER_GENERATION and name not in wanted]


def settings_for(role: str, env: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The user's ``kvstore.env`` for one role: ``all`` first, then the role's own."""
    return {**env.get("all", {}), **env.get(role, {})}


def bigarray_bound(env: Mapping[str, Mapping[str, str]]) -> int:
    """Elements from which an array is cut over all servers: the workers cut, so the workers' setting counts."""
    return int(settings_for("worker", env).get(BIGARRAY_BOUND, BIGARRAY_BOUND_DEFAULT))


def socket_path(port: int) -> str:
    """The file of a Unix socket, as ps-lite's zmq_van.h names it."""
    return f"/tmp/{port}"
