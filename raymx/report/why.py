"""``python -m raymx.why``: why runs are as fast as they are, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raymx.report import words
from raymx.report.causes import NOT_MEASURED, causes, unknown
from raymx.report.diagnoses import KINDS
from raymx.report.findings import Findings
from raymx.report.measures import TrialMeasures
from raymx.report.model import SWEEP, TrialResult, label_of
from raymx.report.study import Entry
from raymx.results import operators, step_text
from raymx.results.setup import Setup
from raymx.results.step_parts import PARTS
from raymx.results.step_text import StepTime

MOST = 20  # trials that are told one by one
LEAST = 0.01  # of a step: what takes less is left out of a comparison


def explain(found: Findings, setup_of: Callable[[TrialResult], Setup]) -> list[str]:
    """The lines. ``setup_of`` a trial: what of its experiment decides about its speed."""
    entries = sorted(found.study.entries, key=lambda entry: -(entry.measures.samples_per_sec or 0.0))
    lines = [line for entry in entries[:MOST] for line in (*_trial(entry, found, setup_of(entry.trial)), "")]
    if entries[MOST:]:
        lines += [f"and {len(entries) - MOST} more trials, which were slower", ""]
    if len(entries) == 2:
        lines += _difference(*entries)
    return lines[:-1] if lines and not lines[-1] else lines


def _trial(entry: Entry, found: Findings, setup: Setup) -> Iterator[str]:
    trial = entry.trial
    yield ", ".join([_head(entry, found), *_speed(entry.measures)])
    step = step_text.of_rows(trial.counted)
    if step is None:
        yield f"  {NOT_MEASURED}"
    else:
        yield f"  {step_text.sentence(step)}"
        yield f"  [{step_text.bar(step)}]"
        known = causes(trial.counted, setup)
        for number, cause in enumerate(known, 1):
            yield f"  {number}. {cause.seen}" + (f"; {cause.worth}" if cause.worth else "")
        if unmeasured := unknown(trial.counted, setup):
            yield f"  not known, since it was not measured: {'; '.join(unmeasured)}"
        if not known:
            yield "  nothing but computing takes 5 % or more of a step: a faster one needs faster computing"
    if told := operators.of_rows(trial.rows):
        yield "  a traced step of a worker, by operator:"
        yield from (f"    {line}" for line in operators.lines(told))
    for diagnosis in found.diagnoses:
        if (diagnosis.sweep, diagnosis.trial_id) == (trial.sweep, trial.trial_id) and diagnosis.kind != "input":
            yield f"  {KINDS[diagnosis.kind].word}: {diagnosis.text}. {KINDS[diagnosis.kind].advice}"


def _head(entry: Entry, found: Findings) -> str:
    """Its sweep, its id, and its settings where the sweep has trials of others."""
    trial = entry.trial
    label = label_of([axis for axis in found.study.axes if axis.key != SWEEP], trial.axes)
    alone = len([one for one in found.study.entries if one.trial.sweep == trial.sweep]) == 1
    return _name(trial) if alone else f"{_name(trial)}: {label}"


def _speed(measures: TrialMeasures) -> list[str]:
    return [] if measures.samples_per_sec is None else [f"{measures.samples_per_sec:,.0f} samples/s"]


def _difference(fast: Entry, slow: Entry) -> Iterator[str]:
    """Why the first is faster than the second."""
    speeds = fast.measures.samples_per_sec, slow.measures.samples_per_sec
    steps = step_text.of_rows(fast.trial.counted), step_text.of_rows(slow.trial.counted)
    if not all(speeds) or steps[0] is None or steps[1] is None:
        return
    assert speeds[0] is not None
    assert speeds[1] is not None
    yield f"{_name(fast.trial)} is {speeds[0] / speeds[1]:.2f}x as fast as {_name(slow.trial)}, by samples/s"
    rows_fast, rows_slow = (trial.global_batch_size or 1 for trial in (fast.trial, slow.trial))
    yield from _by_part(steps[0], steps[1], rows_fast, rows_slow)
    told = operators.of_rows(fast.trial.rows), operators.of_rows(slow.trial.rows)
    if all(told):
        yield "  by operator, the second beside the first:"
        each = (_rows_a_worker(fast.trial), _rows_a_worker(slow.trial))
        yield from (f"    {line}" for line in operators.compared(*told, samples=each))


def _by_part(fast: StepTime, slow: StepTime, fast_batch: int, slow_batch: int) -> Iterator[str]:
    """Seconds of each part for a thousand samples, since batches may differ."""
    first, second = _a_thousand(fast, fast_batch), _a_thousand(slow, slow_batch)
    gained = sum(second.values()) - sum(first.values())
    for part in sorted(PARTS, key=lambda part: first[part] - second[part]):
        more = second[part] - first[part]
        if max(first[part], second[part]) >= LEAST * sum(second.values()):
            share = f": {words.part(more / gained)} of the difference" if gained > 0 and more > 0 else ""
            yield f"  {step_text.NAMES[part]}: {first[part]:.3g} s and {second[part]:.3g} s for 1,000 samples{share}"


def _a_thousand(step: StepTime, batch: int) -> dict[str, float]:
    return {part: 1000 * step.fractions[part] * step.step_s / batch for part in PARTS}


def _rows_a_worker(trial: TrialResult) -> float:
    return (trial.global_batch_size or 1) / (trial.num_workers or 1)


def _name(trial: TrialResult) -> str:
    return f"{trial.sweep} {trial.trial_id}"
