"""What shows only where trials are compared with others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from raymx.report import words
from raymx.report.cell_summaries import speeds
from raymx.report.effects import matched, present
from raymx.report.evidence import INPUT_BOUND, Evidence, Found, Said
from raymx.report.model import show
from raymx.report.study import Entry
from raymx.results.rows import SLOW_TWIN

GAIN = 1.05  # of a lower precision, below which it is none
SERVER_GAIN = 1.1  # with more servers, or with their work done elsewhere

_LOW = ("float16", "bfloat16")


def twin(evidence: Evidence) -> Iterator[Found]:
    """Far slower than the other repeats of its cell."""
    for entries in evidence.groups.values():
        for entry in entries:
            said = _twin(entry, entries)
            if said is not None:
                yield entry, *said


def _twin(entry: Entry, entries: Sequence[Entry]) -> Said:
    all_speeds = [each.measures.samples_per_sec for each in entries if each.measures.samples_per_sec is not None]
    own = entry.measures.samples_per_sec
    if own is None or len(all_speeds) < 2 or own >= SLOW_TWIN * median(all_speeds):
        return None
    part = own / median(all_speeds)
    return part, (
        f"{words.speed(own)} samples/s, {words.part(part)} of the median of its {len(all_speeds)} repeats"
        + (", on a node that it shared" if entry.shared else "")
    )


def precision(evidence: Evidence) -> Iterator[Found]:
    """Trials of lower precision that were not faster than those of float32 with all else the same, and what is known
    of why."""
    study, groups = evidence.study, evidence.groups
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
                        yield entry, ratio, text


def _why_no_gain(entry: Entry, full: Sequence[Entry]) -> str:
    waits, sent = entry.measures.data_wait_fraction, entry.measures.bytes_pushed
    before = next((each.measures.bytes_pushed for each in full if each.measures.bytes_pushed), None)
    if not entry.trial.gpus:
        return "it ran on CPUs, most of which have no fast arithmetic of that precision"
    if waits is not None and waits > INPUT_BOUND:
        return f"{words.part(waits)} of its time it waited for data, which a lower precision does not shorten"
    if sent and before and sent > 0.9 * before:
        return (
            f"it sends as many bytes a step ({words.size(sent)}) as float32. A guess: that takes the time "
            "(precision.wire_dtype: float16 halves it), or its layers are too small to gain by it"
        )
    return (
        "why is not measured. A guess: its layers are too small; larger batches, and channels in multiples of 8, "
        "may help"
    )


_SERVER_AXES = ("kvstore.servers", "kvstore.cpus_per_server", "kvstore.update_on_kvstore")


def servers(evidence: Evidence) -> Iterator[Found]:
    """Trials that were faster with more servers, or without their update: only such a pair can tell."""
    study, groups = evidence.study, evidence.groups
    for axis in (axis for axis in study.axes if axis.key in _SERVER_AXES):
        values = present(axis, study)
        for one, other in ((one, other) for one in values for other in values if _relieves(axis.key, one, other)):
            for less, more in matched(axis.key, one, other, groups):
                ratio = _ratio(more, less)
                if ratio is not None and ratio >= SERVER_GAIN:
                    text = f"{ratio:.2f}x the samples/s with {axis.key} {show(other)}, all else the same"
                    for entry in less:
                        yield entry, ratio, text


def workers(evidence: Evidence) -> Iterator[Found]:
    """Trials that were no faster than those with fewer workers."""
    study, groups = evidence.study, evidence.groups
    for axis in (axis for axis in study.axes if axis.key == "resources.workers"):
        values = present(axis, study)
        for few, many in ((few, many) for few in values for many in values if _relieves(axis.key, few, many)):
            for less, more in matched(axis.key, few, many, groups):
                ratio = _ratio(more, less)
                if ratio is not None and ratio < GAIN:
                    for entry in more:
                        text = f"{ratio:.2f}x the samples/s of {show(few)}, all else the same{_waits(entry)}"
                        yield entry, ratio, text


def _waits(entry: Entry) -> str:
    """What a step of many workers waits for, as far as that was measured."""
    part = entry.measures.communication_fraction
    return "" if part is None else f"; {words.part(part)} of a step waits for gradients and weights"


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
