"""What a run that waits for room is told, by what Ray says of placement groups. No Ray."""

from __future__ import annotations

from raymx._ray import PlacementGroupRow
from raymx.cluster.slots import SLOT_NAME
from raymx.cluster.waiting import waits_for

BUNDLES = ({"CPU": 1.0}, {"CPU": 3.0, "GPU": 1.0})


def group(job: str, *, pending: bool = False, placed: bool = True, name: str = "") -> PlacementGroupRow:
    return PlacementGroupRow(job, name, pending, BUNDLES, 0, placed and not pending)


def test_a_run_that_has_its_place_waits_for_nothing() -> None:
    """However slowly its processes start."""
    assert waits_for([group("01")], "01", {}, {"CPU": 4.0}, {}) is None
    assert waits_for([group("01"), group("02", pending=True)], "01", {}, {"CPU": 4.0}, {}) is None
    assert waits_for([group("01"), group("01", pending=True, name=f"{SLOT_NAME}a")], "01", {}, {"CPU": 4.0}, {}) is None


def test_who_holds_what() -> None:
    groups = [group("01", pending=True), group("02"), group("03"), group("04", placed=False)]
    told = waits_for(groups, "01", {"02": "mnist_1"}, {"CPU": 12.0, "GPU": 2.0}, {"CPU": 1.0})
    assert told == (
        "free now: 1 CPUs; held by mnist_1: 4 CPUs, 1 GPUs; held by job 03: 4 CPUs, 1 GPUs; "
        "held by tasks and actors: 3 CPUs"
    )


def test_nothing_is_free_and_nobody_has_it() -> None:
    assert waits_for([group("01", pending=True)], "01", {}, {}, {}) == "free now: 0 CPUs"
