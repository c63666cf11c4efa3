"""Experiment trackers beside raymx's own files: MLflow and Weights & Biases, through Ray's integrations.

    check(experiment)                       # packages, servers and keys are there: without Ray, before anything starts
    callbacks(experiment, "fashion_mnist_2026-01-31_12-00-00")     # for tune.RunConfig(callbacks=...)

What they are told of a trial: `raymx.tracking.shown`. TensorBoard files are Tune's own, and always written.
"""

from __future__ import annotations

import importlib.util
import netrc
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from raymx.errors import ExperimentError
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.values import show

if TYPE_CHECKING:
    from ray import tune

REACH_TIMEOUT_S = 5.0
SQLITE = "sqlite:///"
WANDB_SERVER = "https://api.wandb.ai"


def check(experiment: ExperimentConfig) -> None:
    """Raise an ExperimentError that says what the experiment's trackers lack. Waits at most 5 s for each server."""
    problems = [*_mlflow_problems(experiment.tracking.mlflow), *_wandb_problems(experiment.tracking.wandb)]
    if problems:
        raise ExperimentError("\n".join(problems))


def callbacks(experiment: ExperimentConfig, run_folder_name: str) -> list[tune.Callback]:
    """Tune's callbacks for the experiment's trackers. Call it in the directory that a relative SQLite path starts from.

    A tracker that fails while the run goes on is a warning: rows that it could not take are sent with later ones.
    """
    tracking, found = experiment.tracking, []
    if tracking.mlflow:
        from raymx.tracking.callbacks import MLflow

        found.append(MLflow(mlflow_uri(tracking.mlflow), experiment.name, run_folder_name))
    if tracking.wandb:
        from raymx.tracking.callbacks import WandB

        found.append(WandB(tracking.wandb, run_folder_name))
    return found


def mlflow_uri(uri: str) -> str:
    """``uri`` with the path of an SQLite file made absolute: Tune changes the working directory."""
    if not uri.startswith(SQLITE):
        return uri
    return SQLITE + os.path.abspath(os.path.expanduser(uri[len(SQLITE) :]))


def _mlflow_problems(uri: str | None) -> Iterator[str]:
    if uri is None:
        return
    is_http = uri.startswith(("http://", "https://"))
    if ("://" not in uri and uri != "databricks") or uri.startswith("file:"):
        yield (
            f"tracking.mlflow is {show(uri)}: it must be a tracking URI; for a file on this machine use "
            f"{SQLITE}mlflow.db, for a server https://HOST"
        )
    elif missing := _missing("mlflow", "mlflow", *(() if is_http or uri.startswith("databricks") else ("sqlalchemy",))):
        yield f"tracking.mlflow is {show(uri)}: {missing}"
    elif is_http and (reason := _unreachable(uri)):
        yield (
            f"tracking.mlflow is {show(uri)}: no server answers there ({reason}); start it, correct the URI, or "
            "set tracking.mlflow to null"
        )
    elif uri.startswith(SQLITE) and not os.path.isdir(folder := os.path.dirname(mlflow_uri(uri)[len(SQLITE) :])):
        yield f"tracking.mlflow is {show(uri)}: the folder {folder} does not exist; make it, or correct the path"


def _wandb_problems(project: str | None) -> Iterator[str]:
    if project is None:
        return
    server = os.environ.get("WANDB_BASE_URL", WANDB_SERVER)
    if missing := _missing("wandb", "wandb"):
        yield f"tracking.wandb is {show(project)}: {missing}"
    elif os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return
    elif not _has_wandb_key(server):
        yield (
            f"tracking.wandb is {show(project)}: there is no key for {server} here; run `wandb login`, set "
            "WANDB_API_KEY, or WANDB_MODE=offline to keep everything in files"
        )
    elif reason := _unreachable(server):
        yield (
            f"tracking.wandb is {show(project)}: {server} does not answer ({reason}); set WANDB_MODE=offline to "
            "keep everything in files, or tracking.wandb to null"
        )


def _missing(extra: str, *packages: str) -> str:
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    return f'it needs {" and ".join(absent)}: pip install "raymx[{extra}]"' if absent else ""


def _has_wandb_key(server: str) -> bool:
    """In the environment, or in the file that `wandb login` writes."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(urlsplit(server).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _unreachable(url: str) -> str:
    """Why nothing answers at an http URL, or "": any answer will do, a refusal too."""
    try:
        urllib.request.urlopen(url, timeout=REACH_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return ""
