"""What follows from a failure, with no cluster and no sleep."""

from __future__ import annotations

import pytest

from raymx.cluster.failure_policy import DEATHS_IN_ONE_POSITION, Failure, FailureDecision, History, decide
from raymx.errors import KVStoreError, OutOfMemory, RoleLost, StallError, TrainingError
from raymx.trial import failures
from raymx.trial.progress import history_of

DEATH = Failure("process", "worker 1 died: process 7 on n1 was killed or crashed")
LOSS = Failure("node", "worker 1 died: its node cannot be reached")
STALL = Failure("stall", "worker 0 did not move for 600 s")
TRAINED = History(trained=True)
RETRY = FailureDecision("retry")


def error(text: str = "worker 1 of 2: ValueError: no", position: tuple[int, int] | None = (0, 3)) -> Failure:
    return Failure("error", text, position)


def after(*failed: Failure, history: History = TRAINED) -> History:
    for failure in failed:
        history = history.after(failure, trained=False)
    return history


@pytest.mark.parametrize("failure", [DEATH, LOSS, STALL, error()])
def test_goes_on(failure: Failure) -> None:
    assert decide(failure, after(failure), 3) == RETRY


@pytest.mark.parametrize("position", [(0, 3), None])
def test_the_same_error_twice_at_the_same_position_is_the_last(position: tuple[int, int] | None) -> None:
    first = error(position=position)
    second = error("worker 0 of 1: ValueError: no", position=position)  # by another worker
    decision = decide(second, after(first, second), 3)
    assert decision.action == "raise"
    assert "the same error came twice" in decision.reason


@pytest.mark.parametrize("second", [error(position=(0, 4)), error("worker 1 of 2: KeyError: no")])
def test_another_error_or_position_is_another_failure(second: Failure) -> None:
    assert decide(second, after(error(), second), 3) == RETRY


def test_the_same_error_with_another_failure_between_is_no_repetition() -> None:
    assert decide(error(), after(error(), DEATH, error()), 3) == RETRY


def test_own_failures_are_counted() -> None:
    failed = [error(position=(0, step)) for step in range(3)]
    assert decide(failed[-1], after(*failed), 3) == RETRY
    decision = decide(STALL, after(*failed, STALL), 3)
    assert decision.action == "raise"
    assert "failure 4" in decision.reason
    assert "failures.max is 3" in decision.reason


def test_lost_nodes_do_not_use_up_the_failures() -> None:
    history = after(*[LOSS] * 50, error())
    assert (history.errors, history.losses, history.count) == (1, 50, 51)
    assert decide(LOSS, after(LOSS, history=history), 3) == RETRY


def test_processes_that_die_are_started_again_as_long_as_training_goes_on() -> None:
    history = TRAINED
    for _ in range(20):
        history = after(DEATH, history=history)
        assert decide(DEATH, history, 3) == RETRY
        history = history.saved()
    decision = decide(DEATH, after(*[DEATH] * (DEATHS_IN_ONE_POSITION + 1)), 3)
    assert decision.action == "raise"
    assert "no checkpoint in between" in decision.reason


def test_a_lack_of_memory_is_tried_a_few_times() -> None:
    short = Failure("memory", "worker 1 was ended for lack of memory: 27.7 of 28.8 GB on n1")
    history = after(short, short, *[DEATH] * 5)
    assert decide(short, history, 0) == RETRY
    assert (history.errors, history.deaths_here, history.memory_here) == (0, 5, 2)
    decision = decide(short, after(short, history=history), 3)
    assert decision.action == "raise"
    assert "3 times with no checkpoint in between: lower training.global_batch_size" in decision.reason
    assert decide(short, after(short, history=history.saved()), 3) == RETRY


@pytest.mark.parametrize(
    ("pid", "most"), [(7, "worker 1, process 7 (ray::W, 8.5 GB)"), (8, "process 7 (ray::W, 8.5 GB)")]
)
def test_who_has_most_of_the_memory_is_named_by_its_role(pid: int, most: str) -> None:
    error = OutOfMemory("worker 0 was ended for lack of memory, most by process 7 (ray::W, 8.5 GB)")
    named = failures.with_roles(error, {pid: "worker 1"})
    assert isinstance(named, OutOfMemory)
    assert str(named) == f"worker 0 was ended for lack of memory, most by {most}"


def test_no_failure_is_allowed_when_the_experiment_says_so() -> None:
    assert decide(error(), after(error()), 0).action == "raise"
    assert decide(DEATH, after(DEATH), 0) == RETRY


def test_an_error_before_the_first_step_is_the_last() -> None:
    failure = error(position=(0, 1))
    assert decide(failure, History().after(failure, trained=False), 3).action == "raise"
    assert decide(failure, History().after(failure, trained=True), 3) == RETRY
    assert decide(DEATH, History().after(DEATH, trained=False), 3) == RETRY


@pytest.mark.parametrize(
    ("raised", "node_is_gone", "trained", "kind"),
    [
        (RoleLost("worker 1 died"), False, True, "process"),
        (RoleLost("worker 1 died"), True, False, "node"),
        (OutOfMemory("worker 1 was ended for lack of memory"), False, True, "memory"),
        (KVStoreError("no answer"), False, True, "process"),  # it has worked before
        (KVStoreError("no answer"), False, False, "error"),
        (StallError("still"), False, True, "stall"),
        (TrainingError("no"), False, True, "error"),
    ],
)
def test_what_an_error_stands_for(raised: KVStoreError, node_is_gone: bool, trained: bool, kind: str) -> None:
    assert failures.failure_of(raised, node_is_gone, trained).kind == kind


def test_the_last_error_says_why_it_is_the_last() -> None:
    assert str(failures.final(TrainingError("no\n  File x"), "for a reason")) == "no (for a reason)\n  File x"
    before = TrainingError("no")
    assert failures.final(before, "it came before the first step") is before


def test_a_trials_next_process_goes_on_counting() -> None:
    history = after(DEATH, error(position=(1, 2)))
    posted = {"errors": 1, "losses": 1, "deaths_here": 1, "repeated": False, "trained": True}
    last = {"kind": "error", "text": error().text, "position": [1, 2]}  # JSON has no tuples
    assert history_of({"history": {**posted, "last": last}}) == history
    assert history_of({}) == History()
