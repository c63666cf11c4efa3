"""What each axis does: every label against the first one, where all other settings are the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from raymx.report.cell_summaries import Key, Noise, grouped, objectives, speeds
from raymx.report.intervals import Interval, interval, ratio_interval
from raymx.report.model import ComparedAxis, Value
from raymx.report.study import Entry, Study


@dataclass(frozen=True)
class Effect:
    """A label of an axis ``against`` the first one.

    A pair is two matched cells: the means over their repeats. Where only one pair of cells differs in nothing else, a
    pair is two of their trials of the same repeat. ``pairs`` says which: "cells" or "repeats". ``speed`` is of the
    ratios of samples/s (geometric mean), ``objective`` of the differences. ``margin`` is the noise of the mean
    difference, None without repeats anywhere.
    """

    axis: str
    label: Value
    against: Value
    pairs: str
    speed: Interval | None
    objective: Interval | None
    margin: float | None

    @property
    def within_noise(self) -> bool | None:
        """Whether the objective moved by no more than repeats of one cell differ; None where that is not known."""
        return None if self.margin is None or self.objective is None else abs(self.objective.mean) <= self.margin


def effects(study: Study, noise: Noise) -> list[Effect]:
    """Of all axes with labels, those labels that any trial has; the first of them is what others are compared with."""
    groups = grouped(study)
    found = []
    for axis in study.axes:
        first, *others = present(axis, study)
        found += [_effect(axis, label, first, groups, noise) for label in others if axis.labels is not None]
    return found


def present(axis: ComparedAxis, study: Study) -> list[Value]:
    """The values of an axis that trials have: labels in their order, numbers by size."""
    values = {entry.trial.axes[axis.key] for entry in study.entries}
    if axis.labels is None:
        return sorted(values, key=lambda value: (isinstance(value, str), value)) or [""]
    known: list[Value] = [label for label in axis.labels if label in values]
    return [*known, *sorted(values - set(axis.labels), key=str)] or [""]


def matched(
    axis: str, label: Value, first: Value, groups: Mapping[Key, Sequence[Entry]]
) -> list[tuple[Sequence[Entry], Sequence[Entry]]]:
    """(trials with ``label``, trials with ``first``) of each two cells that differ in nothing but this axis."""
    by_rest: dict[Key, Sequence[Entry]] = {}
    for key, entries in groups.items():
        if dict(key)[axis] == first:
            by_rest[_without(key, axis)] = entries
    return [
        (entries, by_rest[_without(key, axis)])
        for key, entries in groups.items()
        if dict(key)[axis] == label and _without(key, axis) in by_rest
    ]


def _without(key: Key, axis: str) -> Key:
    return tuple(part for part in key if part[0] != axis)


def _effect(
    axis: ComparedAxis, label: Value, first: Value, groups: Mapping[Key, Sequence[Entry]], noise: Noise
) -> Effect:
    pairs = matched(axis.key, label, first, groups)
    unit = "cells" if len(pairs) != 1 else "repeats"
    if len(pairs) == 1:
        pairs = _by_repeat(*pairs[0])
    values, others = _means(pairs, objectives)
    fast, slow = _means(pairs, speeds)
    counts = [
        sum(len(objectives(pair[side])) for pair in pairs if objectives(pair[0]) and objectives(pair[1]))
        for side in (0, 1)
    ]
    return Effect(
        axis.key,
        label,
        first,
        unit,
        ratio_interval([one / other for one, other in zip(fast, slow, strict=True) if one > 0 and other > 0]),
        interval([one - other for one, other in zip(values, others, strict=True)]),
        noise.margin(*counts) if all(counts) else None,
    )


def _by_repeat(one: Sequence[Entry], other: Sequence[Entry]) -> list[tuple[Sequence[Entry], Sequence[Entry]]]:
    repeats = {entry.trial.repeat: entry for entry in other}
    return [([entry], [repeats[entry.trial.repeat]]) for entry in one if entry.trial.repeat in repeats]


def _means(
    pairs: Iterable[tuple[Sequence[Entry], Sequence[Entry]]], values: Callable[[Iterable[Entry]], list[float]]
) -> tuple[list[float], list[float]]:
    """The means of both sides of those pairs that have one on both."""
    both = [(values(one), values(other)) for one, other in pairs]
    known = [(fmean(one), fmean(other)) for one, other in both if one and other]
    return [one for one, _ in known], [other for _, other in known]
