"""Where the time of a trial's steps goes, in words: one sentence, a bar, and what each part is worth. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raymx.results.rows import steady
from raymx.results.step_parts import COLUMNS, PARTS

DEAD_BAND = 0.05  # of a step: what takes less is not worth a word (TraceML's rule)
BAR = 40  # characters
_MARKS = {"compute": "#", "communication": "=", "data": ".", "straggler": "!", "checkpoint": "+", "loop": "~"}


@dataclass(frozen=True)
class StepTime:
    """A trial's step: its seconds, and the fraction of each part; they add to 1."""

    step_s: float
    fractions: Mapping[str, float]
    straggler: int | None = None  # the worker that the others wait for
    straggler_cause: str = ""  # "data", "compute", "loop"
    host_bound: float = 0.0  # the part of the step, within computing, that Python takes to queue it

    @property
    def largest_wait(self) -> str:
        """The part, other than computing, that takes most."""
        return max(PARTS[1:], key=lambda part: self.fractions[part])


def of_rows(rows: Sequence[Mapping[str, Any]]) -> StepTime | None:
    """Of a trial's rows: medians as of its other figures. None where no row has them."""
    told = [row for row in rows if _number(row.get(COLUMNS["compute"])) and row.get("steps")]
    if not told:
        return None
    middle = {part: steady([float(row[COLUMNS[part]]) for row in told]) for part in PARTS}
    whole = sum(middle.values()) or 1.0
    step_s = steady([row["train_s"] / row["steps"] for row in told])
    last = Counter((row["straggler"], row["straggler_cause"]) for row in told if _number(row.get("straggler")))
    rank, cause = last.most_common(1)[0][0] if last else (None, "")
    fractions = {part: seconds / whole for part, seconds in middle.items()}
    host_bound = steady([float(row.get("host_bound_fraction") or 0.0) for row in told])
    named = cause if isinstance(cause, str) else ""
    return StepTime(step_s, fractions, None if rank is None else int(rank), named, host_bound)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def sentence(step: StepTime) -> str:
    """``a step took 182 ms: computing 61 %, waiting for gradients and weights 27 %, ...``: they add to 100 %."""
    percent = percents(step.fractions)
    waits = [f"{_WAITS[part]} {percent[part]} %" for part in ("communication", "data") if percent[part]]
    if percent["straggler"]:
        who = "the slowest worker" if step.straggler is None else f"worker {step.straggler}"
        waits.append(f"for {who} {percent['straggler']} %")
    said = [f"computing {percent['compute']} %"]
    if waits:
        said.append("waiting " + ", ".join(waits))
    if percent["checkpoint"]:
        said.append(f"held for checkpoints {percent['checkpoint']} %")
    if percent["loop"]:
        said.append(f"held by the loop {percent['loop']} %")
    return f"a step took {_milliseconds(step.step_s)}: {', '.join(said)}"


NAMES = {
    "compute": "computing",
    "communication": "waiting for gradients and weights",
    "data": "waiting for data",
    "straggler": "waiting for the slowest worker",
    "checkpoint": "held for checkpoints",
    "loop": "held by the loop",
}
_WAITS = {"communication": "for gradients and weights", "data": "for data"}


def bar(step: StepTime) -> str:
    """A line of `BAR` characters, of which each part has its own."""
    ends, so_far = [], 0.0
    for part in PARTS:
        so_far += step.fractions[part]
        ends.append((part, round(so_far * BAR)))
    starts = [0, *(end for _, end in ends)]
    return "".join(_MARKS[part] * max(0, end - start) for (part, end), start in zip(ends, starts, strict=False))


def percents(fractions: Mapping[str, float]) -> dict[str, int]:
    """Whole percents that add to 100: the largest remainders are rounded up."""
    floors = {part: math.floor(100 * fraction) for part, fraction in fractions.items()}
    order = sorted(fractions, key=lambda part: 100 * fractions[part] - floors[part], reverse=True)
    missing = 100 - sum(floors.values())
    return {part: floors[part] + (part in order[:missing]) for part in fractions}


def speedup_without(fraction: float) -> float:
    """How many times as fast a step is without a part of it: by Amdahl's law, where nothing else takes its place."""
    return 1 / max(1 - fraction, 1e-9)


def advice(step: StepTime, *, halves_bytes: bool) -> list[str]:
    """What each part that counts is worth, the largest first. ``halves_bytes``: float16 on the wire can be had."""
    texts = [text for _, text in worth_of(step, halves_bytes=halves_bytes)]
    return [*texts, HOST_BOUND] if is_host_bound(step) else texts


HOST_BOUND = (
    "it computes no faster than Python queues its operators: hybridize the net (model.hybridize), or take larger "
    "layers or batches"
)


def is_host_bound(step: StepTime) -> bool:
    """Whether most of the computing is as long as queueing it takes."""
    return step.host_bound > max(step.fractions["compute"] / 2, DEAD_BAND)


def worth_of(step: StepTime, *, halves_bytes: bool) -> list[tuple[str, str]]:
    """The same, each with its part."""
    parts = sorted(PARTS[1:], key=lambda part: -step.fractions[part])
    return [(part, _worth(part, step, halves_bytes)) for part in parts if step.fractions[part] >= DEAD_BAND]


def as_dict(step: StepTime, *, halves_bytes: bool) -> dict[str, Any]:
    """For a run's summary."""
    return {
        **asdict(step),
        "said": sentence(step),
        "bar": bar(step),
        "advice": advice(step, halves_bytes=halves_bytes),
    }


def _worth(part: str, step: StepTime, halves_bytes: bool) -> str:
    whole = speedup_without(step.fractions[part])
    half = speedup_without(step.fractions[part] / 2)
    if part == "communication":
        wire = f"; half the bytes (precision.wire_dtype: float16) at most {half:.2f}x" if halves_bytes else ""
        return f"with gradients and weights at once it would be {whole:.2f}x as fast{wire}"
    if part == "data":
        return (
            f"with all data at hand it would be {whole:.2f}x as fast: more data.cpus, or a data.cache that holds them"
        )
    if part == "straggler":
        who = "the slowest worker" if step.straggler is None else f"worker {step.straggler}"
        return f"with {who} as fast as the others it would be {whole:.2f}x as fast"
    if part == "checkpoint":
        return f"with fewer checkpoints (checkpoint.every_steps, every_s) it would be up to {whole:.2f}x as fast"
    return f"with a loop that has the next step queued in time it would be {whole:.2f}x as fast"


def why_slow(step: StepTime) -> str:
    """What takes the straggler longer, where one thing explains it."""
    return f", which is held up by its {_CAUSES[step.straggler_cause]}" if step.straggler_cause in _CAUSES else ""


_CAUSES = {"data": "data", "compute": "own computing", "loop": "loop"}


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
