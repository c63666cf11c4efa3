"""Every KVStore type trains; one trial is re-formed warm from each to the next."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from by_hand import TrialByHand
from conftest import TESTS
from factories import IMAGES, make_experiment, part_of_the_images

from raymx.experiment.loading import ExperimentConfig

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

DIST = ["dist_sync", "dist_async", "dist_sync_device", "dist_async_device"]
TWO_BIT: dict[str, Any] = {"type": "2bit", "threshold": 0.05}
SIZES = (784 * 64, 64, 64 * 32, 32, 32 * 10, 10)  # of nets:mlp


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part_of_the_images(tmp_path_factory.mktemp("data") / "part.rec", 2_000)


def experiment(records: Path, workers: int = 2, devices: int = 1, **kvstore: Any) -> ExperimentConfig:
    """One epoch of a small net."""
    return make_experiment(
        directory=TESTS,
        model={"net": "own_nets:mlp"},
        data={**IMAGES, "train": str(records), "validation": IMAGES["train"]},
        training={"global_batch_size": 32, "base_lr": 0.05, "optimizer": {"name": "sgd", "momentum": 0.9}},
        kvstore=kvstore,
        resources={"workers": workers, "cpu_devices_per_worker": devices, "standby": False},
    )


def check(row: dict[str, Any], workers: int, asynchronous: bool = False) -> None:
    assert row["epoch"] == 1
    assert row["num_workers"] == workers
    # After one epoch of ten classes, where chance is 0.1; async workers race, so what they reach varies.
    assert row["validation_accuracy"] > (0.25 if asynchronous else 0.5)
    assert row["samples_per_sec"] > 0
    assert row["first_step_s"] > 0
    assert 0 <= row["data_wait_fraction"] < 1
    assert row["train_loss"] > 0


CELLS = [  # all that want one server before all that want two: a server that is not wanted is ended
    pytest.param(servers, store, compression, marks=[pytest.mark.long] * ((servers == 1) is (compression is TWO_BIT)))
    for servers, store, compression in itertools.product([1, 2], DIST, [{"type": "none"}, TWO_BIT])
]


@pytest.mark.parametrize(("servers", "store", "compression"), CELLS)
def test_dist(trial: TrialByHand, records: Path, servers: int, store: str, compression: dict[str, Any]) -> None:
    row = trial.begin(experiment(records, type=store, servers=servers, compression=compression)).step()
    check(row, workers=2, asynchronous="async" in store)
    assert row["bytes_pulled"] == 2 * 4 * sum(SIZES)
    two_bit = 4 * sum(math.ceil(size / 16) for size in SIZES)  # 16 of them in 4 bytes
    assert row["bytes_pushed"] == 2 * (two_bit if compression is TWO_BIT else 4 * sum(SIZES))


@pytest.mark.parametrize("store", ["dist_sync", "dist_sync_device", "device"])
def test_optimizer_in_the_workers(trial: TrialByHand, records: Path, store: str) -> None:
    workers = 1 if store == "device" else 2
    row = trial.begin(experiment(records, workers, 2, type=store, update_on_kvstore=False)).step()
    check(row, workers)


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
def test_one_worker(trial: TrialByHand, records: Path, store: str, devices: int, compression: dict[str, Any]) -> None:
    row = trial.begin(experiment(records, 1, devices, type=store, compression=compression)).step()
    check(row, workers=1)
    assert row["bytes_pushed"] == row["bytes_pulled"] == 0
