"""Where runs lie, and the small files that each has beside Tune's own."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Mapping
from typing import Any

from raymx.errors import ExperimentError, KVStoreError, OutOfMemory, RaymxError
from raymx.experiment import names, sizing, yaml_text
from raymx.experiment.loading import ExperimentConfig, parse_experiment
from raymx.storage import child, is_uri, location
from raymx.text.out_of_memory import lack_of_memory

RUN, SUMMARY = names.RUN_FILE, names.SUMMARY_FILE
SWEEP, TRIAL = "sweep.json", "trial.json"  # of a sweep, and of each trial in its folder
BOM = "\ufeff"
"""What some editors begin a text with."""
_FAILURE = "Failure # "  # begins each one in error.txt, Tune's
SCRIPT = "script"
"""In a record's experiment, where it is a script that `raymx.launch` ran."""
DEFAULT_STORAGE = "~/ray_results"  # Ray's own


def storage_path(path: str | None) -> str:
    """An absolute path, or a URI as it is."""
    path = path or DEFAULT_STORAGE
    return path if is_uri(path) else os.path.abspath(os.path.expanduser(path))


def new_folder(storage: str, experiment: ExperimentConfig) -> str:
    """A folder name for a new run; sorted by name, runs of one experiment are sorted by time."""
    folder = f"{experiment.name}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    while location(os.path.join(storage, folder)).is_there:
        folder += "+"
    return folder


def record(storage: str, folder: str, experiment: ExperimentConfig) -> None:
    """Write down what the run is, for `--resume`."""
    write(storage, folder, RUN, yaml_text.dump({"directory": experiment.directory, "experiment": experiment.to_dict()}))


def experiment_of(path: str) -> ExperimentConfig:
    """The experiment of a run's folder. Raises ExperimentError when no run is there, or its record is damaged."""
    path = storage_path(path)
    file = location(os.path.join(path, RUN))
    if not file.is_there:
        raise ExperimentError(f"--resume {path}: no run is there (it has no {RUN})")
    try:
        text = file.read().decode()
    except UnicodeDecodeError:
        raise ExperimentError(f"{child(path, RUN)} is not text in UTF-8: take it from a backup") from None
    except OSError as error:
        raise ExperimentError(f"{child(path, RUN)} cannot be read: {error.strerror or error}") from None
    experiment, directory = recorded(text, child(path, RUN))
    if SCRIPT in experiment:
        raise ExperimentError(
            f"--resume {path}: it is a run of raymx.launch, whose scripts keep their own parameters: give its command "
            "again, with the script's own flag to load them"
        )
    try:
        return parse_experiment(experiment, directory, by_flags=False)
    except ExperimentError as error:
        lines = str(error).splitlines()
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise ExperimentError(f"{child(path, RUN)}: {lines[0]}{more}; take it from a backup") from None


def recorded(text: str, path: str) -> tuple[Mapping[str, Any], str]:
    """(experiment as plain data, its folder) of the record of a run. Raises ExperimentError that names ``path``."""
    raw = yaml_text.parse(text.removeprefix(BOM), path)
    found, directory = (raw.get("experiment"), raw.get("directory")) if isinstance(raw, dict) else (None, None)
    if not isinstance(found, dict) or not isinstance(directory, str):
        raise ExperimentError(
            f"{path} holds no experiment: it must have the keys directory and experiment, as "
            "raymx.run wrote them; take the file from a backup"
        )
    return found, directory


def experiment_to_resume(path: str) -> ExperimentConfig:
    """As `experiment_of`. Raises ExperimentError, naming both, when the experiment's own folder has gone."""
    experiment = experiment_of(path)
    if not os.path.isdir(experiment.directory):
        raise ExperimentError(
            f"--resume {path}: its experiment was in {experiment.directory}, which is not there any more: give the "
            "experiment file where it is now, before --resume"
        )
    return experiment


def newest_run(storage: str, name: str) -> str:
    """The path of the newest run of the experiment ``name``."""
    pattern = re.compile(re.escape(name) + r"_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\+*")
    place = location(storage)
    runs = [run for run in place.names()[0] if pattern.fullmatch(run) and (place / run / RUN).is_there]
    if not runs:
        raise ExperimentError(f"--resume: no run of {name} is in {storage}; give its folder, or --storage-path")
    return os.path.join(storage, max(runs))


def check_same(experiment: ExperimentConfig, path: str) -> None:
    """Raise ExperimentError when a run was of another experiment: what it computes must be what it was."""
    changed = sizing.resume_problems(experiment_of(path), experiment)
    if changed:
        raise ExperimentError(
            f"--resume goes on with the experiment of {path} as it was, but\n  "
            + "\n  ".join(changed)
            + "\ntake these changes back, or start a new run; only "
            + ", ".join(sizing.RESUME_MAY_CHANGE)
            + " may change"
        )


def best_metric(experiment: ExperimentConfig) -> tuple[str, str]:
    """(column, "max" or "min") by which checkpoints are kept."""
    chosen = experiment.sweep.objective if experiment.sweep.objective.metric else experiment.checkpoint
    name = experiment.model.metric.split(":")[-1]
    metric = chosen.metric or (f"validation_{name}" if experiment.data.validation else "train_loss")
    return metric, chosen.mode or ("min" if metric.endswith(("loss", "mse")) else "max")


def root_cause(error: Any) -> RaymxError | None:
    """raymx's own error out of what Ray and Tune wrapped it in."""
    if error is None:
        return None
    # Ray's wrapper is an instance of the cause's class too. Of what it cannot unpickle it, and Tune, give a text.
    cause = getattr(error, "cause", None) or getattr(error, "__cause__", None)
    if isinstance(cause, BaseException):
        return root_cause(cause)
    if isinstance(error, RaymxError):
        return error
    text = last_failure(str(error))
    if short := lack_of_memory(text):
        return OutOfMemory(f"the trial's process was {short}")
    return KVStoreError(f"the trial ended: {text.strip()}")


def last_failure(text: str) -> str:
    """The last of the failures in Tune's text of them, without its head; any other text as it is."""
    return text.rpartition(_FAILURE)[2].partition("\n")[2] if _FAILURE in text else text


def as_json(summary: Mapping[str, Any]) -> str:
    return json.dumps(plain(summary), indent=1) + "\n"


def write(storage: str, folder: str, name: str, text: str) -> None:
    """Write one small file into a run's folder, locally or by URI; complete or not at all."""
    file = location(os.path.join(storage, folder, name))
    try:
        file.write_whole(text.encode())
    except OSError as error:
        raise ExperimentError(f"--storage-path {storage} cannot be written: {error}; {space(storage)}") from None


def read_json(storage: str, folder: str, name: str) -> dict[str, Any]:
    """One small file of a run's folder; {} when it is not there or damaged."""
    try:
        file = location(os.path.join(storage, folder, name))
        return mapping(file.read().decode()) if file.is_there else {}
    except OSError:
        return {}


def mapping(text: str) -> dict[str, Any]:
    """A mapping in JSON; {} for anything else."""
    try:
        found = json.loads(text.removeprefix(BOM))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def space(storage: str) -> str:
    """What to look at when something under the storage path could not be written."""
    try:
        free = shutil.disk_usage(storage).free
    except OSError:
        return f"look whether {storage} can be written"
    return f"{free / 1e6:.1f} MB are free in {storage}: make room there, or give another --storage-path"


def plain(value: Any) -> Any:
    """JSON has no NaN and no numpy."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
