"""Tune with trials that train nothing: what trackers and search libraries make of them."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from factories import make_experiment
from ray import tune
from trackers import config_of, experiment_with, history, logged

from raymx.cluster.nodes import cluster_nodes
from raymx.sweep import plan, tuning
from raymx.tracking import settings, shown

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(240)]


def stub() -> type[tune.Trainable]:
    """A class made here: Ray's processes cannot import this module."""

    class Stub(tune.Trainable):
        """Three rows, the second with NaN; the third does not come where the axis ``fails`` is true."""

        def setup(self, config: dict[str, Any]) -> None:
            self._rows = 0

        def step(self) -> dict[str, Any]:
            self._rows += 1
            if self._rows == 3 and self.config["point"]["axes"].get("fails"):
                raise RuntimeError("on purpose")
            return {
                "epoch": self._rows,
                "train_loss": math.nan if self._rows == 2 else 1 / self._rows,
                "worker_samples_per_sec": [3.0, 4.0],
                "nodes": "127.0.0.1",
                "done": self._rows == 3,
            }

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._rows = 0
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "rows").write_text(str(self._rows))

    return Stub


def run_stub(tmp_path: Path, callbacks: list[Any], fails: list[bool]) -> Any:
    config = config_of(experiment_with(), axes={"fails": tune.grid_search(fails)})
    tuner = tune.Tuner(
        stub(),
        param_space=config,
        run_config=tune.RunConfig(
            name="fashion_mnist_2026", storage_path=str(tmp_path / "results"), verbose=0, callbacks=callbacks
        ),
    )
    return tuner.fit()


def test_a_sweep_in_mlflow_and_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: None) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    store = "sqlite:///mlflow.db"  # it is not there yet
    results = run_stub(tmp_path, settings.callbacks(experiment_with(mlflow=store), "fashion_mnist_2026"), [False, True])
    runs = {run.data.params["fails"]: run for run in logged(store)}
    assert {key: run.info.status for key, run in runs.items()} == {"False": "FINISHED", "True": "FAILED"}
    run = runs["False"]
    assert run.info.run_name.startswith("fashion_mnist_2026/")
    assert run.data.tags["raymx.run"] == "fashion_mnist_2026"
    assert set(run.data.params) == {"fails", "cell", "repeat", *shown.MAIN_SETTINGS}
    assert history(store, run, "epoch") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    (_, first), (_, second), (_, third) = history(store, run, "train_loss")
    assert (first, math.isnan(second), third) == (1.0, True, pytest.approx(1 / 3))
    assert not {"worker_samples_per_sec", "nodes", "done", "pid", "config/gpus_per_worker"} & set(run.data.metrics)
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "results"}  # no mlruns
    scalars = tensorboard(Path(next(result for result in results if not result.error).path))
    assert scalars["ray/tune/epoch"] == [1.0, 2.0, 3.0]
    assert scalars["ray/tune/train_loss"] == [1.0, pytest.approx(1 / 3)]  # Tune leaves NaN out


def tensorboard(folder: Path) -> dict[str, list[float]]:
    """The scalars of a trial's event file: each event has 12 bytes before it (its length, a checksum), 4 behind."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("events.out.tfevents.*")
    data, scalars = path.read_bytes(), defaultdict(list)
    while data:
        (length,) = struct.unpack_from("<Q", data)
        for value in Event.FromString(data[12 : 12 + length]).summary.value:
            scalars[value.tag].append(value.simple_value)
        data = data[16 + length :]
    return scalars


def test_a_run_in_wandbs_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: None) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    experiment = experiment_with(wandb="leaves")
    settings.check(experiment)
    (result,) = run_stub(tmp_path, settings.callbacks(experiment, "fashion_mnist_2026"), [False])
    assert not result.error
    (path,) = tmp_path.glob("**/offline-run-*/run-*.wandb")
    content = path.read_bytes()
    assert b"train_loss" in content
    assert b"training.optimizer.name" in content
    assert not (tmp_path / "wandb").exists()


@pytest.mark.parametrize(
    ("search", "package"), [("optuna", "optuna"), ("hyperopt", "hyperopt"), ("bohb", "hpbandster")]
)
def test_search_libraries(tmp_path: Path, ray_cluster: None, search: str, package: str) -> None:
    pytest.importorskip(package)
    experiment = make_experiment(
        file="fashion_mnist",
        sweep__space={
            "precision.dtype": {"grid": ["float32", "float16"]},  # which needs a GPU
            "training.base_lr": {"loguniform": [1e-4, 0.5]},
        },
        sweep__search=search,
        sweep__samples=4,
        sweep__objective={"metric": "train_loss", "mode": "min"},
    )
    nodes = cluster_nodes()
    prepared = plan.prepare(experiment, nodes, nodes)
    tuner = tune.Tuner(
        stub(),
        param_space=tuning.param_space(prepared, "run", gpus_available=0),
        tune_config=tuning.tune_config(prepared, "train_loss", "min"),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    )
    points = [result.config["point"] for result in tuner.fit()]
    assert len(points) == 4
    assert {point["axes"]["precision.dtype"] for point in points} == {"float32"}
    assert len({point["axes"]["training.base_lr"] for point in points}) == 4
    assert len({point["cell"] for point in points}) == 4
