"""Where the time of a trial's steps goes, in words: one sentence, a bar, and what each part is worth. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raymx.results.gains import Gain, gain, speedup_without
from raymx.results.rows import steady
from raymx.results.setup import Setup
from raymx.results.step_parts import COLUMNS, PARTS

DEAD_BAND = 0.05  # of a step: what takes less is not worth a word (TraceML's rule)
BAR = 40  # characters
COLOURS = {  # after Okabe and Ito; each is seen on white and on black
    "compute": "#009E73",
    "communication": "#3A8FD0",
    "data": "#E69F00",
    "straggler": "#C46CA0",
    "checkpoint": "#8C8C8C",
    "loop": "#D5501E",
}
_MARKS = {"compute": "#", "communication": "=", "data": ".", "straggler": "!", "checkpoint": "+", "loop": "~"}


@dataclass(frozen=True)
class Reading:
    """How a trial's batches were made: medians over its rows, None for what no row tells."""

    own_batches: float | None = None  # the part that workers decoded themselves
    cpus_used: float | None = None  # by the read tasks of the busiest worker


@dataclass(frozen=True)
class StepTime:
    """A trial's step: its seconds, and the fraction of each part; they add to 1."""

    step_s: float
    fractions: Mapping[str, float]
    straggler: int | None = None  # the worker that the others wait for
    straggler_cause: str = ""  # "data", "compute", "loop"; "communication" where they wait for its weights
    host_bound: float = 0.0  # the part of the step, within computing, that Python takes to queue it
    rows: tuple[Mapping[str, float], ...] = ()  # the fractions of each row that counts
    queueing: float | None = None  # the part, within computing, that is saved where all is queued before it is due
    queueing_rows: tuple[float, ...] = ()  # the same of each row that has it
    updates: float | None = None  # of the busiest server, as a part of the time
    reading: Reading = Reading()

    @property
    def largest_wait(self) -> str:
        """The part, other than computing, that takes most."""
        return max(PARTS[1:], key=lambda part: self.fractions[part])

    def gain(self, part: str, *, least: float = 1.0, likely: float = 1.0, most: float = 1.0) -> Gain:
        """What taking a part away is worth; so much of it, see `raymx.results.gains.gain`."""
        rows = [row[part] for row in self.rows]
        return gain(self.fractions[part], rows, least=least, likely=likely, most=most)


def of_rows(rows: Sequence[Mapping[str, Any]]) -> StepTime | None:
    """Of a trial's rows: medians as of its other figures. None where no row has them."""
    told = [row for row in rows if _number(row.get(COLUMNS["compute"])) and row.get("steps")]
    if not told:
        return None
    middle = _to_one({part: steady([float(row[COLUMNS[part]]) for row in told]) for part in PARTS})
    last = Counter((row["straggler"], row["straggler_cause"]) for row in told if _number(row.get("straggler")))
    rank, cause = last.most_common(1)[0][0] if last else (None, "")
    return StepTime(
        step_s=steady([row["train_s"] / row["steps"] for row in told]),
        fractions=middle,
        straggler=None if rank is None else int(rank),
        straggler_cause=cause if isinstance(cause, str) else "",
        host_bound=known(told, "host_bound_fraction") or 0.0,
        rows=tuple(_to_one({part: float(row[COLUMNS[part]]) for part in PARTS}) for row in told[1:] or told),
        queueing=known(told, "queueing_fraction"),
        queueing_rows=tuple(float(row["queueing_fraction"]) for row in told if _number(row.get("queueing_fraction"))),
        updates=known(told, "server_update_fraction"),
        reading=Reading(known(told, "own_batches_fraction"), known(told, "read_cpus_used")),
    )


def _to_one(parts: Mapping[str, float]) -> dict[str, float]:
    """Scaled so that they add to 1."""
    whole = sum(parts.values()) or 1.0
    return {part: value / whole for part, value in parts.items()}


def known(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """The median of a column, as of other figures of a step; None where no row has a number there."""
    found = [float(row[column]) for row in rows if _number(row.get(column))]
    return steady(found) if found else None


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


@dataclass(frozen=True)
class Segment:
    """A part of a bar that is drawn: what it is called, and its width in percent of the bar."""

    name: str
    colour: str
    percent: int
    width: str


def segments(fractions: Mapping[str, float]) -> list[Segment]:
    """Of a step, in the order of `PARTS`, those that are at least one percent; none of a step that is not known."""
    if not set(fractions) >= set(PARTS):
        return []
    percent = percents({part: fractions[part] for part in PARTS})
    return [
        Segment(NAMES[part], COLOURS[part], percent[part], f"{100 * fractions[part]:.1f}")
        for part in PARTS
        if percent[part]
    ]


LEGEND = tuple(Segment(NAMES[part], COLOURS[part], 0, "0") for part in PARTS)


def percents(fractions: Mapping[str, float]) -> dict[str, int]:
    """Whole percents that add to 100: the largest remainders are rounded up."""
    floors = {part: math.floor(100 * fraction) for part, fraction in fractions.items()}
    order = sorted(fractions, key=lambda part: 100 * fractions[part] - floors[part], reverse=True)
    missing = 100 - sum(floors.values())
    return {part: floors[part] + (part in order[:missing]) for part in fractions}


def advice(step: StepTime, setup: Setup) -> list[str]:
    """What each part that counts is worth, the largest first."""
    texts = [text for _, text in worth_of(step, setup)]
    return [*texts, HOST_BOUND] if is_host_bound(step) else texts


HOST_BOUND = (
    "it computes no faster than Python queues its operators: hybridize the net (model.hybridize), or take larger "
    "layers or batches"
)


def host_bound_gain(step: StepTime) -> Gain:
    """What operators that are queued before they are due are worth, as with a hybridized net."""
    if step.queueing is None:
        return Gain(speedup_without(step.host_bound))
    return gain(step.queueing, step.queueing_rows)


def is_host_bound(step: StepTime) -> bool:
    """Whether queueing holds the computing up; where that was not tried, whether most of it is as long as queueing."""
    if step.queueing is not None:
        return step.queueing >= DEAD_BAND
    return step.host_bound > max(step.fractions["compute"] / 2, DEAD_BAND)


def worth_of(step: StepTime, setup: Setup) -> list[tuple[str, str]]:
    """The same, each with its part."""
    parts = sorted(PARTS[1:], key=lambda part: -step.fractions[part])
    return [(part, _WORTH[part](step, setup)) for part in parts if step.fractions[part] >= DEAD_BAND]


def as_dict(step: StepTime, setup: Setup) -> dict[str, Any]:
    """For a run's summary."""
    plain = asdict(step)
    del plain["rows"], plain["queueing_rows"]
    gains = {part: asdict(step.gain(part)) for part in PARTS[1:] if step.fractions[part] >= DEAD_BAND}
    return {**plain, "said": sentence(step), "bar": bar(step), "advice": advice(step, setup), "gains": gains}


def _of_communication(step: StepTime, setup: Setup) -> str:
    """Half of the bytes saves half of the time at most, and nothing where it is latency or updates."""
    text = f"with gradients and weights at once it would be {step.gain('communication')}"
    if not setup.halves_bytes:
        return text
    share = step.fractions["communication"]
    under_way = max(0.0, share - (step.updates or 0.0)) / share
    halved = step.gain("communication", least=0.0, likely=under_way / 2, most=0.5)
    return f"{text}; float16 on the wire (precision.wire_dtype) would make it {halved}"


def _of_data(step: StepTime, setup: Setup) -> str:
    return f"with all data at hand it would be {step.gain('data')}: {_faster_data(step.reading, setup)}"


ITSELF, AT_LIMIT, IDLE = 0.5, 0.8, 0.5  # of the batches; of the CPUs: busy, and not


def _faster_data(reading: Reading, setup: Setup) -> str:
    """What would bring the data sooner, as far as that is known."""
    kept = "a data.cache that holds them" if setup.repeats else ""
    if reading.own_batches is not None and reading.own_batches >= ITSELF:
        return "the workers decode these data themselves, which more data.cpus does not change; " + (
            f"{kept} does" if kept else "what is decoded is changed anew in each epoch, so that no cache holds it"
        )
    more = "more data.cpus" + (f", or {kept}" if kept else "")
    if not reading.cpus_used or not setup.read_cpus:
        return more
    busy = reading.cpus_used / setup.read_cpus
    seen = f"the read tasks of a worker are busy on {reading.cpus_used:.2f} of its {setup.read_cpus:g} data.cpus"
    if busy >= AT_LIMIT:
        return f"{seen}: {more}"
    return f"{seen}" + (f", so that more of them change little; {kept} does" if kept and busy < IDLE else f": {more}")


def _of_straggler(step: StepTime, _: Setup) -> str:
    who = "the slowest worker" if step.straggler is None else f"worker {step.straggler}"
    return f"with {who} as fast as the others it would be {step.gain('straggler')}"


def _of_checkpoint(step: StepTime, _: Setup) -> str:
    gained = step.gain("checkpoint", least=0.0)
    return f"with no checkpoint within epochs (checkpoint.every_steps, every_s) it would be {gained}; fewer gain less"


def _of_loop(step: StepTime, _: Setup) -> str:
    return f"with a loop that has the next step queued in time it would be {step.gain('loop')}"


_WORTH = {
    "communication": _of_communication,
    "data": _of_data,
    "straggler": _of_straggler,
    "checkpoint": _of_checkpoint,
    "loop": _of_loop,
}


def why_slow(step: StepTime) -> str:
    """What takes the straggler longer, where one thing explains it."""
    return f", which is held up by its {_CAUSES[step.straggler_cause]}" if step.straggler_cause in _CAUSES else ""


_CAUSES = {"data": "data", "compute": "own computing", "loop": "loop"}


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
