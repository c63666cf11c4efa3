"""report.html: one file with everything in it, by the template report.html.j2. Pure.

The template has the order of the page and what is always the same; here are the texts and the tables of a study.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raymx.report import operator_tables, tables, words
from raymx.report.diagnoses import KINDS, Diagnosis
from raymx.report.findings import Findings
from raymx.report.model import SweepResult
from raymx.text.templates import render
from raymx.text.words import count

if TYPE_CHECKING:
    from raymx.report.style import Picture

MOST_LINES, MOST_NAMES = 6, 12


def page(found: Findings, pictures: Sequence[Picture]) -> str:
    """The whole page, with ``pictures`` embedded."""
    return str(
        render(
            "raymx.report",
            "report.html.j2",
            title=" and ".join(sweep.name for sweep in found.sweeps),
            state=_state(found),
            answer=" ".join(found.answer_sentences),
            effects_in_words=" ".join(found.effect_sentences),
            notices=_notices(found),
            diagnoses=_diagnoses(found),
            pictures=[_embedded(picture) for picture in pictures],
            front=tables.front(found.cells, found.study.objective) if _has_front(found) else None,
            effects=tables.effects(found.effects, found.study.objective) if found.effects else None,
            trials=tables.trials(found) if found.study.entries else None,
            operators=operator_tables.table(found),
            skipped=_skipped(found),
            failed=_failed(found),
            sweeps=[{"name": sweep.name, "lines": _about(sweep)} for sweep in found.sweeps],
        )
    )


def _state(found: Findings) -> str:
    planned, trials = sum(sweep.planned for sweep in found.sweeps), len(found.study.entries)
    states = ", ".join(f"{number} {state}" for state, number in found.states.most_common())
    waiting = f", {planned - trials} not begun" if planned > trials else ""
    objective = found.study.objective
    return (
        f"{count(max(planned, trials), 'trial')}{': ' if states else ''}{states}{waiting}. "
        f"Objective: {objective.mode} of {objective.metric}"
        + (f"; target {words.objective(found.study.target)}." if found.study.target is not None else ".")
    )


def _notices(found: Findings) -> list[str]:
    shared = [entry for entry in found.study.entries if entry.shared]
    said = []
    if found.left_out:
        said.append(
            f"{count(len(found.left_out), 'trial')} shared a node with others at the same time (marked "
            "*): their speeds and times are not comparable, and are left out of all statistics of speed."
        )
    elif shared:
        said.append(
            f"All trials with a speed shared a node with others at the same time ({len(shared)}, marked *): "
            "samples/s and times depend on what ran beside them. Run one trial at a time to compare speeds."
        )
    return [*said, *(remark for sweep in found.sweeps for remark in sweep.remarks)]


def _diagnoses(found: Findings) -> list[Mapping[str, Any]]:
    """By kind: its head, its advice, and a line for each text; ``more`` are those that are folded away."""
    kinds = dict.fromkeys(diagnosis.kind for diagnosis in found.diagnoses)
    return [
        _kind(kind, [diagnosis for diagnosis in found.diagnoses if diagnosis.kind == kind], len(found.sweeps) > 1)
        for kind in kinds
    ]


def _kind(kind: str, diagnoses: Sequence[Diagnosis], several: bool) -> Mapping[str, Any]:
    texts: dict[str, list[str]] = {}
    for diagnosis in diagnoses:
        texts.setdefault(diagnosis.text, []).append(
            f"{diagnosis.sweep}/{diagnosis.trial_id}" if several else diagnosis.trial_id
        )
    lines = [f"{_some(trials)}: {text}" for text, trials in texts.items()]
    return {
        "head": f"{words.capital(KINDS[kind].word)} ({count(len(diagnoses), 'trial')})",
        "advice": KINDS[kind].advice,
        "lines": lines[:MOST_LINES],
        "more": lines[MOST_LINES:],
    }


def _embedded(picture: Picture) -> Mapping[str, str]:
    data = base64.b64encode(picture.png).decode()
    return {"title": picture.title, "caption": picture.caption, "base64": data}


def _has_front(found: Findings) -> bool:
    known = [cell for cell in found.cells if cell.objective is not None]
    return len(known) > 1 and any(cell.on_front for cell in known)


def _skipped(found: Findings) -> list[Mapping[str, str]]:
    """By reason, the cells."""
    groups: dict[str, list[str]] = {}
    for skipped in (skipped for sweep in found.sweeps for skipped in sweep.skipped):
        groups.setdefault(skipped.reason, []).append(skipped.label)
    return [
        {"reason": reason, "cells": f"{count(len(labels), 'cell')}: {_some(labels)}"}
        for reason, labels in groups.items()
    ]


def _failed(found: Findings) -> list[Mapping[str, str]]:
    """By error, the trials."""
    groups: dict[str, list[str]] = {}
    for entry in found.study.entries:
        if entry.trial.state == "failed" or entry.trial.error:
            error = entry.trial.error or "no reason was recorded"
            groups.setdefault(error, []).append(f"{entry.trial.trial_id} ({entry.label})")
    return [{"trials": _some(trials), "error": error} for error, trials in groups.items()]


def _some(labels: Iterable[str]) -> str:
    every = list(labels)
    more = f"; and {len(every) - MOST_NAMES} more" if len(every) > MOST_NAMES else ""
    return "; ".join(every[:MOST_NAMES]) + more


def _about(sweep: SweepResult) -> list[str]:
    summary = sweep.summary
    versions = ", ".join(f"{name} {version}" for name, version in (summary.get("versions") or {}).items())
    lines = [sweep.path, versions, f"git commit {summary['git_commit']}" if summary.get("git_commit") else ""]
    return [line for line in (*lines, *(_node(node) for node in summary.get("hardware") or ())) if line]


def _node(node: Mapping[str, object]) -> str:
    memory = node.get("memory_bytes")
    cores = f", {node['cores']} cores" if node.get("cores") else ""
    return f"node {node.get('node')}: {node.get('logical_cpus')} logical CPUs{cores}, {node.get('gpus')} GPUs" + (
        f", {words.size(memory)} of memory for Ray" if isinstance(memory, (int, float)) and memory else ""
    )
