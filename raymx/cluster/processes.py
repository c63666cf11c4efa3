"""The processes of one trial's roles, and a standby for each: started in their assignments, promoted, ended.

An assignment is one role in one bundle. Its process asks for the CPUs and GPUs of the role; a standby beside it asks
for none, imports mxnet, and waits. When the first one dies the standby takes its part at once, and the next standby is
the one that asks for what the bundle has free again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raymx import _ray
from raymx.cluster.placement import Plan
from raymx.cluster.roles import KVScheduler, Process, Server, Worker
from raymx.experiment.loading import ExperimentConfig
from raymx.kvstore import env

_ACTORS: dict[str, Any] = {"worker": Worker, "server": Server, "scheduler": KVScheduler}


@dataclass(frozen=True)
class Assignment:
    """A role: "worker", "server" or "scheduler", number ``index`` of its kind in this group, in a bundle."""

    role: str
    index: int
    placement_group: PlacementGroup
    bundle: int


@dataclass(frozen=True)
class Assignments:
    """The assignments of one generation; ``scheduler`` is the KVStore scheduler's, None for a store without servers."""

    workers: tuple[Assignment, ...]
    servers: tuple[Assignment, ...] = ()
    scheduler: Assignment | None = None

    @property
    def all(self) -> tuple[Assignment, ...]:
        return (*((self.scheduler,) if self.scheduler else ()), *self.servers, *self.workers)


def assignments(group: PlacementGroup, plan: Plan, slots: Iterable[PlacementGroup] = ()) -> Assignments:
    """The assignments of a plan in its placement group, and a worker's in each of the ``slots``."""
    own = [Assignment("worker", i, group, bundle) for i, bundle in enumerate(plan.worker_bundles)]
    more = [slot_assignment(slot) for slot in slots]
    servers = tuple(Assignment("server", i, group, bundle) for i, bundle in enumerate(plan.server_bundles))
    return Assignments(
        (*own, *more), servers, Assignment("scheduler", 0, group, plan.controller_bundle) if servers else None
    )


def slot_assignment(slot: PlacementGroup) -> Assignment:
    """The one assignment of a slot: a worker's."""
    return Assignment("worker", 0, slot, 0)


@dataclass
class _Started:
    """A process. ``reserves``: it holds its assignment's CPUs and GPUs in Ray's books."""

    actor: Any
    reserves: bool
    ready: Any  # ref: resolved once it has imported what it needs, or has ended

    @property
    def is_ready(self) -> bool:
        return bool(ray.wait([self.ready], timeout=0, fetch_local=False)[0])


@dataclass(frozen=True)
class _Demand:
    """What processes are started with, and cannot change later."""

    experiment_env: Any
    cpus: Mapping[str, float]
    gpus: float
    directory: str
    code: str  # the driver's copy of the modules in it
    amp: str  # it cannot be undone, nor be started for another type
    threads: Mapping[str, int] = field(default_factory=dict)


class Processes:
    """Keeps the processes of the assignments that it is told of."""

    def __init__(self) -> None:
        self._demand: _Demand | None = None
        self._cpus_on_node = 0.0
        self._serving: dict[Assignment, _Started] = {}
        self._standby: dict[Assignment, _Started] = {}
        self._bindings: dict[Assignment, Any] = {}  # refs: cores and GPUs of an assignment's process, for its standby

    def configure(self, experiment: ExperimentConfig, gpus: float, plan: Plan, code: str = "") -> None:
        """Say what processes are like from now on; those that were started otherwise are ended."""
        resources, kvstore = experiment.resources, experiment.kvstore
        cpus = {"worker": float(resources.cpus_per_worker), "server": float(kvstore.cpus_per_server), "scheduler": 0.0}
        demand = _Demand(
            kvstore.env,
            cpus,
            gpus,
            experiment.directory,
            code,
            experiment.precision.amp,
            {role: max(1, int(count)) for role, count in cpus.items()},
        )
        if self._demand not in (None, demand):
            self.kill()  # what was read at import cannot be changed in a process
        self._demand = demand
        self._cpus_on_node = sum(bundle.get("CPU", 0) for bundle in plan.bundles)

    def actor(self, assignment: Assignment) -> Any:
        return self._serving[assignment].actor

    def start(self, wanted: Iterable[Assignment], *, ahead: bool = False) -> None:
        """Have a process in every wanted assignment, the standby where one is ready; do not wait for imports of mxnet.

        ``ahead``: nobody waits for them, and they may import more.
        """
        for assignment in wanted:
            if assignment not in self._serving:
                self._serving[assignment] = self._ready_standby(assignment) or self._start(
                    assignment, self._is_free(assignment), ahead=ahead
                )

    def _ready_standby(self, assignment: Assignment) -> _Started | None:
        """The standby, to take its assignment's part. One that still imports does so when nobody else wants the cores,
        which may be never: it is ended, for a process that does not wait.
        """
        if assignment in self._standby and not self._standby[assignment].is_ready:
            self._end(self._standby, assignment)
        return self._standby.pop(assignment, None)

    def keep(self, wanted: Iterable[Assignment]) -> None:
        """End the processes, and the standbys, of all assignments but these."""
        self.drop({*self._serving, *self._standby} - set(wanted))

    def drop(self, unwanted: Iterable[Assignment]) -> None:
        """End the processes, and the standbys, of these assignments."""
        for assignment in unwanted:
            self._end(self._serving, assignment)
            self._end(self._standby, assignment)

    def ready(self, assignment: Assignment) -> bool:
        """Whether the assignment's process has imported mxnet."""
        return assignment in self._serving and self._serving[assignment].is_ready and not self.has_failed(assignment)

    def has_failed(self, assignment: Assignment) -> bool:
        """Whether the assignment's process ended before it was ready."""
        process = self._serving.get(assignment)
        if process is None or not process.is_ready:
            return False
        try:
            ray.get(process.ready)
        except RayError:
            return True
        return False

    # Standbys

    def add_standby(self, wanted: Iterable[Assignment]) -> bool:
        """Start one standby that is missing, unless one is still importing; whether all of them are ready.

        One at a time, so that training goes on beside it.
        """
        for assignment in wanted:
            if assignment in self._standby and not self._standby[assignment].is_ready:
                return False
            if assignment not in self._standby and assignment in self._serving:
                binding = self._binding_of(assignment)
                if binding is not None:
                    self._standby[assignment] = self._start(
                        assignment, self._is_free(assignment), ahead=True, standby=True, **binding
                    )
                return False
        return True

    def _binding_of(self, assignment: Assignment) -> dict[str, Any] | None:
        """The cores and GPUs of the assignment's process, for a standby to have the same; None when not known yet."""
        if assignment.role == "scheduler":
            return {}  # it has neither
        ref = self._bindings.setdefault(assignment, self._serving[assignment].actor.binding.remote())
        if not ray.wait([ref], timeout=0)[0]:
            return None
        try:
            return dict(ray.get(self._bindings.pop(assignment)))
        except RayError:
            return None  # it died just now

    def _is_free(self, assignment: Assignment) -> bool:
        """Whether no process of the assignment holds its resources."""
        present = (self._serving.get(assignment), self._standby.get(assignment))
        return not any(process.reserves for process in present if process)

    def _start(self, assignment: Assignment, reserves: bool, **binding: Any) -> _Started:
        assert self._demand is not None
        demand, role = self._demand, assignment.role
        options: dict[str, Any] = {
            "scheduling_strategy": PlacementGroupSchedulingStrategy(assignment.placement_group, assignment.bundle),
            "num_cpus": demand.cpus[role] if reserves else 0,
            "num_gpus": demand.gpus if reserves and role == "worker" else 0,
        }
        process = Process(
            threads=demand.threads[role],
            cpus_on_node=self._cpus_on_node,
            directory=demand.directory,
            code=demand.code,
            amp=demand.amp if role == "worker" else "",
            env=env.settings_for(role, demand.experiment_env.model_dump()),
            **binding,
        )
        actor = _ACTORS[role].options(**options).remote(*(() if role == "scheduler" else (process,)))
        return _Started(actor, reserves, _ray.ready(actor))

    # Ending

    def kill_serving(self) -> None:
        """End the processes that take part, at once; the standbys stay."""
        for assignment in list(self._serving):
            self._end(self._serving, assignment)

    def kill(self) -> None:
        """End every process at once."""
        self.kill_serving()
        for assignment in list(self._standby):
            self._end(self._standby, assignment)
        self._demand = None

    def _end(self, processes: dict[Assignment, _Started], assignment: Assignment) -> None:
        if (process := processes.pop(assignment, None)) is not None:
            ray.kill(process.actor)
        if processes is self._serving:
            self._bindings.pop(assignment, None)


def quietly(action: Callable[[], Any]) -> None:
    """Do it, and let it fail when a role or its node is gone."""
    with contextlib.suppress(RayError):
        action()
