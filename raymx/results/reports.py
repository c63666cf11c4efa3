"""Reports of a run, a row each, as a client gets them. Pure but for reading a run's folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from raymx.errors import ExperimentError, RaymxError
from raymx.results import columns, run_files, run_folder
from raymx.results.view import View
from raymx.storage import child, text

_FIRST = ("trial_id", "epoch")


def lean(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of Tune's without what is Tune's own, with the sweep's axes, as plain data for JSON."""
    settings = row.get("config") or {}
    axes = dict(settings.get("point", {}).get("axes", {}))
    rest = {
        name: _plain(value)
        for name, value in row.items()
        if name not in columns.NOT_FOR_CLIENTS and not isinstance(value, dict)
    }
    first = {name: rest.pop(name) for name in _FIRST if name in rest}
    return {**first, **axes, **rest}


def of_text(text: str) -> Iterator[dict[str, Any]]:
    """The rows of a file with a row of JSON a line; a last line that is being written is left out."""
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def of_folder(path: str, missing_ok: bool = False) -> list[dict[str, Any]]:
    """The rows of a run's folder or URI. Raises ExperimentError when no run is there."""
    try:
        run = run_files.read_run(path)
    except ExperimentError:
        if missing_ok:
            return []
        raise
    return [lean(row) for trial in run.trials for row in of_text(trial.rows or "")]


def is_run(path: str) -> bool:
    """Whether a folder or URI holds a run that can be read from here."""
    try:
        return text(child(path, run_folder.RUN)) is not None
    except RaymxError:
        return False


def frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame, a row a report; the newest of an epoch that was trained again, after a failure."""
    import pandas

    newest = {(row.get("trial_id"), row.get("epoch")): dict(row) for row in rows}
    return pandas.DataFrame(list(newest.values()))


def by_trial(rows: Any, view: View) -> Any:
    """A DataFrame with a row a trial: the axes, the state, the best objective, the speed."""
    import pandas

    newest = {} if rows.empty else {row["trial_id"]: row for row in rows.to_dict("records")}
    return pandas.DataFrame(
        [
            {
                "trial_id": one.trial_id,
                **{axis: newest.get(one.trial_id, {}).get(axis) for axis in view.axes},
                "state": one.state,
                "epoch": one.epoch,
                view.metric or "objective": one.objective,
                "samples_per_sec": one.samples_per_sec,
                "error": one.error,
            }
            for one in view.trials
        ]
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value
