"""What a trial's own measures show. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raymx.experiment.store_types import STORE_TYPES
from raymx.report import words
from raymx.report.evidence import INPUT_BOUND, Evidence, Found, Said
from raymx.report.model import TrialResult, number
from raymx.report.study import Entry
from raymx.results.rows import CHANCE
from raymx.results.step_text import ITSELF, known

FIRST_STEP, FIRST_STEP_S = 20.0, 5.0  # times a step, and seconds
UNEVEN = 0.8  # the slowest worker's speed as a part of the fastest one's
NEAR_CHANCE = 1.5  # times 1 / classes, where it does not rise
SKIPPED = 0.05  # part of the steps
NEARLY_FULL = 0.85  # of a memory; Ray ends processes at 0.95


def input_bound(entry: Entry) -> Said:
    """Its training waits for data."""
    part = entry.measures.data_wait_fraction
    if part is None or part <= INPUT_BOUND:
        return None
    own = known(entry.trial.counted, "own_batches_fraction")
    text = f"{words.part(part)} of the training time waited for data"
    if own is not None and own >= ITSELF:
        text += (
            f"; its workers decoded {words.part(own)} of the batches themselves, which more data.cpus does not change"
        )
    return part, text


def nan(entry: Entry) -> Said:
    """The first report with a loss (or objective) that is no finite number. A column that is absent is not one."""
    for at, row in enumerate(entry.trial.rows, 1):
        bad = [name for name, value in row.items() if _measured(name) and _is_nan(value)]
        if bad and _whole(row):
            epoch = row.get("epoch", at)
            return float(epoch), f"{bad[0]} is {row[bad[0]]} in epoch {epoch:g}"
    return None


def _measured(name: str) -> bool:
    return (name.startswith(("train_", "validation_")) and name != "train_s") or name.endswith("loss")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _whole(row: Mapping[str, Any]) -> bool:
    """Whether a report is of a whole epoch: one of an interrupted epoch has no numbers of its own."""
    epoch = row.get("epoch", 1)
    return isinstance(epoch, (int, float)) and math.isfinite(epoch) and epoch == int(epoch)


def first_step(entry: Entry) -> Said:
    """Its first step took far longer than the others."""
    first, step = entry.measures.first_step_s, entry.measures.step_s
    if first is None or not step or first < FIRST_STEP_S or first < FIRST_STEP * step:
        return None
    text = f"the first step took {words.seconds(first)}, the others {words.short_seconds(step)}"
    return first, text + _of_first(entry.trial.counted[0], first)


def _of_first(row: Mapping[str, Any], first: float) -> str:
    """What of the first step's time is known."""
    batch, form = number(row.get("first_batch_s")), number(row.get("form_s"))
    said = "" if batch is None else f": {words.seconds(batch)} until the first batch was there, "
    said += "" if batch is None else f"{words.seconds(max(0.0, first - batch))} to compute it for the first time"
    return said + (
        "" if form is None else f"; before it, {words.seconds(form)} to start processes and form the KVStore"
    )


def memory(entry: Entry) -> Said:
    """The memory of a node or of a GPU is nearly full."""
    rows = entry.trial.counted
    full = {name: max(found) for name in _MEMORY if (found := _numbers(rows, name))}
    name = max(full, key=lambda one: full[one], default=None)
    if name is None or full[name] < NEARLY_FULL:
        return None
    each = [f"{what} {max(found):,.0f} MiB" for column, what in _PEAKS[name] if (found := _numbers(rows, column))]
    return full[name], f"{words.part(full[name])} of {_MEMORY[name]} was in use" + (
        f", of which {' and '.join(each)} at the most" if each else ""
    )


_MEMORY = {"node_memory_fraction": "the fullest node's memory", "gpu_memory_fraction": "a GPU's memory"}
_PEAKS = {
    "node_memory_fraction": (
        ("worker_rss_peak_mib", "one worker's process"),
        ("server_rss_peak_mib", "one server's process"),
        ("object_store_mib", "this run's reading in the object store"),
    ),
    "gpu_memory_fraction": (("gpu_memory_peak_mib", "all processes on it"),),
}


def _numbers(rows: Sequence[Mapping[str, Any]], column: str) -> list[float]:
    return [value for row in rows if (value := number(row.get(column)))]


def uneven(entry: Entry) -> Said:
    """Its async workers are of unequal speed."""
    part = entry.measures.slowest_worker
    store = STORE_TYPES.get(entry.trial.kvstore_type or "")
    if part is None or part >= UNEVEN or store is None or not store.is_async:
        return None
    return part, f"the slowest worker has {words.part(part)} of the fastest one's speed"


def skipped(entry: Entry) -> Said:
    """Many of its steps were left out, since gradients overflowed."""
    left_out, steps = entry.measures.skipped_steps, entry.measures.steps
    part = left_out / max(steps, left_out, 1)
    if part <= SKIPPED:
        return None
    return part, f"{left_out:,} of {max(steps, left_out):,} steps ({words.part(part)}) were skipped"


def chance(evidence: Evidence) -> Iterator[Found]:
    """The validation accuracy is what guessing gives."""
    for entry in evidence.study.entries:
        said = _chance(entry.trial, evidence.classes.get(entry.trial.sweep))
        if said is not None:
            yield entry, *said


def _chance(trial: TrialResult, classes: int | None) -> Said:
    values = [value for _, value in trial.series("validation_accuracy")]
    if not values or classes is None or classes < 2:
        return None
    last, rising = values[-1], len(values) == 1 or values[-1] > values[0]
    if last > CHANCE / classes and (rising or last >= NEAR_CHANCE / classes):
        return None
    fell = f", after {words.objective(max(values))} at its best" if max(values) > NEAR_CHANCE / classes else ""
    return last, (
        f"validation_accuracy is {words.objective(last)} at the end, and guessing among {classes} classes "
        f"gives {words.objective(1 / classes)}{fell}"
    )
