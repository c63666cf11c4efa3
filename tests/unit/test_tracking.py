"""What trackers are given, what is refused before a run starts, and runs into MLflow, W&B's files and TensorBoard."""

from __future__ import annotations

import functools
import http.server
import logging
import math
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from factories import make_experiment
from trackers import config_of, experiment_with, history, logged

from raymx.errors import ExperimentError
from raymx.tracking import settings, shown

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
    experiment = make_experiment(file="fashion_mnist", resources={"workers": {"min": 2, "max": 4}})
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


def trial_with(trial_id: str = "ab12c_00003", **more: Any) -> Any:
    return SimpleNamespace(trial_id=trial_id, config=config_of(experiment_with(), **more))


def mlflow_callback(uri: str, state: Any = None) -> Any:
    (callback,) = settings.callbacks(experiment_with(mlflow=uri), "fashion_mnist_2026")
    callback.setup()
    if state:
        callback.set_state(state)
    return callback


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
