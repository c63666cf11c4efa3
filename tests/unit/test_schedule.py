"""The learning rate of every step."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.experiment.loading import ExperimentConfig, parse_experiment
from raymx.experiment.sizing import sized
from raymx.kvstore.schedule import Schedule, from_experiment


def experiment(kvstore: str = "auto", workers: int = 1, **training: Any) -> ExperimentConfig:
    return make_experiment(training=training, kvstore={"type": kvstore}, resources={"workers": workers})


def test_constant_without_warmup_and_decay() -> None:
    schedule = from_experiment(experiment(base_lr=0.2), 10)
    assert [schedule.lr(update) for update in (0, 1, 5, 10, 99)] == [0.2] * 5


@pytest.mark.parametrize(("rule", "peak"), [("linear", 0.4), ("sqrt", 0.2), ("none", 0.1)])
def test_rule(rule: str, peak: float) -> None:
    schedule = from_experiment(experiment(base_lr=0.1, global_batch_size=256, base_batch_size=64, lr_rule=rule), 10)
    assert schedule.peak == pytest.approx(peak)


def test_no_base_batch_means_the_batch_itself() -> None:
    assert from_experiment(experiment(base_lr=0.1, global_batch_size=999), 10).peak == 0.1


def test_warmup_is_linear_and_its_first_step_moves() -> None:
    schedule = Schedule(peak=1.0, warmup_steps=4)
    assert [schedule.lr(update) for update in (0, 1, 2, 2.5, 4, 5)] == [0.0, 0.25, 0.5, 0.625, 1.0, 1.0]


@pytest.mark.parametrize(
    ("training", "steps"),
    [
        ({"global_batch_size": 128, "base_batch_size": 64}, 10),
        ({"global_batch_size": 128, "base_batch_size": 64, "warmup_lengthen": False}, 5),
        ({"global_batch_size": 32, "base_batch_size": 64}, 5),
        ({"global_batch_size": 256, "base_batch_size": 64, "lr_rule": "sqrt"}, 10),
    ],
)
def test_warmup_is_lengthened_by_the_rule(training: dict[str, Any], steps: float) -> None:
    assert from_experiment(experiment(warmup_epochs=0.5, **training), 10).warmup_steps == steps


def test_async_has_a_lower_peak_and_a_longer_warmup() -> None:
    training = {"base_lr": 0.1, "warmup_epochs": 1, "async_lr_factor": 0.5, "async_warmup_factor": 3.0}
    schedule = from_experiment(experiment("dist_async", 2, **training), 10)
    assert schedule.peak == pytest.approx(0.1 * 0.5 / 2)  # an update is one of two workers' push: half a batch
    assert schedule.warmup_steps == 30
    assert from_experiment(experiment("dist_sync", 2, **training), 10).peak == 0.1


def test_cosine_falls_from_the_peak_over_the_steps_after_warmup() -> None:
    schedule = from_experiment(
        experiment(base_lr=1.0, epochs=3, warmup_epochs=1, decay={"type": "cosine", "final_lr": 0.2}), 10
    )
    assert schedule.lr(10) == schedule.lr(11) == 1.0
    assert schedule.lr(21) == pytest.approx(0.6)
    assert schedule.lr(30) > 0.2
    assert schedule.lr(31) == schedule.lr(1000) == pytest.approx(0.2)
    rates = [schedule.lr(update) for update in range(11, 32)]
    assert rates == sorted(rates, reverse=True)


def test_poly() -> None:
    schedule = Schedule(peak=1.0, total_steps=10, decay="poly", power=2.0)
    assert [schedule.lr(update) for update in (1, 6, 11)] == [1.0, 0.25, 0.0]


def test_step_decay_falls_after_the_given_epochs_of_the_whole_run() -> None:
    decay = {"type": "step", "epochs": [2, 3], "factor": 0.5}
    schedule = from_experiment(experiment(base_lr=1.0, epochs=4, warmup_epochs=1, decay=decay), 10)
    assert [schedule.lr(update) for update in (10, 20, 21, 30, 31)] == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_warmup_longer_than_the_run_does_not_divide_by_zero() -> None:
    schedule = Schedule(peak=1.0, warmup_steps=10, total_steps=10, decay="cosine")
    assert (schedule.lr(5), schedule.lr(10), schedule.lr(11)) == (0.5, 1.0, 1.0)


def test_a_shift_is_added_to_the_updates() -> None:
    plain, shifted = (
        Schedule(peak=1.0, warmup_steps=4, total_steps=20, decay="cosine", shift=shift) for shift in (0.0, -3.0)
    )
    assert [shifted.lr(update + 3) for update in range(30)] == [plain.lr(update) for update in range(30)]


@pytest.mark.parametrize("steps_per_epoch", [3, 7, 47, 1000])
def test_batches_of_one_size_need_no_shift(steps_per_epoch: int) -> None:
    for updates in range(0, 50 * steps_per_epoch, max(1, steps_per_epoch // 3)):
        epoch, step = divmod(updates, steps_per_epoch)
        schedule = from_experiment(
            experiment(), steps_per_epoch, updates=updates, position_epochs=epoch + step / steps_per_epoch
        )
        assert schedule.shift == 0.0


@pytest.mark.parametrize(("before", "after"), [(40, 20), (40, 60), (40, 30), (7, 3)])
@pytest.mark.parametrize("halfway", [0.25, 1.0, 2.5])  # of warmup, at its end, in the decay
def test_the_rate_goes_on_over_the_epochs_when_the_batch_changes(before: int, after: int, halfway: float) -> None:
    """Steps an epoch change from ``before`` to ``after``: by epochs, the rate is that of a run with one batch size."""
    wanted = experiment(base_lr=1.0, epochs=4, warmup_epochs=1, decay={"type": "cosine", "final_lr": 0.1})
    updates = round(halfway * before)
    position = updates / before
    first = from_experiment(wanted, before)
    second = from_experiment(wanted, after, position_epochs=position, updates=updates)
    always = from_experiment(wanted, after)
    for step in range(round((4 - position) * after)):
        update, epochs = updates + 1 + step, position + step / after
        assert second.lr(update) == pytest.approx(always.lr(epochs * after + 1), abs=1e-9)
    assert abs(second.lr(updates + 1) - first.lr(updates + 1)) <= 1 / min(before, after)  # one step of warmup


def test_the_rate_follows_the_rule_when_a_run_grows_with_its_batch() -> None:
    training = {"base_lr": 0.1, "global_batch_size": 32, "base_batch_size": 32}
    for workers, peak in ((2, 0.1), (4, 0.2), (8, 0.4)):
        wanted = parse_experiment(
            experiment(workers=2, **training).to_dict(),
            "/",
            {"resources.workers": {"min": 2, "max": 8}, "resources.on_resize": "keep_per_worker"},
        )
        assert from_experiment(sized(wanted, workers), 10).peak == pytest.approx(peak)


def test_describe() -> None:
    text = Schedule(peak=0.1, warmup_steps=5, total_steps=50, decay="cosine", final_lr=0.01).describe()
    assert text == "Learning rate 0.1 after 5 steps of linear warmup, then cosine decay to 0.01 at step 50."
    assert Schedule(peak=0.1).describe() == "Learning rate 0.1, then constant."
    assert "after step 20, 40" in Schedule(peak=0.1, decay="step", milestones=(20, 40)).describe()
