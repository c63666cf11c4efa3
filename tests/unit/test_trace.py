"""A trace of all roles: clocks, pushes with their updates and pulls, threads, the file; and tables of operators."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from factories import make_experiment
from hypothesis import given
from hypothesis import strategies as st

from raymx.cluster.generation import Generation
from raymx.driver.display import trace_lines
from raymx.errors import ExperimentError
from raymx.experiment import rules
from raymx.results.operators import Operator, compared, lines, of_rows, summed
from raymx.results.trace import (
    READ_TASKS,
    Exchange,
    Span,
    Traced,
    apart,
    by_name,
    chrome,
    clock_offset,
    lanes,
    nested,
    on_one_clock,
    transfers,
)
from raymx.storage import location
from raymx.trial.tracing import Tracing

# Clocks


@given(st.floats(-1e3, 1e3), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_the_offset_is_off_by_half_of_the_shortest_round_trip_at_most(behind: float, trips: list[Any]) -> None:
    """``behind``: what is to be added to the other clock; a trip there and one back."""
    samples = [(0.0, there - behind, there + back) for there, back in trips]
    shortest = min(there + back for there, back in trips)
    assert abs(clock_offset(samples) - behind) <= shortest / 2 + 1e-9


def test_all_times_of_a_process_are_moved() -> None:
    traced = Traced("worker 0", "a", {"steps": [Span("forward", 1, 2)]}, [Exchange(1, "w", 1, 2, 8, 8)])
    moved = on_one_clock(traced, 10)
    assert moved.tracks["steps"] == [Span("forward", 11, 12)]
    assert moved.exchanges == [Exchange(1, "w", 11, 12, 8, 8)]


# Pushes and pulls


def test_a_push_ends_where_the_update_begins_and_a_pull_begins_where_it_ends() -> None:
    exchanges = [Exchange(1, "w", 0.0, 4.0, 8, 16), Exchange(2, "w", 5.0, 9.0, 8, 16)]
    slices_on_two_servers = [Span("w", 1.0, 2.0), Span("w", 1.5, 3.0), Span("w", 6.0, 7.0)]
    found = transfers(exchanges, by_name(slices_on_two_servers))
    assert [(span.name, span.began, span.ended, span.about) for span in found] == [
        ("push w", 0.0, 1.0, {"step": 1, "bytes": 8}),
        ("pull w", 3.0, 4.0, {"step": 1, "bytes": 16}),
        ("push w", 5.0, 6.0, {"step": 2, "bytes": 8}),
        ("pull w", 7.0, 9.0, {"step": 2, "bytes": 16}),
    ]


def test_a_gradient_that_is_noted_after_its_push_is_under_way() -> None:
    """The engine may look at the clock later than it pushes."""
    push, pull = transfers([Exchange(1, "w", 1.0, 4.0, 8, 16)], by_name([Span("w", 0.9996, 2.0)]))
    assert (push.began, push.ended, pull.began, pull.ended) == (0.9996, 0.9996, 2.0, 4.0)


def test_without_an_update_a_push_and_its_pull_are_one() -> None:
    (found,) = transfers([Exchange(3, "w", 0.0, 4.0, 8, 16)], {"w": [Span("w", 5.0, 6.0)], "v": [Span("v", 1.0, 2.0)]})
    about = {"step": 3, "pushed_bytes": 8, "pulled_bytes": 16}
    assert found == Span("push and pull w", 0.0, 4.0, about)


# Threads


spans = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 50)).map(lambda one: Span("x", one[0], one[0] + one[1])), max_size=40
)


@given(spans)
def test_in_a_thread_none_overlaps_another_and_none_is_lost(given: list[Span]) -> None:
    found = lanes(given)
    assert sorted((one for lane in found for one in lane), key=repr) == sorted(given, key=repr)
    for lane in found:
        assert all(one.ended <= other.began for one, other in pairwise(lane))


def test_what_lies_within_another_may_share_its_thread() -> None:
    assert nested([Span("a", 0, 10), Span("b", 1, 4), Span("c", 4, 10), Span("d", 10, 11)])
    assert not nested([Span("a", 0, 10), Span("b", 5, 11)])


def test_the_file_names_processes_and_threads_and_counts_microseconds_from_the_first() -> None:
    worker = Traced("worker 0", "a", {"engine 0": [Span("Convolution", 100.0, 100.5, {"rows": 2})], "loop": []})
    server = Traced("server 0", "b", {"updates": [Span("w", 100.25, 101.0), Span("v", 100.5, 102.0)]})
    trace = json.loads(json.dumps(chrome([worker, server])))
    events = trace["traceEvents"]
    named = {(one["pid"], one["tid"], one["name"]): one["args"] for one in events if one["ph"] == "M"}
    assert named[1, 0, "process_name"] == {"name": "worker 0 (a)"}
    assert named[2, 0, "process_name"] == {"name": "server 0 (b)"}
    assert named[2, 1, "thread_name"] == {"name": "updates 1"}
    assert named[2, 2, "thread_name"] == {"name": "updates 2"}
    complete = [(one["name"], one["pid"], one["tid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"]
    assert complete == [
        ("Convolution", 1, 1, 0.0, 500_000.0),
        ("w", 2, 1, 250_000.0, 750_000.0),
        ("v", 2, 2, 500_000.0, 1_500_000.0),
    ]
    assert trace["otherData"] == {"began_s": 100.0}


# Operators


def test_operators_are_summed_a_step_and_worker_without_waits() -> None:
    engine = [Span("dot", 0, 2), Span("dot", 3, 4), Span("sum", 4, 5), Span("KVStoreDistDefaultPush", 0, 100)]
    assert summed([engine, engine], steps=2) == [["dot", 1.0, 1.5], ["sum", 0.5, 0.5]]
    assert of_rows([{}, {"operators": [["dot", 1.0, 1.5]]}]) == [Operator("dot", 1.0, 1.5)]
    assert of_rows([{"operators": None}]) == []


def test_two_trials_are_compared_for_as_many_samples() -> None:
    fast = [Operator("Convolution", 2, 0.010), Operator("BatchNorm", 2, 0.010), Operator("cast", 9, 0.001)]
    slow = [Operator("Convolution", 2, 0.038), Operator("BatchNorm", 2, 0.014), Operator("tiny", 1, 1e-6)]
    assert list(compared(fast, slow, (10, 20))) == [
        "Convolution 1.90x (1e+03 us a sample and 1.9e+03 us a sample)",
        "BatchNorm 0.70x (1e+03 us a sample and 700 us a sample)",
        "cast only in the first (100 us a sample)",
    ]
    assert list(lines(fast, most=1)) == ["Convolution   47.6 %     10.000 ms  2 times a step"]


# What may be asked for


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"steps": [30, 20]}, "the last step must not come before the first"),
        ({"steps": [1, 201]}, "at most 200 can be traced"),
        ({"steps": [0, 3]}, "profile.steps"),
        ({"steps": 20}, "it must be the first and the last step"),
        ({"steps": [1, 2], "workers": [-1]}, "profile.workers"),
        ({"steps": [1, 2], "workers": 0}, "profile.workers is 0: it must be all, a number of workers, or a list"),
        ({"steps": [1, 2], "workers": True}, "profile.workers"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(profile: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        make_experiment(profile=profile)


def test_ranks_that_the_run_has_not_are_refused() -> None:
    experiment = make_experiment(profile={"steps": [1, 2], "workers": [2]}, resources={"workers": 2})
    (problem,) = [one for one in rules.problems(experiment) if one.key == "profile.workers"]
    assert "the run has the workers 0 to 1" in str(problem)
    assert experiment.profile.is_of(2)
    assert not experiment.profile.is_of(0)


@pytest.mark.parametrize(("workers", "traced"), [("all", [0, 1, 2, 3]), (2, [0, 1]), ([1, 3], [1, 3])])
def test_some_workers_are_traced(workers: Any, traced: list[int]) -> None:
    experiment = make_experiment(profile={"steps": [1, 2], "workers": workers}, resources={"workers": 4})
    assert [rank for rank in range(4) if experiment.profile.is_of(rank)] == traced
    assert not [one for one in rules.problems(experiment) if one.key.startswith("profile")]


def test_nobody_is_traced_without_steps() -> None:
    assert not make_experiment().profile.is_of(0)
    assert not make_experiment(profile={"workers": 1}).profile.is_of(0)


# What a trial adds


def test_read_tasks_are_a_process_of_their_own() -> None:
    read, loop = [Span("decode", 1, 2)], [Span("wait for data", 0, 1)]
    worker, tasks = apart(Traced("worker 3", "a", {"loop": loop, READ_TASKS: read}))
    assert worker == Traced("worker 3", "a", {"loop": loop})
    assert tasks == Traced("read tasks of worker 3", "a", {"reading and decoding": read})
    assert list(apart(worker)) == [worker]


@pytest.mark.parametrize("steps", [None, [20, 30]])
def test_a_run_that_ends_before_its_trace_says_so(tmp_path: Path, steps: list[int] | None) -> None:
    profile = make_experiment(profile={"steps": steps}).profile
    tracing = Tracing(profile, location(str(tmp_path)))
    assert tracing.write([{"traced": None}], Generation(1, [])) == ({}, "")
    assert ("profile.steps is [20, 30]" in tracing.missing()) == (steps is not None)
    assert ("ended before they had made step 30" in tracing.missing()) == (steps is not None)


@pytest.mark.parametrize(
    ("traces", "said"),
    [([], []), (["r/t"], ["trace       r/t: at https"]), (["r/t", "r/u"], ["trace       r/t, and 1 more: at https"])],
)
def test_the_end_of_a_run_names_its_traces(traces: list[str], said: list[str]) -> None:
    assert [line.partition("://")[0] for line in trace_lines({"traces": traces})] == said
