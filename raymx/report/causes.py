"""Why a trial's steps take as long as they do: ranked causes, each with its evidence and what it is worth. Pure.

Nothing is said that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raymx.report import server_causes, words
from raymx.results import step_text
from raymx.results.gains import gain
from raymx.results.rows import steady
from raymx.results.setup import Setup
from raymx.results.step_text import DEAD_BAND, StepTime, known

NOT_MEASURED = (
    "where the time of its steps went was not measured: that takes an epoch of two steps or more, and a run of this "
    "version"
)


@dataclass(frozen=True)
class Cause:
    """``share`` of a step, or of the training time; what was seen; what a change is worth, "" where that is unknown."""

    share: float
    seen: str
    worth: str = ""


def causes(rows: Sequence[Mapping[str, Any]], setup: Setup) -> list[Cause]:
    """Of one trial's counted rows, the largest first; none where nothing counts."""
    step = step_text.of_rows(rows)
    if step is None:
        return []
    worth = dict(step_text.worth_of(step, setup))
    found = [Cause(step.fractions[part], _seen(part, step, rows, setup), text) for part, text in worth.items()]
    if step_text.is_host_bound(step):
        found.append(_host_bound(step))
    found += [Cause(*told) for told in server_causes.told(rows, step, setup)]
    return sorted([*found, *_lines(rows), *_alone(rows, step, setup)], key=lambda cause: -cause.share)


def unknown(rows: Sequence[Mapping[str, Any]], setup: Setup) -> list[str]:
    """What would tell more of these rows, and was not measured."""
    step = step_text.of_rows(rows)
    if step is None:
        return []
    found = []
    if step.fractions["communication"] >= DEAD_BAND and setup.updates_on_servers and step.updates is None:
        found.append("how long the servers' updates take")
    if step.fractions["data"] >= DEAD_BAND and step.reading.own_batches is None:
        found.append("what of the input takes the time")
    if setup.gpus and known(rows, "gpu_utilization") is None:
        found.append("how busy the GPUs are (it takes the package nvidia-ml-py)")
    return found


def _seen(part: str, step: StepTime, rows: Sequence[Mapping[str, Any]], setup: Setup) -> str:
    share = words.part(step.fractions[part])
    if part == "communication":
        return f"{share} of a step waits for gradients and weights{_late(step)}{_sent(rows)}{_servers(rows, setup)}"
    if part == "straggler":
        who = "the slowest worker" if step.straggler is None else f"worker {step.straggler}"
        return f"{share} of a step waits for {who}{step_text.why_slow(step)}"
    return f"{share} of a step {_SEEN[part]}" + (_stages(rows, setup) if part == "data" else "")


_SEEN = {
    "data": "nothing was left to compute, since the next batch was not there",
    "checkpoint": "nothing was left to compute, since the loop was held for a checkpoint within the epoch",
    "loop": "nothing was left to compute, since the loop had not queued the next step",
}


def _late(step: StepTime) -> str:
    """Where the last one's gradients come late since its weights do."""
    if step.straggler is None or step.straggler_cause != "communication":
        return ""
    return f", most for worker {step.straggler}, whose weights come later than the others': its link"


def _sent(rows: Sequence[Mapping[str, Any]]) -> str:
    last = rows[-1]
    sent = [last.get(name) for name in ("bytes_pushed", "bytes_pulled")]
    if not all(isinstance(value, (int, float)) and value for value in sent):
        return ""
    pushed, pulled = (words.size(float(value)) for value in sent if value is not None)
    return f": all workers together push {pushed} and pull {pulled} a step"


def _servers(rows: Sequence[Mapping[str, Any]], setup: Setup) -> str:
    most, cpus = known(rows, "server_cpus_used"), setup.server_cpus
    if most is None:
        return ""
    at_limit = ", its limit" if most >= server_causes.AT_LIMIT * cpus else ""
    return f"; the busiest server uses {most:.2f} of {cpus:g} CPU{'s' * (cpus != 1)}{at_limit}"


def _stages(rows: Sequence[Mapping[str, Any]], setup: Setup) -> str:
    """What making the batches takes, by stage, the longest first."""
    spent: dict[str, list[float]] = {}
    told = [row["input_stages"] for row in rows if row.get("input_stages")]
    for stage, seconds in (one for stages in told for one in stages):
        spent.setdefault(stage, []).append(float(seconds))
    each = {stage: steady(seconds) for stage, seconds in spent.items()}
    whole = sum(each.values())
    if not whole:
        return ""
    largest = sorted(each, key=lambda stage: -each[stage])
    said = [f"{_stage(name, setup)} {words.part(each[name] / whole)}" for name in largest if each[name] > 0.01 * whole]
    return f"; making batches is {', '.join(said)}"


def _stage(name: str, setup: Setup) -> str:
    if name == "transform" and setup.transform:
        return f"the transform {setup.transform}"
    changes = f" and augmenting ({', '.join(setup.augments)})" if setup.augments else ""
    return {"read": "reading", "decode": f"decoding{changes}", "to devices": "moving to the devices"}.get(name, name)


def _host_bound(step: StepTime) -> Cause:
    gained, share = step_text.host_bound_gain(step), step.host_bound if step.queueing is None else step.queueing
    worth = f"with operators that are queued before they are due it would be {gained}"
    if step.queueing is None:
        worth = f"what that is worth was not measured: at most {gained.times:.2f}x as fast"
    return Cause(share, f"in {words.part(share)} of a step {step_text.HOST_BOUND}", worth)


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    """The lines of the user's code that held the loop."""
    train_s, held, calls = 0.0, dict[str, float](), dict[str, int]()
    for row in rows:
        train_s += row.get("train_s") or 0.0
        for line, seconds, count in row.get("host_waits") or ():
            held[line] = held.get(line, 0.0) + seconds
            calls[line] = calls.get(line, 0) + count
    for line, seconds in held.items():
        if train_s and seconds / train_s >= DEAD_BAND:
            yield Cause(
                seconds / train_s,
                f"{line} held the loop {words.part(seconds / train_s)} of the training time, {calls[line]:,} times",
                "what that is worth is in the loop's part of a step; keep sums on the device "
                "(raymx.training.sums.Sums), and read them once an epoch",
            )


def _alone(rows: Sequence[Mapping[str, Any]], step: StepTime, setup: Setup) -> Iterator[Cause]:
    """Several workers that are slower than one would be: it computes all their rows, and waits for nobody's."""
    workers = rows[-1].get("num_workers")
    if not isinstance(workers, int) or workers < 2 or not setup.in_step:
        return

    def one(parts: Mapping[str, float]) -> float:
        return workers * (parts["compute"] + parts["data"]) + parts["loop"] + parts["checkpoint"]

    if one(step.fractions) > 1 - DEAD_BAND:
        return
    gained = gain(1 - one(step.fractions), [max(0.0, 1 - one(row)) for row in step.rows])
    computing = words.part(step.fractions["compute"])
    yield Cause(
        1 - one(step.fractions),
        f"{workers} workers are slower than one: computing takes {computing} of a step, and one worker would compute "
        f"{workers} times as long and wait for no gradients",
        f"with resources.workers: 1, as far as computing grows with the rows, it would be {gained}; larger batches "
        "make several workers worth it",
    )
