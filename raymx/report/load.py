"""A run's files -> a `Sweep`. Pure: text in, data out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment.loading import parse_experiment
from raymx.report.model import (
    SWEEP,
    ComparedAxis,
    ObjectiveColumn,
    SkippedCell,
    SweepResult,
    TrialResult,
    Value,
    label_of,
    number,
)
from raymx.results import run_folder
from raymx.results.columns import WHOLE_EXPERIMENT
from raymx.results.run_files import ROWS, RunFiles, TrialFiles
from raymx.results.setup import Setup
from raymx.storage import child
from raymx.sweep.axis import label


def load(run: RunFiles, name: str) -> SweepResult:
    """The sweep of a run's files; a single run is one with no axes. ``name`` tells it from those it is compared with.

    Raises ExperimentError for files that cannot be understood. A last line of result.json that is cut (a run that goes
    on) is left out, and so are damaged ones, with a remark.
    """
    experiment = experiment_of(run)
    plan = _json(run.sweep, child(run.path, run_folder.SWEEP))
    summary = _json(run.summary, child(run.path, run_folder.SUMMARY))
    axes = tuple(_axis(axis) for axis in plan.get("axes", ()))
    remarks: list[str] = []
    trials = tuple(_trial(files, name, axes, experiment, summary if not plan else {}, remarks) for files in run.trials)
    return SweepResult(
        name=name,
        path=run.path,
        objective=_objective(plan, experiment),
        axes=axes,
        trials=tuple(sorted(trials, key=lambda trial: trial.trial_id)),
        skipped=tuple(
            SkippedCell(label_of(axes, cell["axes"]), cell.get("reason") or "no reason was given")
            for cell in plan.get("cells", ())
            if cell.get("verdict") == "skipped"
        ),
        planned=plan.get("trials_planned") or len(trials),
        price_per_hour=plan.get("price_per_hour") or {},
        classes=_at(experiment, "model.head.classes") or _at(experiment, "model.classes"),
        summary=summary,
        remarks=tuple(remarks),
    )


def names_of(paths: Sequence[str]) -> list[str]:
    """For each path the shortest end of it that tells it from the others."""
    parts = [[part for part in path.partition("?")[0].split("/") if part] for path in paths]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def compared(sweeps: Sequence[SweepResult]) -> tuple[ComparedAxis, ...]:
    """The axes of all sweeps together: which sweep (when there are several), and all of theirs.

    Raises ExperimentError when sweeps have different objectives.
    """
    different = {sweep.objective: sweep for sweep in sweeps}
    if len(different) > 1:
        told = "; ".join(
            f"{sweep.path} has {sweep.objective.mode} of {sweep.objective.metric}" for sweep in different.values()
        )
        raise ExperimentError(f"sweeps of different objectives cannot be compared: {told}; make a report of each")
    found: dict[str, ComparedAxis] = {}
    if len(sweeps) > 1:
        found[SWEEP] = ComparedAxis(SWEEP, "grid", tuple(sweep.name for sweep in sweeps))
    for axis in (axis for sweep in sweeps for axis in sweep.axes):
        found[axis.key] = _joined(found[axis.key], axis) if axis.key in found else axis
    return tuple(found.values())


def _joined(one: ComparedAxis, other: ComparedAxis) -> ComparedAxis:
    if one.labels is None or other.labels is None:
        return one if one.labels is None else other
    return ComparedAxis(one.key, one.kind, tuple(dict.fromkeys((*one.labels, *other.labels))))


def with_axes(sweep: SweepResult, experiment: Mapping[str, Any], axes: Sequence[ComparedAxis]) -> list[TrialResult]:
    """A sweep's trials with a value on each of ``axes``: what is no axis of it is as its experiment says."""

    def values(trial: TrialResult) -> dict[str, Value]:
        given = {**trial.axes, SWEEP: sweep.name}
        return {axis.key: _as(axis, given.get(axis.key, _at(experiment, axis.key))) for axis in axes}

    return [replace(trial, axes=values(trial)) for trial in sweep.trials]


def experiment_of(run: RunFiles) -> Mapping[str, Any]:
    """The experiment of a run, as plain data. Raises ExperimentError where run.yaml holds none."""
    path = child(run.path, run_folder.RUN)
    return run_folder.recorded(run.run, path)[0]


def setup_of(run: RunFiles, trial: TrialResult) -> Setup:
    """What of a trial's experiment decides about its speed; nothing is known of an experiment of another time."""
    for settings in (dict(trial.settings), {}):
        try:
            return Setup.of(parse_experiment(experiment_of(run), "", settings))
        except ExperimentError:
            continue
    return Setup()


def _as(axis: ComparedAxis, value: Any) -> Value:
    found = number(value)
    return found if axis.labels is None and found is not None else _label(value)


def _label(value: Any) -> str:
    """A setting of run.yaml as the labels of axes are written; that file has 1.0 where an axis may have 1."""
    return f"{value:g}" if isinstance(value, float) else label(value)


def _at(data: Mapping[str, Any], key: str) -> Any:
    """What is at a dotted key, or None."""
    found: Any = data
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _json(text: str | None, path: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found: dict[str, Any] = json.loads(text.removeprefix(run_folder.BOM))
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, and a mapping is needed")
    except ValueError as error:
        raise ExperimentError(
            f"{path}: cannot be understood ({error}); take the file from a backup, or remove it and "
            "get a report without it"
        ) from None
    return found


def _axis(axis: Mapping[str, Any]) -> ComparedAxis:
    labels = axis.get("labels")
    return ComparedAxis(axis["key"], axis.get("kind", "grid"), None if labels is None else tuple(map(_label, labels)))


def _objective(plan: Mapping[str, Any], experiment: Mapping[str, Any]) -> ObjectiveColumn:
    if plan:
        return ObjectiveColumn(plan["objective"]["metric"], plan["objective"]["mode"])
    return ObjectiveColumn(*run_folder.best_metric(parse_experiment(experiment, "")))


def _trial(
    files: TrialFiles,
    sweep: str,
    axes: Sequence[ComparedAxis],
    experiment: Mapping[str, Any],
    summary: Mapping[str, Any],
    remarks: list[str],
) -> TrialResult:
    rows = _rows(files.rows or "", files.folder, remarks)
    try:
        facts = json.loads(files.trial) if files.trial else {}
    except ValueError:
        facts = {}
        remarks.append(f"{files.folder}/{run_folder.TRIAL} is damaged: what it says is left out")
    facts = {**_guessed(files.folder, experiment, summary, rows), **facts}
    known = {name: facts[name] for name in TrialResult.__dataclass_fields__ if name in facts}
    values = {axis.key: _as(axis, facts.get("axes", {}).get(axis.key, _at(experiment, axis.key))) for axis in axes}
    return TrialResult(
        **{**known, "sweep": sweep, "axes": values, "rows": tuple(rows), "notes": tuple(facts.get("notes") or ())}
    )


def _guessed(
    folder: str, experiment: Mapping[str, Any], summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What trial.json says, from other files: for a run without it, and for what an older one lacks."""
    last = rows[-1] if rows else {}
    epochs, epoch = _at(experiment, "training.epochs"), number(last.get("epoch"))
    finished = epoch is not None and epochs is not None and epoch >= epochs
    first = rows[0] if rows else {}
    stamp, spent = number(first.get("timestamp")), number(first.get("time_total_s"))
    return {
        "trial_id": last.get("trial_id") or folder,
        "state": summary.get("state") or ("finished" if finished else "running"),
        "error": summary.get("error"),
        "wall_s": summary.get("wall_s"),
        "epochs": epochs,
        "started": None if stamp is None or spent is None else stamp - spent,
        "ended": number(last.get("timestamp")) if finished or summary else None,
        "num_workers": last.get("num_workers"),
        "global_batch_size": _at(experiment, "training.global_batch_size"),
        "kvstore_type": summary.get("kvstore_type") or _at(experiment, "kvstore.type"),
        "dtype": _at(experiment, "precision.dtype"),
        "compression": _label(_at(experiment, "kvstore.compression")),
        "seed": _at(experiment, "training.seed"),
    }


def _rows(text: str, folder: str, remarks: list[str]) -> list[dict[str, Any]]:
    lines = text.splitlines()
    found: list[dict[str, Any]] = []
    for at, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError:
            row = None
            if at < len(lines) or text.endswith("\n"):
                remarks.append(f"{folder}/{ROWS}, line {at}, is damaged: it is left out")
        if isinstance(row, dict):
            found.append(
                {
                    name: value
                    for name, value in row.items()
                    if name not in WHOLE_EXPERIMENT and not isinstance(value, dict)
                }
            )
    newest = {row.get("epoch"): at for at, row in enumerate(found) if number(row.get("epoch")) is not None}
    for at, row in enumerate(found):
        epoch = number(row.get("epoch"))
        row["counts"] = epoch is None or (epoch == int(epoch) and newest[row["epoch"]] == at)
    return found
