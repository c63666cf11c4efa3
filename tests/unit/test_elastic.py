"""Every decision about a run's size and its failures, with no cluster and no sleep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raymx.cluster.scaling_policy import DEATHS_IN_ONE_PLACE, PATIENCE_S, Failure, History, Limits, Status, decide
from raymx.cluster.stall import StallWatch

LIMITS = Limits(min_workers=2, max_workers=8, max_failures=3, cooldown_s=30)
RUNNING = Status(workers=4, own_bundles="ready", since_resize_s=100)
IDLE = Status(workers=0, own_bundles="ready")
DEATH = Failure("process", "worker 1 died: process 7 on n1 was killed or crashed")
LOSS = Failure("node", "worker 1 died: its node cannot be reached")
STALL = Failure("stall", "worker 0 did not move for 600 s")
TRAINED = History(trained=True)


def error(text: str = "worker 1 of 2: ValueError: no", place: tuple[int, int] | None = (0, 3)) -> Failure:
    return Failure("error", text, place)


def after(*failures: Failure, history: History = TRAINED) -> History:
    for failure in failures:
        history = history.after(failure, trained=False)
    return history


# Without a failure


def test_starts_as_soon_as_the_least_fit() -> None:
    decision = decide(IDLE, LIMITS, History())
    assert (decision.action, decision.workers) == ("start", 2)


@pytest.mark.parametrize(("slots", "workers"), [(1, 3), (6, 8), (9, 8)])
def test_starts_with_all_that_there_is_room_for(slots: int, workers: int) -> None:
    decision = decide(replace(IDLE, spare_slots=slots), LIMITS, History())
    assert (decision.action, decision.workers) == ("start", workers)
    assert f"room for {workers} workers" in decision.reason


def test_starts_with_the_least_while_another_job_waits() -> None:
    assert decide(replace(IDLE, spare_slots=4, others_wait=True), LIMITS, History()).workers == 2


def test_waits_for_its_own_bundles_and_gives_the_slots_back_for_them() -> None:
    decision = decide(replace(IDLE, own_bundles="lost", spare_slots=3), LIMITS, History())
    assert (decision.action, decision.release) == ("wait", True)
    assert "2 workers" in decision.reason
    for status in (
        replace(IDLE, own_bundles="lost", lost_for_s=PATIENCE_S),
        replace(RUNNING, failure=LOSS, own_bundles="lost", lost_for_s=PATIENCE_S),
    ):
        assert decide(status, LIMITS, after(LOSS)).action == "leave"  # and is placed anew


def test_keeps() -> None:
    assert decide(RUNNING, LIMITS, TRAINED).action == "keep"
    assert decide(replace(RUNNING, saved=True), LIMITS, TRAINED).action == "keep"


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
    decision = decide(replace(RUNNING, spare_slots=2, **change), LIMITS, TRAINED)  # type: ignore[arg-type]
    assert decision.action == action
    if action == "grow":
        assert decision.workers == 6
        assert "2 more workers" in decision.reason


def test_grows_to_the_most_and_no_further() -> None:
    assert decide(replace(RUNNING, spare_slots=9, saved=True), LIMITS, TRAINED).workers == 8
    assert decide(replace(RUNNING, workers=8, spare_slots=1, saved=True), LIMITS, TRAINED).action == "keep"


@pytest.mark.parametrize(
    ("change", "workers", "release"),
    [({"leaving_slots": 1}, 3, False), ({"leaving_slots": 2}, 2, False), ({"others_wait": True}, 2, True)],
)
def test_shrinks_once_a_checkpoint_was_taken(change: dict[str, object], workers: int, release: bool) -> None:
    status = replace(RUNNING, **change)  # type: ignore[arg-type]
    assert decide(status, LIMITS, TRAINED).action == "save"
    decision = decide(replace(status, saved=True), LIMITS, TRAINED)
    assert (decision.action, decision.workers, decision.release) == ("shrink", workers, release)
    assert decision.reason


def test_a_run_of_the_least_size_has_nothing_to_give() -> None:
    assert decide(replace(RUNNING, workers=2, others_wait=True), LIMITS, TRAINED).action == "keep"


def test_leaves_a_drained_node_that_it_cannot_do_without() -> None:
    status = replace(RUNNING, own_bundles="draining")
    assert decide(status, LIMITS, TRAINED).action == "save"
    assert decide(replace(status, saved=True), LIMITS, TRAINED).action == "leave"
    assert decide(replace(IDLE, own_bundles="draining"), LIMITS, TRAINED).action == "leave"


def test_a_drained_node_after_a_failure_is_left_with_no_new_checkpoint() -> None:
    status = replace(RUNNING, own_bundles="draining", failure=DEATH)
    assert decide(status, LIMITS, after(DEATH)).action == "leave"


# After a failure


@pytest.mark.parametrize("failure", [DEATH, LOSS, STALL, error()])
def test_starts_again(failure: Failure) -> None:
    decision = decide(replace(RUNNING, failure=failure, spare_slots=1), LIMITS, after(failure))
    assert (decision.action, decision.workers) == ("restart", 3)
    assert failure.text in decision.reason


def test_waits_when_the_node_of_its_own_bundles_is_gone() -> None:
    decision = decide(replace(RUNNING, failure=LOSS, own_bundles="lost"), LIMITS, after(LOSS))
    assert (decision.action, decision.release) == ("wait", True)


@pytest.mark.parametrize("place", [(0, 3), None])
def test_the_same_error_twice_at_the_same_place_is_the_last(place: tuple[int, int] | None) -> None:
    first, second = error(place=place), error("worker 0 of 1: ValueError: no", place=place)  # by another worker
    decision = decide(replace(RUNNING, failure=second), LIMITS, after(first, second))
    assert decision.action == "fail"
    assert "the same error came twice" in decision.reason


@pytest.mark.parametrize("second", [error(place=(0, 4)), error("worker 1 of 2: KeyError: no")])
def test_another_error_or_place_is_another_failure(second: Failure) -> None:
    assert decide(replace(RUNNING, failure=second), LIMITS, after(error(), second)).action == "restart"


def test_the_same_error_with_another_failure_between_is_no_repetition() -> None:
    assert decide(replace(RUNNING, failure=error()), LIMITS, after(error(), DEATH, error())).action == "restart"


def test_own_failures_are_counted() -> None:
    failures = [error(place=(0, step)) for step in range(3)]
    assert decide(replace(RUNNING, failure=failures[-1]), LIMITS, after(*failures)).action == "restart"
    decision = decide(replace(RUNNING, failure=STALL), LIMITS, after(*failures, STALL))
    assert decision.action == "fail"
    assert "failure 4" in decision.reason
    assert "failures.max is 3" in decision.reason


def test_lost_nodes_do_not_use_up_the_failures() -> None:
    history = after(*[LOSS] * 50, error())
    assert (history.errors, history.losses) == (1, 50)
    assert decide(replace(RUNNING, failure=LOSS), LIMITS, after(LOSS, history=history)).action == "restart"


def test_processes_that_die_are_started_again_as_long_as_training_goes_on() -> None:
    history = TRAINED
    for _ in range(20):
        history = after(DEATH, history=history)
        assert decide(replace(RUNNING, failure=DEATH), LIMITS, history).action == "restart"
        history = history.saved()
    deaths = [DEATH] * (DEATHS_IN_ONE_PLACE + 1)
    decision = decide(replace(RUNNING, failure=DEATH), LIMITS, after(*deaths))
    assert decision.action == "fail"
    assert "no checkpoint in between" in decision.reason


def test_no_failure_is_allowed_when_the_experiment_says_so() -> None:
    assert decide(replace(RUNNING, failure=error()), replace(LIMITS, max_failures=0), after(error())).action == "fail"
    assert decide(replace(RUNNING, failure=DEATH), replace(LIMITS, max_failures=0), after(DEATH)).action == "restart"


def test_an_error_before_the_first_step_is_the_last() -> None:
    failure = error(place=(0, 1))
    history = History().after(failure, trained=False)
    assert decide(replace(RUNNING, failure=failure), LIMITS, history).action == "fail"
    assert decide(replace(RUNNING, failure=failure), LIMITS, History().after(failure, trained=True)).action == "restart"
    assert decide(replace(IDLE, failure=DEATH), LIMITS, History().after(DEATH, trained=False)).action == "restart"


# Stalls


def test_a_loop_that_does_not_move_is_seen() -> None:
    watch = StallWatch(10.0)
    assert watch.look({0: 1, 1: 1}, set(), 2, 0.0) == []
    assert watch.look({0: 2, 1: 1}, set(), 2, 9.9) == []
    assert watch.look({0: 3, 1: 1}, set(), 2, 10.0) == [1]


def test_a_loop_that_waits_for_the_trial_does_not_stand_still() -> None:
    watch = StallWatch(10.0)
    watch.look({0: 1, 1: 1}, set(), 2, 0.0)
    assert watch.look({0: 1, 1: 1}, {1}, 2, 10.0) == [0]
    assert watch.look({0: 2, 1: 1}, set(), 2, 19.0) == []  # its time begins when it may go on


def test_a_worker_that_does_not_answer_stands_still() -> None:
    watch = StallWatch(10.0)
    watch.look({0: 1}, set(), 2, 0.0)
    assert watch.look({0: 5}, set(), 2, 12.0) == [1]
