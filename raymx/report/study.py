"""All trials with their measures, and which of them count in which statistics. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raymx.report.measures import TrialMeasures, measure
from raymx.report.model import SLACK, ComparedAxis, ObjectiveColumn, SweepResult, TrialResult, label_of, number

OVERLAP_S = 1.0  # trials that follow each other may overlap by what it takes to end


@dataclass(frozen=True)
class Entry:
    """A trial with its measures.

    ``shared``: others trained on one of its nodes at the same time. ``settled``: its objective counts in statistics.
    ``comparable``: its speed and its times do.
    """

    trial: TrialResult
    measures: TrialMeasures
    label: str
    shared: bool
    settled: bool
    comparable: bool


@dataclass(frozen=True)
class Study:
    """What the statistics are of. ``provisional``: no trial has finished, so those that have not are counted."""

    objective: ObjectiveColumn
    axes: tuple[ComparedAxis, ...]
    entries: tuple[Entry, ...]
    target: float | None
    provisional: bool


def study(
    sweeps: Sequence[SweepResult],
    axes: Sequence[ComparedAxis],
    trials: Sequence[TrialResult],
    target: float | None = None,
) -> Study:
    """The study of ``trials``, with a value on each of ``axes``; ``target`` is by default `SLACK` from the best."""
    objective = sweeps[0].objective
    prices = {sweep.name: sweep.price_per_hour for sweep in sweeps}
    if target is None:
        bests = (measure(trial, objective, None, {}).best for trial in trials if trial.state != "failed")
        best = objective.best(value for value in bests if value is not None)
        target = None if best is None else objective.moved(best, SLACK)
    found = [measure(trial, objective, target, prices[trial.sweep]) for trial in trials]
    crowd = overlapping(trials)
    counted = _settled(trials, found)
    speeds = [
        each.samples_per_sec is not None and trial.state != "failed" for trial, each in zip(trials, found, strict=True)
    ]
    alone = any(speed and at not in crowd for at, speed in enumerate(speeds))
    varied = _varied(axes, trials)
    entries = tuple(
        Entry(
            trial,
            each,
            label_of(varied, trial.axes),
            at in crowd,
            counted[at],
            speeds[at] and not (alone and at in crowd),
        )
        for at, (trial, each) in enumerate(zip(trials, found, strict=True))
    )
    return Study(objective, tuple(axes), entries, target, not any(trial.state == "finished" for trial in trials))


def overlapping(trials: Sequence[TrialResult]) -> set[int]:
    """Numbers of the trials that shared a node with another at the same time, for more than `OVERLAP_S`."""
    stamps = [value for trial in trials for row in trial.rows if (value := number(row.get("timestamp"))) is not None]
    newest = max(stamps, default=0.0)
    spans = [(trial.started, trial.ended if trial.ended is not None else newest) for trial in trials]
    nodes = [nodes_of(trial) for trial in trials]
    found: set[int] = set()
    for one in range(len(trials)):
        for other in range(one):
            if nodes[one] & nodes[other] and _overlap_s(spans[one], spans[other]) > OVERLAP_S:
                found |= {one, other}
    return found


def nodes_of(trial: TrialResult) -> set[str]:
    """The addresses of all nodes that a trial's reports name."""
    return {node.strip() for row in trial.rows for node in str(row.get("nodes") or "").split(",") if node.strip()}


def _overlap_s(one: tuple[float | None, float], other: tuple[float | None, float]) -> float:
    if one[0] is None or other[0] is None:
        return 0.0
    return min(one[1], other[1]) - max(one[0], other[0])


def _settled(trials: Sequence[TrialResult], found: Sequence[TrialMeasures]) -> list[bool]:
    """Those that finished; as long as none has, all that have not failed."""
    finished = any(trial.state == "finished" for trial in trials)
    return [
        each.best is not None and (trial.state == "finished" if finished else trial.state != "failed")
        for trial, each in zip(trials, found, strict=True)
    ]


def _varied(axes: Sequence[ComparedAxis], trials: Sequence[TrialResult]) -> list[ComparedAxis]:
    """The axes on which trials differ: only these tell one from another."""
    return [axis for axis in axes if len({trial.axes[axis.key] for trial in trials}) > 1]
