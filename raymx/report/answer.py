"""The answer of a sweep: which settings to take, and the findings in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raymx.report import words
from raymx.report.cell_summaries import CellSummary, Noise
from raymx.report.effects import Effect
from raymx.report.how import codes, command, rates
from raymx.report.intervals import Interval
from raymx.report.model import SLACK, SPEED_SLACK, ComparedAxis, ObjectiveColumn, show
from raymx.report.recommend import Judge, firsts
from raymx.report.study import Study
from raymx.text.words import count

MOST_SENTENCES = 8


@dataclass(frozen=True)
class Answer:
    """The best cell by the objective; the fastest of those within the noise of it; the one to take, which of those
    reaches the target first (or is the fastest where that is not known), but for changes that gain nothing beyond the
    noise. ``kept``: none does, so the first labels of all axes stay."""

    best: CellSummary
    fastest: CellSummary | None
    recommended: CellSummary
    kept: bool = False


def answer(
    cells: Sequence[CellSummary], objective: ObjectiveColumn, noise: Noise, axes: Sequence[ComparedAxis] = ()
) -> Answer | None:
    """None when no cell has an objective."""
    judge = Judge(objective, noise, firsts(axes, cells))
    known = [cell for cell in cells if cell.objective is not None]
    if not known:
        return None
    best = max(known, key=lambda cell: (objective.gain(cell.objective or 0.0, 0.0), cell.samples_per_sec or 0.0))
    near = [cell for cell in known if judge.is_near(cell, best)]
    timed = [cell for cell in near if cell.time_to_target_s is not None]
    moving = [cell for cell in near if cell.samples_per_sec is not None]
    fastest = max(moving, key=lambda cell: cell.samples_per_sec or 0.0, default=None)
    first = min(timed, key=lambda cell: cell.time_to_target_s or 0.0, default=None)
    chosen = judge.settled(first or fastest or best, known)
    return Answer(best, fastest, chosen, judge.is_first(chosen))


def paragraph(study: Study, noise: Noise, found: Answer | None) -> list[str]:
    """The sentences of the answer: best, fastest within the noise, recommendation, and how sure that is."""
    if found is None:
        return [_no_answer(study)]
    said = ["No trial has finished yet: this is how things stand."] if study.provisional else []
    speed = found.best.samples_per_sec
    said.append(
        f"Best {study.objective.metric}: {words.objective(found.best.objective)}{_over(found.best)} with "
        f"{found.best.label}" + (f", at {words.speed(speed)} samples/s." if speed else ".")
    )
    if len({tuple(entry.trial.axes.items()) for entry in study.entries}) > 1:
        said += _choice(study, noise, found)
        said += command(study, found.recommended)
    said += rates(study) + codes(study)
    return [*said, _how_sure(study, noise)]


def _choice(study: Study, noise: Noise, found: Answer) -> list[str]:
    """The fastest near the best, and the recommendation."""
    best, fastest, chosen = found.best, found.fastest, found.recommended
    said: list[str] = []
    near = "within the noise of the best" if noise.df else f"within {_slack(study.objective)} of the best"
    if fastest is best:
        said.append(f"No settings {near} are faster.")
    elif fastest is not None:
        said.append(
            f"Fastest {near}: {fastest.label}, {words.speed(fastest.samples_per_sec)} samples/s"
            f"{_times(fastest, best)} with {words.objective(fastest.objective)}."
        )
    if found.kept:
        said.append(
            f"No gain: keep {chosen.label}. No other settings are better beyond the noise, or faster beyond it and not "
            f"worse beyond it{_unknown(noise)}."
        )
        return said
    why = (
        f"it reaches {words.objective(study.target)} first of these, after {words.seconds(chosen.time_to_target_s)}"
        if chosen.time_to_target_s is not None
        else "it is the fastest of these"
        if chosen is fastest
        else "it is the best"
        if chosen is best
        else "what the faster ones change beside gains nothing beyond the noise"
    )
    said.append(f"Recommended: {chosen.label}; {why}{_not_the_fastest(found)}.")
    return said


def _unknown(noise: Noise) -> str:
    """What counts as beyond the noise where no repeats show it."""
    return "" if noise.df else f" (without repeats: {SLACK:g} and {SPEED_SLACK * 100:.0f} % of the speed)"


def _not_the_fastest(found: Answer) -> str:
    fastest = found.fastest
    if fastest is None or fastest is found.recommended or not found.recommended.time_to_target_s:
        return ""
    if fastest.time_to_target_s is None:
        return f" (the fastest reached it in {fastest.reached} of {count(fastest.timed, 'repeat')})"
    return f" (the fastest took {words.seconds(fastest.time_to_target_s)})"


def _over(cell: CellSummary) -> str:
    without = len(cell.trials) - cell.settled
    said = [f"mean of {cell.settled} repeats"] if cell.settled > 1 else []
    said += [f"{count(without, 'other repeat')} not counted: unfinished, failed or no number"] if without else []
    return f" ({', '.join(said)})" if said else ""


def _times(cell: CellSummary, other: CellSummary) -> str:
    if not other.samples_per_sec or not cell.samples_per_sec:
        return ""
    return f" ({cell.samples_per_sec / other.samples_per_sec:.2f}x the best one's)"


def _slack(objective: ObjectiveColumn) -> str:
    return "1 point" if objective.in_points else f"{SLACK} {objective.metric}"


def _how_sure(study: Study, noise: Noise) -> str:
    if noise.objective_sd is None:
        return "No settings were repeated, so how much of a difference is chance is not known: repeats would tell."
    spread = words.difference(noise.objective_sd, study.objective).lstrip("+")
    return (
        f"Repeats of the same settings differ by a standard deviation of {spread}"
        + (f" and {noise.speed_sd * 100:.1f} % of the samples/s" if noise.speed_sd is not None else "")
        + "."
    )


def _no_answer(study: Study) -> str:
    if not study.entries:
        return "No trial has begun yet, so there is no answer."
    if all(entry.trial.state == "failed" for entry in study.entries):
        every = "All" if len(study.entries) > 1 else "The only"
        return f"{every} {count(len(study.entries), 'trial')} failed, so there is no answer; see below why."
    if not any(entry.trial.rows for entry in study.entries):
        return "No trial has reported yet, so there is no answer."
    metrics = sorted(
        {
            name
            for entry in study.entries
            for row in entry.trial.rows
            for name in row
            if name.startswith(("train_", "validation_"))
            and name not in ("train_s", "train_samples", "validation_samples")
        }
    )
    return f"No trial that counts has a finite {study.objective.metric}, so there is no answer" + (
        f"; the reports have {', '.join(metrics)}." if metrics else "."
    )


def effect_sentences(effects: Sequence[Effect], objective: ObjectiveColumn) -> list[str]:
    """A sentence an effect; of more than `MOST_SENTENCES` those that are not within the noise, strongest first."""
    known = [effect for effect in effects if effect.speed or effect.objective]
    if len(known) > MOST_SENTENCES:
        known = sorted(known, key=_strength, reverse=True)[:MOST_SENTENCES]
    return [sentence(effect, objective) for effect in known]


def _strength(effect: Effect) -> tuple[bool, float]:
    change = abs(effect.objective.mean) if effect.objective else 0.0
    ratio = effect.speed.mean if effect.speed else 1.0
    return not effect.within_noise or max(ratio, 1 / ratio) > 1.05, change + max(ratio, 1 / ratio) - 1


def sentence(effect: Effect, objective: ObjectiveColumn) -> str:
    """ "compression 2bit 0.5: 1.40x samples/s (1.31 to 1.50), -0.3 points, within noise (against none, 4 pairs)." """
    parts = []
    if effect.speed is not None:
        parts.append(f"{effect.speed.mean:.2f}x samples/s{_range(effect.speed)}")
    if effect.objective is not None:
        noise = {True: ", within noise", False: ", more than noise", None: ""}[effect.within_noise]
        parts.append(words.difference(effect.objective.mean, objective) + noise)
    n = max(found.n for found in (effect.speed, effect.objective) if found is not None)
    return (
        f"{effect.axis.rsplit('.', 1)[-1]} {show(effect.label)}: {', '.join(parts)} "
        f"(against {show(effect.against)}, {count(n, 'pair')} of {effect.pairs})."
    )


def _range(found: Interval) -> str:
    return "" if found.low is None or found.high is None else f" ({found.low:.2f} to {found.high:.2f})"
