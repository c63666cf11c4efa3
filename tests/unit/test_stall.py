"""Whether a loop stands still; the time is given."""

from __future__ import annotations

from raymx.cluster.stall import StallWatch


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
