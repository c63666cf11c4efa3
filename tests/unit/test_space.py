"""A sweep's axes, the points in its space, and the experiment of each."""

from __future__ import annotations

import random
from typing import Any

import pytest
from factories import make_experiment

from raymx.errors import ExperimentError
from raymx.experiment.loading import ExperimentConfig
from raymx.sweep.axis import axes_of, in_words, label, short
from raymx.sweep.space import Space, experiment_of, run_id_of, trial_config

TWO_BIT = {"type": "2bit", "threshold": 0.5}


def experiment(space: dict[str, Any], **sweep: Any) -> ExperimentConfig:
    return make_experiment(training={"global_batch_size": 64, "seed": 7}, sweep={"space": space, **sweep})


def grid(*values: object) -> dict[str, Any]:
    return {"grid": list(values)}


def test_no_axis_is_one_point() -> None:
    assert Space(experiment({})).points() == [{}]


def test_a_grid_is_every_combination() -> None:
    space = Space(
        experiment({"precision.dtype": grid("float32", "float64"), "kvstore.compression": grid("none", TWO_BIT)})
    )
    assert space.points() == [
        {"precision.dtype": "float32", "kvstore.compression": "none"},
        {"precision.dtype": "float32", "kvstore.compression": "2bit 0.5"},
        {"precision.dtype": "float64", "kvstore.compression": "none"},
        {"precision.dtype": "float64", "kvstore.compression": "2bit 0.5"},
    ]


def test_what_is_drawn_is_the_same_for_every_point_of_the_grid() -> None:
    space = Space(
        experiment({"training.base_lr": {"loguniform": [0.01, 0.3]}, "kvstore.type": grid("auto", "device")}, samples=3)
    )
    points = space.points()
    assert len(points) == 6
    rates = {kind: [p["training.base_lr"] for p in points if p["kvstore.type"] == kind] for kind in ("auto", "device")}
    assert rates["auto"] == rates["device"]
    assert len(set(rates["auto"])) == 3
    assert all(0.01 <= rate <= 0.3 for rate in rates["auto"])
    assert points == space.points()


def test_random_draws_from_grids_too_and_never_a_point_twice() -> None:
    points = Space(
        experiment({"kvstore.type": grid("auto", "device"), "training.epochs": grid(1, 2)}, search="random", samples=10)
    ).points()
    assert len(points) == 4
    assert len({tuple(point.values()) for point in points}) == 4


@pytest.mark.parametrize(
    ("axis", "low", "high", "kind"),
    [({"uniform": [0.001, 1]}, 0.001, 1, float), ({"loguniform": [1e-5, 1]}, 1e-5, 1, float)],
)
def test_ranges(axis: dict[str, Any], low: float, high: float, kind: type) -> None:
    values = [p["training.base_lr"] for p in Space(experiment({"training.base_lr": axis}, samples=50)).points()]
    assert all(isinstance(value, kind) and low <= value <= high for value in values)
    below = sum(value < (low * high) ** 0.5 for value in values)
    assert (below > 15) == ("loguniform" in axis)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("uniform", 0.9, 0.99999),
        ("uniform", 0.99991, 0.99999),
        ("loguniform", 0.000123456, 0.000123789),
        ("uniform", 12345.6, 12345.9),
        ("uniform", 0.0, 1.0),
    ],
)
def test_what_is_drawn_lies_in_its_range_and_fills_it(kind: str, low: float, high: float) -> None:
    """Four figures of 0.99997 would be 1, which is no momentum, and all of a narrow range would be one value."""
    (axis,) = axes_of({"training.optimizer.beta2": {kind: [low, high]}})
    numbers = random.Random(1)
    drawn = [float(axis.draw(numbers)) for _ in range(200)]
    assert all(low <= value <= high for value in drawn)
    assert len(set(drawn)) > 100
    assert [axis.bounded(end) for end in (low - 1, low, high, high + 1)] == [low, low, high, high]


def test_four_figures_are_enough_for_a_wide_range() -> None:
    assert [short(number, 1e-5, 1e-1) for number in (1.23456e-5, 0.0123456)] == [1.235e-5, 0.01235]
    assert short(0.04999999, 0, 0.1) == 0.05


def test_whole_numbers() -> None:
    points = Space(experiment({"training.epochs": {"randint": [1, 4]}}, samples=20)).points()
    assert sorted(point["training.epochs"] for point in points) == [1, 2, 3]


def test_an_experiment_of_a_point() -> None:
    space = Space(
        experiment({"kvstore.compression": grid("none", TWO_BIT), "training.base_lr": {"uniform": [0.1, 0.2]}})
    )
    made = space.at({"kvstore.compression": "2bit 0.5", "training.base_lr": 0.15}, repeat=2)
    assert made.kvstore.compression.type == "2bit"
    assert made.kvstore.compression.threshold == 0.5
    assert made.training.base_lr == 0.15
    assert made.training.seed == 9
    assert made.sweep.space == {}


def test_batch_lr_moves_both() -> None:
    from raymx.experiment.rules import batch_factor

    space = Space(experiment({"batch_lr": grid(64, 128)}))
    made = space.at({"batch_lr": "128"})
    assert made.training.global_batch_size == 128
    assert batch_factor(made) == 2
    assert batch_factor(space.at({"batch_lr": "64"})) == 1


def test_a_trial_gets_its_experiment_out_of_its_config() -> None:
    made = experiment({"resources.gpus_per_worker": grid(0, "auto"), "training.epochs": grid(1, 2)})
    point = {"axes": {"resources.gpus_per_worker": "auto", "training.epochs": "2"}, "cell": 3, "repeat": 1}
    found, gpus = experiment_of(trial_config(made, made.to_dict(), "run", gpus=4, point=point))
    assert (found.training.epochs, found.training.seed, gpus) == (2, 8, 4)
    none, gpus = experiment_of(trial_config(made, made.to_dict(), "run", gpus=4))
    assert (none.training.epochs, gpus) == (1, 0)


def test_a_resumed_trial_is_told_where_things_are_now() -> None:
    """Tune keeps what is plain in a trial's config, and gives it ``cluster`` anew."""
    before, now = experiment({}), experiment({}).model_copy(update={"directory": "/now"})
    config = trial_config(before, before.to_dict(), "run")
    assert run_id_of(config) == "run"
    config["cluster"] = trial_config(now, now.to_dict(), "renamed")["cluster"]
    assert experiment_of(config)[0].directory == "/now"
    assert run_id_of(config) == "renamed"
    old = {**config, "cluster": {"gpus_per_worker": 0}}  # of a run that an older release began
    assert (run_id_of(old), experiment_of(old)[0].directory) == ("run", before.directory)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("float32", "float32"),
        (64, "64"),
        (0.5, "0.5"),
        (True, "true"),
        (None, "null"),
        (TWO_BIT, "2bit 0.5"),
        ({"min": 2, "max": 8}, "2:8"),
        ({"type": "none"}, "none"),
        ([0.1, 2], "[0.1, 2]"),
        ({"name": "adam", "beta1": 0.9, "wd": 0.1}, "adam beta1=0.9 wd=0.1"),
        ({"all": {}}, "all={}"),
    ],
)
def test_labels(value: object, expected: str) -> None:
    assert label(value) == expected


def test_a_point_in_words() -> None:
    assert in_words({"precision.dtype": "float16", "batch_lr": "64"}) == "dtype float16, batch_lr 64"


@pytest.mark.parametrize(
    ("space", "sweep", "message"),
    [
        ({"precision.dtype": grid("flot16")}, {}, 'sweep.space.precision.dtype: precision.dtype is "flot16"'),
        ({"precision.dtyp": grid("float16")}, {}, "did you mean precision.dtype?"),
        ({"training.base_lr": {"uniform": [0, 1]}}, {}, "training.base_lr is 0"),
        ({"kvstore.compression": grid("none"), "kvstore.compression.type": grid("none")}, {}, "sets the second too"),
        ({"batch_lr": grid(1), "training.global_batch_size": grid(1)}, {}, "batch size of its own"),
        ({"training.seed": grid(1, 2)}, {"repeats": 2}, "leave one of them out"),
        ({"checkpoint.every_s": grid(1)}, {}, "no axis"),
        ({"training.epochs": grid(1, 1)}, {}, "a value twice"),
        ({"training.epochs": grid(1, 2)}, {"search": "bohb", "repeats": 2}, "bohb follows each trial's own result"),
        ({"training.epochs": grid(1, 2)}, {"search": "bohb", "scheduler": "asha"}, "bohb goes with hyperband"),
        ({"training.epochs": grid(1, 2)}, {"search": "optuna", "scheduler": "pbt"}, "pbt chooses settings itself"),
        (
            {"training.epochs": grid(1, 2)},
            {"scheduler": "pbt", "max_concurrent_trials": 2},
            "sweep.max_concurrent_trials",
        ),
        ({"training.epochs": grid(1, 2)}, {"scheduler": "hyperband", "max_share": 0.5}, "sweep.max_share is 0.5"),
    ],
)
def test_what_no_sweep_can_be(space: dict[str, Any], sweep: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as error:
        Space(experiment(space, **sweep)).check()
    assert message in str(error.value)


@pytest.mark.parametrize(
    "axis",
    [
        [1, 2],
        {"grid": []},
        {"grid": 1},
        {"grid": [1], "choice": [1]},
        {"log": [1, 2]},
        {"uniform": [2, 1]},
        {"uniform": [1]},
        {"uniform": [1, "2"]},
        {"loguniform": [0, 1]},
        {"randint": [1, 2.5]},
        {},
    ],
)
def test_what_no_axis_can_be(axis: object) -> None:
    with pytest.raises(ExperimentError, match=r"^sweep\.space\.training\.epochs is "):
        experiment({"training.epochs": axis})
