"""The tables: every row is complete, the schema and the rules agree with them, and a row more is known everywhere."""

from __future__ import annotations

import dataclasses
import pickle
import pkgutil
import random
from collections.abc import Mapping
from typing import Any

import pytest
from conftest import ROOT

from raymx.data.pipeline.augmentations import AUGMENTATIONS, changes_colour, colour_matrix, shifts_picture
from raymx.errors import ExperimentError
from raymx.experiment import names, rules, store_types
from raymx.experiment.axis_kinds import AXIS_KINDS, AxisKind, forms
from raymx.experiment.loading import ExperimentConfig, parse_experiment
from raymx.experiment.lr_rules import LR_RULES, LearningRateRule
from raymx.experiment.schema import Augment
from raymx.experiment.search_libraries import SEARCH_LIBRARIES, SearchLibrary
from raymx.experiment.store_types import STORE_TYPES, StoreType
from raymx.experiment.sweep_schema import TrialScheduler
from raymx.experiment.trial_schedulers import TRIAL_SCHEDULERS, TrialSchedulerType
from raymx.report.diagnoses import KINDS
from raymx.sweep.combinations import check_installed, pausing, scheduler_of
from raymx.sweep.space import Space, trial_config

TABLES: dict[str, Mapping[str, Any]] = {
    "kvstore.type": STORE_TYPES,
    "sweep.scheduler": TRIAL_SCHEDULERS,
    "sweep.search": SEARCH_LIBRARIES,
    "training.lr_rule": LR_RULES,
}


def experiment(**overrides: Any) -> ExperimentConfig:
    raw = {"name": "tiny", "model": {"net": "alexnet", "classes": 10}, "data": {"train": "a", "image_shape": [3, 8, 8]}}
    return parse_experiment(raw, "/", {key.replace("__", "."): value for key, value in overrides.items()})


@pytest.mark.parametrize("table", [*TABLES.values(), AXIS_KINDS])
def test_rows_say_what_they_are(table: Mapping[str, Any]) -> None:
    for name, row in table.items():
        assert row.name == name
        assert row.meaning.endswith(".")


@pytest.mark.parametrize("key", TABLES)
def test_the_schema_takes_the_names_of_a_table(key: str) -> None:
    for name in TABLES[key]:
        parse_experiment(experiment().to_dict(), "/", {key: name})
    with pytest.raises(ExperimentError, match=rf"{', '.join(TABLES[key])} \(given by"):
        parse_experiment(experiment().to_dict(), "/", {key: "nothing of it"})


@pytest.mark.parametrize("key", TABLES)
def test_a_row_more_is_a_name_more(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    table = TABLES[key]
    monkeypatch.setitem(table, "brand_new", dataclasses.replace(next(iter(table.values())), name="brand_new"))  # type: ignore[arg-type]
    parse_experiment(experiment().to_dict(), "/", {key: "brand_new"})
    with pytest.raises(ExperimentError, match=r"brand_new; did you mean brand_new\?"):
        parse_experiment(experiment().to_dict(), "/", {key: "brandnew"})


# ---- KVStore types ----


def test_the_rules_go_by_a_store_types_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, row in STORE_TYPES.items():
        made = experiment(kvstore__type=name)
        assert (rules.is_dist(made), rules.is_async(made)) == (row.is_dist, row.is_async)
        assert bool(rules.problems(experiment(kvstore__type=name, kvstore__compression="2bit"))) != row.can_compress
        assert row.is_dist == ("dist" in name)
        assert row.is_async == ("async" in name)
        assert row.adds_up_on_devices == ("device" in name)
    ring = StoreType("ring", "All to all.", is_dist=True, is_async=True, can_compress=False, aliases=("ring2",))
    monkeypatch.setitem(STORE_TYPES, "ring", ring)
    made = experiment(kvstore__type="Ring2", kvstore__compression="2bit", resources__workers=2)
    assert rules.resolved_store_type(made) == "ring"
    assert rules.is_async(made)
    assert [problem.reason for problem in rules.problems(made)] == ["a store of type ring cannot compress"]


def test_aliases_are_no_names() -> None:
    for row in STORE_TYPES.values():
        for alias in row.aliases:
            assert alias not in STORE_TYPES
            assert store_types.spelled(alias.upper()) == row.name
    assert store_types.AUTO not in STORE_TYPES


# ---- trial schedulers and searches ----


def sweep(**options: Any) -> ExperimentConfig:
    return experiment(sweep__space={"training.base_lr": {"uniform": [0.1, 0.2]}}, training__epochs=4, **options)


def test_a_trial_schedulers_arguments_are_those_of_tunes_class() -> None:
    schedulers = pytest.importorskip("raymx.sweep.schedulers")
    given = {*TrialScheduler.model_fields, "epochs", "time", "space", "seed"} - {"name"}
    for name, row in TRIAL_SCHEDULERS.items():
        assert set(row.arguments.values()) <= given
        made = schedulers.trial_scheduler(sweep(sweep__scheduler=name))
        assert isinstance(made, schedulers.Fair)
        assert isinstance(made, pkgutil.resolve_name(row.tune_class))
        assert pickle.loads(pickle.dumps(type(made))) is type(made)


@pytest.mark.parametrize(("axis", "most"), [({"grid": [2, 6]}, 6), ({"grid": [6, 2]}, 6), ({"randint": [2, 9]}, 8)])
def test_the_longest_trial_of_asha_is_that_of_the_space(axis: dict[str, Any], most: int) -> None:
    schedulers = pytest.importorskip("raymx.sweep.schedulers")
    space = {"training.epochs": axis}
    one = experiment(sweep__space=space, sweep__scheduler="asha", sweep__search="random", training__epochs=4)
    assert Space(one).epochs == (2, most)
    assert schedulers.trial_scheduler(one)._max_t == most


def test_a_trial_is_at_its_end_after_the_epochs_of_its_own_point() -> None:
    fair = pytest.importorskip("raymx.sweep.fair")
    one = experiment(sweep__space={"training.epochs": {"grid": [2, 6]}}, sweep__scheduler="asha", training__epochs=2)
    config = trial_config(one, one.to_dict(), "run", point={"axes": {"training.epochs": "6"}, "cell": 1, "repeat": 0})
    assert [fair._at_its_end(config, {"epoch": epoch}) for epoch in (2, 6)] == [False, True]


@pytest.mark.parametrize("options", [{"sweep__scheduler": "hyperband"}, {"sweep__search": "bohb"}])
def test_trials_that_are_paused_together_are_of_one_length(options: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError, match=r"sweep\.space has training\.epochs, and hyperband itself says"):
        Space(experiment(sweep__space={"training.epochs": {"grid": [2, 6]}}, **options)).check()


def test_every_setting_of_trial_schedulers_is_of_one() -> None:
    used = {name for row in TRIAL_SCHEDULERS.values() for name in row.arguments.values()}
    assert set(TrialScheduler.model_fields) - {"name"} <= used


@pytest.mark.parametrize(
    "name", ["FairFIFO", "FairASHA", "FairHyperBand", "FairMedian", "FairPBT", "FairBOHB", "_Explore"]
)
def test_runs_of_before_find_their_classes(name: str) -> None:
    assert isinstance(getattr(pytest.importorskip("raymx.sweep.schedulers"), name), type)


def test_a_row_more_makes_a_trial_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    schedulers = pytest.importorskip("raymx.sweep.schedulers")
    row = TrialSchedulerType(
        "halving", "Halves.", "ray.tune.schedulers:AsyncHyperBandScheduler", {"max_t": "epochs"}, pauses=True
    )
    monkeypatch.setitem(TRIAL_SCHEDULERS, "halving", row)
    made = schedulers.trial_scheduler(sweep(sweep__scheduler="halving"))
    assert type(made) is schedulers.FairAsyncHyperBand
    assert made._max_t == 4
    with pytest.raises(ExperimentError, match="use fifo, asha or median"):
        Space(sweep(sweep__scheduler="halving", sweep__max_share=0.5)).check()


def test_searches_are_complete() -> None:
    packages = (ROOT / "pyproject.toml").read_text()
    for name, row in SEARCH_LIBRARIES.items():
        assert row.listed == (not row.module)
        assert row.listed or f"\n{name} = [" in packages
        assert not row.trial_scheduler or row.trial_scheduler in TRIAL_SCHEDULERS
        assert ":" in row.searcher or row.listed
    assert [name for name, row in SEARCH_LIBRARIES.items() if row.walks_grids] == ["grid"]


def test_a_search_that_goes_with_one_trial_scheduler_has_it() -> None:
    assert scheduler_of(sweep(sweep__search="bohb").sweep).name == "hyperband"
    assert pausing(sweep(sweep__search="bohb").sweep)
    assert not pausing(sweep(sweep__search="optuna").sweep)


def test_a_row_more_is_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        SEARCH_LIBRARIES, "oracle", SearchLibrary("oracle", "Knows.", "a:B", "no_such_module", samples=3)
    )
    made = sweep(sweep__search="oracle")
    assert Space(made).searched
    assert Space(made).samples == 3
    with pytest.raises(ExperimentError, match=r'pip install "raymx\[oracle\]", or use grid or random'):
        check_installed(made.sweep)


# ---- kinds of axes ----


def test_kinds_of_axes_draw_within_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    tune = pytest.importorskip("ray.tune")
    numbers = random.Random(0)
    for name, row in AXIS_KINDS.items():
        assert row.problem([1, 4]) == ""
        if row.draw is not None:
            assert all(1 <= row.draw(numbers, 1, 4) <= 4 for _ in range(100))
            assert callable(getattr(tune, name))
    monkeypatch.setitem(
        AXIS_KINDS, "middle", AxisKind("middle", "The middle.", lambda numbers, low, high: (low + high) / 2)
    )
    assert forms()[-1] == "{middle: [low, high]}"
    space = Space(experiment(sweep__space={"training.base_lr": {"middle": [1, 2]}}))
    assert space.points() == [{"training.base_lr": 1.5}]


# ---- losses, metrics, initializers, rates ----


def test_the_rule_of_a_row_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LR_RULES, "cubic", LearningRateRule("cubic", "Its cube.", lambda ratio: ratio**3))
    made = experiment(training__lr_rule="cubic", training__global_batch_size=64, training__base_batch_size=32)
    assert rules.batch_factor(made) == 8


def test_names_are_of_gluon_and_of_the_metrics_module() -> None:
    mx = pytest.importorskip("mxnet")
    from raymx.training import metrics

    assert all(hasattr(mx.gluon.loss, kind) for kind in names.LOSSES.values())
    assert all(hasattr(mx.init, kind) for kind in names.INITIALIZERS.values() if kind)
    assert all(callable(getattr(metrics, name)) for name in names.METRICS)


# ---- augmentations ----

ON: dict[str, Any] = {"rand_crop": True, "random_resized_crop": True, "rand_mirror": True, "pad": 4}


def test_augmentations_are_the_keys_of_the_schema() -> None:
    keys = [key for row in AUGMENTATIONS for key in row.keys]
    assert len(set(keys)) == len(keys)
    assert {*keys, *(key for row in AUGMENTATIONS for key in row.settings)} == set(Augment.model_fields)
    assert not set(keys) & {key for row in AUGMENTATIONS for key in row.settings}


@pytest.mark.parametrize("row", AUGMENTATIONS)
def test_an_augmentation_is_on_by_its_keys(row: Any) -> None:
    assert set(row.colour_only) <= set(row.keys)
    for key in row.keys:
        augment = Augment(**{key: ON.get(key, 0.25)})
        assert row.is_on(augment, 3)
        assert row.is_on(augment, 1) == (key not in row.colour_only)
        assert [other for other in AUGMENTATIONS if other.is_on(augment, 3)] == [row]
        assert not row.is_on(Augment(), 3)


def test_a_change_of_colour_more_changes_no_number_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from raymx.data.pipeline import augmentations, colours
    from raymx.data.pipeline.augment import generator

    augment = Augment(brightness=0.5, hue=0.1, pca_noise=0.1, pad=3)
    before = colour_matrix(augment, generator(1, 2, 3), (1.0, 2.0, 3.0))
    negative = augmentations.Colour(
        ("pad",), draw=colours.uniform(1), apply=lambda of, augment, numbers, mean: of * (1 if numbers[0] < 0 else -1)
    )
    monkeypatch.setattr(augmentations, "COLOURS", (*augmentations.COLOURS, negative))
    after = [colour_matrix(augment, generator(1, 2, 3), (1.0, 2.0, 3.0)) for _ in range(2)]
    assert (abs(after[0]) == abs(before)).all()
    assert (after[0] == after[1]).all()
    assert changes_colour(Augment(pad=3), 1)
    assert shifts_picture(Augment(pad=3))


# ---- diagnoses ----


def test_diagnoses_say_what_they_are() -> None:
    words = [row.word for row in KINDS.values()]
    assert len(set(words)) == len(words)
    for row in KINDS.values():
        assert row.advice.endswith(".")
        assert callable(row.find)
