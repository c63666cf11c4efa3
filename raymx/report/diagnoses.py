"""What somebody who knows the field would say of a trial, each with its number. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from raymx.report import words
from raymx.report.cell_summaries import Key, grouped, speeds
from raymx.report.effects import matched, present
from raymx.report.model import Trial, show
from raymx.report.study import Entry, Study
from raymx.results.rows import CHANCE, SLOW_TWIN

INPUT_BOUND = 0.30  # part of the training time that waits for data
GAIN = 1.05  # of a lower precision, below which it is none
FIRST_STEP, FIRST_STEP_S = 20.0, 5.0  # times a step, and seconds
UNEVEN = 0.8  # the slowest worker's speed as a part of the fastest one's
NEAR_CHANCE = 1.5  # times 1 / classes, where it does not rise
SKIPPED = 0.05  # part of the steps
SERVER_GAIN = 1.1  # with more servers, or with their work done elsewhere

_LOW = ("float16", "bfloat16")


@dataclass(frozen=True)
class Kind:
    """A kind of flag: the word in tables, and what it means and what to do."""

    word: str
    advice: str


KINDS: Mapping[str, Kind] = {
    "nan": Kind(
        "NaN",
        "The loss or the objective was NaN or infinite. Lower the learning rate or lengthen the warmup; with "
        "float16, use loss scaling.",
    ),
    "chance": Kind(
        "at chance",
        "The validation accuracy is what guessing gives. The learning rate is mostly too high (async updates "
        "stand less), or the labels do not belong to the records.",
    ),
    "input": Kind(
        "input bound",
        "Training waits for data: the input is the bottleneck, and no other setting can make it faster. Give "
        "data.cpus more, or a data.cache that holds the records.",
    ),
    "precision": Kind("no gain by precision", "A lower precision was not faster than float32."),
    "servers": Kind(
        "servers slow",
        "The update on the servers is the bottleneck. Use more kvstore.servers or kvstore.cpus_per_server, or "
        "kvstore.update_on_kvstore: false.",
    ),
    "uneven": Kind(
        "uneven workers",
        "Async workers of unequal speed: the fast ones train more often, and the slow ones push gradients of old "
        "weights. Place them on equal nodes, or use dist_sync.",
    ),
    "skipped": Kind(
        "skipped steps",
        "Many steps were left out because gradients overflowed. Lower precision.loss_scale, or the learning rate.",
    ),
    "twin": Kind(
        "slow twin",
        "Far slower than other repeats of the same settings: something else used its node. Do not take its speed "
        "for that of the settings.",
    ),
    "first_step": Kind(
        "slow first step",
        "The first step took far longer than the others (first data, memory, the choice of kernels). Short trials "
        "are mostly that: train more epochs before comparing wall times.",
    ),
}
"""All kinds, the gravest first."""


@dataclass(frozen=True)
class Flag:
    """One diagnosis of one trial; ``number`` is what it was made by and ``text`` says it."""

    kind: str
    sweep: str
    trial_id: str
    number: float
    text: str


def diagnoses(study: Study, classes: Mapping[str, int | None]) -> list[Flag]:
    """All flags, the gravest kind first. ``classes`` by sweep; None where the net does not classify."""
    groups = grouped(study)
    found: list[Flag] = []
    for entry in study.entries:
        for kind, check in _OF_ONE.items():
            found += _flags(kind, entry, check(entry))
        found += _flags("chance", entry, _chance(entry.trial, classes.get(entry.trial.sweep)))
    for entries in groups.values():
        for entry in entries:
            found += _flags("twin", entry, _twin(entry, entries))
    found += _precision(study, groups)
    found += _servers(study, groups)
    order = list(KINDS)
    return sorted(found, key=lambda flag: (order.index(flag.kind), flag.sweep, flag.trial_id))


Found = tuple[float, str] | None
"""(the number, the text), or nothing to say."""


def _flags(kind: str, entry: Entry, found: Found) -> list[Flag]:
    return [] if found is None else [Flag(kind, entry.trial.sweep, entry.trial.trial_id, *found)]


def _input(entry: Entry) -> Found:
    part = entry.figures.data_wait_fraction
    if part is None or part <= INPUT_BOUND:
        return None
    return part, f"{words.part(part)} of the training time waited for data"


def _nan(entry: Entry) -> Found:
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
    """Whether a report is of a whole epoch: one of an interrupted epoch has no figures of its own."""
    epoch = row.get("epoch", 1)
    return isinstance(epoch, (int, float)) and math.isfinite(epoch) and epoch == int(epoch)


def _first_step(entry: Entry) -> Found:
    first, step = entry.figures.first_step_s, entry.figures.step_s
    if first is None or not step or first < FIRST_STEP_S or first < FIRST_STEP * step:
        return None
    return first, f"the first step took {words.seconds(first)}, the others {words.short_seconds(step)}"


def _uneven(entry: Entry) -> Found:
    part = entry.figures.slowest_worker
    if part is None or part >= UNEVEN or "async" not in (entry.trial.kvstore_type or ""):
        return None
    return part, f"the slowest worker has {words.part(part)} of the fastest one's speed"


def _skipped(entry: Entry) -> Found:
    skipped, steps = entry.figures.skipped_steps, entry.figures.steps
    part = skipped / max(steps, skipped, 1)
    if part <= SKIPPED:
        return None
    return part, f"{skipped:,} of {max(steps, skipped):,} steps ({words.part(part)}) were skipped"


_OF_ONE: Mapping[str, Callable[[Entry], Found]] = {
    "input": _input,
    "nan": _nan,
    "first_step": _first_step,
    "uneven": _uneven,
    "skipped": _skipped,
}


def _chance(trial: Trial, classes: int | None) -> Found:
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


def _twin(entry: Entry, entries: Sequence[Entry]) -> Found:
    all_speeds = [each.figures.samples_per_sec for each in entries if each.figures.samples_per_sec is not None]
    own = entry.figures.samples_per_sec
    if own is None or len(all_speeds) < 2 or own >= SLOW_TWIN * median(all_speeds):
        return None
    part = own / median(all_speeds)
    return part, (
        f"{words.speed(own)} samples/s, {words.part(part)} of the median of its {len(all_speeds)} repeats"
        + (", on a node that it shared" if entry.shared else "")
    )


def _precision(study: Study, groups: Mapping[Key, Sequence[Entry]]) -> Iterator[Flag]:
    """TrialRecords of lower precision that were not faster than those of float32 with all else the same, and why."""
    for axis in study.axes:
        if axis.name != "dtype" or "float32" not in present(axis, study):
            continue
        for label in present(axis, study):
            if not str(label).endswith(_LOW):
                continue
            for low, full in matched(axis.key, label, "float32", groups):
                ratio = _ratio(low, full)
                if ratio is not None and ratio < GAIN:
                    for entry in low:
                        text = f"{show(label)}: {ratio:.2f}x the samples/s of float32; {_why_no_gain(entry, full)}"
                        yield from _flags("precision", entry, (ratio, text))


def _why_no_gain(entry: Entry, full: Sequence[Entry]) -> str:
    waits, sent = entry.figures.data_wait_fraction, entry.figures.bytes_pushed
    before = next((each.figures.bytes_pushed for each in full if each.figures.bytes_pushed), None)
    if not entry.trial.gpus:
        return "it ran on CPUs, which have no fast arithmetic of that precision"
    if waits is not None and waits > INPUT_BOUND:
        return f"the input is the bottleneck ({words.part(waits)} of the time waited for data)"
    if sent and before and sent > 0.9 * before:
        return (
            f"it sends as many bytes a step ({words.size(sent)}) as float32: try precision.wire_dtype: float16; or "
            "its layers are too small to gain by it"
        )
    return "its layers are probably too small: try larger batches, and channels in multiples of 8"


_SERVER_AXES = ("kvstore.servers", "kvstore.cpus_per_server", "kvstore.update_on_kvstore")


def _servers(study: Study, groups: Mapping[Key, Sequence[Entry]]) -> Iterator[Flag]:
    """TrialRecords that were faster with more servers, or without their update: only such a pair can tell."""
    for axis in (axis for axis in study.axes if axis.key in _SERVER_AXES):
        values = present(axis, study)
        for one, other in ((one, other) for one in values for other in values if _relieves(axis.key, one, other)):
            for less, more in matched(axis.key, one, other, groups):
                ratio = _ratio(more, less)
                if ratio is not None and ratio >= SERVER_GAIN:
                    text = f"{ratio:.2f}x the samples/s with {axis.key} {show(other)}, all else the same"
                    for entry in less:
                        yield from _flags("servers", entry, (ratio, text))


def _ratio(one: Sequence[Entry], other: Sequence[Entry]) -> float | None:
    """Samples/s of one cell as a multiple of another's; None where they cannot be compared."""
    fast, slow = speeds(one), speeds(other)
    return fmean(fast) / fmean(slow) if fast and slow and fmean(slow) else None


def _relieves(key: str, one: object, other: object) -> bool:
    """Whether ``other`` takes work off the servers that ``one`` gives them."""
    if key == "kvstore.update_on_kvstore":
        return one in ("true", "auto") and other == "false"
    try:
        return float(str(other)) > float(str(one))
    except ValueError:
        return False
