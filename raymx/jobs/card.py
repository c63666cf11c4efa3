"""The card of a run: what a notebook shows of it while it runs and when it has ended, and the same as text. Pure.

    html = as_html(view, now)               # a fragment with its own style; no scripts, no other files
    text = as_text(view, now)               # at most 20 lines, for a terminal

The fragment takes its text colour and font from the page around it, and greys that are seen on white and on black. So
it fits JupyterLab, the classic notebook and VS Code, in light and dark. States are told by words as well as by colour.
Everything that comes from a run is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from raymx.jobs import card_text
from raymx.jobs.card_text import Fact
from raymx.jobs.chart import COLOURS, DASHES, chart
from raymx.results.view import TrialView, View
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
# The class is there twice where a notebook's own rules for outputs would win.
CSS = """
.raymx-card { box-sizing: border-box; max-width: 960px; margin: 2px 0; padding: 10px 14px; color: inherit;
  border: 1px solid rgba(128,128,128,.4); border-radius: 6px; overflow-wrap: anywhere;
  font: 13px/1.45 var(--jp-ui-font-family, var(--vscode-font-family, system-ui, "DejaVu Sans", sans-serif));
  font-variant-numeric: tabular-nums; }
.raymx-card div { margin: 0; }
.raymx-card a { color: var(--jp-content-link-color, var(--vscode-textLink-foreground, inherit)); }
.raymx-card.raymx-card :is(code, pre) { color: inherit; background: none; padding: 0; border: 0;
  font-size: 12px; white-space: inherit;
  font-family: var(--jp-code-font-family, var(--vscode-editor-font-family, ui-monospace, monospace)); }
.raymx-card .quiet { opacity: .72; }
.raymx-card .head, .raymx-card .foot { display: flex; flex-wrap: wrap; gap: 2px 10px; align-items: baseline; }
.raymx-card .head b { font-size: 15px; }
.raymx-card .end { margin-left: auto; }
.raymx-card .pill { padding: 1px 9px; border-radius: 9px; color: #fff; font-weight: 600; font-size: 12px; }
.raymx-card .dot { display: inline-block; width: 8px; height: 8px; border-radius: 4px; margin-right: 6px; }
.raymx-card .bar { display: flex; gap: 1px; height: 6px; margin: 8px 0; border-radius: 3px; overflow: hidden;
  background: rgba(128,128,128,.25); }
.raymx-card .bar .part { background: #0072B2; opacity: .6; }
.raymx-card .body { display: flex; flex-wrap: wrap; gap: 6px 24px; align-items: flex-start; }
.raymx-card .left { flex: 1 1 320px; min-width: 0; }
.raymx-card .facts { display: grid; grid-template-columns: fit-content(50%) 1fr; gap: 2px 14px; }
.raymx-card .facts b { white-space: nowrap; margin-right: 6px; }
.raymx-card .curve { flex: 0 1 380px; width: 380px; height: auto; }
.raymx-card .key { display: inline-block; width: 22px; height: 8px; }
.raymx-card svg text { font-size: 10.5px; fill: currentColor; fill-opacity: .75; }
.raymx-card svg path { stroke: rgba(128,128,128,.25); fill: none; }
.raymx-card svg .axis { stroke: rgba(128,128,128,.8); }
.raymx-card svg polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.raymx-card .wide { overflow-x: auto; margin-top: 8px; }
.raymx-card.raymx-card table { table-layout: auto; border-collapse: collapse; width: 100%; margin: 0; border: 0;
  font-size: 12px; }
.raymx-card.raymx-card :is(th, td) { padding: 2px 10px 2px 0; text-align: left; vertical-align: baseline;
  white-space: nowrap; border: 0; max-width: none; color: inherit; line-height: 1.35; }
.raymx-card.raymx-card :is(tr, th, td) { background: none !important; }
.raymx-card.raymx-card th { font-weight: 600; opacity: .72; border-bottom: 1px solid rgba(128,128,128,.4); }
.raymx-card.raymx-card .n { text-align: right; padding: 2px 0 2px 10px; }
.raymx-card.raymx-card .text { white-space: normal; }
.raymx-card .state { white-space: nowrap; }
.raymx-card td .warn { display: block; padding-left: 14px; }
.raymx-card.raymx-card .best :is(.n, code) { font-weight: 700; }
.raymx-card .warn { color: #C2600A; color: color-mix(in srgb, currentColor 35%, #E06C00); }
.raymx-card .notes { margin-top: 6px; }
.raymx-card .notes div { padding-left: 10px; text-indent: -10px; }
.raymx-card.raymx-card pre { max-height: 22em; overflow: auto; white-space: pre-wrap; margin: 8px 0; padding: 6px 10px;
  border-left: 3px solid #B33A00; background: rgba(128,128,128,.12); }
.raymx-card .foot { margin-top: 8px; font-size: 12px; }
""" + "".join(f".raymx-card .{state} {{ background: {colour}; }}\n" for state, colour in STATE_COLOURS.items())


def as_html(view: View, now: float, notice: str = "") -> str:
    """The card. ``now`` is in seconds since 1970; ``notice`` is a line below it, of whoever shows the card."""
    body = _sweep(view) if view.is_sweep else _run(view)
    return _frame(_head(view, now), _bar(view), body, _error(view), _notice(notice), _foot(view))


def notice_html(text: str) -> str:
    """A card with nothing but a text, for when there is no view."""
    return _frame(_notice(text))


def _frame(*parts: str) -> str:
    return f'<div class="raymx-card"><style>{CSS}</style>{"".join(parts)}</div>'


def _head(view: View, now: float) -> str:
    name, run_id = card_text.names(view)
    code = f'<code class="quiet">{escape(run_id)}</code> ' if run_id else ""
    return (
        f'<div class="head"><span class="pill {_class(view.state)}">{escape(view.state)}</span> '
        f'<b>{escape(name)}</b> {code}<span class="end quiet">{escape(card_text.times(view, now))}</span></div>'
    )


def _class(state: str) -> str:
    """Of the style; a state that it does not know looks as one that waits."""
    return state if state in STATE_COLOURS else "pending"


def _bar(view: View) -> str:
    share = card_text.share(view)
    parts = "".join(
        f'<i class="{kind if kind == card_text.PART else _class(kind)}" style="width:{100 * width:.1f}%"></i>'
        for kind, width in share
        if width > 0
    )
    done = 100 * sum(width for _, width in share)
    return (
        f'<div class="bar" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{done:.0f}">'
        f"{parts}</div>"
    )


def _run(view: View) -> str:
    curve = chart([view.trials[0].curve], view.metric, view.mode, view.trials[0].epochs) if view.trials else ""
    return f'<div class="body"><div class="left">{_facts(card_text.of_run(view))}{_notes(view)}</div>{curve}</div>'


def _sweep(view: View) -> str:
    best = card_text.ranked(view)[:MOST_CURVES]
    drawn = [trial for trial in best if trial.curve]
    epochs = max((trial.epochs for trial in drawn), default=1)
    curves = chart([trial.curve for trial in drawn], view.metric, view.mode, epochs)
    return (
        f'<div class="body"><div class="left">{_facts(card_text.of_sweep(view))}</div>{curves}</div>'
        f"{_table(view, best, drawn)}{_notes(view)}"
    )


def _facts(lines: Sequence[Fact]) -> str:
    cells = (
        f'<span class="quiet">{escape(name)}</span> <span>{f"<b>{escape(value)}</b>" if value else ""} '
        f'<span class="quiet">{escape(more)}</span></span>'
        for name, value, more in lines
    )
    return f'<div class="facts">{" ".join(cells)}</div>'


def _table(view: View, best: Sequence[TrialView], drawn: Sequence[TrialView]) -> str:
    shown = card_text.shown(view, MOST_ROWS)
    if not shown:
        return ""
    heads = "".join(f"<th{_side(at)}>{escape(head)}</th>" for at, head in enumerate(card_text.heads(view)))
    rows = "".join(_row(trial, best, drawn) for trial in shown)
    hidden = card_text.hidden(view, shown)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>' + (
        f'<div class="quiet">{escape(hidden)}</div>' if hidden else ""
    )


def _row(trial: TrialView, best: Sequence[TrialView], drawn: Sequence[TrialView]) -> str:
    name, settings, state, *numbers = card_text.cells(trial)
    flag = f' <span class="warn">{escape(card_text.line(trial.flag))}</span>' if trial.flag else ""
    first = ' class="best"' if best and trial is best[0] else ""
    return (
        f"<tr{first}><td>{_key(drawn.index(trial) if trial in drawn else None)}<code>{escape(name)}</code></td>"
        f'<td class="text">{escape(settings)}</td>'
        f'<td class="text"><span class="state"><i class="dot {_class(trial.state)}"></i>{escape(state)}</span>'
        f"{flag}</td>" + "".join(f'<td class="n">{escape(number)}</td>' for number in numbers) + "</tr>"
    )


def _key(curve: int | None) -> str:
    """The line of a trial's curve, so that the table is the legend."""
    if curve is None:
        return '<i class="key"></i>'
    return (
        f'<svg class="key" viewBox="0 0 22 8"><polyline points="0,4 17,4" stroke="{COLOURS[curve]}" '
        f'stroke-dasharray="{DASHES[curve]}"/></svg>'
    )


def _side(at: int) -> str:
    return ' class="n"' if at >= card_text.FIRST_NUMBER else ""


def _notes(view: View) -> str:
    lines = "".join(
        f"<div{' class=warn' * card_text.is_warning(line)}>{escape(line)}</div>"
        for line in card_text.notes(view, MOST_MESSAGES)
    )
    return f'<div class="notes">{lines}</div>' if lines else ""


def _error(view: View) -> str:
    text = card_text.middle_cut(card_text.error(view), MOST_ERROR)
    return f"<pre>{escape(text)}</pre>" if text else ""


def _notice(text: str) -> str:
    return f'<div class="notes warn">{escape(text)}</div>' if text else ""


def _foot(view: View) -> str:
    hints = " · ".join(f"<code>{hint}</code>" for hint in HINTS.get(view.state, ()))
    path = f'<span><span class="quiet">results</span> <code>{escape(view.path)}</code></span> ' if view.path else ""
    return f'<div class="foot">{path}{_link(view.address)}<span class="end quiet">{hints}</span></div>'


def _link(address: str) -> str:
    if not address.startswith(("http://", "https://")):
        return ""
    return f'<a href="{escape(address)}" target="_blank" rel="noopener">dashboard</a> '


def as_text(view: View, now: float) -> str:
    """The card as at most 20 lines of text."""
    name, run_id = card_text.names(view)
    head = f"{name}  {card_text.line(view.state)}" + (f"  {run_id}" if run_id else "")
    lines = [
        head,
        _text_bar(view, now),
        *_text_facts(view),
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


def _text_facts(view: View) -> list[str]:
    known = card_text.of_sweep(view) if view.is_sweep else card_text.of_run(view)
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
