"""report.html: one file with everything in it. What comes from outside is escaped. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from raymx.report import tables, words
from raymx.report.assets import CSS, SCRIPT
from raymx.report.diagnoses import KINDS, Flag
from raymx.report.findings import Findings
from raymx.report.model import Sweep
from raymx.text.words import count

if TYPE_CHECKING:
    from raymx.report.style import Picture

MOST_LINES, MOST_NAMES = 6, 12


def page(found: Findings, pictures: Sequence[Picture]) -> str:
    """The whole page, with ``pictures`` embedded."""
    title = " and ".join(sweep.name for sweep in found.sweeps)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=quiet>{escape(_state(found))}</p>",
        _answer(found),
        *_notices(found),
        _diagnoses(found),
        _plots(pictures),
        _front(found),
        _effects(found),
        _trials(found),
        _skipped(found),
        _failed(found),
        *map(_about, found.sweeps),
    ]
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}: report</title><style>{CSS}</style></head><body>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<script>{SCRIPT}</script></body></html>\n"
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


def _answer(found: Findings) -> str:
    text = f"<p>{escape(' '.join(found.answer_sentences))}</p>"
    if found.effect_sentences:
        text += f"<p>{escape(' '.join(found.effect_sentences))}</p>"
    return f"<div class=answer>{text}</div>"


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
    said += [remark for sweep in found.sweeps for remark in sweep.remarks]
    return [f"<p class=mark>{escape(text)}</p>" for text in said]


def _diagnoses(found: Findings) -> str:
    kinds = dict.fromkeys(flag.kind for flag in found.flags)
    text = "".join(
        _kind(kind, [flag for flag in found.flags if flag.kind == kind], len(found.sweeps) > 1) for kind in kinds
    )
    return f"<h2>Diagnoses</h2>{text or '<p>Nothing stands out.</p>'}"


def _kind(kind: str, flags: Sequence[Flag], several: bool) -> str:
    texts: dict[str, list[str]] = {}
    for flag in flags:
        texts.setdefault(flag.text, []).append(f"{flag.sweep}/{flag.trial_id}" if several else flag.trial_id)
    lines = [f"<li>{escape(_some(trials))}: {escape(text)}</li>" for text, trials in texts.items()]
    more = len(lines) - MOST_LINES
    rest = (
        f"<details><summary>{more} more</summary><ul>{''.join(lines[MOST_LINES:])}</ul></details>" if more > 0 else ""
    )
    return (
        f"<div class=flag><h3>{escape(words.capital(KINDS[kind].word))} ({count(len(flags), 'trial')})</h3>"
        f"<p>{escape(KINDS[kind].advice)}</p><ul>{''.join(lines[:MOST_LINES])}</ul>{rest}</div>"
    )


def _plots(pictures: Sequence[Picture]) -> str:
    figures = "".join(
        f'<figure><img alt="{escape(picture.title)}: {escape(picture.caption)}" '
        f'src="data:image/png;base64,{base64.b64encode(picture.png).decode()}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
        for picture in pictures
    )
    return f"<h2>Plots</h2><div class=plots>{figures}</div>" if figures else ""


def _front(found: Findings) -> str:
    known = [cell for cell in found.cells if cell.objective is not None]
    if len(known) < 2 or not any(cell.on_front for cell in known):
        return ""
    return f"<h2>Pareto front</h2>{tables.front(found.cells, found.study.objective)}"


def _effects(found: Findings) -> str:
    if not found.effects:
        return ""
    return (
        "<h2>Effect of each axis</h2><p class=quiet>Each label against the first one of its axis, in matched "
        "cells: all other settings the same. Ratios are geometric means. The noise is how far apart means of so "
        "many repeats of one cell would be by chance (95 %).</p>" + tables.effects(found.effects, found.study.objective)
    )


def _trials(found: Findings) -> str:
    if not found.study.entries:
        return ""
    return (
        "<h2>All trials</h2><p class=quiet>Click a head to sort. Bold: the recommended settings. samples/s is the "
        f"median over reports without the first one; the objective is the best report's.</p>{tables.trials(found)}"
    )


def _skipped(found: Findings) -> str:
    groups: dict[str, list[str]] = {}
    for skipped in (skipped for sweep in found.sweeps for skipped in sweep.skipped):
        groups.setdefault(skipped.reason, []).append(skipped.label)
    lines = "".join(
        f"<li>{escape(reason)}<br><span class=quiet>{count(len(labels), 'cell')}: {escape(_some(labels))}</span></li>"
        for reason, labels in groups.items()
    )
    return f"<h2>Skipped, and why</h2><ul class=reasons>{lines}</ul>" if lines else ""


def _some(labels: Iterable[str]) -> str:
    every = list(labels)
    more = f"; and {len(every) - MOST_NAMES} more" if len(every) > MOST_NAMES else ""
    return "; ".join(every[:MOST_NAMES]) + more


def _failed(found: Findings) -> str:
    groups: dict[str, list[str]] = {}
    for entry in found.study.entries:
        if entry.trial.state == "failed" or entry.trial.error:
            error = entry.trial.error or "no reason was recorded"
            groups.setdefault(error, []).append(f"{entry.trial.trial_id} ({entry.label})")
    lines = "".join(f"<li>{escape(_some(trials))}<pre>{escape(error)}</pre></li>" for error, trials in groups.items())
    return f"<h2>Failed, and why</h2><ul class=reasons>{lines}</ul>" if lines else ""


def _about(sweep: Sweep) -> str:
    summary = sweep.summary
    versions = ", ".join(f"{name} {version}" for name, version in (summary.get("versions") or {}).items())
    lines = [sweep.path, versions, f"git commit {summary['git_commit']}" if summary.get("git_commit") else ""]
    lines += [_node(node) for node in summary.get("hardware") or ()]
    return "<h2>{}</h2>{}".format(
        escape(f"About {sweep.name}"), "".join(f"<p class=quiet>{escape(line)}</p>" for line in lines if line)
    )


def _node(node: dict[str, object]) -> str:
    memory = node.get("memory_bytes")
    cores = f", {node['cores']} cores" if node.get("cores") else ""
    return f"node {node.get('node')}: {node.get('logical_cpus')} logical CPUs{cores}, {node.get('gpus')} GPUs" + (
        f", {words.size(memory)} of memory for Ray" if isinstance(memory, (int, float)) and memory else ""
    )
