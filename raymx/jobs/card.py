"""The card of a run: what a notebook shows of it while it runs and when it has ended, and the same as text. Pure.

    html = as_html(view, now)               # a fragment with its own style; no scripts, no other files
    text = as_text(view, now)               # at most 20 lines, for a terminal

The fragment takes its text colour and font from the page around it, and greys that are seen on white and on black. So
it fits JupyterLab, the classic notebook and VS Code, in light and dark. States are told by words as well as by colour.
Everything that comes from a run is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raymx.jobs import card_text
from raymx.jobs.chart import chart, look
from raymx.results import step_text
from raymx.results.view import TrialView, View
from raymx.text.templates import render
from raymx.text.words import columns, count

MOST_ROWS, MOST_TEXT_ROWS = 16, 5  # trials of a sweep
MOST_CURVES = 4
MOST_MESSAGES, MOST_TEXT_MESSAGES = 4, 2
MOST_TEXT_NOTES = 3  # messages, flags and reasons of failures together
MOST_ERROR = 20_000  # characters of an error; the middle of a longer one is left out
MOST_TEXT_ERROR, MOST_SWEEP_ERROR = 6, 3  # lines of an error in the text
TEXT_SETTINGS = 80  # characters of a trial's settings
BAR = 24
_GOING, _OVER = ("run.logs(follow=True)", "run.stop()"), ("run.logs()", "run.results()")
HINTS: Mapping[str, tuple[str, ...]] = {
    "pending": _GOING,
    "starting": _GOING,
    "running": _GOING,
    "finished": ("run.results()", "run.plot()", "run.best()"),
    "interrupted": _OVER,
    "failed": _OVER,
    "lost": _OVER,
}
STATE_COLOURS: Mapping[str, str] = {  # with white text on them
    "pending": "#68707A",
    "paused": "#68707A",
    "starting": "#55699C",
    "running": "#0072B2",
    "finished": "#00795A",
    "interrupted": "#8A6100",
    "stopped": "#8A6100",
    "failed": "#B33A00",
    "lost": "#7A3E8F",
}


def as_html(view: View, now: float, notice: str = "") -> str:
    """The card. ``now`` is in seconds since 1970; ``notice`` is a line below it, of whoever shows the card."""
    return _fragment(_card(view, now), notice)


def notice_html(text: str) -> str:
    """A card with nothing but a text, for when there is no view."""
    return _fragment(None, text)


def _fragment(card: Mapping[str, Any] | None, notice: str) -> str:
    html = render("raymx.jobs", "card.html.j2", card=card, notice=notice, state_colours=STATE_COLOURS)
    return str(html.strip())


def _card(view: View, now: float) -> dict[str, Any]:
    name, run_id = card_text.names(view)
    share = card_text.share(view)
    return {
        "state": view.state,
        "state_class": _class(view.state),
        "name": name,
        "run_id": run_id,
        "times": card_text.times(view, now),
        "percent": f"{100 * sum(width for _, width in share):.0f}",
        "parts": [_part(kind, width) for kind, width in share if width > 0],
        "is_sweep": view.is_sweep,
        **(_sweep(view) if view.is_sweep else _run(view)),
        "notes": [
            {"text": line, "is_warning": card_text.is_warning(line)} for line in card_text.notes(view, MOST_MESSAGES)
        ],
        "error": card_text.middle_cut(card_text.error(view), MOST_ERROR),
        "path": view.path,
        "link": view.address if view.address.startswith(("http://", "https://")) else "",
        "hints": HINTS.get(view.state, ()),
    }


def _class(state: str) -> str:
    """Of the style; a state that it does not know looks as one that waits."""
    return state if state in STATE_COLOURS else "pending"


def _part(kind: str, width: float) -> dict[str, str]:
    """Of the progress bar."""
    return {"kind": kind if kind == card_text.PART else _class(kind), "width": f"{100 * width:.1f}"}


def _run(view: View) -> dict[str, Any]:
    trials = view.trials
    curve = chart([trials[0].curve], view.metric, view.mode, trials[0].epochs) if trials else ""
    return {"lines": card_text.of_run(view), "chart": curve, "step": _step(view)}


def _step(view: View) -> list[step_text.Segment]:
    """The parts of a step's time, for a bar and its legend; none where that is not known."""
    return step_text.segments((view.summary.get("step") or {}).get("fractions") or {})


def _sweep(view: View) -> dict[str, Any]:
    best = card_text.ranked(view)[:MOST_CURVES]
    drawn = [trial for trial in best if trial.curve]
    epochs = max((trial.epochs for trial in drawn), default=1)
    shown = card_text.shown(view, MOST_ROWS)
    return {
        "lines": card_text.of_sweep(view),
        "chart": chart([trial.curve for trial in drawn], view.metric, view.mode, epochs),
        "heads": [
            {"text": head, "is_number": at >= card_text.FIRST_NUMBER} for at, head in enumerate(card_text.heads(view))
        ],
        "trials": [_row(trial, best, drawn) for trial in shown],
        "hidden": card_text.hidden(view, shown),
    }


def _row(trial: TrialView, best: Sequence[TrialView], drawn: Sequence[TrialView]) -> dict[str, Any]:
    name, settings, state, *numbers = card_text.cells(trial)
    return {
        "name": name,
        "settings": settings,
        "state": state,
        "state_class": _class(trial.state),
        "flag": card_text.line(trial.flag) if trial.flag else "",
        "numbers": numbers,
        "is_best": bool(best) and trial is best[0],
        "curve": look(drawn.index(trial)) if trial in drawn else None,
    }


def as_text(view: View, now: float) -> str:
    """The card as at most 20 lines of text."""
    name, run_id = card_text.names(view)
    head = f"{name}  {card_text.line(view.state)}" + (f"  {run_id}" if run_id else "")
    lines = [
        head,
        _text_bar(view, now),
        *_text_lines(view),
        *_text_table(view),
        *card_text.notes(view, MOST_TEXT_MESSAGES)[:MOST_TEXT_NOTES],
        *_text_error(view),
    ]
    places = [
        f"{name:<11} {card_text.line(place)}"
        for name, place in (("results", view.path), ("dashboard", view.address))
        if place
    ]
    return "\n".join([*lines, *places])


def _text_bar(view: View, now: float) -> str:
    filled = round(BAR * sum(width for _, width in card_text.share(view)))
    return f"[{'#' * filled}{'.' * (BAR - filled)}]  {card_text.times(view, now)}".rstrip()


def _text_lines(view: View) -> list[str]:
    known = card_text.of_sweep(view) if view.is_sweep else card_text.of_run(view, with_bar=True)
    width = max((len(name) for name, _, _ in known), default=0)
    return [f"{name:<{width}}  {value}{'  ' if value and more else ''}{more}" for name, value, more in known]


def _text_table(view: View) -> list[str]:
    listed = card_text.shown(view, MOST_TEXT_ROWS) if view.is_sweep else []
    if not listed:
        return []
    cells = [card_text.cells(trial) for trial in listed]
    flags = [card_text.line(trial.flag) for trial in listed]
    rows = [
        [name, card_text.line(settings, TEXT_SETTINGS), f"{state}: {flag}" if flag else state, *numbers]
        for (name, settings, state, *numbers), flag in zip(cells, flags, strict=True)
    ]
    hidden = card_text.hidden(view, listed)
    return [*columns([card_text.heads(view), *rows]), *([hidden] if hidden else [])]


def _text_error(view: View) -> list[str]:
    """Its first line, which says what it is, and its last ones."""
    lines, most = card_text.error(view).splitlines(), MOST_SWEEP_ERROR if view.is_sweep else MOST_TEXT_ERROR
    cut = len(lines) - most
    return lines if cut <= 0 else [lines[0], f"... {count(cut + 1, 'line')} ...", *lines[-most + 2 :]]
