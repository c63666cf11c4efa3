"""Experiments that are tracked, and what MLflow has of them."""

from __future__ import annotations

from collections import UserDict
from typing import Any

from factories import make_experiment

from raymx.experiment.loading import ExperimentConfig
from raymx.sweep.space import trial_config
from raymx.tracking import settings


def experiment_with(**trackers: str) -> ExperimentConfig:
    return make_experiment(file="fashion_mnist", tracking=trackers)


def config_of(experiment: ExperimentConfig, axes: Any = None, cell: int = 0, repeat: int = 0) -> dict[str, Any]:
    """A trial's config, as the driver makes it."""
    return trial_config(
        experiment, UserDict(experiment.to_dict()), "run", point={"axes": axes or {}, "cell": cell, "repeat": repeat}
    )


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
