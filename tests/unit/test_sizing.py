"""The experiment at so many workers, and what a resumed run may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import make_experiment

from raymx.errors import ExperimentError
from raymx.experiment import rules
from raymx.experiment.loading import parse_experiment
from raymx.experiment.sizing import RESUME_MAY_CHANGE, resume_problems, sized
from raymx.results import run_folder

ELASTIC = {"resources__workers": {"min": 2, "max": 8}}
GROWING = ELASTIC | {"resources__on_resize": "keep_per_worker"}
ASYNC = {"kvstore__type": "dist_async"}


@pytest.mark.parametrize(
    ("overrides", "workers", "store"),
    [
        ({}, 1, "device"),
        ({"resources__workers": 3}, 3, "dist_sync"),
        (ELASTIC, 2, "dist_sync"),
        ({"resources__workers": {"min": 1, "max": 2}}, 1, "dist_sync"),
        ({"kvstore__type": "local"}, 1, "local"),
        (ELASTIC | {"kvstore__type": "dist_async"}, 8, "dist_async"),
    ],
)
def test_a_generation_has_one_number_of_workers_and_one_type_of_store(
    overrides: dict[str, Any], workers: int, store: str
) -> None:
    wanted = make_experiment(**overrides)
    found = sized(wanted, workers)
    assert (found.resources.workers, found.kvstore.type, rules.resolved_store_type(found)) == (workers, store, store)
    assert found.training == wanted.training
    assert found.directory == wanted.directory
    assert parse_experiment(found.to_dict(), "/") == found == sized(found, workers)


@pytest.mark.parametrize(
    ("batch", "workers", "expected"), [(128, 2, 128), (128, 3, 192), (128, 8, 512), (5, 3, 8), (2, 8, 8), (3, 3, 4)]
)
def test_keep_per_worker_grows_the_batch_with_the_workers(batch: int, workers: int, expected: int) -> None:
    found = sized(make_experiment(**GROWING, training__global_batch_size=batch), workers)
    assert (found.training.global_batch_size, found.training.base_batch_size) == (expected, batch)
    assert rules.batch_factor(found) == expected / batch
    assert found.training.global_batch_size >= workers


def test_a_base_batch_of_the_file_stays() -> None:
    found = sized(make_experiment(**GROWING, training__global_batch_size=64, training__base_batch_size=32), 4)
    assert (found.training.global_batch_size, found.training.base_batch_size) == (128, 32)
    assert rules.batch_factor(found) == 4


def test_an_update_of_async_stays_one_workers_part_when_the_batch_grows() -> None:
    wanted = make_experiment(**GROWING, kvstore__type="dist_async", training__global_batch_size=64)
    assert [rules.batch_factor(sized(wanted, workers)) for workers in (2, 4, 8)] == [0.5] * 3


def test_keep_global_leaves_the_batch() -> None:
    wanted = make_experiment(**ELASTIC)
    assert all(sized(wanted, workers).training == wanted.training for workers in (2, 5, 8))


def test_a_fixed_number_of_workers_has_nothing_to_grow() -> None:
    wanted = make_experiment(resources__workers=4, resources__on_resize="keep_per_worker")
    assert sized(wanted, 4).training == wanted.training


@pytest.mark.parametrize(("overrides", "workers"), [(ELASTIC, 1), (ELASTIC, 9), ({}, 2), ({}, 0)])
def test_a_size_that_is_not_allowed(overrides: dict[str, Any], workers: int) -> None:
    with pytest.raises(ValueError, match=rf"^workers is {workers}: this experiment runs with [12]"):
        sized(make_experiment(**overrides), workers)


# Resuming

FREE = {
    "resources__standby": False,
    "resources__resize_cooldown_s": 1,
    "failures": {"max": 0, "stall_timeout_s": 5},
    "checkpoint__every_steps": None,
    "checkpoint__every_s": 1,
    "report__disp_batches": 3,
}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {}),
        ({}, FREE),
        (FREE, ELASTIC | {"kvstore__type": "device", "resources__workers": 1}),
        ({"resources__workers": 2}, {"resources__workers": 5}),
        ({"resources__workers": 2}, ELASTIC),
        (ELASTIC, {"resources__workers": 2}),
        (ELASTIC, {"resources__workers": {"min": 1, "max": 3}}),
        (ELASTIC, {"resources__workers": 1, "kvstore__type": "dist_sync"}),  # what auto was
        (ASYNC | {"resources__workers": 1}, ASYNC | {"resources__workers": 4}),
        (GROWING, GROWING | {"resources__workers": {"min": 2, "max": 3}}),
        (GROWING, GROWING | {"resources__workers": 2}),
    ],
)
def test_what_does_not_change_what_is_computed_may_change(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert resume_problems(make_experiment(**before), make_experiment(**now)) == []


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {"training__base_lr": 0.3}, "training.base_lr was 0.05 and is 0.3"),
        (
            {},
            {"training__optimizer": {"name": "sgd", "momentum": 0.9}},
            "training.optimizer.momentum was None and is 0.9",
        ),
        ({}, {"checkpoint__keep_best": 3}, "checkpoint.keep_best was 2 and is 3"),
        ({}, {"resources__cpus_per_worker": 2}, "resources.cpus_per_worker was 1 and is 2"),
        (ELASTIC, GROWING, "resources.on_resize was 'keep_global' and is 'keep_per_worker'"),
        ({}, {"resources__workers": 2}, "kvstore.type was device (auto, 1 worker) and is dist_sync (auto, 2 workers)"),
        (
            ELASTIC,
            {"resources__workers": 1},
            "kvstore.type was dist_sync (auto, 2 to 8 workers) and is device (auto, 1 worker): set it to dist_sync",
        ),
        (ELASTIC, ELASTIC | {"kvstore__type": "dist_async"}, "and is dist_async (dist_async, 2 to 8 workers)"),
        (GROWING, GROWING | {"resources__workers": {"min": 3, "max": 8}}, "was for 2 workers and is for 3"),
        (GROWING, GROWING | {"resources__workers": 4}, "training.global_batch_size was for 2 workers and is for 4"),
    ],
)
def test_everything_else_must_be_as_it_was(before: dict[str, Any], now: dict[str, Any], expected: str) -> None:
    (problem,) = resume_problems(make_experiment(**before), make_experiment(**now))
    assert expected in problem


def test_a_refused_resume_says_what_may_change(tmp_path: Path) -> None:
    run_folder.record(str(tmp_path), "run", make_experiment())
    run_folder.check_same(make_experiment(**FREE), str(tmp_path / "run"))
    with pytest.raises(ExperimentError) as error:
        run_folder.check_same(make_experiment(training__seed=2, training__epochs=2), str(tmp_path / "run"))
    text = str(error.value)
    assert text.splitlines()[1:3] == ["  training.epochs was 1 and is 2", "  training.seed was 1 and is 2"]
    assert text.endswith(f"start a new run; only {', '.join(RESUME_MAY_CHANGE)} may change")
