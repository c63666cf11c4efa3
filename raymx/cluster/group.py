"""One trial's role group: form a generation, dissolve it, or kill it.

A generation is one KVStore scheduler, S servers and N workers that ps-lite ties together; they are formed together and
end together. The processes live longer: dissolving in good order leaves them warm for the next generation.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raymx import rules
from raymx.cluster.generation import Generation, value_of
from raymx.cluster.placement import Plan
from raymx.cluster.roles import KVScheduler, Process, Server, Task, Worker
from raymx.config import Experiment
from raymx.errors import KVStoreError
from raymx.kvstore import env

FORM_TIMEOUT_S = 120.0          # Python and mxnet imports of all roles, on a slow and busy node
LEAVE_TIMEOUT_S = 2.0           # a store that is not gone by then is still referred to: start cold instead
LOOK_S = 0.25
BIND_TRIES = 3


class Interrupted(KVStoreError):
    """Forming was given up because somebody asked for it."""


class RoleGroup:
    """The processes of one trial's roles, in its placement group."""

    def __init__(self, placement_group: PlacementGroup, plan: Plan) -> None:
        self.plan = plan
        self._placement_group = placement_group
        self._scheduler: Any = None
        self._servers: list[Any] = []
        self._workers: list[Any] = []
        self._bundle_of: dict[Any, int] = {}
        self._process_key: Any = None
        self._number = 0
        self._ports: list[int] = []         # of this generation's Unix sockets
        self.generation: Generation | None = None

    # Forming

    def form(self, experiment: Experiment, gpus_per_worker: int, saved: Any = None,
             interrupted: Callable[[], bool] = lambda: False) -> Generation:
        """Form the next generation and start its loops; processes that fit are used again, the others started.

        Raises KVStoreError when a role does not join in time, Interrupted when ``interrupted`` says so, or a role's own
        error. Then nothing of the group is left running.
        """
        self._interrupted = interrupted
        try:
            self.start(experiment, gpus_per_worker)
            self._number += 1
            self.generation = self._join(experiment, gpus_per_worker)
            self._run_loops(experiment, gpus_per_worker, saved)
        except BaseException:
            self.kill()
            raise
        return self.generation

    def start(self, experiment: Experiment, gpus_per_worker: int) -> None:
        """Start the processes that are missing, and do not wait for them: they import mxnet meanwhile."""
        key = (experiment.kvstore.env, experiment.resources.cpus_per_worker, experiment.kvstore.cpus_per_server,
               experiment.directory, gpus_per_worker)
        if self._process_key not in (None, key):
            self.kill()                     # what was read at import cannot be changed in a process
        self._process_key = key
        plan, distributed = self.plan, bool(self.plan.server_bundles)
        threads = {"worker": experiment.resources.cpus_per_worker, "server": int(experiment.kvstore.cpus_per_server)}
        self._workers = self._fill(self._workers, Worker, "worker", plan.worker_bundles, threads, experiment,
                                   num_gpus=gpus_per_worker)
        self._servers = self._fill(self._servers, Server, "server", plan.server_bundles, threads, experiment)
        if distributed and self._scheduler is None:
            actor: Any = KVScheduler
            self._scheduler = actor.options(num_cpus=0, scheduling_strategy=self._at(plan.controller_bundle)).remote()

    def _fill(self, present: list[Any], actor_class: Any, role: str, bundles: Sequence[int], threads: Mapping[str, int],
              experiment: Experiment, **resources: float) -> list[Any]:
        """One actor a bundle: those present where they lie in it, new ones for the rest, the surplus killed."""
        kept = [actor if actor and self._bundle_of[actor] == bundle else None
                for actor, bundle in zip_longest(present[:len(bundles)], bundles)]
        for surplus in set(present) - set(kept):
            ray.kill(surplus)
        cpus = experiment.resources.cpus_per_worker if role == "worker" else experiment.kvstore.cpus_per_server
        process = Process(threads=max(1, threads[role]), cpus_on_node=self._cpus(), directory=experiment.directory,
                          env=env.settings_for(role, experiment.kvstore.env.model_dump()))
        options = {"num_cpus": cpus, **resources}
        actors = [old or actor_class.options(scheduling_strategy=self._at(bundle), **options).remote(process)
                  for old, bundle in zip(kept, bundles, strict=True)]
        self._bundle_of |= dict(zip(actors, bundles, strict=True))
        return actors

    def _cpus(self) -> float:
        return sum(bundle.get("CPU", 0) for bundle in self.plan.bundles)

    def _at(self, bundle: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(self._placement_group, bundle)

    def _join(self, experiment: Experiment, gpus: int) -> Generation:
        store_type = rules.resolved_store_type(experiment)
        generation = Generation(self._number, workers=list(self._workers), servers=list(self._servers))
        if not self._servers:
            joins = [worker.join.remote({}, store_type, gpus) for worker in self._workers]
            self._ranks(joins, generation)
            return generation
        for attempt in range(BIND_TRIES):
            try:
                self._join_distributed(experiment, store_type, gpus, generation)
                break
            except KVStoreError as error:
                if "bind failed" not in str(error) or attempt == BIND_TRIES - 1:
                    raise
                self.kill()
                self.start(experiment, gpus)
                generation.workers, generation.servers = list(self._workers), list(self._servers)
        return generation

    def _join_distributed(self, experiment: Experiment, store_type: str, gpus: int, generation: Generation) -> None:
        hosts, given = self._hosts(), experiment.kvstore.env.model_dump()
        local = self._unix_sockets(experiment, hosts)
        ports = iter(random.SystemRandom().sample(range(10**8, 2**31), len(self._workers) + len(self._servers) + 1))
        root = hosts[self.plan.controller_bundle]
        root_port = next(ports) if local else generation.ask([self._scheduler.free_port.remote(root)],
                                                             "the KVStore scheduler")[0]
        topology = env.Topology(len(self._workers), len(self._servers), root, root_port, local)
        self._ports = [root_port] if local else []

        def environment(role: str, bundle: int) -> dict[str, str]:
            port = next(ports) if local and role != "scheduler" else None
            self._ports += [port] if port else []
            return env.role_env(role, topology, hosts[bundle], own_port=port, interface=experiment.kvstore.interface,
                                settings=env.settings_for(role, given), bound=env.bigarray_bound(given))

        own = environment("scheduler", self.plan.controller_bundle)
        generation.serving = {self._scheduler.serve.remote(own): "the KVStore scheduler"}
        bound = self._scheduler.wait_bound.remote(root, root_port, local, FORM_TIMEOUT_S)
        ray.wait([bound, *generation.serving], timeout=FORM_TIMEOUT_S)     # when it failed, _ranks says why
        for i, (server, bundle) in enumerate(zip(self._servers, self.plan.server_bundles, strict=True)):
            generation.serving[server.serve.remote(environment("server", bundle), store_type)] = f"server {i}"
        joins = [worker.join.remote(environment("worker", bundle), store_type, gpus)
                 for worker, bundle in zip(self._workers, self.plan.worker_bundles, strict=True)]
        self._ranks(joins, generation)
        server_ranks = generation.ask([server.rank.remote() for server in self._servers], "servers (rank)")
        generation.servers = [server for _, server in sorted(zip(server_ranks, self._servers, strict=True),
                                                             key=lambda pair: pair[0])]
        self._remove_sockets()
        generation.failures = {server.wait_failure.remote(): f"server {i}" for i, server in enumerate(self._servers)}

    def _ranks(self, joins: list[Any], generation: Generation) -> None:
        """Wait until all workers have joined and put them in the order of their ranks."""
        names = {ref: f"worker process {i}" for i, ref in enumerate(joins)} | generation.serving
        waiting, deadline = list(joins), time.monotonic() + FORM_TIMEOUT_S
        while waiting:
            ready, _ = ray.wait([*waiting, *generation.serving], timeout=LOOK_S)
            if self._interrupted():
                raise Interrupted("stopped while the KVStore generation was formed")
            if not ready and time.monotonic() < deadline:
                continue
            if not ready:
                raise KVStoreError(f"no KVStore generation within {FORM_TIMEOUT_S:g} s: still waiting for "
                                   f"{', '.join(names[ref] for ref in waiting)}; is a firewall between the nodes, or "
                                   "does kvstore.interface name the wrong one?")
            value_of(ready[0], names[ready[0]])
            if ready[0] in generation.serving:
                raise KVStoreError(f"{names[ready[0]]} ended while the generation was formed")
            waiting.remove(ready[0])
        ranks = ray.get(joins) if generation.serving else range(len(joins))
        by_rank = dict(zip(ranks, self._workers, strict=True))
        generation.workers = [by_rank[rank] for rank in sorted(by_rank)]

    def _run_loops(self, experiment: Experiment, gpus: int, saved: Any) -> None:
        assert self.generation is not None
        devices = gpus or experiment.resources.cpu_devices_per_worker
        common = ray.put(saved)
        raw, total = experiment.to_dict(), len(self._workers)
        for rank, worker in enumerate(self.generation.workers):
            task = Task(raw, rank, total, self._number, bool(self._servers), devices, gpus > 0,
                        self._placement_group, self._bundle_of[worker])
            self.generation.loops[rank] = worker.run_loop.remote(task, common)
            self.generation.listening[rank] = worker.next_event.remote()

    def _hosts(self) -> list[str]:
        """The address of each bundle's node."""
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        table = placement_group_table(self._placement_group)["bundles_to_node_id"]
        return [addresses[table[i]] for i in range(len(self.plan.bundles))]

    @staticmethod
    def _unix_sockets(experiment: Experiment, hosts: Sequence[str]) -> bool:
        wanted, one_node = experiment.kvstore.unix_sockets, len(set(hosts)) == 1
        if wanted is True and not one_node:
            raise KVStoreError(f"kvstore.unix_sockets is true, but the roles are on {len(set(hosts))} nodes "
                               f"({', '.join(sorted(set(hosts)))}); set it to auto or false")
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
            self.kill()
        return all(left)

    def finish(self, timeout_s: float) -> None:
        """Let loops that wait in their last report do what they do after it. What they raise is not the run's now."""
        generation = self.generation
        if generation is None:
            return
        generation.answer({rank: None for rank, event in generation.waiting().items() if event.kind == "report"})
        _quietly(lambda: ray.get(list(generation.listening.values()), timeout=timeout_s))

    @staticmethod
    def _all_done(refs: list[Any]) -> list[Any]:
        return ray.get(refs, timeout=LEAVE_TIMEOUT_S)

    def kill(self) -> None:
        """End every process of the group at once: after an ungraceful end ps-lite would wait for the dead."""
        for actor in [*self._workers, *self._servers]:
            ray.kill(actor)
        if self._scheduler is not None:
            self._remove_sockets()
            ray.kill(self._scheduler)
        self._workers, self._servers, self._scheduler, self.generation = [], [], None, None
        self._bundle_of, self._process_key = {}, None

    def _remove_sockets(self) -> None:
        """Remove the files of this generation's Unix sockets: once all are connected, nobody opens them again."""
        ports, self._ports = self._ports, []
        if ports:
            _quietly(lambda: ray.get(self._scheduler.remove_sockets.remote(ports), timeout=LEAVE_TIMEOUT_S))


def _quietly(action: Callable[[], Any]) -> None:
    with contextlib.suppress(RayError):
        action()
