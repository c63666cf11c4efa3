"""N workers at batch B/N give the weights of one worker at batch B, wherever the optimizer and the slices lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import TrialByHand
from conftest import TESTS
from factories import IMAGES, make_experiment, part_of_the_images

from raymx.checkpoint import files
from raymx.checkpoint.files import Saved
from raymx.experiment.loading import ExperimentConfig

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS = 3_180  # 49 batches of 64 and one of 44: 100 steps in two epochs, with a short last batch in each


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part_of_the_images(tmp_path_factory.mktemp("data") / "part.rec", RECORDS)


def experiment(
    records: Path,
    workers: int,
    servers: int,
    update_on_kvstore: bool | str = True,
    epochs: int = 2,
    base_lr: float = 0.05,
    precision: dict[str, Any] | None = None,
    **optimizer: object,
) -> ExperimentConfig:
    return make_experiment(
        directory=TESTS,
        model={"net": "own_nets:mlp"},
        data={**IMAGES, "train": str(records)},
        training={
            "epochs": epochs,
            "global_batch_size": 64,
            "base_lr": base_lr,
            "base_batch_size": 64,
            "warmup_epochs": 0.5,
            "optimizer": optimizer or {"name": "sgd", "momentum": 0.9, "wd": 0.001},
        },
        kvstore={
            "type": "dist_sync",
            "servers": servers,
            "update_on_kvstore": update_on_kvstore,
            # Low enough that the two larger weights of the net are cut over two servers.
            "env": {"worker": {"MXNET_KVSTORE_BIGARRAY_BOUND": 1000}},
        },
        precision=precision or {},
        resources={"workers": workers, "standby": False},
    )


def weights_after(trial: TrialByHand, experiment: Any, folder: Path) -> dict[str, np.ndarray]:
    rows = trial.begin(experiment).run()
    assert [row["steps"] for row in rows] == [49, 50]  # the first step ever is counted apart
    saved = trial.save(folder)
    assert set(saved.optimizer.counts.values()) == {100}
    return parameters(saved)


@pytest.fixture(scope="module")
def one_worker(trial: TrialByHand, records: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return weights_after(trial, experiment(records, 1, 1, True), tmp_path_factory.mktemp("one"))


# Each next generation has warm processes, and fresh ones where it has more roles: in this order few are started.
@pytest.mark.parametrize(
    ("workers", "servers", "update_on_kvstore", "scale"),
    [
        pytest.param(1, 1, False, "auto", marks=pytest.mark.long),
        (2, 1, True, "auto"),
        pytest.param(2, 1, False, "auto", marks=pytest.mark.long),
        pytest.param(3, 1, True, "auto", marks=pytest.mark.long),
        pytest.param(3, 1, False, "auto", marks=pytest.mark.long),
        pytest.param(3, 1, "auto", "dynamic", marks=pytest.mark.long),
        pytest.param(3, 2, True, "auto", marks=pytest.mark.long),
        pytest.param(2, 2, True, "auto", marks=pytest.mark.long),
        (2, 2, "auto", 128),
        (3, 2, False, "auto"),
    ],
)
def test_same_weights(
    trial: TrialByHand,
    records: Path,
    one_worker: dict[str, np.ndarray],
    tmp_path: Path,
    workers: int,
    servers: int,
    update_on_kvstore: bool | str,
    scale: Any,
) -> None:
    """What the loss is multiplied by, the update divides by; workers that agree about each step take all of them."""
    found = experiment(records, workers, servers, update_on_kvstore, precision={"loss_scale": scale})
    assert_same(weights_after(trial, found, tmp_path), one_worker)


@pytest.mark.long
def test_gradients_in_several_turns(
    trial: TrialByHand, records: Path, one_worker: dict[str, np.ndarray], tmp_path: Path
) -> None:
    found = experiment(records, 2, 2)
    several = found.model_copy(update={"training": found.training.model_copy(update={"accumulate": 3})})
    assert_same(weights_after(trial, several, tmp_path), one_worker)


@pytest.mark.long
def test_a_net_with_two_heads(trial: TrialByHand, records: Path, tmp_path: Path) -> None:
    model = {"net": "own_nets:TwoHeads", "loss": "own_nets:loss_of_two", "metric": "own_nets:hits_of_two"}

    def weights(workers: int) -> dict[str, np.ndarray]:
        found = experiment(records, workers, 1, base_lr=0.01)
        two = found.model_copy(update={"model": found.model.model_copy(update=model)})
        return weights_after(trial, two, tmp_path / str(workers))

    one = weights(1)
    assert_same(weights(2), one)
    assert_same(weights(3), one)


def test_what_is_frozen_stays_to_the_bit_and_does_not_travel(trial: TrialByHand, records: Path, tmp_path: Path) -> None:
    found = experiment(records, 2, 2)
    frozen = found.model_copy(update={"model": found.model.model_copy(update={"freeze": ("1.*",)})})
    row = trial.begin(frozen).step()
    first = parameters(trial.save(tmp_path / "first"))
    trial.step()
    second = parameters(trial.save(tmp_path / "second"))
    assert {name for name in first if np.array_equal(first[name], second[name])} == {"1.weight", "1.bias"}
    trained = sum(array.nbytes for name, array in first.items() if not name.startswith("1."))
    assert row["bytes_pushed"] == row["bytes_pulled"] == 2 * trained


def assert_same(found: dict[str, np.ndarray], one_worker: dict[str, np.ndarray]) -> None:
    assert found.keys() == one_worker.keys()
    for name, expected in one_worker.items():
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(found[name], expected, atol=1e-5, rtol=0, err_msg=name)


def parameters(saved: Saved) -> dict[str, np.ndarray]:
    import mxnet as mx

    return {name: array.asnumpy() for name, array in mx.nd.load_frombuffer(saved.parameters).items()}


@pytest.mark.parametrize(
    ("optimizer", "forget"),
    [
        pytest.param({"base_lr": 0.01}, {"arrays": {}}, marks=pytest.mark.long),
        pytest.param({"base_lr": 0.001, "name": "adam"}, {"arrays": {}}, marks=pytest.mark.long),
        ({"base_lr": 0.001, "name": "adam"}, {"counts": {}}),
    ],
)
def test_shrinking_and_growing_keeps_momentum_and_adams_counts(
    trial: TrialByHand, records: Path, tmp_path: Path, optimizer: dict[str, Any], forget: dict[str, Any]
) -> None:
    """3 -> 1 -> 2 workers and 2 -> 1 servers end where 1 worker does; not so when a part of the state is lost."""

    def sized(workers: int, servers: int) -> ExperimentConfig:
        return experiment(records, workers, servers, epochs=3, **optimizer)

    def end(name: str) -> dict[str, np.ndarray]:
        return parameters(trial.save(tmp_path / name))

    trial.begin(sized(3, 2)).step()
    three = trial.save(tmp_path / "three")
    trial.begin(sized(1, 1)).restore(tmp_path / "three")
    assert trial.stop_in_the_middle(lambda progress: progress.get("step", 0) >= 5)["num_workers"] == 1
    trial.save(tmp_path / "middle")
    trial.begin(sized(2, 1)).restore(tmp_path / "middle")
    assert trial.run()[-1]["num_workers"] == 2
    kept = end("kept")

    trial.begin(sized(1, 1)).run()
    undisturbed = end("undisturbed")
    files.write(str(tmp_path / "less"), replace(three, optimizer=replace(three.optimizer, **forget)))
    trial.begin(sized(1, 1)).restore(tmp_path / "less")
    trial.run()
    assert distance(kept, undisturbed) <= 1e-5
    assert distance(end("forgotten"), undisturbed) > 1e-3


def distance(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(found[name] - array).max()) for name, array in expected.items())
