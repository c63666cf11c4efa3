"""How settings were trained, in words: their learning rates, and the command that trains them alone. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from statistics import median
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment import yaml_text
from raymx.experiment.names import OBJECTS
from raymx.report.cell_summaries import CellSummary
from raymx.report.study import Entry, Study
from raymx.text.words import count

MOST_RATES = 6
LONG_WARMUP = 0.5  # part of the training


def rates(study: Study) -> list[str]:
    """Batch, peak rate, warmup and steps of the trials, where they differ; and which of them warm up most of the time.

    Two batches of a short training are rarely compared alone: the rule lengthens the warmup of the larger one.
    """
    groups: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in study.entries:
        groups.setdefault(_schedule(entry), []).append(entry)
    said = []
    if 1 < len(groups) <= MOST_RATES and all(None not in key for key in groups):
        said.append(f"Learning rates: {'; '.join(_rate(key, entries) for key, entries in groups.items())}.")
    long = [entries for key, entries in groups.items() if _warms_up_most(entries[0])]
    if long:
        whose = "all trials" if len(long) == len(groups) else "; ".join(_batch_and_warmup(each[0]) for each in long)
        said.append(
            f"Warmup is most of the training of {whose}: the objective says little of a longer training, where the "
            "warmup is a small part. Train more epochs, or set training.warmup_lengthen: false."
        )
    return said


def _schedule(entry: Entry) -> tuple[Any, ...]:
    trial = entry.trial
    peak = entry.measures.peak_rate
    return trial.global_batch_size, None if peak is None else f"{peak:.4g}", trial.warmup_epochs, trial.epochs


def _rate(key: Sequence[Any], entries: Sequence[Entry]) -> str:
    batch, peak, warmup, epochs = key
    steps = [entry.measures.steps for entry in entries if entry.measures.steps]
    return f"batch {batch:,} has a peak of {peak}, {warmup:.3g} of {count(epochs, 'epoch')} of warmup" + (
        f" and {median(steps):,.0f} steps" if steps else ""
    )


def _warms_up_most(entry: Entry) -> bool:
    warmup, epochs = entry.trial.warmup_epochs, entry.trial.epochs
    return bool(warmup and epochs and warmup > LONG_WARMUP * epochs)


def _batch_and_warmup(entry: Entry) -> str:
    return f"{entry.label} ({entry.trial.warmup_epochs:.3g} of {entry.trial.epochs} epochs)"


def codes(study: Study) -> list[str]:
    """Whether trials were trained by different code, as when a sweep was resumed after a change."""
    versions = {entry.trial.code for entry in study.entries if entry.trial.code}
    if len(versions) < 2:
        return []
    return [
        f"These trials were trained by {len(versions)} versions of the experiment's own modules (the column code): "
        "what differs between them may be that."
    ]


def command(study: Study, cell: CellSummary) -> list[str]:
    """The command that trains a cell alone; none where its settings are not known, or only a notebook has them."""
    script = next((e.trial.command for e in study.entries if e.trial.axes == cell.axes and e.trial.command), None)
    if script:
        return [f"To run it alone: {script}"]
    settings = next((e.trial.settings for e in study.entries if e.trial.axes == cell.axes and e.trial.settings), None)
    if not settings or any(str(value).startswith(f"{OBJECTS}:") for value in settings.values()):
        return []
    flags = [f"--set {shlex.quote(f'{key}={_as_yaml(value)}')}" for key, value in settings.items()]
    return [f"To train it alone: python -m raymx.run EXPERIMENT --set 'sweep.space={{}}' {' '.join(flags)}"]


def _as_yaml(value: Any) -> str:
    """A value as --set takes it."""
    if isinstance(value, str):
        try:
            if yaml_text.parse(value, "") == value:
                return value
        except ExperimentError:
            pass
    return json.dumps(value)
