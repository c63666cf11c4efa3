"""Every decision about a run's size, with no cluster and no sleep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raymx.cluster.scaling_policy import PATIENCE_S, Limits, Status, decide

LIMITS = Limits(min_workers=2, max_workers=8, cooldown_s=30)
RUNNING = Status(workers=4, own_bundles="ready", since_resize_s=100)
IDLE = Status(workers=0, own_bundles="ready")
LOST = "worker 1 died: its node cannot be reached"


def test_starts_as_soon_as_the_least_fit() -> None:
    decision = decide(IDLE, LIMITS)
    assert (decision.action, decision.workers) == ("start", 2)


@pytest.mark.parametrize(("slots", "workers"), [(1, 3), (6, 8), (9, 8)])
def test_starts_with_all_that_there_is_room_for(slots: int, workers: int) -> None:
    decision = decide(replace(IDLE, spare_slots=slots), LIMITS)
    assert (decision.action, decision.workers) == ("start", workers)
    assert f"room for {workers} workers" in decision.reason


def test_starts_with_the_least_while_another_job_waits() -> None:
    assert decide(replace(IDLE, spare_slots=4, others_wait=True), LIMITS).workers == 2


@pytest.mark.parametrize("recovers_from", ["", LOST])
def test_waits_for_its_own_bundles_and_gives_the_slots_back_for_them(recovers_from: str) -> None:
    status = replace(IDLE, own_bundles="lost", spare_slots=3, recovers_from=recovers_from)
    decision = decide(status, LIMITS)
    assert (decision.action, decision.release) == ("wait", True)
    assert "2 workers" in decision.reason
    assert decide(replace(status, lost_for_s=PATIENCE_S), LIMITS).action == "leave"  # and is placed anew


def test_keeps() -> None:
    assert decide(RUNNING, LIMITS).action == "keep"
    assert decide(replace(RUNNING, saved=True), LIMITS).action == "keep"


@pytest.mark.parametrize(
    ("change", "action"),
    [
        ({"saved": True}, "grow"),
        ({"saved": False}, "keep"),
        ({"saved": True, "since_resize_s": 29.0}, "keep"),
        ({"saved": True, "since_resize_s": 30.0}, "grow"),
        ({"saved": True, "others_wait": True, "workers": 2}, "keep"),
    ],
)
def test_grows_right_after_a_checkpoint_and_a_cool_down(change: dict[str, object], action: str) -> None:
    decision = decide(replace(RUNNING, spare_slots=2, **change), LIMITS)  # type: ignore[arg-type]
    assert decision.action == action
    if action == "grow":
        assert decision.workers == 6
        assert "2 more workers" in decision.reason


def test_grows_to_the_most_and_no_further() -> None:
    assert decide(replace(RUNNING, spare_slots=9, saved=True), LIMITS).workers == 8
    assert decide(replace(RUNNING, workers=8, spare_slots=1, saved=True), LIMITS).action == "keep"


@pytest.mark.parametrize(
    ("change", "workers", "release"),
    [({"leaving_slots": 1}, 3, False), ({"leaving_slots": 2}, 2, False), ({"others_wait": True}, 2, True)],
)
def test_shrinks_once_a_checkpoint_was_taken(change: dict[str, object], workers: int, release: bool) -> None:
    status = replace(RUNNING, **change)  # type: ignore[arg-type]
    assert decide(status, LIMITS).action == "save"
    decision = decide(replace(status, saved=True), LIMITS)
    assert (decision.action, decision.workers, decision.release) == ("shrink", workers, release)
    assert decision.reason


def test_a_run_of_the_least_size_has_nothing_to_give() -> None:
    assert decide(replace(RUNNING, workers=2, others_wait=True), LIMITS).action == "keep"


def test_leaves_a_drained_node_that_it_cannot_do_without() -> None:
    status = replace(RUNNING, own_bundles="draining")
    assert decide(status, LIMITS).action == "save"
    assert decide(replace(status, saved=True), LIMITS).action == "leave"
    assert decide(replace(IDLE, own_bundles="draining"), LIMITS).action == "leave"
    assert decide(replace(IDLE, own_bundles="draining", recovers_from=LOST), LIMITS).action == "leave"


def test_goes_on_after_a_failure_with_all_that_there_is_room_for() -> None:
    decision = decide(replace(IDLE, spare_slots=1, recovers_from=LOST), LIMITS)
    assert (decision.action, decision.workers, decision.reason) == ("restart", 3, LOST)
