"""The environment variables of each role's command. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from raymx.errors import ExperimentError
from raymx.kvstore import env as names
from raymx.kvstore.env import Topology, role_env

RESERVED = (names.ROLE, names.ROOT_HOST, names.ROOT_PORT, names.NUM_WORKERS, names.NUM_SERVERS, names.NODE_HOST)
"""What every role is given, and nobody else may set."""

FIXED = "RAYMX_LAUNCH_FIXED"
"""JSON of what ps-lite must find when a store is made: `raymx.launch.hook` sets it again where a script changed it."""
GUARD, TOKEN = "RAYMX_LAUNCH_GUARD", "RAYMX_LAUNCH_TOKEN"
ROOT = "RAYMX_LAUNCH_ROOT"
"""The folder that the package raymx lies in, for a script whose interpreter does not know it."""


def pairs(texts: Sequence[str], flag: str, client: Mapping[str, str]) -> dict[str, str]:
    """NAME:VALUE or NAME=VALUE, as MXNet's launcher has it; NAME alone passes on the ``client``'s own.

    Raises ExperimentError for a name that the client has not.
    """
    found = {}
    for text in texts:
        name, value = _cut(text)
        if value is None:
            if name not in client:
                raise ExperimentError(
                    f"{flag} {text}: {name} is not set here; set it, or give its value: {flag} {name}:VALUE"
                )
            value = client[name]
        found[name] = value
    return found


def _cut(text: str) -> tuple[str, str | None]:
    at = min((text.index(mark) for mark in ":=" if mark in text), default=-1)
    return (text, None) if at < 0 else (text[:at], text[at + 1 :])


def reserved_problems(given: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that cannot be set, and for each name that is none."""
    told = [
        f"--env {name}: raymx.launch sets it for each role, by -n, -s, --port and the nodes: leave it out"
        for name in RESERVED
        if name in given
    ]
    return told + [f"--env {name!r}: a variable needs a name" for name in given if not name or "=" in name]


def own_settings(
    role: str, everyone: Mapping[str, str], worker: Mapping[str, str], server: Mapping[str, str]
) -> dict[str, str]:
    """The user's variables for a role; the KVStore scheduler has those of all."""
    return {**everyone, **(worker if role == "worker" else server if role == "server" else {})}


def of_role(role: str, topology: Topology, host: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What a role's command gets beside its node's own environment; ``host`` is the address of its node."""
    found = role_env(role, topology, host, settings=settings, bound=_bound(settings))
    fixed = {name: found[name] for name in (*RESERVED, names.INTERFACE) if name in found}
    if role == "worker":
        found[FIXED] = json.dumps(fixed)
    return {**found, "PYTHONUNBUFFERED": settings.get("PYTHONUNBUFFERED", "1")}


def _bound(settings: Mapping[str, str]) -> int:
    given = settings.get(names.BIGARRAY_BOUND, str(names.BIGARRAY_BOUND_DEFAULT))
    if not given.isdecimal():
        raise ExperimentError(f"{names.BIGARRAY_BOUND} is {given!r}: give a whole number of elements")
    return int(given)


def child(
    node: Mapping[str, str], client: Mapping[str, str] | None, threads: int, role: Mapping[str, str], hook: str
) -> dict[str, str]:
    """The whole environment of a role's command.

    ``node`` is that of the role's actor. ``client`` is that of who gave the command, where that was on this node: a
    script finds there what it finds when it is started by hand. Devices are those that Ray gave the actor, threads as
    many as CPUs unless somebody says otherwise, and ``hook`` is a folder to look for modules in first.
    """
    found = dict(node if client is None else client)
    for name in ("CUDA_VISIBLE_DEVICES", "RAYMX_STARTED_BY"):
        if name in node:
            found[name] = node[name]
    if client is None or "OMP_NUM_THREADS" not in client:
        found["OMP_NUM_THREADS"] = str(threads)
    for name in names.obsolete(list(found), role):  # such as PORT, which ps-lite would take for its own
        del found[name]
    found.update(role)
    if hook:
        before = found.get("PYTHONPATH")
        found["PYTHONPATH"] = f"{hook}:{before}" if before else hook
    return found
