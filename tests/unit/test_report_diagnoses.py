"""Each diagnosis is made where it is due, with its trial and its number, and not where it is not; shared nodes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from test_report import COMPRESSION, DTYPE, Change, found_in

from raymx.report.diagnoses import KINDS
from raymx.report.findings import Findings


def numbers(found: Findings, kind: str) -> dict[str, float]:
    """The numbers of all diagnoses of a kind, by trial."""
    return {diagnosis.trial_id: diagnosis.number for diagnosis in found.diagnoses if diagnosis.kind == kind}


def texts(found: Findings, kind: str) -> str:
    return "\n".join(diagnosis.text for diagnosis in found.diagnoses if diagnosis.kind == kind)


def in_trial(number: int, *, facts: dict[str, Any] | None = None, **columns: Any) -> Change:
    """One trial's facts and the columns of all its reports are set."""

    def change(known: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        if known["trial_id"] == f"t_{number:05d}":
            known.update(facts or {})
            for row in reports:
                row.update(columns)

    return change


def test_nothing_is_said_of_healthy_trials() -> None:
    found = found_in(repeats=2)
    assert found.diagnoses == ()
    assert not any(entry.shared for entry in found.study.entries)


@pytest.mark.parametrize(
    ("kind", "columns", "number"),
    [
        ("input", {"data_wait_fraction": 0.31}, 0.31),
        ("first_step", {"first_step_s": 12.0}, 12.0),
        ("skipped", {"skipped_steps": 23}, 0.5),
        ("nan", {"train_loss": math.nan}, 1.0),
        ("nan", {"validation_accuracy": math.inf}, 1.0),
        ("chance", {"validation_accuracy": 0.12}, 0.12),
    ],
)
def test_of_one_trial(kind: str, columns: dict[str, Any], number: float) -> None:
    found = found_in(change=in_trial(3, **columns))
    assert numbers(found, kind) == {"t_00003": pytest.approx(number)}
    assert {diagnosis.kind for diagnosis in found.diagnoses} == {kind}


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("input", {"data_wait_fraction": 0.30}),
        ("first_step", {"first_step_s": 4.9}),
        ("skipped", {"skipped_steps": 2}),
        ("nan", {"train_loss": None}),
        ("chance", {"validation_accuracy": 0.16}),
        ("uneven", {"worker_samples_per_sec": [100.0, 10.0]}),
    ],
)  # the last: not async
def test_what_is_not_said(kind: str, columns: dict[str, Any]) -> None:
    assert numbers(found_in(change=in_trial(3, **columns)), kind) == {}


def test_near_chance_counts_where_it_does_not_rise() -> None:
    def falling(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        for row in reports:
            row["validation_accuracy"] = 0.13 + 0.001 * row["epoch"] * (-1 if facts["trial_id"] == "t_00000" else 1)

    assert numbers(found_in(change=falling), "chance") == {"t_00000": pytest.approx(0.126)}


def test_a_loss_of_an_interrupted_epoch_is_no_nan() -> None:
    def stopped(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        reports.append({**reports[-1], "epoch": 4.5, "train_loss": math.nan})

    assert found_in(change=stopped).diagnoses == ()


def test_async_workers_of_unequal_speed() -> None:
    found = found_in(change=in_trial(2, facts={"kvstore_type": "dist_async"}, worker_samples_per_sec=[700.0, 1000.0]))
    assert numbers(found, "uneven") == {"t_00002": pytest.approx(0.7)}


def test_workers_that_decode_themselves_gain_nothing_by_more_cpus() -> None:
    found = found_in(change=in_trial(3, data_wait_fraction=0.5, own_batches_fraction=0.9))
    assert texts(found, "input").endswith(
        "its workers decoded 90 % of the batches themselves, which more data.cpus does not change"
    )
    assert "decoded" not in texts(
        found_in(change=in_trial(3, data_wait_fraction=0.5, own_batches_fraction=0.1)), "input"
    )


def test_what_of_the_first_step_took_the_time() -> None:
    found = found_in(change=in_trial(3, first_step_s=12.0, first_batch_s=2.5, form_s=4.0))
    assert texts(found, "first_step") == (
        "the first step took 12 s, the others 50 ms: 2.5 s until the first batch was there, 9.5 s to compute it for "
        "the first time; before it, 4.0 s to start processes and form the KVStore"
    )
    assert texts(found_in(change=in_trial(3, first_step_s=12.0)), "first_step").endswith("the others 50 ms")


def test_a_memory_that_is_nearly_full_and_by_what() -> None:
    full = {"node_memory_fraction": 0.91, "worker_rss_peak_mib": 3000.0, "object_store_mib": 0.0}
    found = found_in(change=in_trial(3, gpu_memory_fraction=0.5, **full))
    assert numbers(found, "memory") == {"t_00003": pytest.approx(0.91)}
    assert texts(found, "memory") == (
        "91 % of the fullest node's memory was in use, of which one worker's process 3,000 MiB at the most"
    )
    gpu = found_in(change=in_trial(3, gpu_memory_fraction=0.97, gpu_memory_peak_mib=15_000.0, node_memory_fraction=0.2))
    assert texts(gpu, "memory").startswith("97 % of a GPU's memory was in use, of which all processes on it 15,000 MiB")
    assert found_in(change=in_trial(3, node_memory_fraction=0.8)).diagnoses == ()


def test_more_workers_that_gain_nothing() -> None:
    axes = {"resources.workers": ("1", "2")}
    change = in_trial(1, samples_per_sec=900.0, communication_fraction=0.55)
    found = found_in(axes=axes, repeats=1, change=change)
    one = found.study.entries[0].measures.samples_per_sec
    assert one is not None
    assert numbers(found, "workers") == {"t_00001": pytest.approx(900.0 / one)}
    assert texts(found, "workers").endswith("all else the same; 55 % of a step waits for gradients and weights")
    assert found_in(axes=axes, repeats=1, change=in_trial(1, samples_per_sec=1900.0)).diagnoses == ()


def test_far_slower_than_its_twins() -> None:
    found = found_in(repeats=3, change=in_trial(1, samples_per_sec=600.0))
    ((trial, ratio),) = numbers(found, "twin").items()
    assert trial == "t_00001"
    speeds = sorted(entry.measures.samples_per_sec or 0.0 for entry in found.study.entries[:3])
    assert ratio == pytest.approx(600.0 / speeds[1])


LOW = {DTYPE: ("float32", "amp_float16")}


@pytest.mark.parametrize(
    ("facts", "columns", "why"),
    [
        ({"gpus": 0.0}, {}, "it ran on CPUs"),
        ({}, {"data_wait_fraction": 0.5}, "50 % of its time it waited for data"),
        ({}, {}, "it sends as many bytes a step (3 MB)"),
        ({}, {"bytes_pushed": 1_500_000}, "A guess: its layers are too small"),
    ],
)
def test_float16_without_gain_and_why(facts: dict[str, Any], columns: dict[str, Any], why: str) -> None:
    found = found_in(axes=LOW, repeats=1, change=in_trial(1, facts=facts, samples_per_sec=1000.0, **columns))
    full = found.study.entries[0].measures.samples_per_sec
    assert full is not None
    assert numbers(found, "precision") == {"t_00001": pytest.approx(1000.0 / full)}
    assert why in texts(found, "precision")


def test_float16_with_gain() -> None:
    assert found_in(axes=LOW, repeats=1, change=in_trial(1, samples_per_sec=1500.0)).diagnoses == ()


@pytest.mark.parametrize(
    ("key", "labels"),
    [
        ("kvstore.servers", ("1", "2")),
        ("kvstore.cpus_per_server", ("1.0", "2.0")),
        ("kvstore.update_on_kvstore", ("true", "false")),
    ],
)
def test_servers_that_hold_training_up(key: str, labels: tuple[str, str]) -> None:
    found = found_in(axes={key: labels}, repeats=1, change=in_trial(1, samples_per_sec=1300.0))
    slow = found.study.entries[0].measures.samples_per_sec
    assert slow is not None
    assert numbers(found, "servers") == {"t_00000": pytest.approx(1300.0 / slow)}
    assert f"with {key} {labels[1]}" in texts(found, "servers")
    assert found_in(axes={key: labels}, repeats=1).diagnoses == ()


# ---- trials that shared a node ----


def test_trials_that_shared_a_node_are_left_out_of_speeds() -> None:
    def earlier(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        if facts["trial_id"] == "t_00001":
            facts["started"] -= 10

    found = found_in(repeats=3, change=earlier)
    assert [entry.trial.trial_id for entry in found.study.entries if entry.shared] == ["t_00000", "t_00001"]
    assert [entry.trial.trial_id for entry in found.left_out] == ["t_00000", "t_00001"]
    first = found.cells[0]
    assert (first.settled, first.comparable) == (3, 1)
    assert first.samples_per_sec == found.study.entries[2].measures.samples_per_sec


def test_where_all_shared_all_count() -> None:
    def at_once(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        facts["started"] = 0.0

    found = found_in(change=at_once)
    assert all(entry.shared and entry.comparable for entry in found.study.entries)
    assert found.left_out == ()


def test_trials_on_other_nodes_did_not_share() -> None:
    def apart(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        facts["started"] = 0.0
        for row in reports:
            row["nodes"] = f"10.0.0.{facts['trial_id'][-1]},10.0.1.{facts['trial_id'][-1]}"

    assert not any(entry.shared for entry in found_in(change=apart).study.entries)


def test_compression_shows_in_bytes_pushed_alone() -> None:
    def compressed(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        if facts["compression"] != "none":
            for row in reports:
                row["bytes_pushed"] = 200_000

    measures = {entry.trial.axes[COMPRESSION]: entry.measures for entry in found_in(change=compressed).study.entries}
    assert (measures["2bit 0.5"].bytes_pushed, measures["2bit 0.5"].bytes_pulled) == (200_000, 3_000_000)
    assert measures["2bit 0.5"].bytes_pushed_total == 200_000 * 46 * 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_cause_that_was_not_measured_is_not_stated_as_one(kind: str) -> None:
    advice = KINDS[kind].advice
    assert not any(
        words in advice for words in ("is the bottleneck", "is mostly", ": something else", "no other setting")
    )
    if kind in ("chance", "uneven", "twin", "first_step"):  # only what it led to is known
        assert "not measured" in advice
