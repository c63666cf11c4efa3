"""The one summary that a run leaves beside Tune's own files: what it was, what came out, and what it ran on."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import subprocess
import time
from typing import Any

from raymx import __version__
from raymx.checkpoint.files import PARAMETERS
from raymx.errors import RaymxError
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.results import step_text, trace
from raymx.results.columns import WHOLE_EXPERIMENT
from raymx.results.rows import diverged
from raymx.results.run_folder import best_metric
from raymx.results.setup import Setup
from raymx.storage import FILE_ERRORS, location


def summary(
    experiment: ExperimentConfig, result: Any, state: str, error: RaymxError | None, began: float
) -> dict[str, Any]:
    """The run in one plain dictionary. ``result`` is Tune's of the trial; ``began`` a time.time()."""
    metric, mode = best_metric(experiment)
    frame = _sound(result.metrics_dataframe)
    best: dict[str, Any] = {}
    if frame is not None and metric in frame and frame[metric].notna().any():
        at = frame[metric].idxmax() if mode == "max" else frame[metric].idxmin()
        best = {"metric": metric, "mode": mode, "value": float(frame[metric][at]), "epoch": float(frame["epoch"][at])}
    checkpoint = _best_checkpoint(result, metric, mode) if best else _last_checkpoint(result)
    final = {name: value for name, value in (result.metrics or {}).items() if name not in WHOLE_EXPERIMENT}
    return {
        "name": experiment.name,
        "state": state,
        "error": str(error) if error else None,
        "wall_s": time.time() - began,
        "final": final,
        "best": best,
        "step": _step(frame, experiment),
        "traces": _traces(experiment, [result]),
        "parameters": os.path.join(checkpoint.path, PARAMETERS) if checkpoint else None,
        "trial": result.path,
        "kvstore_type": rules.resolved_store_type(experiment),
        "experiment": experiment.to_dict(),
        "directory": experiment.directory,
        "git_commit": _git_commit(experiment.directory),
        "versions": _versions(),
        "hardware": _hardware(),
    }


def sweep_summary(
    experiment: ExperimentConfig, grid: Any, state: str, error: RaymxError | None, began: float
) -> dict[str, Any]:
    """A sweep in one plain dictionary. ``grid`` is Tune's; ``began`` a time.time()."""
    metric, mode = best_metric(experiment)
    sign = 1 if mode == "max" else -1
    frames = [(result, _sound(result.metrics_dataframe)) for result in grid]
    known = [
        (frame[metric][at], result, frame.loc[at])
        for result, frame in frames
        if frame is not None and metric in frame and frame[metric].notna().any()
        for at in [(sign * frame[metric]).idxmax()]
    ]
    best: dict[str, Any] = {}
    checkpoint = None
    if known:
        value, result, row = max(known, key=lambda one: sign * one[0])
        checkpoint = _best_checkpoint(result, metric, mode)
        best = {
            "metric": metric,
            "mode": mode,
            "value": float(value),
            "trial": result.path,
            "axes": {key: row.get(f"config/point/axes/{key}") for key in experiment.sweep.space},
        }
    return {
        "name": experiment.name,
        "state": state,
        "error": str(error) if error else None,
        "wall_s": time.time() - began,
        "trials": len(grid),
        "failed": sum(result.error is not None for result in grid),
        "traces": _traces(experiment, grid),
        "best": best,
        "parameters": os.path.join(checkpoint.path, PARAMETERS) if checkpoint else None,
        "experiment": experiment.to_dict(),
        "directory": experiment.directory,
        "git_commit": _git_commit(experiment.directory),
        "versions": _versions(),
        "hardware": _hardware(),
    }


def _step(frame: Any, experiment: ExperimentConfig) -> dict[str, Any] | None:
    """Where a step's time went, and what each part of it is worth; None where that was not measured."""
    step = None if frame is None else step_text.of_rows(frame.to_dict("records"))
    return None if step is None else step_text.as_dict(step, Setup.of(experiment))


def _traces(experiment: ExperimentConfig, results: Any) -> list[str]:
    """Where the traces of these trials are."""
    if experiment.profile.steps is None:
        return []
    places = [location(result.path, result.filesystem) / trace.FILE for result in results if result.path]
    with contextlib.suppress(*FILE_ERRORS):  # what is said at the end is not to end in a traceback
        return [place.path for place in places if place.is_file]
    return []


def _sound(frame: Any) -> Any:
    """The rows of epochs whose loss was a number: others are never the best, whatever their score."""
    return frame if frame is None else frame[[not diverged(row) for row in frame.to_dict("records")]]


def _best_checkpoint(result: Any, metric: str, mode: str) -> Any:
    """Of those kept. None of them may have the metric: saved before its first value."""
    kept = [
        (row[metric], checkpoint)
        for checkpoint, row in result.best_checkpoints or []
        if metric in row and not diverged(row) and not math.isnan(row[metric])
    ]
    best = max if mode == "max" else min
    return best(kept, key=lambda one: one[0])[1] if kept else _last_checkpoint(result)


def _last_checkpoint(result: Any) -> Any:
    return None if diverged(result.metrics or {}) else result.checkpoint


def _versions() -> dict[str, str | None]:
    packages = ("mxnet", "mxnet-cu112", "ray", "numpy", "pyarrow")
    found: dict[str, str | None] = {"raymx": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git_commit(directory: str) -> str | None:
    try:
        git = subprocess.run(["git", "-C", directory, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return git.stdout.strip() or None


def _hardware() -> list[dict[str, Any]]:
    import ray

    here = ray.util.get_node_ip_address()
    return [
        {
            "node": node["NodeManagerAddress"],
            "logical_cpus": node["Resources"].get("CPU", 0),
            "gpus": node["Resources"].get("GPU", 0),
            "memory_bytes": node["Resources"].get("memory", 0),
            "cores": len(os.sched_getaffinity(0)) if node["NodeManagerAddress"] == here else None,
        }
        for node in ray.nodes()
        if node["Alive"]
    ]
