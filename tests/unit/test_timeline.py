"""Where a step's time goes, out of its moments; and in words, out of all workers' steps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from raymx.results.setup import Setup
from raymx.results.step_parts import COLUMNS, OWN, Waits, columns_of, stragglers
from raymx.results.step_text import (
    StepTime,
    advice,
    as_dict,
    bar,
    host_bound_gain,
    is_host_bound,
    of_rows,
    percents,
    segments,
    sentence,
)
from raymx.training.timeline import CHECKPOINT, COMMUNICATION, COMPUTE, DATA, LOOP, Moments, free_forward_s, parts_of

NOTHING = dict.fromkeys((COMPUTE, COMMUNICATION, DATA, CHECKPOINT, LOOP), 0.0)


def step(**changes: Any) -> Moments:
    """One that was queued in time: the engine began with it at 10, when the first weight was there."""
    moments: dict[str, Any] = {
        "number": 4, "before": 10.0, "all_before": 10.5, "asked": 8.0, "got": 8.5,
        "queued": 9.0, "forward": 12.0, "backward": 15.0, "first": 17.0,
    }  # fmt: skip
    return Moments(**{**moments, **changes})


@pytest.mark.parametrize(
    ("changes", "forward_s", "expected"),
    [
        ({}, None, {COMPUTE: 5.0, COMMUNICATION: 2.0}),
        (
            {"queued": 11.0, "asked": 9.5, "got": 10.75},
            None,
            {DATA: 0.75, LOOP: 0.25, COMPUTE: 4.0, COMMUNICATION: 2.0},
        ),
        (
            {"queued": 11.0, "asked": 10.5, "got": 10.75},
            None,
            {DATA: 0.25, LOOP: 0.75, COMPUTE: 4.0, COMMUNICATION: 2.0},
        ),
        (
            {"queued": 11.0, "held": ((9.0, 10.25), (10.5, 10.75))},
            None,
            {CHECKPOINT: 0.5, LOOP: 0.5, COMPUTE: 4.0, COMMUNICATION: 2.0},
        ),
        ({"queued": 11.0, "asked": None, "got": None}, None, {LOOP: 1.0, COMPUTE: 4.0, COMMUNICATION: 2.0}),
        # a forward pass of 2 s, which takes 1.5 s when all weights are there
        ({}, 1.5, {COMPUTE: 4.5, COMMUNICATION: 2.5}),
        ({"all_before": 10.0}, 1.5, {COMPUTE: 5.0, COMMUNICATION: 2.0}),
        ({"forward": None}, 1.5, {COMPUTE: 5.0, COMMUNICATION: 2.0}),
        ({}, 3.0, {COMPUTE: 5.0, COMMUNICATION: 2.0}),
    ],
)
def test_parts_of_a_step_with_servers(changes: Any, forward_s: float | None, expected: Any) -> None:
    found = parts_of([step(**changes)], distributed=True, forward_s=forward_s)
    assert found.seconds == pytest.approx({**NOTHING, **expected})
    assert sum(found.seconds.values()) == pytest.approx(7.0)  # from the first weight to the next first one
    assert found.backward == {4: 15.0}


def test_without_servers_the_update_is_computing() -> None:
    assert parts_of([step()], distributed=False, forward_s=1.0).seconds == pytest.approx({**NOTHING, COMPUTE: 7.0})


@pytest.mark.parametrize(("dispatched", "host_bound"), [(14.6, 5.0), (14.4, 0.0), (9.1, 0.0), (None, 0.0)])
def test_a_step_that_is_done_when_it_is_queued_is_bound_by_the_host(dispatched: float, host_bound: float) -> None:
    assert parts_of([step(dispatched=dispatched)], distributed=False).host_bound == host_bound


def test_a_free_forward_pass_is_one_for_which_all_weights_were_there() -> None:
    steps = [step(), step(queued=11.0, forward=12.2), step(queued=11.0, forward=12.4), step(queued=11.0, forward=12.3)]
    assert free_forward_s(steps) == pytest.approx(1.3)
    assert free_forward_s([step()]) is None


def told(compute: float, communication: float, backward: dict[int, float], **more: float) -> dict[str, Any]:
    """Of two steps, both alike."""
    seconds = {"compute": compute, "communication": communication, **more}
    own = {step: {part: seconds.get(part, 0.0) / 2 for part in OWN} for step in backward}
    return {"steps": 2, "seconds": seconds, "backward": backward, "own": own, "host_bound": 0.0, "alone_s": None}


class TestWorkers:
    def test_one_alone(self) -> None:
        found = columns_of([told(6.0, 0.0, {}, data=2.0)], in_step=True)
        parts = dict(zip(COLUMNS.values(), (0.75, 0.0, 0.25, 0.0, 0.0, 0.0), strict=True))
        assert found == pytest.approx({**parts, "host_bound_fraction": 0.0})

    def test_the_one_that_comes_last_is_known_by_when_its_gradients_are_there(self) -> None:
        """Its own steps look as if nothing was wrong: the others wait."""
        slow = told(8.0, 2.0, {1: 104.0, 2: 109.0})
        fast = [told(4.0, 6.0, {1: 102.0, 2: 107.0}), told(4.2, 5.8, {1: 102.1, 2: 107.1, 3: 112.0})]
        found = columns_of([fast[0], slow, fast[1]], in_step=True)
        assert (found["straggler"], found["straggler_cause"]) == (1, "compute")
        assert found["straggler_fraction"] == pytest.approx(0.38)  # of the worker in the middle, that of 4.2 s
        assert found["communication_fraction"] == pytest.approx(0.2)
        assert sum(found[name] for name in COLUMNS.values()) == pytest.approx(1.0)

    def test_its_cause_may_be_its_data(self) -> None:
        slow = told(4.0, 2.0, {1: 104.0, 2: 109.0}, data=4.0)
        found = columns_of([told(4.0, 6.0, {1: 102.0, 2: 107.0}), slow], in_step=True)
        assert (found["straggler"], found["straggler_cause"]) == (1, "data")

    @pytest.mark.parametrize(
        ("reading_s", "straggler", "data"),
        [((0.2, 0.2), None, 0.4), ((0.1, 0.2), 1, 0.0), ((0.0, 0.0), 1, 0.0), ((), 1, 0.0)],
    )
    def test_one_that_reads_as_fast_as_the_others_is_no_straggler(
        self, reading_s: Any, straggler: int | None, data: float
    ) -> None:
        """The other is ahead with its reading, and would soon be the one that waits."""
        slow = told(4.0, 2.0, {1: 104.0, 2: 109.0}, data=4.0)
        quick = told(4.0, 6.0, {1: 102.0, 2: 107.0})
        found = columns_of([quick, slow], in_step=True, reading_s=reading_s)
        assert found.get("straggler") == straggler
        assert found["data_wait_fraction"] == pytest.approx(data)
        assert sum(found[name] for name in COLUMNS.values()) == pytest.approx(1.0)

    def test_a_cause_that_explains_too_little_is_not_named(self) -> None:
        slow = told(5.0, 4.0, {1: 104.0, 2: 109.0}, data=1.0)
        found = columns_of([told(4.0, 6.0, {1: 102.0, 2: 107.0}), slow], in_step=True)
        assert (found["straggler"], found["straggler_cause"]) == (1, "")

    def test_one_that_is_last_since_its_weights_are_is_no_straggler(self) -> None:
        """As over a slow link to the servers: all of the wait is for gradients and weights."""
        late = told(4.0, 6.0, {1: 104.0, 2: 109.0})
        found = columns_of([told(4.0, 6.0, {1: 102.0, 2: 107.0}), late], in_step=True)
        assert (found["straggler"], found["straggler_cause"]) == (1, "communication")
        assert found["communication_fraction"] == pytest.approx(0.6)
        assert found["straggler_fraction"] == 0.0

    def test_workers_that_take_turns_have_none(self) -> None:
        alike = dict.fromkeys((1, 2), dict.fromkeys(OWN, 1.0))
        waits = stragglers([{1: 2.0, 2: 5.0}, {1: 3.0, 2: 4.0}], [alike, alike])
        assert waits.last is None
        assert [wait["communication"] for wait in waits.each] == [0.5, 0.5]
        assert stragglers([{1: 2.0}, {2: 3.0}], [alike, alike]) == Waits(
            [dict.fromkeys((*OWN, "communication"), 0.0)] * 2
        )

    def test_what_each_of_them_is_late_by_in_turn_is_what_all_wait_for(self) -> None:
        """Both read as fast as each other, one late in one step and the other in the next: no straggler, but data."""

        def worker(slow: int, late: dict[int, float]) -> dict[str, Any]:
            own = {step: {"data": 2.0 if step == slow else 0.0, "compute": 1.0, "loop": 0.0} for step in (1, 2)}
            seconds = {"compute": 2.0, "communication": 2.4, "data": 2.0}
            return {**told(0.0, 0.0, late), "own": own, "seconds": seconds}

        found = columns_of([worker(1, {1: 5.0, 2: 10.0}), worker(2, {1: 3.0, 2: 12.0})], in_step=True)
        assert found["data_wait_fraction"] == pytest.approx(4.0 / 6.4)
        assert found["straggler_fraction"] == pytest.approx(0.0)
        assert found["communication_fraction"] == pytest.approx(0.4 / 6.4)
        assert "straggler" not in found

    def test_computing_that_takes_longer_now_here_now_there_stays_a_wait_for_the_slowest(self) -> None:
        def worker(slow: int, late: dict[int, float]) -> dict[str, Any]:
            own = {step: {"data": 0.0, "compute": 3.0 if step == slow else 1.0, "loop": 0.0} for step in (1, 2)}
            return {**told(4.0, 2.4, late), "own": own}

        found = columns_of([worker(1, {1: 5.0, 2: 10.0}), worker(2, {1: 3.0, 2: 12.0})], in_step=True)
        assert found["straggler_fraction"] == pytest.approx(2.0 / 6.4)

    def test_async_workers_wait_for_nobody(self) -> None:
        found = columns_of([told(4.0, 6.0, {1: 1.0}), told(4.0, 6.0, {1: 5.0})], in_step=False)
        assert found["straggler_fraction"] == 0.0
        assert "straggler" not in found

    def test_no_step_measured_no_columns(self) -> None:
        assert columns_of([told(1.0, 0.0, {}), {"steps": 0, "seconds": {}, "backward": {}}], in_step=True) == {}


def row(compute: float, communication: float, data: float, **more: Any) -> dict[str, Any]:
    rest = {"straggler_fraction": 0.0, "checkpoint_fraction": 0.0, "loop_fraction": 0.0, "train_s": 9.1, "steps": 50}
    parts = {"compute_fraction": compute, "communication_fraction": communication, "data_wait_fraction": data}
    return {**parts, **rest, **more}


class TestWords:
    def test_a_sentence_whose_parts_add_to_a_hundred(self) -> None:
        parts = (0.613, 0.267, 0.085, 0.022, 0.0, 0.013)
        step = StepTime(0.182, dict(zip(COLUMNS, parts, strict=True)), 3)
        assert sentence(step) == (
            "a step took 182 ms: computing 61 %, waiting for gradients and weights 27 %, for data 9 %, "
            "for worker 3 2 %, held by the loop 1 %"
        )
        assert bar(step) == "#" * 25 + "=" * 10 + "." * 4 + "~"
        assert sum(percents(step.fractions).values()) == 100

    def test_what_is_nothing_is_left_out(self) -> None:
        step = StepTime(0.0042, dict(zip(COLUMNS, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0), strict=True)))
        assert sentence(step) == "a step took 4.2 ms: computing 100 %"
        assert advice(step, Setup(halves_bytes=True)) == []

    def test_medians_without_the_first_row(self) -> None:
        rows = [row(0.1, 0.9, 0.0), row(0.5, 0.3, 0.2), row(0.6, 0.2, 0.2), row(0.5, 0.2, 0.2), {"epoch": 4.5}]
        step = of_rows(rows)
        assert step is not None
        assert step.fractions["compute"] == pytest.approx(0.5 / 0.9)
        assert step.step_s == pytest.approx(0.182)
        assert of_rows([{"epoch": 1, "compute_fraction": math.nan, "steps": 4}]) is None

    def test_the_straggler_of_most_rows(self) -> None:
        named = {"straggler": 1.0, "straggler_cause": "data"}  # as a table with gaps gives it
        step = of_rows([row(1.0, 0.0, 0.0), row(0.5, 0.0, 0.0, **named), row(0.5, 0.0, 0.0, **named)])
        assert step is not None
        assert (step.straggler, step.straggler_cause) == (1, "data")

    def test_what_python_queues_no_faster_is_said(self) -> None:
        step = of_rows([row(0.8, 0.1, 0.1, host_bound_fraction=0.7)])
        assert step is not None
        assert "hybridize the net" in advice(step, Setup())[-1]
        few = of_rows([row(0.8, 0.1, 0.1, host_bound_fraction=0.3)])
        assert few is not None
        assert not any("hybridize" in text for text in advice(few, Setup()))

    def test_where_queueing_was_measured_that_counts(self) -> None:
        told = [row(0.9, 0.1, 0.0, queueing_fraction=part, host_bound_fraction=0.1) for part in (0.3, 0.5, 0.6)]
        step = of_rows([row(0.9, 0.1, 0.0, host_bound_fraction=0.1), *told])
        assert step is not None
        assert is_host_bound(step)
        assert str(host_bound_gain(step)) == "about 2.22x as fast (1.47 to 2.44)"
        little = of_rows([row(0.9, 0.1, 0.0, queueing_fraction=0.01, host_bound_fraction=0.9)])
        assert little is not None
        assert not is_host_bound(little)

    def test_what_each_part_is_worth(self) -> None:
        step = StepTime(0.1, dict(zip(COLUMNS, (0.4, 0.2, 0.1, 0.26, 0.0, 0.04), strict=True)), 2, "data")
        alone = " (of one row, so with no interval)"
        assert advice(step, Setup(halves_bytes=True)) == [
            f"with worker 2 as fast as the others it would be about 1.35x as fast{alone}",
            f"with gradients and weights at once it would be about 1.25x as fast{alone}; float16 on the wire "
            f"(precision.wire_dtype) would make it about 1.11x as fast{alone}",
            f"with all data at hand it would be about 1.11x as fast{alone}: more data.cpus, or a data.cache that "
            "holds them",
        ]

    def test_gains_have_the_interval_of_the_rows(self) -> None:
        step = of_rows([row(0.1, 0.9, 0.0), *(row(1 - part, part, 0.0) for part in (0.2, 0.22, 0.25, 0.28, 0.3))])
        assert step is not None
        whole, half = advice(step, Setup(halves_bytes=True))[0].split("; ")
        assert whole == "with gradients and weights at once it would be about 1.33x as fast (1.26 to 1.42)"
        assert half == "float16 on the wire (precision.wire_dtype) would make it about 1.14x as fast (1.00 to 1.17)"

    def test_what_the_servers_update_is_not_made_shorter_by_fewer_bytes(self) -> None:
        told = [row(0.6, 0.4, 0.0, server_update_fraction=part) for part in (0.9, 0.3, 0.3)]
        step = of_rows(told)
        assert step is not None
        assert "would make it about 1.05x as fast (1.00 to 1.25)" in advice(step, Setup(halves_bytes=True))[0]

    @pytest.mark.parametrize(
        ("columns", "setup", "expected"),
        [
            ({}, Setup(), "more data.cpus, or a data.cache that holds them"),
            ({}, Setup(repeats=False), "more data.cpus"),
            (
                {"own_batches_fraction": 0.9},
                Setup(read_cpus=1.0),
                "the workers decode these data themselves, which more data.cpus does not change; a data.cache that "
                "holds them does",
            ),
            (
                {"own_batches_fraction": 0.9},
                Setup(repeats=False),
                "the workers decode these data themselves, which more data.cpus does not change; what is decoded is "
                "changed anew in each epoch, so that no cache holds it",
            ),
            (
                {"own_batches_fraction": 0.0, "read_cpus_used": 1.95},
                Setup(read_cpus=2.0, repeats=False),
                "the read tasks of a worker are busy on 1.95 of its 2 data.cpus: more data.cpus",
            ),
            (
                {"own_batches_fraction": 0.0, "read_cpus_used": 0.2},
                Setup(read_cpus=2.0),
                "the read tasks of a worker are busy on 0.20 of its 2 data.cpus, so that more of them change little; "
                "a data.cache that holds them does",
            ),
        ],
    )
    def test_what_would_bring_data_sooner(self, columns: Any, setup: Setup, expected: str) -> None:
        step = of_rows([row(0.8, 0.0, 0.2, **columns)])
        assert step is not None
        assert advice(step, setup)[0].partition("interval): ")[2] == expected

    def test_a_summary_has_the_gains_as_numbers(self) -> None:
        step = of_rows([row(0.1, 0.9, 0.0), row(0.8, 0.2, 0.0), row(0.7, 0.3, 0.0)])
        assert step is not None
        plain = as_dict(step, Setup())
        assert plain["gains"]["communication"]["times"] == pytest.approx(1 / 0.75)
        assert plain["gains"]["communication"]["high"] == pytest.approx(1 / 0.705)
        assert "rows" not in plain

    def test_segments_are_what_can_be_seen(self) -> None:
        parts = dict(zip(COLUMNS, (0.9, 0.096, 0.004, 0.0, 0.0, 0.0), strict=True))
        assert [(one.name, one.percent) for one in segments(parts)] == [
            ("computing", 90),
            ("waiting for gradients and weights", 10),
        ]
        assert segments({}) == segments({"compute": 1.0}) == []
