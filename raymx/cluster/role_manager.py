"""Carries out what raymx.cluster.scaling_policy decides: the slots, the role group and its standbys of one trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ray.util.placement_group import PlacementGroup

from raymx.cluster import scaling_policy
from raymx.cluster.nodes import Condition, Nodes, Slots, bundle_nodes, condition
from raymx.cluster.placement import Plan
from raymx.cluster.processes import Assignments, assignments, slot_assignment
from raymx.cluster.role_group import RoleGroup
from raymx.cluster.scaling_policy import Decision, Failure, History, Limits, Status
from raymx.errors import RoleLost
from raymx.experiment.loading import Experiment
from raymx.experiment.sizing import sized

LOOK_S = 1.0  # between two looks at the cluster while training
ROOM_S = 0.5  # for slots to be placed before the first generation forms without them
OTHERS_S = 5.0  # so long another job's placement group waits before room is made for it
STANDBY_AFTER_S = 10.0  # of training: a short run is over before a standby has imported mxnet
STANDBY_BYTES = 300e6  # of one standby
STANDBY_PART = 0.25  # of a node's memory, at most, for standbys that nobody asked for


class RoleManager:
    """Everyone who takes part in a trial, and who could."""

    def __init__(self, own: PlacementGroup) -> None:
        """``own`` is the trial's placement group: room for the fewest workers."""
        self.group = RoleGroup()
        self.history = History()
        self._own, self._slots, self._used = own, Slots("", {}, 0), list[PlacementGroup]()
        self._nodes = Nodes.now()
        self._formed_at = self._looked_at = self._tended_at = self._lost_since = 0.0

    def configure(self, name: str, experiment: Experiment, gpus: float, plan: Plan) -> None:
        """Take over a trial of this name and its experiment; no generation runs."""
        resources = experiment.resources
        self._experiment, self._gpus, self._plan = experiment, gpus, plan
        self._limits = Limits(
            resources.min_workers, resources.max_workers, experiment.failures.max, resources.resize_cooldown_s
        )
        self._slots.release()
        self._slots, self._used = Slots(name, plan.slot_bundle, plan.max_slots), []
        self.group.processes.configure(experiment, gpus, plan)

    def start(self) -> None:
        """Start the processes that there will be in any case, and ask for room for more; wait for neither."""
        self._slots.request()
        self.group.processes.start(assignments(self._own, self._plan).all)

    # Decisions

    def failed(self, failure: Failure, *, trained: bool) -> Decision:
        """Note a failure and end what is left of its generation; what to do now."""
        self.history = self.history.after(failure, trained=trained)
        self.group.kill_serving()
        self._used = []
        return self.look(failure=failure)

    def node_is_gone(self) -> bool:
        """Whether a node of the generation is gone, or about to go."""
        used = self._nodes_in_use(assignments(self._own, self._plan, self._used))
        nodes = Nodes.now(used)
        return any(nodes.condition(node) != "ready" for node in used)

    def unreachable(self) -> list[str]:
        """Addresses of the nodes of the generation that cannot be reached now."""
        used = self._nodes_in_use(assignments(self._own, self._plan, self._used))
        known, reached = Nodes.now().addresses, Nodes.now(used).addresses
        return sorted(known.get(node, node) for node in used if node not in reached)

    def saved(self) -> None:
        """A checkpoint was taken."""
        self.history = self.history.saved()

    def due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() - self._looked_at >= LOOK_S

    def look(self, *, saved: bool = False, failure: Failure | None = None) -> Decision:
        """What to do now; ``saved``: the loops wait at a place of which there is a checkpoint."""
        self._looked_at = time.monotonic()
        running = self.group.generation
        # A node is asked itself only while nothing runs on it: else its roles tell.
        self._nodes = Nodes.now(
            () if running else self._nodes_in_use(assignments(self._own, self._plan, self._slots.groups))
        )
        others = self._slots.count > 0 and self._slots.others_wait_s(self._own, self._nodes) >= OTHERS_S
        slots = self._slots.look(self._nodes)
        own = self._own_condition()
        decision = scaling_policy.decide(
            Status(
                workers=len(running.workers) if running else 0,
                own_bundles=own,
                lost_for_s=self._lost_for_s(own),
                spare_slots=len(self._free(slots, warm=running is not None)),
                leaving_slots=sum(slots[slot] != "ready" for slot in self._used) if running else 0,
                others_wait=others,
                saved=saved,
                failure=failure,
                since_resize_s=time.monotonic() - self._formed_at,
            ),
            self._limits,
            self.history,
        )
        self._tend(slots, others or decision.release)
        return decision

    def _own_condition(self) -> Any:
        found = condition(self._own, self._nodes)
        return "lost" if found == "pending" else found

    def _lost_for_s(self, own: str) -> float:
        now = time.monotonic()
        self._lost_since = (self._lost_since or now) if own == "lost" else 0.0
        return now - self._lost_since if own == "lost" else 0.0

    def _free(self, slots: dict[PlacementGroup, Condition], *, warm: bool) -> list[PlacementGroup]:
        """Slots that could be taken; ``warm``: only those whose process is ready, so that nobody waits for it."""
        free = [slot for slot, found in slots.items() if found == "ready" and slot not in self._used]
        if not warm:
            return free
        processes = self.group.processes
        processes.start([slot_assignment(slot) for slot in free], ahead=True)
        return [slot for slot in free if processes.ready(slot_assignment(slot))]

    def _tend(self, slots: dict[PlacementGroup, Condition], give_back: bool) -> None:
        """Ask for slots that are missing, or give those back that no worker is in."""
        unused = [
            slot
            for slot, found in slots.items()
            if slot not in self._used and (give_back or found in ("draining", "lost"))
        ]
        self.group.processes.drop([slot_assignment(slot) for slot in unused])
        self._slots.release(unused)
        if not give_back:
            self._slots.request()

    # What is decided

    def wait_for_slots(self) -> None:
        """Give slots a moment to be placed, so that a run that has room for all does not begin with few."""
        deadline = time.monotonic() + ROOM_S
        while time.monotonic() < deadline and "pending" in self._slots.look(Nodes.now()).values():
            time.sleep(0.05)

    def form(self, decision: Decision, saved: Any, hold_from: int | None, check: Callable[[], None]) -> Experiment:
        """Form a generation of ``decision.workers`` workers; the experiment as that one runs it.

        Its loops wait at the boundary of their report number ``hold_from``. ``check`` is called until it is formed.
        """
        self.group.dissolve()
        slots = self._slots.look(self._nodes)
        free = sorted(
            self._free(slots, warm=False), key=lambda slot: not self.group.processes.ready(slot_assignment(slot))
        )
        ready = [slot for slot in self._used if slots.get(slot) == "ready"] + free
        used = ready[: decision.workers - self._limits.min_workers]
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
        if self.due():
            self._looked_at = time.monotonic()
            used = self._nodes_in_use(chosen)
            alive = Nodes.now(used).addresses
            if any(node not in alive for node in used):
                raise RoleLost("a node died while the KVStore generation was formed")

    def addresses(self) -> list[str]:
        """Of the nodes that the generation is on."""
        used = self._nodes_in_use(assignments(self._own, self._plan, self._used))
        return sorted({self._nodes.addresses.get(node, node) for node in used})

    @staticmethod
    def _nodes_in_use(chosen: Assignments) -> list[str]:
        groups = {assignment.placement_group for assignment in chosen.all}
        return [node for group in groups for node in bundle_nodes(group) if node]

    def add_standbys(self) -> None:
        """Have a standby for every role, where that is wanted: a process at a time, and none in the way of a start."""
        wanted, running, now = self._experiment.resources.standby, self.group.generation, time.monotonic()
        if running is None or wanted is False or now - self._tended_at < LOOK_S:
            return
        self._tended_at = now
        if not any(said.get("moves") for said in running.progress.values()):
            return  # it starts itself: no time for others
        chosen = assignments(self._own, self._plan, self._used)
        if wanted is True or (now - self._formed_at > STANDBY_AFTER_S and self._has_memory(chosen)):
            self.group.processes.add_standby(chosen.all)

    def _has_memory(self, chosen: Assignments) -> bool:
        """Whether standbys take but a small part of the memory of their nodes."""
        nodes = {group: bundle_nodes(group) for group in {assignment.placement_group for assignment in chosen.all}}
        count = [nodes[assignment.placement_group][assignment.bundle] for assignment in chosen.all]
        return all(
            count.count(node) * STANDBY_BYTES <= STANDBY_PART * self._nodes.memory_bytes(node) for node in set(count)
        )

    def kill(self) -> None:
        """End every process and give back every slot."""
        self.group.kill()
        self._slots.release()
        self._used = []
