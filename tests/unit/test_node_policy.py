"""Nodes on which processes die again and again, with no cluster and no sleep."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError

from raymx.cluster import processes, role_manager
from raymx.cluster.node_policy import FIRST_S, LONGEST_S, QUIET_S, NodeDeaths
from raymx.cluster.nodes import Nodes
from raymx.cluster.role_manager import RoleManager
from raymx.errors import RoleLost


def died(node: str, times: Sequence[float]) -> NodeDeaths:
    deaths = NodeDeaths()
    for time in times:
        deaths = deaths.after(node, time)
    return deaths


def test_one_death_is_chance_and_two_are_the_node() -> None:
    assert died("n2", [0]).left_out(1) == {}
    assert died("n2", [0]).in_words("n2", 1) == ""
    deaths = died("n2", [0, 20])
    assert deaths.left_out(30) == {"n2": FIRST_S - 10}
    assert deaths.in_words("n2", 20) == "n2: processes died there 2 times, it gets no worker for 60 s"
    assert deaths.left_out(20 + FIRST_S) == {}


def test_it_is_tried_more_and_more_rarely() -> None:
    """A node that is killed whenever it is used."""
    deaths, now, tried = NodeDeaths(), 0.0, 0
    while now < 4 * 3600:
        if "n2" not in deaths.left_out(now):
            deaths, tried = deaths.after("n2", now), tried + 1
        now += 15
    assert tried < 16
    assert max(deaths.left_out(now).values(), default=0) <= LONGEST_S


def test_after_a_quiet_time_it_begins_anew() -> None:
    quiet = 20 + FIRST_S + QUIET_S
    assert died("n2", [0, 20, quiet - 1]).left_out(quiet) != {}
    assert died("n2", [0, 20, quiet + 1]).left_out(quiet + 1) == {}


def test_other_nodes_are_not_meant() -> None:
    assert set(died("n2", [0, 1]).after("n3", 2).left_out(3)) == {"n2"}


class TestRoleManager:
    @pytest.fixture(autouse=True)
    def _made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        placed = {"own": ["id1", "id1"], "a": ["id2"], "b": ["id3"], "c": ["id1"]}
        nodes = Nodes({"id1": "n1", "id2": "n2", "id3": "n3"}, {}, frozenset())
        monkeypatch.setattr(Nodes, "now", staticmethod(lambda probe=(): nodes))
        monkeypatch.setattr(role_manager, "bundle_nodes", placed.__getitem__)
        own: Any = "own"
        self.roles = RoleManager(own)
        self.roles.group = SimpleNamespace(hosts={"worker 0": "n1", "worker 1": "n2"})  # type: ignore[assignment]

    def test_slots_on_a_bad_node_are_not_taken(self) -> None:
        slots: Any = {"a": "ready", "b": "ready", "c": "pending"}
        lost = RoleLost("worker 1 died")
        lost.role = "worker 1"
        assert self.roles.note_death(lost) == []
        assert self.roles._free(slots) == ["a", "b"]
        assert len(self.roles.note_death(lost)) == 1
        assert self.roles._free(slots) == ["b"]

    def test_a_process_that_was_started_ahead_and_died_counts_against_its_node(self) -> None:
        slots: Any = {"a": "ready", "b": "ready"}
        dropped: list[Any] = []
        self.roles.group.processes = SimpleNamespace(  # type: ignore[assignment]
            has_failed=lambda assignment: assignment.placement_group == "a", drop=dropped.extend
        )
        for _ in range(3):  # the third time it is not looked at
            self.roles._drop_failed(slots)
        assert [one.placement_group for one in dropped] == ["a", "a"]
        assert self.roles._free(slots) == ["b"]

    def test_the_node_of_its_own_bundles_is_never_left_out(self) -> None:
        slots: Any = {"a": "ready", "c": "ready"}
        lost = RoleLost("n1 cannot be reached any more")
        lost.nodes = ("n1",)
        assert self.roles.note_death(lost) == self.roles.note_death(lost) == []
        assert self.roles._free(slots) == ["a", "c"]
        assert self.roles.note_death(RoleLost("nobody knows who")) == []


@pytest.mark.parametrize(
    ("state", "ready", "failed"), [("pending", False, False), ("up", True, False), ("dead", False, True)]
)
def test_a_process_that_has_ended_is_not_ready(
    state: str, ready: bool, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_ref: Any) -> None:
        if state == "dead":
            raise ActorDiedError(None)

    monkeypatch.setattr(ray, "wait", lambda refs, **_: ([] if state == "pending" else refs, []))
    monkeypatch.setattr(ray, "get", get)
    group: Any = "a"
    found, assignment = processes.Processes(), processes.slot_assignment(group)
    found._serving[assignment] = processes._Started("an actor", True, "a ref")
    assert (found.ready(assignment), found.has_failed(assignment)) == (ready, failed)
