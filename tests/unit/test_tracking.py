"""What trackers are given, what is refused before a run starts, and runs into MLflow, W&B's files and TensorBoard."""

from __future__ import annotations

import functools
import http.server
import logging
import math
import socket
import struct
import threading
import time
from collections import UserDict, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import EXPERIMENTS
from ray import tune

from raymx.errors import ExperimentError
from raymx.experiment.loading import Experiment, load_experiment
from raymx.sweep.space import trial_config
from raymx.tracking import settings, shown


def experiment_with(**trackers: str) -> Experiment:
    return load_experiment(
        EXPERIMENTS / "fashion_mnist.yaml", {f"tracking.{name}": value for name, value in trackers.items()}
    )


def config_of(experiment: Experiment, axes: Any = None, cell: int = 0, repeat: int = 0) -> dict[str, Any]:
    """A trial's config, as the driver makes it."""
    return trial_config(
        experiment, UserDict(experiment.to_dict()), "run", point={"axes": axes or {}, "cell": cell, "repeat": repeat}
    )


# What is logged


def test_parameters_are_the_axes_and_the_main_settings() -> None:
    axes = {"kvstore.compression": "2bit 0.5", "training.base_lr": 0.031}
    found = shown.parameters(config_of(experiment_with(), axes=axes, cell=4, repeat=1))
    assert {**found, **axes, "cell": 4, "repeat": 1} == found
    assert found["training.optimizer.name"] == "sgd"
    assert found["resources.workers"] == 2
    assert "kvstore.compression.type" not in found  # the axis says it
    assert all(isinstance(value, str | int | float) for value in found.values())


def test_parameters_of_an_elastic_run_are_flat() -> None:
    experiment = load_experiment(EXPERIMENTS / "fashion_mnist.yaml", {"resources.workers": {"min": 2, "max": 4}})
    assert shown.parameters(config_of(experiment))["resources.workers"] == "{'min': 2, 'max': 4}"


def test_metrics_are_the_numbers_of_a_row() -> None:
    row = {
        "epoch": 1,
        "train_loss": math.nan,
        "samples_per_sec": np.float32(8),
        "steps": np.int64(3),
        "done": False,
        "nodes": "10.0.0.1",
        "worker_samples_per_sec": [4.0],
        "config": {"lr": 1},
        "pid": 77,
        "loss_scale": None,
    }
    found = shown.metrics(row)
    assert math.isnan(found.pop("train_loss"))
    assert found == {"epoch": 1.0, "samples_per_sec": 8.0, "steps": 3.0}


def test_a_relative_sqlite_path_starts_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.mlflow_uri("sqlite:///runs/mlflow.db") == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert settings.mlflow_uri(f"sqlite:///{tmp_path}/a.db") == f"sqlite:///{tmp_path}/a.db"
    assert settings.mlflow_uri("https://host/x") == "https://host/x"


# What is refused


def test_without_trackers_nothing_is_needed() -> None:
    settings.check(experiment_with())
    assert settings.callbacks(experiment_with(), "run") == []


@pytest.mark.parametrize(
    ("trackers", "said"),
    [
        ({"mlflow": "sqlite:///mlflow.db"}, 'it needs mlflow and sqlalchemy: pip install "raymx[mlflow]"'),
        ({"mlflow": "https://host"}, 'it needs mlflow: pip install "raymx[mlflow]"'),
        ({"wandb": "leaves"}, 'it needs wandb: pip install "raymx[wandb]"'),
    ],
)
def test_a_package_that_is_missing_is_named(
    trackers: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ExperimentError) as caught:
        settings.check(experiment_with(**trackers))
    ((key, value),) = trackers.items()
    assert str(caught.value) == f'tracking.{key} is "{value}": {said}'


def test_uris_that_cannot_be_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    for uri, said in (
        ("mlruns", "it must be a tracking URI"),
        ("file:///tmp/mlruns", "it must be a tracking URI"),
        (f"sqlite:///{tmp_path}/no/mlflow.db", f"the folder {tmp_path}/no does not exist"),
    ):
        with pytest.raises(ExperimentError, match=said):
            settings.check(experiment_with(mlflow=uri))


@pytest.fixture
def silent_port() -> Iterator[int]:
    """One that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_server_that_does_not_answer_is_told_soon(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr(settings, "REACH_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    for port, said in ((closed, "Connection refused"), (silent_port, "timed out")):
        began = time.monotonic()
        with pytest.raises(ExperimentError, match=f"127.0.0.1:{port}.*no server answers there .*{said}"):
            settings.check(experiment_with(mlflow=f"http://127.0.0.1:{port}"))
        assert time.monotonic() - began < 5


class _Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_that_wants_a_password_is_there() -> None:
    pytest.importorskip("mlflow")
    with http.server.HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True).start()
        settings.check(experiment_with(mlflow=f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()


def test_wandb_needs_a_key_and_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ExperimentError, match=f"there is no key for http://127.0.0.1:{port} here"):
        settings.check(experiment_with(wandb="leaves"))
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password not-a-real-key\n")
    with pytest.raises(ExperimentError, match=rf"127.0.0.1:{port} does not answer \(.*Connection refused"):
        settings.check(experiment_with(wandb="leaves"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    settings.check(experiment_with(wandb="leaves"))


# MLflow, with a trial of a test's own making: no Ray runs


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an SQLite file in an empty working directory, which must stay empty but for it."""
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    return "sqlite:///mlflow.db"


def trial_with(trial_id: str = "ab12c_00003", **more: Any) -> Any:
    return SimpleNamespace(trial_id=trial_id, config=config_of(experiment_with(), **more))


def mlflow_callback(uri: str, state: Any = None) -> Any:
    (callback,) = settings.callbacks(experiment_with(mlflow=uri), "fashion_mnist_2026")
    callback.setup()
    if state:
        callback.set_state(state)
    return callback


def logged(uri: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(settings.mlflow_uri(uri))
    experiment = client.get_experiment_by_name("fashion_mnist")
    return list(client.search_runs([experiment.experiment_id]))


def history(uri: str, run: Any, metric: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    return [
        (point.step, point.value)
        for point in MlflowClient(settings.mlflow_uri(uri)).get_metric_history(run.info.run_id, metric)
    ]


def row(iteration: int, **columns: Any) -> dict[str, Any]:
    return {"training_iteration": iteration, "epoch": iteration, "train_loss": 1 / iteration, **columns}


def test_an_interrupted_run_goes_on_in_the_same_place(store: str) -> None:
    trial, first = trial_with(), mlflow_callback(store)
    first.log_trial_start(trial)
    first.log_trial_result(1, trial, row(1))
    first.on_experiment_end([trial])
    assert [run.info.status for run in logged(store)] == ["KILLED"]
    second = mlflow_callback(store, first.get_state())
    second.log_trial_start(trial)
    assert [run.info.status for run in logged(store)] == ["RUNNING"]
    second.log_trial_result(2, trial, row(2))
    second.log_trial_end(trial)
    (run,) = logged(store)
    assert (run.info.status, history(store, run, "train_loss")) == ("FINISHED", [(1, 1.0), (2, 0.5)])


def test_what_pbt_changes_is_in_a_tag(store: str) -> None:
    callback = mlflow_callback(store)
    callback.log_trial_start(trial_with(axes={"training.base_lr": 0.1}))
    callback.log_trial_start(trial_with(axes={"training.base_lr": 0.2}))
    (run,) = logged(store)
    assert (run.data.params["training.base_lr"], run.data.tags["training.base_lr"]) == ("0.1", "0.2")


def test_a_server_that_fails_costs_no_row(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from raymx.tracking import callbacks

    callback, trial = mlflow_callback(store), trial_with()
    client_of, down = callback.mlflow_util._get_client, True

    def client() -> Any:
        if down:
            raise ConnectionError("the server is away\nand more")
        return client_of()

    monkeypatch.setattr(callback.mlflow_util, "_get_client", client)
    monkeypatch.setattr(callbacks, "RETRY_S", 0.0)
    with caplog.at_level(logging.WARNING, "raymx"):
        callback.log_trial_start(trial)
        callback.log_trial_result(1, trial, row(1))
        down = False
        callback.log_trial_result(2, trial, row(2))
        callback.log_trial_end(trial)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("raymx")] == [
        f"MLflow at {settings.mlflow_uri(store)} fails, and is tried again every 0 s; training goes on: "
        "ConnectionError: the server is away"
    ]
    (run,) = logged(store)
    assert (run.info.status, history(store, run, "epoch")) == ("FINISHED", [(1, 1.0), (2, 2.0)])


def test_a_server_that_stays_away_is_told_at_the_end(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    callback, trial = mlflow_callback(store), trial_with()
    tries: list[int] = []

    def client() -> Any:
        tries.append(1)
        raise ConnectionError("away")

    monkeypatch.setattr(callback.mlflow_util, "_get_client", client)
    for iteration in (1, 2, 3):
        callback.log_trial_result(iteration, trial, row(iteration))
    assert len(tries) == 1  # a server that hangs must not hold up every row
    callback.on_experiment_end([trial])
    assert len(tries) == 2
    assert "lacks rows of 1 trial;" in caplog.text


def test_a_database_that_cannot_be_used_is_one_error(store: str) -> None:
    Path("mlflow.db").write_bytes(b"no database" * 100)
    (callback,) = settings.callbacks(experiment_with(mlflow=store), "run")
    with pytest.raises(ExperimentError, match=r"mlflow is sqlite:.*mlflow.db: .*; correct it, or set it"):
        callback.setup()


# Runs of Tune


def stub() -> type[tune.Trainable]:
    """A class made here: Ray's processes cannot import this module."""

    class Stub(tune.Trainable):
        """Three rows, the second with NaN; the third does not come where the axis ``fails`` is true."""

        def setup(self, config: dict[str, Any]) -> None:
            self._rows = 0

        def step(self) -> dict[str, Any]:
            self._rows += 1
            if self._rows == 3 and self.config["point"]["axes"]["fails"]:
                raise RuntimeError("on purpose")
            return {
                "epoch": self._rows,
                "train_loss": math.nan if self._rows == 2 else 1 / self._rows,
                "worker_samples_per_sec": [3.0, 4.0],
                "nodes": "127.0.0.1",
                "done": self._rows == 3,
            }

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


@pytest.mark.ray
def test_a_sweep_in_mlflow_and_tensorboard(store: str, tmp_path: Path, ray_cluster: None) -> None:
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


@pytest.mark.ray
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
