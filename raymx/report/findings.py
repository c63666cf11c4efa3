"""All statistics of a report in one plain value, which findings.json and the page are made of. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raymx.report import answer as answers
from raymx.report.answer import Answer
from raymx.report.cell_summaries import CellSummary, Noise, cells, grouped, noise
from raymx.report.diagnoses import Diagnosis, diagnose
from raymx.report.effects import Effect, effects
from raymx.report.model import SweepResult
from raymx.report.study import Entry, Study


@dataclass(frozen=True)
class Findings:
    """The study of some sweeps, and what was found in it."""

    sweeps: tuple[SweepResult, ...]
    study: Study
    cells: tuple[CellSummary, ...]
    noise: Noise
    effects: tuple[Effect, ...]
    diagnoses: tuple[Diagnosis, ...]
    answer: Answer | None

    @property
    def answer_sentences(self) -> list[str]:
        return answers.paragraph(self.study, self.noise, self.answer)

    @property
    def effect_sentences(self) -> list[str]:
        return answers.effect_sentences(self.effects, self.study.objective)

    @property
    def states(self) -> Counter[str]:
        """How many trials are in each state."""
        return Counter(entry.trial.state for entry in self.study.entries)

    @property
    def left_out(self) -> tuple[Entry, ...]:
        """Trials that shared a node, and whose speed does not count because others had theirs alone."""
        return tuple(entry for entry in self.study.entries if entry.shared and not entry.comparable)

    def diagnoses_of(self, entry: Entry) -> list[Diagnosis]:
        place = (entry.trial.sweep, entry.trial.trial_id)
        return [diagnosis for diagnosis in self.diagnoses if (diagnosis.sweep, diagnosis.trial_id) == place]


def findings(sweeps: Sequence[SweepResult], study: Study) -> Findings:
    """Everything that a report says about ``study``, which is of ``sweeps``."""
    chance = noise(grouped(study).values())
    found = tuple(cells(study))
    return Findings(
        tuple(sweeps),
        study,
        found,
        chance,
        tuple(effects(study, chance)),
        tuple(diagnose(study, {sweep.name: sweep.classes for sweep in sweeps})),
        answers.answer(found, study.objective, chance, study.axes),
    )


def plain(found: Findings) -> dict[str, Any]:
    """The findings as plain data, for findings.json."""
    study, chosen = found.study, found.answer
    return {
        "objective": asdict(study.objective),
        "target": study.target,
        "provisional": study.provisional,
        "axes": [asdict(axis) for axis in study.axes],
        "states": dict(found.states),
        "planned": sum(sweep.planned for sweep in found.sweeps),
        "skipped": [asdict(skipped) for sweep in found.sweeps for skipped in sweep.skipped],
        "noise": asdict(found.noise),
        "answer": None
        if chosen is None
        else {
            "best": chosen.best.label,
            "fastest": chosen.fastest.label if chosen.fastest else None,
            "recommended": chosen.recommended.label,
            "kept": chosen.kept,
        },
        "sentences": [*found.answer_sentences, *found.effect_sentences],
        "pareto": [cell.label for cell in found.cells if cell.on_front],
        "cells": [asdict(cell) for cell in found.cells],
        "effects": [{**asdict(effect), "within_noise": effect.within_noise} for effect in found.effects],
        "diagnoses": [asdict(diagnosis) for diagnosis in found.diagnoses],
        "trials": [
            {
                "sweep": entry.trial.sweep,
                "trial_id": entry.trial.trial_id,
                "label": entry.label,
                "shared": entry.shared,
                "settled": entry.settled,
                "comparable": entry.comparable,
                **asdict(entry.measures),
            }
            for entry in study.entries
        ],
    }
