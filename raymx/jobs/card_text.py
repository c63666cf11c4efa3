"""What a card says of a view, in words: the same for HTML and text. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from raymx.driver.display import PHASES
from raymx.jobs.chart import best_of, finite
from raymx.report import words
from raymx.results.view import TrialView, View
from raymx.text.words import count, duration, some

CardLine = tuple[str, str, str]
"""A name, its value, and what else there is to say; each may be ""."""

ENDED = ("finished", "stopped", "failed", "interrupted")  # states of a trial that does not go on
BEFORE = {
    "pending": "waiting for the cluster to start it",
    "starting": "checking the experiment and the cluster",
    "running": "no trial has begun yet",
}
PART = "part"  # of the progress bar: what unfinished trials have done
FIRST_NUMBER = 3  # of the table's columns
LONGEST_LINE = 240  # characters of a message
LONGEST_METRIC = 30
LONGEST_NAME = 120  # of a run, or of a trial's settings
MOST_FAILURES, MOST_NAMED = 3, 4
_COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def names(view: View) -> tuple[str, str]:
    """Its name, and its id where that says more."""
    name = view.name or view.run_id
    return line(name, LONGEST_NAME), line(view.run_id, LONGEST_NAME) if name != view.run_id else ""


def times(view: View, now: float) -> str:
    """``3 min, about 2 min left`` or ``took 5 min``; "" when its start is not known."""
    until = now if math.isnan(view.ended) and not view.is_over else view.ended
    if not math.isfinite(until - view.started):
        return ""
    so_far = duration(max(0.0, until - view.started))
    left = _left(view)
    return f"took {so_far}" if view.is_over else f"{so_far}, about {left} left" if left else so_far


def _left(view: View) -> str:
    alone = view.trials[0].left_s if view.trials and not view.is_sweep else math.nan
    known = [seconds for seconds in (view.left_s, alone) if math.isfinite(seconds)]
    return duration(max(0.0, known[0])) if known else ""


def share(view: View) -> list[tuple[str, float]]:
    """Parts of the progress bar: a state or `PART`, and its share (0 to 1) of the whole."""
    if not view.is_sweep:
        return [(view.state, _done(view.trials[0]) if view.trials else 0.0)]
    whole = planned(view)
    states = Counter("finished" if trial.state == "stopped" else trial.state for trial in view.trials)
    under_way = sum(_done(trial) for trial in view.trials if trial.state not in ENDED)
    return [
        *((state, states[state] / whole) for state in ("finished", "failed", "interrupted")),
        (PART, under_way / whole),
    ]


def planned(view: View) -> int:
    """Trials; a search may begin more than it has planned."""
    return max(view.planned, len(view.trials), 1)


def _done(trial: TrialView) -> float:
    done = trial.epoch / max(1, trial.epochs)
    return min(1.0, max(0.0, done)) if math.isfinite(done) else 0.0


def of_run(view: View, *, with_bar: bool = False) -> list[CardLine]:
    """Of a run of one trial; ``with_bar``: that of a step as text."""
    if not view.trials:
        return [("now", "", BEFORE[view.state])] if view.state in BEFORE else []
    trial = view.trials[0]
    lines = [("epoch", epoch(trial), ""), ("samples/s", speed(trial), ""), ("loss", number(trial.loss), "")]
    if view.metric:
        lines.append((objective_name(view), *_best(trial, view)))
    if step := view.summary.get("step"):
        lines.append(("a step", f"{1000 * step['step_s']:.3g} ms", line(step["said"].partition(": ")[2])))
        if with_bar and "bar" in step:
            lines.append(("", f"[{step['bar']}]", ""))
    now = phase(trial) if view.state == "running" else ""
    return [("now", "", now)] * bool(now) + [one for one in lines if one[1] or one[2]]


def _best(trial: TrialView, view: View) -> tuple[str, str]:
    """The objective, and where it comes from."""
    point = best_of(trial.curve, view.mode)
    if math.isfinite(trial.objective):
        same = point is not None and math.isclose(point[1], trial.objective, rel_tol=1e-9)
        return number(trial.objective), f"best, in epoch {point[0]:g}" if point and same else "best so far"
    if point is not None:
        return number(point[1]), f"best, in epoch {point[0]:g}"
    return "", _no_value(view)


def _no_value(view: View) -> str:
    """Why there is no objective."""
    reported = view.rows or any(trial.curve for trial in view.trials)
    return "no number in any report" if reported else "" if view.is_over else "no report yet"


def of_sweep(view: View) -> list[CardLine]:
    states = Counter(trial.state for trial in view.trials)
    ended = sum(states[state] for state in ENDED)
    each = ", ".join(f"{states.pop(state)} {state}" for state in ("running", "paused", *ENDED) if states[state])
    each += f", {count(view.skipped, 'cell')} skipped" if view.skipped and each else ""
    lines = [("trials", f"{ended} of {planned(view)} ended", each or BEFORE.get(view.state, ""))]
    best = ranked(view)
    if not best:
        return [*lines, *([(objective_name(view), "", _no_value(view))] if _no_value(view) else [])]
    more = f"best{'' if view.is_over else ' so far'}, trial {short(best[0])}"
    return [
        *lines,
        (objective_name(view), number(best[0].objective), more),
        *([("with", "", line(best[0].settings))] if best[0].settings else []),
    ]


def objective_name(view: View) -> str:
    return line(view.metric, LONGEST_METRIC) or "objective"


def ranked(view: View) -> list[TrialView]:
    """The trials that have an objective, the best first."""
    sign = -1 if view.mode == "min" else 1
    return sorted(
        (trial for trial in view.trials if math.isfinite(trial.objective)), key=lambda trial: -sign * trial.objective
    )


def shown(view: View, most: int) -> list[TrialView]:
    """Those that run, in the order of their start, then the best of the others, then the rest; at most ``most``."""
    running = [trial for trial in view.trials if trial.state == "running"]
    best = [trial for trial in ranked(view) if trial.state != "running"]
    taken = {id(trial) for trial in (*running, *best)}
    return [*running, *best, *(trial for trial in view.trials if id(trial) not in taken)][:most]


def hidden(view: View, listed: Sequence[TrialView]) -> str:
    """``8 not shown: 5 finished, 3 failed``; "" when all are listed."""
    names = {id(trial) for trial in listed}
    states = Counter(trial.state for trial in view.trials if id(trial) not in names)
    each = ", ".join(f"{number} {line(state)}" for state, number in states.most_common())
    return f"{states.total()} not shown: {each}" if each else ""


def heads(view: View) -> tuple[str, ...]:
    """Of the columns of a sweep's table."""
    return "trial", "settings", "state", "epoch", "samples/s", objective_name(view), "left"


def cells(trial: TrialView) -> tuple[str, ...]:
    """One for each of ``heads``."""
    running = trial.state == "running"
    left = duration(max(0.0, trial.left_s)) if running and math.isfinite(trial.left_s) else ""
    state = (running and phase(trial)) or line(trial.state)
    return (
        short(trial),
        line(trial.settings, LONGEST_NAME),
        state,
        epoch(trial),
        speed(trial),
        number(trial.objective),
        left,
    )


def short(trial: TrialView) -> str:
    return line(trial.trial_id[-5:])


def phase(trial: TrialView) -> str:
    """What a trial does while it does not train; "" while it does."""
    begun = finite(((trial.epoch, trial.samples_per_sec),)) or trial.epoch > 0
    waits = "waiting for the first batch" if trial.phase == "training" and not begun else ""
    return PHASES.get(trial.phase, waits)


def epoch(trial: TrialView) -> str:
    return f"{trial.epoch:.1f}".removesuffix(".0") + f"/{trial.epochs}"


def speed(trial: TrialView) -> str:
    return words.speed(trial.samples_per_sec) if math.isfinite(trial.samples_per_sec) else ""


def number(value: float) -> str:
    return words.objective(value) if math.isfinite(value) else ""


def error(view: View) -> str:
    """The whole error of a run, or what a sweep as a whole failed of."""
    alone = view.trials[0].error if view.trials and not view.is_sweep else ""
    return _COLOUR_CODES.sub("", view.error or alone).strip()


def notes(view: View, most: int) -> list[str]:
    """The newest messages, flags of a run's trial, and why trials of a sweep failed; each on one line."""
    flags = [] if view.is_sweep else [f"warning: {trial.flag}" for trial in view.trials if trial.flag]
    return [line(text) for text in (*view.messages[-most:], *flags, *(_failures(view) if view.is_sweep else ()))]


def _failures(view: View) -> list[str]:
    """Why trials failed, by the first lines of their errors, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for trial in view.trials:
        if trial.error:
            groups.setdefault(trial.error.strip().partition("\n")[0], []).append(short(trial))
    frequent = sorted(groups.items(), key=lambda group: -len(group[1]))
    more = sum(len(trials) for _, trials in frequent[MOST_FAILURES:])
    return [f"failed: {some(trials, MOST_NAMED)}: {reason}" for reason, trials in frequent[:MOST_FAILURES]] + (
        [f"failed: {count(more, 'more trial')}, for other reasons"] if more else []
    )


def is_warning(text: str) -> bool:
    return text.startswith(("warning:", "failed:"))


def line(text: str, longest: int = LONGEST_LINE) -> str:
    """Any text as one line."""
    one = " ".join(_COLOUR_CODES.sub("", text).split())
    return one if len(one) <= longest else one[: longest - 1] + "…"


def middle_cut(text: str, longest: int) -> str:
    """A text whose middle is left out where it is longer than ``longest`` characters."""
    if len(text) <= longest:
        return text
    first, last = longest // 4, longest - longest // 4
    return f"{text[:first]}\n... {len(text) - longest:,} characters left out ...\n{text[-last:]}"
