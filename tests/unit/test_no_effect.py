"""Settings that change nothing: cells that are one cell, axes and flags that are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.cluster.placement import NodeResources
from raymx.errors import ExperimentError
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.without_effect import effective, idle
from raymx.sweep import space
from raymx.sweep.plan import RunPlan, describe, prepare
from raymx.sweep.space import Space

TWO_BIT = {"type": "2bit", "threshold": 0.05}


def sweep_over(axes: dict[str, list[Any]], overrides: dict[str, Any] | None = None, **given: Any) -> ExperimentConfig:
    axes_of = {key: {"grid": values} for key, values in axes.items()}
    return make_experiment(
        overrides, sweep={"space": axes_of}, **{"resources": {"workers": 2}, "data": {"cpus": 1}, **given}
    )


def prepared(one: ExperimentConfig) -> RunPlan:
    nodes = [NodeResources("node", 64, 0)]
    return prepare(one, nodes, nodes)


@pytest.mark.parametrize(
    ("key", "values", "given", "why"),
    [
        ("kvstore.compression.threshold", [0.5, 0.05], {}, "kvstore.compression.type is none"),
        ("training.decay.factor", [0.1, 0.5], {}, "training.decay.type is none"),
        ("training.decay.epochs", [[1], [2]], {"training": {"decay": "cosine"}}, "training.decay.type is cosine"),
        ("training.async_lr_factor", [0.5, 1.0], {}, "dist_sync is not async"),
        ("kvstore.servers", [1, 2], {"resources": {"workers": 1}}, "a store of type device has no servers"),
        ("kvstore.type", ["auto", "device"], {"resources": {"workers": 1}}, "come to the same experiment"),
        ("data.chunk_records", [8, 16], {}, "data.order is global"),
        ("training.lr_rule", ["linear", "sqrt"], {}, "training.base_batch_size"),
    ],
)
def test_an_axis_that_changes_nothing_is_refused_by_name(
    key: str, values: list[Any], given: dict[str, Any], why: str
) -> None:
    with pytest.raises(ExperimentError) as error:
        space.check(sweep_over({key: values}, **given))
    assert str(error.value).startswith(f"sweep.space.{key} changes nothing: ")
    assert why in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    space.check(sweep_over({key: values}, **given), resumed=True)  # a sweep that was begun with it goes on


def test_an_axis_that_changes_something_in_one_cell_is_an_axis() -> None:
    one = sweep_over({"kvstore.compression.threshold": [0.5, 0.05], "kvstore.compression.type": ["none", "2bit"]})
    space.check(one)


def test_a_range_that_changes_nothing_is_refused_too() -> None:
    one = make_experiment(sweep={"space": {"training.async_lr_factor": {"uniform": [0.5, 1.0]}}, "search": "random"})
    with pytest.raises(ExperimentError, match=r"sweep\.space\.training\.async_lr_factor changes nothing"):
        space.check(one)


def test_cells_that_come_to_the_same_are_one_cell_and_it_is_said() -> None:
    found = prepared(
        sweep_over({"kvstore.type": ["dist_sync", "dist_async"], "training.async_lr_factor": [0.5, 0.75, 1.0]})
    )
    reasons = [cell.reason for cell in found.cells]
    assert [bool(reason) for reason in reasons] == [False, True, True, False, False, False]
    assert reasons[1] == "training.async_lr_factor changes nothing: dist_sync is not async; the same as cell 0"
    assert found.trials == 4
    assert "the same as cell 0" in describe(found)


def test_a_sweep_of_one_threshold_keeps_its_cells() -> None:
    found = prepared(sweep_over({"kvstore.compression": ["none", TWO_BIT, {"type": "2bit", "threshold": 0.5}]}))
    assert [cell.reason for cell in found.cells] == ["", "", ""]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"kvstore.compression.threshold": 0.2},
            "--gc-threshold 0.2 changes nothing: kvstore.compression.type is none; leave it out, or change that",
        ),
        (
            {"training.decay.power": 3.0},
            "--set training.decay.power=3.0 changes nothing: training.decay.type is none; leave it out, or change that",
        ),
    ],
)
def test_a_flag_that_changes_nothing_is_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(ExperimentError) as error:
        space.check(make_experiment(given), given)
    assert str(error.value) == message


def test_a_flag_that_some_cell_needs_is_none_that_changes_nothing() -> None:
    given = {"kvstore.compression.threshold": 0.2}
    one = sweep_over({"kvstore.compression.type": ["none", "2bit"]}, overrides=given)
    space.check(one, given)
    both = {**given, "kvstore.compression.type": "2bit"}
    space.check(make_experiment(both), both)


def test_servers_of_a_store_without_any_are_refused_only_where_more_were_asked_for() -> None:
    space.check(make_experiment({"kvstore.servers": 1}), {"kvstore.servers": 1})
    with pytest.raises(ExperimentError, match="--num-servers 2 changes nothing"):
        space.check(make_experiment({"kvstore.servers": 2}), {"kvstore.servers": 2})


def test_what_can_be_written_in_several_ways_is_the_same() -> None:
    one = make_experiment(training={"global_batch_size": 64})
    assert effective(one) == effective(make_experiment(training={"global_batch_size": 64, "base_batch_size": 64}))
    assert effective(one) == effective(make_experiment({"kvstore.type": "device"}, training={"global_batch_size": 64}))
    assert effective(one) != effective(make_experiment(training={"global_batch_size": 64, "seed": 2}))
    assert effective(one) != effective(make_experiment(training={"global_batch_size": 64, "base_batch_size": 32}))


def test_nothing_of_the_default_experiment_with_everything_on_is_idle() -> None:
    one = make_experiment(
        kvstore={"type": "dist_async", "compression": TWO_BIT},
        resources={"workers": {"min": 2, "max": 4}},
        training={"decay": {"type": "poly"}, "warmup_epochs": 1.0},
    )
    known = {"kvstore.compression.threshold", "training.async_lr_factor", "training.decay.power"}
    assert not known & set(idle(one))
    assert Space(one).points() == [{}]
