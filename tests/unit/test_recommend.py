"""What a sweep recommends: a change only where it gains something beyond the noise; and how to train that again."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment
from test_report import found_in

from raymx.cluster.placement import NodeResources
from raymx.driver.dry_run import rate
from raymx.experiment import rules
from raymx.report.answer import answer
from raymx.report.cell_summaries import CellSummary, Noise
from raymx.report.model import ComparedAxis, ObjectiveColumn
from raymx.sweep.plan import describe, prepare
from raymx.sweep.space import Space, check
from raymx.sweep.trial_records import effective_settings

ACCURACY = ObjectiveColumn("validation_accuracy", "max")
STORE = ComparedAxis("kvstore.type", "grid", ("dist_sync", "dist_async"))
COMPRESSION = ComparedAxis("kvstore.compression", "grid", ("none", "2bit"))
QUIET = Noise(0.005, 4, 0.02, 4)
LOUD = Noise(0.05, 4, 0.349, 4)


def cell(objective: float, speed: float, seconds: float | None = None, **axes: str) -> CellSummary:
    values = {f"kvstore.{name}": value for name, value in axes.items()}
    return CellSummary(values, str(axes), ("a", "b"), objective, 0.0, 2, speed, 2, seconds, 2, 2, None)


def chosen(cells: list[CellSummary], noise: Noise, *axes: ComparedAxis) -> Any:
    found = answer(cells, ACCURACY, noise, axes or (STORE,))
    assert found is not None
    return found


def test_what_is_neither_faster_beyond_the_noise_nor_better_is_not_recommended() -> None:
    cells = [cell(0.7615, 1000, type="dist_sync"), cell(0.7045, 1030, type="dist_async")]
    found = chosen(cells, LOUD)
    assert found.kept
    assert found.recommended is cells[0]


def test_what_is_faster_beyond_the_noise_and_not_worse_is_recommended() -> None:
    cells = [cell(0.76, 1000, type="dist_sync"), cell(0.758, 1300, type="dist_async")]
    found = chosen(cells, QUIET)
    assert not found.kept
    assert found.recommended is cells[1]


def test_what_is_faster_and_worse_beyond_the_noise_is_not() -> None:
    cells = [cell(0.76, 1000, type="dist_sync"), cell(0.70, 3000, type="dist_async")]
    assert chosen(cells, QUIET).kept


def test_what_is_better_beyond_the_noise_is_recommended_though_it_is_no_faster() -> None:
    cells = [cell(0.70, 1000, type="dist_sync"), cell(0.76, 900, type="dist_async")]
    assert chosen(cells, QUIET).recommended is cells[1]


def test_what_reaches_the_target_sooner_beyond_the_noise_is_recommended() -> None:
    cells = [cell(0.76, 1000, 20.0, type="dist_sync"), cell(0.76, 1000, 10.0, type="dist_async")]
    assert chosen(cells, QUIET).recommended is cells[1]
    assert chosen(cells, LOUD).kept


def test_of_two_changes_the_one_that_gains_nothing_is_taken_back() -> None:
    cells = [
        cell(0.76, 1000, type="dist_sync", compression="none"),
        cell(0.76, 1400, type="dist_sync", compression="2bit"),
        cell(0.76, 1005, type="dist_async", compression="none"),
        cell(0.76, 1410, type="dist_async", compression="2bit"),
    ]
    found = chosen(cells, QUIET, STORE, COMPRESSION)
    assert found.recommended is cells[1]
    assert not found.kept


@pytest.mark.parametrize(("speed", "kept"), [(1030, True), (1100, False)])
def test_without_repeats_five_percent_count_as_faster(speed: float, kept: bool) -> None:
    cells = [cell(0.76, 1000, type="dist_sync"), cell(0.76, speed, type="dist_async")]
    assert chosen(cells, Noise(None, 0, None, 0)).kept is kept


def test_a_kept_answer_says_so() -> None:
    found = found_in(axes={"kvstore.compression": ("none", "2bit 0.5")}, repeats=3)  # 1.4 times as fast, and worse
    assert any(text.startswith("No gain: keep compression none. ") for text in found.answer_sentences)


def slower(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    """As batch_lr 512 of two epochs: twice the peak, and warmup most of the time."""
    large = facts["axes"]["batch_lr"] == "512"
    facts.update(
        global_batch_size=512 if large else 128,
        peak_lr=0.2 if large else 0.05,
        warmup_epochs=4.0 if large else 1.0,
        settings={"training.global_batch_size": 512 if large else 128, "training.base_batch_size": 128},
    )
    for report in reports:
        report["steps"] = 12 if large else 46


def test_the_answer_has_the_rates_and_the_command_of_its_settings() -> None:
    text = " ".join(found_in(axes={"batch_lr": ("128", "512")}, repeats=2, change=slower).answer_sentences)
    assert "batch 128 has a peak of 0.05, 1 of 4 epochs of warmup and 184 steps" in text
    assert "batch 512 has a peak of 0.2, 4 of 4 epochs of warmup and 48 steps" in text
    assert "Warmup is most of the training of batch_lr 512 (4 of 4 epochs)" in text
    assert (
        "To train it alone: python -m raymx.run EXPERIMENT --set 'sweep.space={}' "
        "--set training.global_batch_size=128 --set training.base_batch_size=128"
    ) in text


def test_the_command_has_every_kind_of_value() -> None:
    def change(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        facts["settings"] = {"kvstore.compression": {"type": "2bit", "threshold": 0.5}, "precision.dtype": "float64"}

    text = " ".join(found_in(axes={"kvstore.compression": ("none", "2bit 0.5")}, change=change).answer_sentences)
    assert """--set 'kvstore.compression={"type": "2bit", "threshold": 0.5}' --set precision.dtype=float64""" in text


def test_the_settings_of_a_point_give_its_experiment_again() -> None:
    one = make_experiment(
        training={"global_batch_size": 128, "epochs": 2, "warmup_epochs": 0.5},
        sweep={"space": {"batch_lr": {"grid": [128, 512]}}},
    )
    space = Space(one)
    again = make_experiment({**space.settings({"batch_lr": "512"})}, training=one.to_dict()["training"])
    assert again.training == space.at({"batch_lr": "512"}).training
    assert rate(again) == "batch 512, learning rate 0.2 at its peak, warmup 2 of 2 epochs"


def test_the_dry_run_of_a_sweep_has_rates_warmup_and_notes_of_its_cells() -> None:
    one = make_experiment(
        data={"cpus": 1},
        training={"global_batch_size": 128, "base_lr": 0.05, "epochs": 2, "warmup_epochs": 0.5},
        sweep={"space": {"batch_lr": {"grid": [128, 384]}}},
    )
    node = [NodeResources("node", 8, 0)]
    lines = describe(prepare(one, node, node)).splitlines()
    assert lines[0].split() == ["cell", "batch_lr", "batch", "peak", "rate", "warmup", "CPU", "GPU", "verdict"]
    assert lines[2].split() == ["1", "384", "384", "0.15", "1.5", "of", "2", "3", "0", "runs"]
    assert "note: Warmup lasts 1.5 of 2 epochs, which is most of the training. (cell 1)" in lines


def test_the_command_of_a_cell_is_one_that_is_taken() -> None:
    axes = {"kvstore.type": {"grid": ["dist_sync", "dist_async"]}, "training.async_lr_factor": {"grid": [0.5, 1.0]}}
    space = Space(make_experiment(resources={"workers": 2}, sweep={"space": axes}))
    for kind, keys in (("dist_sync", ["kvstore.type"]), ("dist_async", list(axes))):
        settings = effective_settings(space, {"kvstore.type": kind, "training.async_lr_factor": "0.5"})
        assert list(settings) == keys
        check(make_experiment(settings, resources={"workers": 2}), settings)


@pytest.mark.parametrize(
    ("warmup", "said"), [(0.5, ""), (1.5, "which is most of the training"), (3.0, "never at its peak")]
)
def test_a_warmup_that_is_most_of_the_training_is_noted(warmup: float, said: str) -> None:
    found = " ".join(rules.notes(make_experiment(training={"epochs": 2, "warmup_epochs": warmup})))
    assert (said in found) if said else not found
