"""When standbys are started."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from raymx.cluster import cores
from raymx.cluster.standby_policy import Pace, epochs_done, wanted

LONG: dict[str, Any] = {"trained_s": 60.0, "to_come_s": 600.0, "have_memory": lambda: True}


@pytest.mark.parametrize(
    ("setting", "of_sweep", "change", "expected"),
    [
        ("auto", False, {}, True),
        ("auto", True, {}, False),
        ("auto", False, {"to_come_s": 100.0}, False),
        ("auto", False, {"trained_s": 5.0}, False),
        ("auto", False, {"have_memory": lambda: False}, False),
        (True, True, {"to_come_s": 0.0, "have_memory": lambda: False}, True),
        (False, False, {}, False),
    ],
)
def test_wanted(setting: bool | str, of_sweep: bool, change: dict[str, Any], expected: bool) -> None:
    assert wanted(setting, of_sweep=of_sweep, **{**LONG, **change}) is expected


def test_how_far_a_loop_is() -> None:
    assert epochs_done({"epoch": 2, "step": 5, "steps": 10}) == 2.5
    assert epochs_done({"epoch": 2, "step": 5}) is None
    assert epochs_done({}) is None


@pytest.mark.parametrize(
    ("first", "progress", "expected"),
    [
        (0.0, {"epoch": 1, "step": 0, "steps": 2}, 90.0),
        (1.0, {"epoch": 1, "step": 1, "steps": 2}, 170.0),
        (None, {"epoch": 1, "step": 0, "steps": 2}, 10.0),
        (0.0, {}, 10.0),
        (1.0, {"epoch": 1, "step": 0, "steps": 2}, 10.0),
    ],
)
def test_what_is_to_come(first: float | None, progress: dict[str, int], expected: float) -> None:
    assert Pace(5.0, first).to_come_s(15.0, progress, epochs=10) == pytest.approx(expected)


class TestWhenIdle:
    def test_the_rest_of_the_process_stays_as_it_was(self) -> None:
        found: list[int] = []
        cores.when_idle(lambda: found.append(os.sched_getscheduler(0)))
        assert found == [os.SCHED_IDLE]
        assert os.sched_getscheduler(0) == os.SCHED_OTHER

    def test_an_error_comes_through(self) -> None:
        def action() -> None:
            raise ValueError("no mxnet here")

        with pytest.raises(ValueError, match="no mxnet here"):
            cores.when_idle(action)

    def test_it_waits_for_the_end(self) -> None:
        done: list[int] = []
        cores.when_idle(lambda: (time.sleep(0.05), done.append(1))[1])
        assert done == [1]
