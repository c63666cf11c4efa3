"""Ray's callbacks for MLflow and Weights & Biases, with raymx's parameters and metrics, and for trackers that fail.

Tune's loop is one thread that starts, watches and ends all trials: nothing here may raise in it, or hold it up.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.air.integrations.wandb import WandbLoggerCallback
from ray.tune.result import TRAINING_ITERATION

from raymx import _ray
from raymx.errors import ExperimentError
from raymx.tracking import shown

log = logging.getLogger(__name__)

# MLflow's own would wait for minutes. Whoever sets them knows better.
_HTTP = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
RETRY_S = 30.0  # after a failure, so that a server that hangs costs little of Tune's time
FINISH_TIMEOUT_S = 60  # for uploads at the end of a run
_BATCH = 1000  # metrics that MLflow takes in one call


@dataclass
class _Run:
    """A trial in MLflow, with what was not sent yet."""

    title: str
    tags: Mapping[str, str]
    run_id: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: list[Any] = field(default_factory=list)
    status: str | None = None  # to be sent
    ended: bool = False


class MLflow(MLflowLoggerCallback):
    """Rows and parameters of all trials, into one MLflow experiment. Its state is for a run that is resumed."""

    def __init__(self, uri: str, experiment_name: str, run_folder_name: str) -> None:
        super().__init__(tracking_uri=uri, experiment_name=experiment_name)
        self._folder = run_folder_name
        self._runs: dict[str, _Run] = {}  # by trial
        self._not_before = 0.0  # of the next try, when the last one failed

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Tune's, once Ray runs. Raises ExperimentError when MLflow cannot use its URI."""
        for name, value in _HTTP.items():
            os.environ.setdefault(name, value)
        try:
            super().setup(*args, **kwargs)
        except Exception as error:
            raise ExperimentError(
                f"tracking.mlflow is {self.tracking_uri}: {_first_line(error)}; correct it, or set it to null"
            ) from error

    def get_state(self) -> dict[str, str]:
        return {trial: run.run_id for trial, run in self._runs.items() if run.run_id}

    def set_state(self, state: dict[str, str]) -> None:
        self._runs = {trial: _Run("", {}, run_id, ended=True) for trial, run_id in state.items()}

    def log_trial_start(self, trial: Any) -> None:
        run = self._run_of(trial)
        run.parameters, run.status, run.ended = shown.parameters(trial.config), "RUNNING", False
        self._send(run)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        run, now = self._run_of(trial), int(time.time() * 1000)
        run.metrics += [
            Metric(name, value, now, result[TRAINING_ITERATION]) for name, value in shown.metrics(result).items()
        ]
        self._send(run)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        run = self._run_of(trial)
        run.status, run.ended = "FAILED" if failed else "FINISHED", True
        self._send(run)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """The last try for what was not sent; trials that have not ended were interrupted."""
        self._not_before = 0.0
        for run in self._runs.values():
            if not run.ended:
                run.status = "KILLED"
            self._send(run)
        if lost := sum(bool(run.metrics) for run in self._runs.values()):
            log.warning(
                "MLflow at %s lacks rows of %d trial%s; result.json of each has them",
                self.tracking_uri,
                lost,
                "" if lost == 1 else "s",
            )

    def _run_of(self, trial: Any) -> _Run:
        name = trial.trial_id
        title = f"{self._folder}/{name}" if trial.config["point"]["axes"] else self._folder
        return self._runs.setdefault(name, _Run(title, {"raymx.run": self._folder, "raymx.trial.trainable": name}))

    def _send(self, run: _Run) -> None:
        if time.monotonic() < self._not_before:
            return
        try:
            self._deliver(run, _ray.mlflow_client(self.mlflow_util))
        except Exception as error:  # whatever it is, it is not worth the training
            if not self._not_before:
                log.warning(
                    "MLflow at %s fails, and is tried again every %g s; training goes on: %s",
                    self.tracking_uri,
                    RETRY_S,
                    _first_line(error),
                )
            self._not_before = time.monotonic() + RETRY_S
        else:
            self._not_before = 0.0

    def _deliver(self, run: _Run, client: Any) -> None:
        if run.run_id is None:
            run.run_id = self.mlflow_util.start_run(run_name=run.title, tags=dict(run.tags)).info.run_id
        if run.parameters:
            _log_parameters(client, run.run_id, run.parameters)
            run.parameters = {}
        while run.metrics:
            client.log_batch(run.run_id, metrics=run.metrics[:_BATCH])
            del run.metrics[:_BATCH]
        if run.status == "RUNNING":
            client.update_run(run.run_id, status=run.status)
        elif run.status:
            client.set_terminated(run.run_id, run.status)
        run.status = None


def _log_parameters(client: Any, run_id: str, parameters: Mapping[str, Any]) -> None:
    """What population based training changes later goes into tags: MLflow's parameters never change."""
    from mlflow.entities import Param

    before = client.get_run(run_id).data.params
    client.log_batch(run_id, params=[Param(key, str(value)) for key, value in parameters.items() if key not in before])
    for key, value in parameters.items():
        if key in before and before[key] != str(value):
            client.set_tag(run_id, key, str(value))


class WandB(WandbLoggerCallback):
    """Rows and parameters of all trials, into one project; the run's folder is the group."""

    def __init__(self, project: str, run_folder_name: str) -> None:
        super().__init__(project=project, group=run_folder_name, upload_timeout=FINISH_TIMEOUT_S)
        # Given on: on a cluster the process that logs has not the driver's environment.
        self._mode = os.environ.get("WANDB_MODE", "online")

    def log_trial_start(self, trial: Any) -> None:
        """Not Ray's own: that one would log the whole config, and start a second run where a trial is resumed."""
        folder = None
        if "://" not in trial.path:  # else what is kept offline stays in Ray's temporary folder
            folder = trial.path
            os.makedirs(folder, exist_ok=True)
        self._start_logging_actor(
            trial,
            [],
            dir=folder,
            id=trial.trial_id,
            name=str(trial),
            project=self.project,
            group=self.group,
            config=shown.parameters(trial.config),
            mode=self._mode,
            resume="allow",
            reinit=True,
            allow_val_change=True,
        )

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        row = {**shown.metrics(result), TRAINING_ITERATION: result[TRAINING_ITERATION]}
        super().log_trial_result(iteration, trial, row)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        if trial in self._trial_queues:  # else it failed before it started
            super().log_trial_end(trial, failed)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Wait for uploads; Ray's own would wait for interrupted trials too, which were not told to finish."""
        for trial in self._trial_queues:
            self._signal_logging_actor_stop(trial)
        super().on_experiment_end(trials, **info)

    def _cleanup_logging_actor(self, trial: Any) -> None:
        try:
            ray.get(self._trial_logging_futures[trial], timeout=0)
        except Exception as error:  # Ray's own would drop it
            log.warning("Weights & Biases lacks trial %s; its result.json has all rows: %s", trial, _first_line(error))
        super()._cleanup_logging_actor(trial)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
