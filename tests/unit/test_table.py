"""What a sweep shows while it runs."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from raymx.driver.leaderboard import Leaderboard
from raymx.driver.sweep_display import SweepDisplay, as_rich
from raymx.experiment.loading import parse_experiment
from raymx.results.rows import steady
from raymx.sweep.trial_records import TrialRecord
from raymx.text.words import duration

NOW = 1000.0
EXPERIMENT = parse_experiment(
    {
        "name": "tiny",
        "model": {"net": "alexnet", "classes": 10},
        "data": {"train": "a", "image_shape": [3, 8, 8]},
        "training": {"epochs": 4},
    },
    "/",
)


def record(trial_id: str, **changes: Any) -> TrialRecord:
    return replace(
        TrialRecord(trial_id, 0, 0, {"precision.dtype": "<b>"}, EXPERIMENT, 3.0, 0.0).begun(NOW - 40), **changes
    )


def ended(trial_id: str, wall_s: float, **changes: Any) -> TrialRecord:
    return record(trial_id, state="finished", ended=NOW, wall_s=wall_s, since=None, **changes)


def leaderboard(**changes: Any) -> Leaderboard:
    return Leaderboard("validation_accuracy", 1, planned=4, at_once=1, classes=10, **changes)


def text_of(shown: Leaderboard) -> str:
    console = Console(file=io.StringIO(), width=150)
    console.print(as_rich(shown, NOW))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_trials_and_what_is_left() -> None:
    shown = leaderboard()
    shown.trial(ended("t_00000", 80.0))
    shown.trial(record("t_00001"))
    shown.row({"trial_id": "t_00000", "epoch": 4, "samples_per_sec": 1234.0, "validation_accuracy": 0.5})
    shown.progress("t_00001", {"epoch": 1, "step": 5, "steps": 10, "samples_per_sec": 2000.0})
    assert shown.left_s(NOW) == 40 + 2 * 80  # of the one that runs, and of two that have not begun
    text = text_of(shown)
    assert "finished" in text
    assert "0.5000" in text
    assert "1.5/4" in text
    assert "67 s" in text  # of trial 1: 1.5 epochs took 40 s, 2.5 are left
    assert "1 of 4 trials ended, 1 running; about 3 min left" in text


def test_a_score_beside_a_loss_that_is_nan_is_not_the_best() -> None:
    shown = leaderboard()
    shown.trial(record("a"))
    for loss, score in ((0.5, 0.4), (math.nan, 0.9)):
        shown.row({"trial_id": "a", "epoch": 1, "train_loss": loss, shown.metric: score})
    assert shown.standings["a"].best == 0.4


def test_the_best_value_counts_by_mode() -> None:
    for sign, best in ((1, 0.7), (-1, 0.3)):
        shown = Leaderboard("x", sign, 1, 1)
        shown.trial(record("a"))
        for value in (0.5, math.nan, 0.7, 0.3):
            shown.row({"trial_id": "a", "epoch": 1, "x": value})
        assert shown.standings["a"].best == best


def test_a_trials_figures_are_those_of_its_report() -> None:
    """Whatever its loop said since; and the last value is told beside the best one."""
    shown = leaderboard()
    shown.trial(ended("t_00000", 80.0))
    for epoch, (speed, value) in enumerate([(900.0, 0.2), (2600.0, 0.513), (2700.0, 0.087)], 1):
        shown.row({"trial_id": "t_00000", "epoch": epoch, "samples_per_sec": speed, "validation_accuracy": value})
        shown.progress("t_00000", {"epoch": epoch, "step": 5, "steps": 10, "samples_per_sec": 10493.0})
    assert shown.standings["t_00000"].speed == steady([900.0, 2600.0, 2700.0]) == 2650.0
    line = SweepDisplay(io.StringIO())
    line._leaderboard = shown
    assert "validation_accuracy best 0.5130, last 0.0870  2,650 samples/s" in line._ended(
        shown.standings["t_00000"].record
    )


def test_an_epoch_that_was_trained_again_counts_once() -> None:
    shown = leaderboard()
    shown.trial(record("a"))
    for epoch, speed in ((1, 100.0), (2, 900.0), (2, 300.0)):
        shown.row({"trial_id": "a", "epoch": epoch, "samples_per_sec": speed})
    assert shown.standings["a"].speed == 300.0


@pytest.mark.parametrize(
    ("row", "flag"),
    [
        ({"train_loss": math.nan}, "loss is NaN"),
        ({"train_loss": math.inf}, "loss is NaN"),
        ({"train_loss": 1.0, "validation_accuracy": 0.11}, "at chance"),
        ({"validation_accuracy": 0.5}, ""),
    ],
)
def test_flags(row: dict[str, float], flag: str) -> None:
    shown = leaderboard()
    shown.trial(record("a"))
    shown.row({"trial_id": "a", "epoch": 1, **row})
    assert shown.standings["a"].flag == flag


def test_a_trial_far_slower_than_its_twins() -> None:
    shown = leaderboard()
    for name, speed in (("a", 1000.0), ("b", 1050.0), ("c", 500.0)):
        shown.trial(ended(name, 10.0))
        shown.row({"trial_id": name, "epoch": 1, "samples_per_sec": speed})
    assert [shown.standings[name].flag for name in "abc"] == ["", "", "slower than its twins"]


def test_many_trials_fit() -> None:
    shown = leaderboard()
    for number in range(200):
        shown.trial(ended(f"t_{number:05}", 1.0))
    text = text_of(shown)
    assert len(text.splitlines()) < 25
    assert "184 not shown" in text


@pytest.mark.parametrize(("seconds", "text"), [(math.nan, ""), (45, "45 s"), (200, "3 min"), (9000, "2.5 h")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
