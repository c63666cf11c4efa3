"""The role group of one trial, its standbys and its slots: observed, and changed as the scaling policy decides.

observed = roles.observe(saved=True)                    # asks, and changes nothing
decision = scaling_policy.decide(observed.status, limits)
roles.tend_slots(observed, decision)                    # asks for slots, gives some back, starts processes in them
roles.form(observed, decision, ...)                     # the next generation, when that was decided
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ray.util.placement_group import PlacementGroup

from raymx.cluster import standby_policy
from raymx.cluster.node_policy import NodeDeaths
from raymx.cluster.nodes import Condition, Nodes, bundle_nodes, condition
from raymx.cluster.placement import Plan
from raymx.cluster.processes import Assignment, Assignments, assignments, slot_assignment
from raymx.cluster.role_group import RoleGroup
from raymx.cluster.scaling_policy import Decision, Status
from raymx.cluster.slots import Slots
from raymx.cluster.standby_policy import Pace
from raymx.errors import RoleLost
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.sizing import sized

LOOK_S = 1.0  # between two looks at the cluster while training
ROOM_S = 0.5  # for slots to be placed before the first generation forms without them
OTHERS_S = 5.0  # so long another job's placement group waits before room is made for it
STANDBY_BYTES = 300e6  # of one standby
STANDBY_PART = 0.25  # of a node's memory, at most, for standbys that nobody asked for


@dataclass(frozen=True)
class Observation:
    """The cluster at one moment, as far as this trial goes."""

    status: Status
    slots: Mapping[PlacementGroup, Condition]


class RoleManager:
    """The processes that take part in a trial, those that could, and the room that they have."""

    def __init__(self, own: PlacementGroup) -> None:
        """``own`` is the trial's placement group: room for the fewest workers."""
        self.group = RoleGroup()
        self._own, self._slots, self._used = own, Slots("", {}, 0), list[PlacementGroup]()
        self._nodes, self._deaths = Nodes.now(), NodeDeaths()
        self._formed_at = self._observed_at = self._standbys_at = self._lost_since = 0.0
        self._pace: Pace | None = None  # of the generation that runs

    def configure(self, name: str, experiment: ExperimentConfig, gpus: float, plan: Plan, code: str = "") -> None:
        """Take over a trial of this name and its experiment; no generation runs. ``code``: see `Processes`."""
        self._experiment, self._gpus, self._plan = experiment, gpus, plan
        self._slots.release()
        self._slots, self._used = Slots(name, plan.slot_bundle, plan.max_slots), []
        self.group.processes.configure(experiment, gpus, plan, code)

    def start(self) -> None:
        """Start the processes that there will be in any case, and ask for room for more; wait for neither."""
        self._slots.request()
        self.group.processes.start(assignments(self._own, self._plan).all)

    # Questions

    @property
    def due(self) -> bool:
        """Whether it is time to observe again."""
        return time.monotonic() - self._observed_at >= LOOK_S

    def observe(self, *, saved: bool = False, recovers_from: str = "") -> Observation:
        """The cluster now; ``saved``: the loops wait at a position of which there is a checkpoint."""
        self._observed_at = time.monotonic()
        running = self.group.generation
        # A node is asked itself only while nothing runs on it: else its roles tell.
        probed = () if running else _nodes_of(assignments(self._own, self._plan, self._slots.groups))
        self._nodes = Nodes.now(probed)
        slots, own = self._slots.conditions(self._nodes), _own_condition(self._own, self._nodes)
        free = self._free(slots)
        if running:  # only those whose process is ready, so that nobody waits for it
            free = [slot for slot in free if self.group.processes.ready(slot_assignment(slot))]
        status = Status(
            workers=len(running.workers) if running else 0,
            own_bundles=own,
            lost_for_s=self._lost_for_s(own),
            spare_slots=len(free),
            leaving_slots=sum(slots[slot] != "ready" for slot in self._used) if running else 0,
            others_wait=self._slots.count > 0 and self._slots.others_wait_s(self._own, self._nodes) >= OTHERS_S,
            saved=saved,
            recovers_from=recovers_from,
            since_resize_s=time.monotonic() - self._formed_at,
        )
        return Observation(status, slots)

    def node_is_gone(self) -> bool:
        """Whether a node of the generation is gone, or about to go."""
        used = _nodes_of(self._taken)
        nodes = Nodes.now(used)
        return any(nodes.condition(node) != "ready" for node in used)

    def unreachable(self) -> list[str]:
        """Addresses of the nodes of the generation that cannot be reached now."""
        used = _nodes_of(self._taken)
        known, reached = Nodes.now().addresses, Nodes.now(used).addresses
        return sorted(known.get(node, node) for node in used if node not in reached)

    def addresses(self) -> list[str]:
        """Of the nodes that the generation is on."""
        return sorted({self._nodes.addresses.get(node, node) for node in _nodes_of(self._taken)})

    def _lost_for_s(self, own: str) -> float:
        now = time.monotonic()
        self._lost_since = (self._lost_since or now) if own == "lost" else 0.0
        return now - self._lost_since if own == "lost" else 0.0

    def _free(self, slots: Mapping[PlacementGroup, Condition]) -> list[PlacementGroup]:
        """Slots that could be taken: on nodes that were not left out."""
        ready = [slot for slot, found in slots.items() if found == "ready" and slot not in self._used]
        left_out = _left_out(self._deaths, self._own, self._nodes)
        return [slot for slot in ready if not left_out or _addresses(slot, self._nodes).isdisjoint(left_out)]

    @property
    def _taken(self) -> Assignments:
        """The assignments of the generation."""
        return assignments(self._own, self._plan, self._used)

    # Acts

    def note_death(self, error: RoleLost) -> list[str]:
        """Count a death against its node; what to tell the user when that is left out from now on."""
        nodes, now = error.nodes or tuple(filter(None, [self.group.hosts.get(error.role)])), time.monotonic()
        for node in nodes:
            self._deaths = self._deaths.after(node, now)
        left_out = _left_out(self._deaths, self._own, self._nodes)
        return [self._deaths.in_words(node, now) for node in nodes if node in left_out]

    def tend_slots(self, observed: Observation, decision: Decision) -> None:
        """Ask for slots that are missing, or give those back that no worker is in; start a process in each free one."""
        give_back = observed.status.others_wait or decision.release
        if self.group.generation and not give_back:
            self._drop_failed(observed.slots)
            self.group.processes.start([slot_assignment(slot) for slot in self._free(observed.slots)], ahead=True)
        unused = [
            slot
            for slot, found in observed.slots.items()
            if slot not in self._used and (give_back or found in ("draining", "lost"))
        ]
        self.group.processes.drop([slot_assignment(slot) for slot in unused])
        self._slots.release(unused)
        if not give_back:
            self._slots.request()

    def _drop_failed(self, slots: Mapping[PlacementGroup, Condition]) -> None:
        """Processes that were started ahead and did not come up cost no generation: their nodes are left out again."""
        processes = self.group.processes
        for slot in [slot for slot in self._free(slots) if processes.has_failed(slot_assignment(slot))]:
            processes.drop([slot_assignment(slot)])
            for node in _addresses(slot, self._nodes):
                self._deaths = self._deaths.after(node, time.monotonic())

    def wait_for_slots(self) -> None:
        """Give slots a moment to be placed, so that a run that has room for all does not begin with few."""
        deadline = time.monotonic() + ROOM_S
        while time.monotonic() < deadline and "pending" in self._slots.conditions(Nodes.now()).values():
            time.sleep(0.05)

    def form(self, workers: int, saved: Any, hold_from: int | None, check: Callable[[], None]) -> ExperimentConfig:
        """End the generation that runs, form one of so many workers, and give the experiment as that one runs it.

        Its loops wait at the boundary of their report number ``hold_from``. ``check`` is called until it is formed.
        """
        self.group.dissolve()
        slots = self._slots.conditions(self._nodes)
        free = sorted(self._free(slots), key=lambda slot: not self.group.processes.ready(slot_assignment(slot)))
        ready = [slot for slot in self._used if slots.get(slot) == "ready"] + free
        used = ready[: workers - self._experiment.resources.min_workers]
        left = [slot for slot in self._used if slot not in used]
        chosen = assignments(self._own, self._plan, used)
        experiment = sized(self._experiment, len(chosen.workers))
        self._used = used
        try:
            self.group.form(experiment, self._gpus, chosen, saved, hold_from, lambda: self._check(chosen, check))
        except BaseException:
            self._used = []
            raise
        self._slots.release(left)
        self._formed_at = time.monotonic()
        return experiment

    def _check(self, chosen: Assignments, check: Callable[[], None]) -> None:
        """Give up forming when somebody wants to stop, or a node is gone on which a role would wait for ever."""
        check()
        if self.due:
            self._observed_at = time.monotonic()
            used = _nodes_of(chosen)
            alive = Nodes.now(used).addresses
            if any(node not in alive for node in used):
                known = self._nodes.addresses
                gone = tuple(sorted({known[node] for node in used if node in known and node not in alive}))
                raise RoleLost("a node died while the KVStore generation was formed", nodes=gone)

    def add_standbys(self, *, of_sweep: bool) -> None:
        """Have a standby for every role, where that is wanted: a process at a time, and none in the way of a start."""
        setting, running, now = self._experiment.resources.standby, self.group.generation, time.monotonic()
        if running is None or setting is False or now - self._standbys_at < LOOK_S:
            return
        self._standbys_at = now
        if not any(said.get("heartbeat") for said in running.progress.values()):
            return  # it starts itself: no time for others
        progress = running.progress.get(0, {})
        if self._pace is None or self._pace.since_s < self._formed_at:
            self._pace = Pace(now, standby_policy.epochs_done(progress))
        if standby_policy.wanted(
            setting,
            of_sweep=of_sweep,
            trained_s=now - self._pace.since_s,
            to_come_s=self._pace.to_come_s(now, progress, self._experiment.training.epochs),
            have_memory=lambda: _have_memory(self._taken.all, self._nodes),
        ):
            self.group.processes.add_standby(self._taken.all)

    def end_generation(self) -> None:
        """End every process that takes part, at once; the standbys stay."""
        self.group.kill_serving()
        self._used = []

    def kill(self) -> None:
        """End every process and give back every slot."""
        self.group.kill()
        self._slots.release()
        self._used = []


def _own_condition(own: PlacementGroup, nodes: Nodes) -> Literal["ready", "lost", "draining"]:
    found = condition(own, nodes)
    return "lost" if found == "pending" else found


def _addresses(group: PlacementGroup, nodes: Nodes) -> set[str]:
    """Of the nodes that its bundles are on."""
    return {nodes.addresses[node] for node in bundle_nodes(group) if node in nodes.addresses}


def _left_out(deaths: NodeDeaths, own: PlacementGroup, nodes: Nodes) -> set[str]:
    """Addresses of nodes on which processes died again and again; a run cannot leave those of its own bundles."""
    found = set(deaths.left_out(time.monotonic()))
    return found - _addresses(own, nodes) if found else found


def _nodes_of(chosen: Assignments) -> list[str]:
    groups = {assignment.placement_group for assignment in chosen.all}
    return [node for group in groups for node in bundle_nodes(group) if node]


def _have_memory(chosen: Sequence[Assignment], nodes: Nodes) -> bool:
    """Whether standbys take but a small part of the memory of their nodes."""
    of_groups = {group: bundle_nodes(group) for group in {assignment.placement_group for assignment in chosen}}
    used = [of_groups[assignment.placement_group][assignment.bundle] for assignment in chosen]
    return all(used.count(node) * STANDBY_BYTES <= STANDBY_PART * nodes.memory_bytes(node) for node in set(used))
