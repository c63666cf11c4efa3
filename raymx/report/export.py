"""results.csv and results.parquet: one row a trial. From the second alone every number of a report can be reckoned."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from raymx.report.findings import Findings
from raymx.report.model import SWEEP, TrialResult, number
from raymx.report.study import Entry

METADATA = b"raymx"
"""Key of the parquet file's metadata: JSON with the objective, the target, the axes, and of each sweep its price of an
hour, the classes of its net and its skipped cells."""

_FACTS = [field.name for field in fields(TrialResult) if field.name not in ("axes", "rows", "notes", "settings")]


def records(found: Findings) -> list[dict[str, Any]]:
    """One mapping a trial: its facts, its settings by their keys, its measures and its diagnoses."""
    return [_record(found, entry) for entry in found.study.entries]


def _record(found: Findings, entry: Entry) -> dict[str, Any]:
    trial = entry.trial
    axes = {key: value for key, value in trial.axes.items() if key != SWEEP}
    return {
        **{name: getattr(trial, name) for name in _FACTS},
        **axes,
        **asdict(entry.measures),
        "shared": entry.shared,
        "settled": entry.settled,
        "comparable": entry.comparable,
        "notes": "; ".join(trial.notes),
        "flags": "; ".join(f"{diagnosis.kind}: {diagnosis.text}" for diagnosis in found.diagnoses_of(entry)),
    }


def as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The table as CSV (UTF-8), with a line of names."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["trial_id"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_parquet(found: Findings, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The table with a column ``rows``: all reports of each trial."""
    import pyarrow as pa
    from pyarrow import parquet

    names = list(dict.fromkeys(name for row in rows for name in row)) or ["trial_id"]
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    columns["rows"] = _reports([entry.trial.rows for entry in found.study.entries])
    sink = io.BytesIO()
    table = pa.table(columns).replace_schema_metadata({METADATA: json.dumps(_about(found))})
    parquet.write_table(table, sink)
    return sink.getvalue()


def _about(found: Findings) -> dict[str, Any]:
    return {
        "objective": asdict(found.study.objective),
        "target": found.study.target,
        "axes": [asdict(axis) for axis in found.study.axes],
        "sweeps": [
            {
                "name": sweep.name,
                "path": sweep.path,
                "planned": sweep.planned,
                "classes": sweep.classes,
                "price_per_hour": dict(sweep.price_per_hour),
                "skipped": [asdict(skipped) for skipped in sweep.skipped],
            }
            for sweep in found.sweeps
        ],
    }


def _column(values: Sequence[Any]) -> Any:
    """A column of one type: truth values, whole numbers, numbers, lists of numbers, or else text."""
    import pyarrow as pa

    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    for arrow, of in ((pa.bool_(), {bool}), (pa.int64(), {int}), (pa.float64(), {int, float})):
        if kinds and kinds <= of:
            with contextlib.suppress(OverflowError, pa.ArrowInvalid):  # a whole number too large: a float, or text
                return pa.array(
                    [float(value) if arrow == pa.float64() and value is not None else value for value in values], arrow
                )
    if kinds == {list}:
        return pa.array(
            [None if value is None else [number(item) for item in value] for value in values], pa.list_(pa.float64())
        )
    return pa.array(
        [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values],
        pa.string(),
    )


def _reports(trials: Sequence[Sequence[Mapping[str, Any]]]) -> Any:
    """A list column of structs: the columns that any report of any trial has."""
    import pyarrow as pa

    flat = [row for rows in trials for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row)) or ["epoch"]
    columns = [_column([row.get(name) for row in flat]) for name in names]
    offsets = [0]
    for rows in trials:
        offsets.append(offsets[-1] + len(rows))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(columns, names))
