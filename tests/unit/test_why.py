"""``python -m raymx.why``, out of a run's files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_experiment

from raymx.report.causes import causes, unknown
from raymx.report.load import load, setup_of
from raymx.results.run_files import read_run
from raymx.results.setup import Setup
from raymx.why import main

ROW = {
    "compute_fraction": 0.5,
    "communication_fraction": 0.3,
    "data_wait_fraction": 0.15,
    "straggler_fraction": 0.03,
    "checkpoint_fraction": 0.0,
    "loop_fraction": 0.02,
    "train_s": 10.0,
    "steps": 100,
    "samples_per_sec": 1280.0,
    "bytes_pushed": 4e6,
    "bytes_pulled": 4e6,
    "server_cpus_used": 0.97,
    "host_waits": [["loop.py:41 asscalar()", 3.8, 100], ["loop.py:50 asnumpy()", 0.1, 100]],
    "counts": True,
}


def row(**changes: Any) -> dict[str, Any]:
    return {**ROW, **changes}


def test_causes_are_ranked_with_their_evidence() -> None:
    found = causes([row()], Setup(halves_bytes=True))
    assert [round(cause.share, 2) for cause in found] == [0.38, 0.3, 0.15]
    line, wire, data = found
    assert line.seen == "loop.py:41 asscalar() held the loop 38 % of the training time, 100 times"
    assert wire.seen == (
        "30 % of a step waits for gradients and weights: all workers together push 4 MB and pull 4 MB a step; "
        "the busiest server uses 0.97 of 1 CPU, its limit"
    )
    assert "1.43x" in wire.worth
    assert "precision.wire_dtype" in wire.worth
    assert "1.18x" in data.worth


def test_what_was_not_measured_is_not_said() -> None:
    bare = {name: value for name, value in ROW.items() if name.endswith("_fraction") or name in ("train_s", "steps")}
    wire, _ = causes([bare], Setup())
    assert wire.seen == "30 % of a step waits for gradients and weights"
    assert "wire_dtype" not in wire.worth
    assert causes([{"epoch": 1}], Setup()) == unknown([{"epoch": 1}], Setup()) == []
    assert unknown([bare], Setup(updates_on_servers=True, gpus=True)) == [
        "how long the servers' updates take",
        "what of the input takes the time",
        "how busy the GPUs are (it takes the package nvidia-ml-py)",
    ]
    known = {"server_update_fraction": 0.1, "own_batches_fraction": 0.0, "gpu_utilization": 0.4}
    assert unknown([bare | known], Setup(updates_on_servers=True, gpus=True)) == []


def seen(rows: list[dict[str, Any]], setup: Setup, words: str) -> tuple[str, str]:
    """The one cause that says these words, and what it is worth."""
    (cause,) = [cause for cause in causes(rows, setup) if words in cause.seen]
    return cause.seen, cause.worth


def test_the_servers_updates() -> None:
    said, worth = seen([row(server_update_fraction=0.41)], Setup(updates_on_servers=True), "updates take")
    assert said == "the busiest server's updates take 41 % of the training time"
    assert worth.startswith(
        "with updates that take no time it would be up to 1.43x as fast (1.00 to 1.43): more servers"
    )


def test_a_server_that_gets_no_cpu() -> None:
    starved = row(server_update_fraction=0.41, server_cpus_used=0.1)
    said, worth = seen([starved], Setup(updates_on_servers=True), "updates take")
    assert "in which it uses 0.10 of its 1 CPU: its node gives it no more" in said
    assert "server_placement" in worth


def test_an_array_that_lies_whole_on_one_server() -> None:
    uneven = row(server_bytes_imbalance=3.1, server_largest_array=[1, "embedding0_weight", 900_000])
    said, worth = seen([uneven], Setup(), "server 1")
    assert said == (
        "server 1 holds 3.1x the mean of the servers' bytes; the largest array that lies whole on it is "
        "embedding0_weight, of 900,000 elements"
    )
    assert "MXNET_KVSTORE_BIGARRAY_BOUND (kvstore.env.all) below 900,000" in worth
    assert "(1.00 to 1.26)" in worth
    even = row(server_bytes_imbalance=1.1, server_largest_array=[1, "embedding0_weight", 900_000])
    assert not any("server 1" in cause.seen for cause in causes([even], Setup()))


def test_servers_are_no_cause_where_nothing_waits_for_them() -> None:
    busy = row(communication_fraction=0.04, compute_fraction=0.76, server_update_fraction=0.41)
    assert not any("updates take" in cause.seen for cause in causes([busy], Setup()))


def test_what_of_the_input_takes_the_time() -> None:
    stages = [["read", 1.0], ["decode", 3.0], ["transform", 15.8], ["to devices", 0.1]]
    setup = Setup(transform="mine:slow", augments=("hue",))
    said, _ = seen([row(input_stages=stages)], setup, "next batch")
    assert said.endswith(
        "making batches is the transform mine:slow 79 %, decoding and augmenting (hue) 15 %, reading 5 %"
    )
    assert seen([row()], setup, "next batch")[0].endswith("was not there")


def test_operators_that_are_queued_late() -> None:
    rows = [row(compute_fraction=0.9, queueing_fraction=part) for part in (0.4, 0.5)]
    said, worth = seen(rows, Setup(), "Python queues")
    assert said.startswith("in 50 % of a step it computes no faster than Python queues its operators: hybridize")
    assert worth == "with operators that are queued before they are due it would be about 2.00x as fast (1.68 to 2.00)"
    said, worth = seen([row(compute_fraction=0.9, host_bound_fraction=0.6)], Setup(), "Python queues")
    assert worth == "what that is worth was not measured: at most 2.50x as fast"


def test_several_workers_that_are_slower_than_one() -> None:
    waiting = row(num_workers=2, compute_fraction=0.2, communication_fraction=0.75, data_wait_fraction=0.0)
    said, worth = seen([waiting], Setup(), "slower than one")
    assert said.startswith("2 workers are slower than one: computing takes 20 % of a step")
    assert "about 2.38x as fast" in worth
    assert not any("slower than one" in cause.seen for cause in causes([row(num_workers=2)], Setup()))
    assert not any("slower than one" in cause.seen for cause in causes([waiting], Setup(in_step=False)))


def test_a_link_that_makes_one_worker_late() -> None:
    late = row(straggler=1, straggler_cause="communication", straggler_fraction=0.0)
    assert "most for worker 1, whose weights come later" in seen([late], Setup(), "gradients and weights")[0]


def test_what_an_experiment_can_change() -> None:
    two = {"resources__workers": 2}
    plain = Setup.of(make_experiment(**two))
    assert plain == Setup(halves_bytes=True, servers=1, updates_on_servers=True)
    alone = Setup.of(make_experiment(resources__workers=1, data__cpus=3, kvstore__cpus_per_server=2.0))
    assert (alone.halves_bytes, alone.servers, alone.read_cpus, alone.server_cpus) == (False, 0, 3.0, 2.0)
    changed = Setup.of(make_experiment(data__augment__hue=0.1, data__augment__rand_mirror=True, **two))
    assert (changed.repeats, changed.augments) == (False, ("hue",))
    assert Setup.of(make_experiment(data__augment__rand_mirror=True, **two)).repeats
    in_workers = Setup.of(make_experiment(kvstore__update_on_kvstore=False, kvstore__type="dist_sync", **two))
    assert not in_workers.updates_on_servers
    assert not Setup.of(make_experiment(kvstore__type="dist_async", **two)).in_step


def test_a_trial_of_a_sweep_has_its_own_settings(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "one", [row()] * 2))
    trial = load(run, "one").trials[0]
    assert setup_of(run, trial).halves_bytes
    assert not setup_of(run, replace(trial, settings={"precision.wire_dtype": "float16"})).halves_bytes
    assert setup_of(run, replace(trial, settings={"no.such.key": 1})).halves_bytes


def write_run(folder: Path, name: str, rows: list[dict[str, Any]], batch: int = 128) -> str:
    """A run as raymx leaves it, as far as a report needs it."""
    trial = folder / name / "Trial_1_00000"
    trial.mkdir(parents=True)
    experiment = {
        "name": name,
        "model": {"net": "alexnet", "classes": 10},
        "data": {"train": "a.rec", "image_shape": [3, 8, 8]},
        "training": {"epochs": 2, "global_batch_size": batch},
        "resources": {"workers": 2},
    }
    (folder / name / "run.yaml").write_text(yaml.safe_dump({"experiment": experiment, "directory": str(folder)}))
    lines = [
        json.dumps({"epoch": at, "trial_id": "1_00000", "training_iteration": at, **one})
        for at, one in enumerate(rows, 1)
    ]
    (trial / "result.json").write_text("\n".join(lines) + "\n")
    return str(folder / name)


def test_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write_run(tmp_path, "one", [row(), row(host_waits=[])])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].strip() == (
        "a step took 100 ms: computing 50 %, waiting for gradients and weights 30 %, for data 15 %, for the slowest "
        "worker 3 %, held by the loop 2 %"
    )
    assert lines[2].strip() == "[####################============......!~]"
    assert lines[3].startswith("  1. 30 % of a step waits for gradients")


def test_two_runs_and_why_one_is_faster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = write_run(tmp_path, "slow", [row()] * 2)
    quick = row(communication_fraction=0.1, compute_fraction=0.7, train_s=14.0, samples_per_sec=1800.0)
    assert main([slow, write_run(tmp_path, "fast", [quick] * 2, batch=256)]) == 0
    said = capsys.readouterr().out
    assert "is 1.41x as fast as" in said
    at = said.index("is 1.41x")
    assert "waiting for gradients and weights: 0.0547 s and 0.234 s for 1,000 samples" in said[at:]


def test_a_run_without_measures_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write_run(tmp_path, "old", [{"train_loss": 1.0, "samples_per_sec": 5.0}])]) == 0
    assert "was not measured" in capsys.readouterr().out


def test_no_run_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("raymx: error: ")
