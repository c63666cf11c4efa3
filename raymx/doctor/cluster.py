"""A look at every node of a running cluster: one process on each, which takes no CPU of Ray's, and is ended after."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
import ray.cloudpickle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import raymx.doctor
from raymx.doctor.cluster_checks import Clock, ClusterFacts, token_fix, token_here
from raymx.doctor.facts import NodeFacts, has_token
from raymx.doctor.findings import Finding
from raymx.doctor.probe import Probe
from raymx.driver.connection import probe, quieten, set_environment

START_TIMEOUT_S = 90.0  # of a node: start a process, and import mxnet there
STEP_TIMEOUT_S = 30.0  # of a node: each step after that
_CLOCK_READINGS = 5
_MOST_CHARACTERS = 400  # of an error of Ray's


def look(
    address: str,
    storage: str | None,
    here: NodeFacts,
    child: str,
    *,
    start_timeout_s: float = START_TIMEOUT_S,
    step_timeout_s: float = STEP_TIMEOUT_S,
) -> ClusterFacts | Finding:
    """What each node is like; or why the cluster cannot be connected to. It leaves nothing running.

    ``here``: this machine's facts. ``child``: the source of child.py.
    """
    refused = _connect(address)
    if refused:
        return refused
    # By value, so that it runs on nodes that have no raymx, or another one.
    ray.cloudpickle.register_pickle_by_value(raymx.doctor)
    try:
        return _Look(storage, step_timeout_s).at_all(here, child, start_timeout_s)
    finally:
        ray.cloudpickle.unregister_pickle_by_value(raymx.doctor)
        ray.shutdown()


def _connect(address: str) -> Finding | None:
    """Connect, with nothing shipped; or what was wrong, and what to do about it."""
    set_environment()
    quieten()
    said = ""
    try:
        probe(address)
        with _stderr() as heard:
            try:
                ray.init(address, logging_level="ERROR", log_to_driver=False, configure_logging=False)
            finally:
                said = heard()
    except (OSError, RuntimeError, ValueError, RayError) as error:
        return _refused(address, " ".join(str(error).split())[:_MOST_CHARACTERS] or type(error).__name__, said)
    return None


def _refused(address: str, reason: str, said: str) -> Finding:
    if "InvalidAuthToken" in said + reason or "no authentication token" in reason:
        mode = os.environ.get("RAY_AUTH_MODE", "")
        return Finding(
            "problem",
            "token",
            f"the cluster at {address} asks for one and got none that it takes: " + token_here(has_token(), mode),
            token_fix(has_token(), mode),
        )
    if "Version mismatch" in reason:
        return Finding(
            "problem",
            "cluster",
            f"{address} has other versions: {reason}",
            "use the same versions of Python and Ray here and on every node",
        )
    return Finding(
        "problem",
        "cluster",
        f"{address} (--address or RAY_ADDRESS) cannot be connected to: {reason}",
        "is it running (ray status on its head), is this machine one of its nodes, and does a firewall let "
        "its ports through?",
    )


@contextlib.contextmanager
def _stderr() -> Iterator[Any]:
    """Keep what is written to the process's stderr off the screen, by Ray's C++ too; gives a function that reads it."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def heard() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield heard
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@dataclass
class _Look:
    """The nodes that still answer, and what has been learned of them."""

    storage: str | None
    step_timeout_s: float
    actors: dict[str, Any] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)

    def at_all(self, here: NodeFacts, child: str, start_timeout_s: float) -> ClusterFacts:
        nodes = _named([node for node in ray.nodes() if node["Alive"]])
        actor = ray.remote(num_cpus=0, max_restarts=0)(Probe)
        self.actors = {
            name: actor.options(scheduling_strategy=_on(node)).remote(name, self.storage)
            for name, node in nodes.items()
        }
        started = dict(self.actors)
        try:
            facts = self._ask("facts", dict.fromkeys(nodes, (child,)), start_timeout_s)
            clocks = self._clocks()
            ports = self._ask("listen", {name: (node["NodeManagerAddress"],) for name, node in nodes.items()})
            links = self._links(nodes, ports)
            storage, sees = self._storage()
            return ClusterFacts(
                tuple(nodes),
                self.silent,
                {name: one for name, one in facts.items() if name not in self.silent},
                here if all(_differ(here, one) for one in facts.values()) else None,
                {name: node["Resources"] for name, node in nodes.items()},
                clocks,
                {name: why for name, (port, why) in ports.items() if not port},
                {name: interface for name, (port, interface) in ports.items() if port},
                links,
                self.storage,
                storage,
                sees,
                any(one["environment"].get("RAY_AUTH_MODE") == "token" for one in facts.values()),
            )
        finally:
            for one in started.values():
                with contextlib.suppress(RayError):
                    ray.kill(one)

    def _ask(
        self, method: str, arguments: Mapping[str, tuple[Any, ...]], timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Call a method on all nodes at once; those that give no answer in time are asked no more."""
        timeout_s = timeout_s or self.step_timeout_s
        refs = {name: getattr(actor, method).remote(*arguments.get(name, ())) for name, actor in self.actors.items()}
        done = set(ray.wait(list(refs.values()), num_returns=len(refs), timeout=timeout_s)[0]) if refs else set()
        answers = {}
        for name, ref in refs.items():
            try:
                if ref not in done:
                    raise TimeoutError(f"nothing within {timeout_s:.0f} s")
                answers[name] = ray.get(ref)
            except (RayError, TimeoutError) as error:
                self.silent[name] = next(iter(str(error).strip().splitlines()), type(error).__name__)
                del self.actors[name]
        return answers

    def _clocks(self) -> dict[str, Clock]:
        """Each node's clock by its fastest answer: it was read at some time within the round trip."""
        found: dict[str, Clock] = {}
        for name in list(self.actors):
            for _ in range(_CLOCK_READINGS):
                clock = self._clock(name)
                if clock is None:
                    break
                if name not in found or clock.within_s < found[name].within_s:
                    found[name] = clock
        return found

    def _clock(self, name: str) -> Clock | None:
        asked = time.time()
        try:
            read = ray.get(self.actors[name].now.remote(), timeout=self.step_timeout_s)
        except RayError as error:
            self.silent[name] = next(iter(str(error).strip().splitlines()), type(error).__name__)
            del self.actors[name]
            return None
        answered = time.time()
        return Clock(read - (asked + answered) / 2, (answered - asked) / 2)

    def _links(self, nodes: Mapping[str, Any], ports: Mapping[str, tuple[int, str]]) -> dict[tuple[str, str], str]:
        listening = [(name, nodes[name]["NodeManagerAddress"], port) for name, (port, _) in ports.items() if port]
        answers = self._ask("connect", {name: ([one for one in listening if one[0] != name],) for name in nodes})
        return {(source, target): error for source, targets in answers.items() for target, error in targets.items()}

    def _storage(self) -> tuple[dict[str, Any], dict[str, frozenset[str]]]:
        """What each node could write, and whose files it sees; the files are removed."""
        if self.storage is None:
            return {}, {}
        files = {name: f".raymx-doctor-{uuid.uuid4().hex}" for name in self.actors}
        try:
            written = self._ask("write", {name: (file,) for name, file in files.items()})
            wanted = {files[name]: name for name, (error, _) in written.items() if not error}
            sees = self._ask("sees", {name: (list(wanted),) for name in files})
        finally:
            self._ask("remove_files", {})
            self._ask("remove_folders", {})
        return written, {
            name: frozenset(wanted[file] for file in seen) for name, seen in sees.items() if not written[name][0]
        }


def _named(nodes: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Nodes by address, with a part of their id where several have the same."""
    addresses = [node["NodeManagerAddress"] for node in nodes]
    return {
        address if addresses.count(address) == 1 else f"{address} ({node['NodeID'][:6]})": node
        for address, node in zip(addresses, nodes, strict=True)
    }


def _on(node: Mapping[str, Any]) -> Any:
    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


def _differ(one: NodeFacts, other: NodeFacts) -> bool:
    """Whether they are of two Pythons."""
    return (one["host"], one["executable"]) != (other["host"], other["executable"])
