"""How loops that are at different counts are brought to one boundary, with no loop and no sleep."""

from __future__ import annotations

import pytest

from raymx.training.channel import Event
from raymx.trial.hold import Hold, behind


def held(count: int) -> Event:
    return Event("held", count)


def report(count: int) -> Event:
    return Event("report", count)


def test_a_planned_hold_is_the_same_for_all() -> None:
    assert Hold(200, None, 0.0).planned_after(0) == 200
    assert Hold(200, None, 0.0).planned_after(200) == 400
    assert Hold(None, None, 0.0).planned_after(200) is None


def test_a_hold_by_time() -> None:
    hold = Hold(None, 300.0, 10.0)
    assert not hold.is_due(309.0)
    assert hold.is_due(310.0)
    hold.release(310.0)
    assert not hold.is_due(311.0)
    assert not Hold(None, None, 0.0).is_due(1e9)


def test_loops_behind_go_on_to_the_furthest() -> None:
    assert behind([held(7), held(9), held(9)]) == {0: 9}
    assert behind([held(9), held(9)]) == {}


def test_held_loops_go_past_one_that_has_reported() -> None:
    assert behind([held(7), report(9)]) == {0: 10}
    assert behind([held(9), report(9)]) == {0: 10}


def test_held_loops_are_let_on_by_twice_as_many_steps_each_time() -> None:
    hold = Hold(None, None, 0.0)
    assert hold.let_on({0: held(5)}) == {}  # a planned one: the others come to it
    hold.ask()
    assert hold.let_on({}) == {}
    assert hold.let_on({0: held(5), 1: report(5)}) == {0: 7}
    assert hold.let_on({0: held(7)}) == {0: 11}
    hold.release(1.0)
    assert not hold.asked
    hold.ask()
    assert hold.let_on({0: held(11)}) == {0: 13}


@pytest.mark.parametrize("apart", [1, 3, 10, 57])
def test_however_far_apart_they_are_they_meet(apart: int) -> None:
    """Rank 0 is held at 0; rank 1 waits in MXNet until rank 0 has pushed ``apart`` times, and then comes to a hold."""
    hold, count = Hold(None, None, 0.0), 0
    hold.ask()
    for _ in range(10):
        if count >= apart:
            break
        count = hold.let_on({0: held(count)})[0]
    events = [held(count), held(apart)]
    while answers := behind(events):
        events = [held(answers.get(rank, event.count)) for rank, event in enumerate(events)]
    assert {event.count for event in events} == {max(count, apart)}
