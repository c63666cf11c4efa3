"""Every KVStore type trains the default experiment; one trial is re-formed warm from each to the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import EXPERIMENTS, TrialByHand

from raymx.experiment.loading import load_experiment

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

DIST = ["dist_sync", "dist_async", "dist_sync_device", "dist_async_device"]
TWO_BIT: dict[str, Any] = {"type": "2bit", "threshold": 0.05}


@pytest.fixture(scope="module")
def trial(ray_cluster: None) -> Iterator[TrialByHand]:
    by_hand = TrialByHand([{"CPU": 1}, {"CPU": 3}, {"CPU": 3}])
    yield by_hand
    by_hand.close()


def experiment(**overrides: Any) -> Any:
    keys = {"training.epochs": 1} | {key.replace("__", "."): value for key, value in overrides.items()}
    return load_experiment(EXPERIMENTS / "fashion_mnist.yaml", keys)


def check(row: dict[str, Any], workers: int, asynchronous: bool = False) -> None:
    assert row["epoch"] == 1
    assert row["num_workers"] == workers
    # After one epoch of ten classes, where chance is 0.1; async workers race, so what they reach varies.
    assert row["validation_accuracy"] > (0.25 if asynchronous else 0.5)
    assert row["samples_per_sec"] > 0
    assert row["first_step_s"] > 0
    assert 0 <= row["data_wait_fraction"] < 1
    assert row["train_loss"] > 0


@pytest.mark.parametrize(
    ("store", "servers", "compression"), [*itertools.product(DIST, [1, 2], [{"type": "none"}, TWO_BIT])]
)
def test_dist(trial: TrialByHand, store: str, servers: int, compression: dict[str, Any]) -> None:
    row = trial.begin(
        experiment(kvstore__type=store, kvstore__servers=servers, kvstore__compression=compression)
    ).step()
    check(row, workers=2, asynchronous="async" in store)
    parameters = 431_080
    assert row["bytes_pulled"] == 2 * 4 * parameters
    assert row["bytes_pushed"] == (2 * 4 * parameters if compression is not TWO_BIT else 2 * 107_788)  # 2 bits each


@pytest.mark.parametrize(
    ("store", "devices", "compression"),
    [
        ("local", 1, {"type": "none"}),
        ("local", 2, {"type": "none"}),
        ("device", 1, {"type": "none"}),
        ("device", 2, {"type": "none"}),
        ("device", 2, TWO_BIT),
    ],
)
def test_one_worker(trial: TrialByHand, store: str, devices: int, compression: dict[str, Any]) -> None:
    row = trial.begin(
        experiment(
            kvstore__type=store,
            resources__workers=1,
            resources__cpu_devices_per_worker=devices,
            kvstore__compression=compression,
        )
    ).step()
    check(row, workers=1)
    assert row["bytes_pushed"] == row["bytes_pulled"] == 0


@pytest.mark.parametrize("store", ["dist_sync", "dist_sync_device", "device"])
def test_optimizer_in_the_workers(trial: TrialByHand, store: str) -> None:
    workers = 1 if store == "device" else 2
    row = trial.begin(
        experiment(
            kvstore__type=store,
            kvstore__update_on_kvstore=False,
            resources__workers=workers,
            resources__cpu_devices_per_worker=2,
        )
    ).step()
    check(row, workers)
