"""One trial's role group: form a generation, dissolve it, or kill it.

A generation is one KVStore scheduler, S servers and N workers that ps-lite ties together; they are formed together and
end together. The processes live longer: dissolving in good order leaves them warm for the next generation.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from raymx.cluster.generation import Generation, value_of
from raymx.cluster.nodes import Nodes, bundle_nodes
from raymx.cluster.processes import Assignment, Assignments, Processes, quietly
from raymx.cluster.roles import Task
from raymx.errors import KVStoreError, RoleLost
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.kvstore import env

FORM_TIMEOUT_S = 120.0  # Python and mxnet imports of all roles, on a slow and busy node
LEAVE_TIMEOUT_S = 2.0  # a store that is not gone by then is still referred to: start cold instead
LOOK_S = 0.25
BIND_TRIES = 3


class Interrupted(KVStoreError):
    """Forming was given up because somebody asked for it."""


class RoleGroup:
    """The role processes of one trial, and the generation that they make."""

    def __init__(self) -> None:
        self.processes = Processes()
        self.generation: Generation | None = None
        self._assignments = Assignments(())
        self._number = 0
        self.hosts: dict[str, str] = {}  # addresses by role, of the newest generation, also one that was never formed
        self._ports: list[int] = []  # of this generation's Unix sockets

    # Forming

    def form(
        self,
        experiment: ExperimentConfig,
        gpus_per_worker: float,
        assignments: Assignments,
        saved: Any = None,
        hold_from: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Generation:
        """Form the next generation and start its loops; processes that are there are used again, the others started.

        ``experiment`` is that of exactly these assignments. ``check`` is called now and then, and gives up by raising.
        Raises RoleLost when a process dies, KVStoreError when a role does not join in time, or a role's own error.
        Then none of the group's processes is left running, but standbys.
        """
        self._check, self._assignments, self.hosts = check, assignments, {}
        try:
            self.processes.keep(assignments.all)
            self.processes.start(assignments.all)
            self._number += 1
            self.generation = self._join(experiment, gpus_per_worker)
            self._run_loops(experiment, gpus_per_worker, saved, hold_from)
        except BaseException:
            self.kill_serving()
            raise
        return self.generation

    def _actors(self, assignments: Sequence[Assignment]) -> list[Any]:
        return [self.processes.actor(assignment) for assignment in assignments]

    def _join(self, experiment: ExperimentConfig, gpus: float) -> Generation:
        store_type = rules.resolved_store_type(experiment)
        for attempt in range(BIND_TRIES):
            generation = Generation(
                self._number, self._actors(self._assignments.workers), self._actors(self._assignments.servers)
            )
            try:
                if self._assignments.scheduler:
                    self._join_distributed(experiment, store_type, gpus, generation)
                else:
                    joins = [worker.join.remote({}, store_type, gpus) for worker in generation.workers]
                    self._ranks(joins, generation)
                break
            except KVStoreError as error:
                if "bind failed" not in str(error) or attempt == BIND_TRIES - 1:
                    raise
                self.processes.kill_serving()
                self.processes.start(self._assignments.all)
        return generation

    def _join_distributed(
        self, experiment: ExperimentConfig, store_type: str, gpus: float, generation: Generation
    ) -> None:
        assert self._assignments.scheduler
        scheduler, assignments = self.processes.actor(self._assignments.scheduler), self._assignments
        hosts, given = self._hosts(), experiment.kvstore.env.model_dump()
        local = self._unix_sockets(experiment, list(hosts.values()))
        ports = iter(random.SystemRandom().sample(range(10**8, 2**31), len(assignments.all)))
        self.hosts = {f"worker process {i}": hosts[assignment] for i, assignment in enumerate(assignments.workers)}
        root = hosts[self._assignments.scheduler]
        root_port = (
            next(ports) if local else generation.ask([scheduler.free_port.remote(root)], "the KVStore scheduler")[0]
        )
        topology = env.Topology(len(assignments.workers), len(assignments.servers), root, root_port, local)
        self._ports = [root_port] if local else []

        def environment(assignment: Assignment) -> dict[str, str]:
            port = next(ports) if local and assignment.role != "scheduler" else None
            self._ports += [port] if port else []
            return env.role_env(
                assignment.role,
                topology,
                hosts[assignment],
                own_port=port,
                interface=experiment.kvstore.interface,
                settings=env.settings_for(assignment.role, given),
                bound=env.bigarray_bound(given),
            )

        generation.serving = {scheduler.serve.remote(environment(self._assignments.scheduler)): "the KVStore scheduler"}
        bound = scheduler.wait_bound.remote(root, root_port, local, FORM_TIMEOUT_S)
        ray.wait([bound, *generation.serving], timeout=FORM_TIMEOUT_S)  # when it failed, _ranks says why
        for i, (assignment, server) in enumerate(zip(assignments.servers, generation.servers, strict=True)):
            generation.serving[server.serve.remote(environment(assignment), store_type)] = f"server {i}"
        joins = [
            worker.join.remote(environment(assignment), store_type, gpus)
            for assignment, worker in zip(assignments.workers, generation.workers, strict=True)
        ]
        self._ranks(joins, generation)
        self.hosts |= {f"worker {rank}": hosts[assignment] for rank, assignment in generation.assignments.items()}
        generation.failures = {
            server.wait_failure.remote(): f"server {i}" for i, server in enumerate(generation.servers)
        }
        server_ranks = generation.ask([server.rank.remote() for server in generation.servers], "servers (rank)")
        by_rank = sorted(zip(server_ranks, generation.servers, strict=True), key=lambda pair: pair[0])
        generation.servers = [server for _, server in by_rank]
        self._remove_sockets()

    def _ranks(self, joins: list[Any], generation: Generation) -> None:
        """Wait until all workers have joined and put them in the order of their ranks."""
        names = {ref: f"worker process {i}" for i, ref in enumerate(joins)} | generation.serving
        waiting, deadline = list(joins), time.monotonic() + FORM_TIMEOUT_S
        while waiting:
            ready, _ = ray.wait([*waiting, *generation.serving], timeout=LOOK_S)
            self._check()
            if not ready and time.monotonic() < deadline:
                continue
            if not ready:
                raise KVStoreError(
                    f"no KVStore generation within {FORM_TIMEOUT_S:g} s: still waiting for "
                    f"{', '.join(names[ref] for ref in waiting)}; is a firewall between the nodes, or "
                    "does kvstore.interface name the wrong one?"
                )
            value_of(ready[0], names[ready[0]])
            if ready[0] in generation.serving:
                raise RoleLost(f"{names[ready[0]]} ended while the generation was formed")
            waiting.remove(ready[0])
        ranks = ray.get(joins) if generation.serving else range(len(joins))
        generation.assignments = dict(zip(ranks, self._assignments.workers, strict=True))
        generation.workers = [
            self.processes.actor(generation.assignments[rank]) for rank in sorted(generation.assignments)
        ]

    def _run_loops(self, experiment: ExperimentConfig, gpus: float, saved: Any, hold_from: int | None) -> None:
        assert self.generation is not None
        devices = math.ceil(gpus) or experiment.resources.cpu_devices_per_worker
        common = ray.put(saved)
        raw, total = experiment.to_dict(), len(self.generation.workers)
        for rank, worker in enumerate(self.generation.workers):
            assignment = self.generation.assignments[rank]
            task = Task(
                raw,
                rank,
                total,
                self._number,
                bool(self.generation.servers),
                devices,
                gpus > 0,
                assignment.placement_group,
                assignment.bundle,
                hold_from,
            )
            self.generation.loops[rank] = worker.run_loop.remote(task, common)
            self.generation.listening[rank] = worker.next_event.remote()

    def _hosts(self) -> dict[Assignment, str]:
        """The address of each assignment's node."""
        addresses = Nodes.now().addresses
        nodes = {
            group: bundle_nodes(group) for group in {assignment.placement_group for assignment in self._assignments.all}
        }
        try:
            return {
                assignment: addresses[nodes[assignment.placement_group][assignment.bundle]]
                for assignment in self._assignments.all
            }
        except KeyError:
            raise RoleLost("a node died while the generation was formed: its node cannot be reached") from None

    @staticmethod
    def _unix_sockets(experiment: ExperimentConfig, hosts: Sequence[str]) -> bool:
        wanted, one_node = experiment.kvstore.unix_sockets, len(set(hosts)) == 1
        if wanted is True and not one_node:
            raise KVStoreError(
                f"kvstore.unix_sockets is true, but the roles are on {len(set(hosts))} nodes "
                f"({', '.join(sorted(set(hosts)))}); set it to auto or false"
            )
        return one_node if wanted == "auto" else bool(wanted)

    # Ending

    def dissolve(self) -> bool:
        """End the generation and keep its processes warm. False when that did not go well: then they are killed."""
        generation, self.generation = self.generation, None
        if generation is None:
            return True
        ends = [generation.workers[rank].command.remote("end") for rank in generation.waiting()]
        try:
            self._all_done([*ends, *generation.loops.values()])
            left = self._all_done([worker.leave.remote() for worker in generation.workers])
            self._all_done(list(generation.serving))
        except (RayError, KVStoreError):
            left = [False]
        if not all(left):
            self.kill_serving()
        return all(left)

    def finish(self, timeout_s: float) -> None:
        """Let loops that wait in their last report do what they do after it. What they raise is not the run's now."""
        generation = self.generation
        if generation is None:
            return
        generation.answer({rank: None for rank, event in generation.waiting().items() if event.kind == "report"})
        quietly(lambda: ray.get(list(generation.listening.values()), timeout=timeout_s))

    @staticmethod
    def _all_done(refs: list[Any]) -> list[Any]:
        return ray.get(refs, timeout=LEAVE_TIMEOUT_S)

    def kill_serving(self) -> None:
        """End every process that takes part, at once: after an ungraceful end ps-lite would wait for the dead."""
        self._remove_sockets()
        self.processes.kill_serving()
        self.generation = None

    def kill(self) -> None:
        """The same, and the standbys."""
        self.kill_serving()
        self.processes.kill()

    def _remove_sockets(self) -> None:
        """Remove the files of this generation's Unix sockets: once all are connected, nobody opens them again.

        All roles are on this node then, and so is the trial, which sits beside the KVStore scheduler.
        """
        for port in self._ports:
            with contextlib.suppress(OSError):
                os.unlink(env.socket_path(port))
        self._ports = []
