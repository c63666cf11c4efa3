"""What follows from a failure: the run goes on, or ends. Pure: no Ray, no mxnet, no clock.

    history = history.after(failure, trained=True)
    decision = decide(failure, history, max_failures=3)
    if decision.action == "raise": ...                  # and decision.reason says why it is the last one

How many workers the next generation has, and when, is the scaling policy's (`raymx.cluster.scaling_policy`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

DEATHS_IN_ONE_POSITION = 10  # so often may processes die with no checkpoint in between
MEMORY_DEATHS_IN_ONE_POSITION = 2  # for lack of memory: the same needs as much again

Kind = Literal["error", "stall", "process", "memory", "node"]

BEFORE_THE_FIRST_STEP = "it came before the first step"
WOULD_COME_AGAIN = "it would come again"
PLAIN = (BEFORE_THE_FIRST_STEP, WOULD_COME_AGAIN)
"""Reasons that the error's own text makes plain."""


@dataclass(frozen=True)
class Failure:
    """What ended a generation.

    ``error`` was raised by the experiment's own code and ``stall`` is a loop that stood still: both count against
    ``failures.max``. A ``process`` that died, or whose ``node`` did, is the cluster's doing and does not; nor does one
    that was ended for lack of ``memory``, which is counted apart, since it will hardly get better.
    """

    kind: Kind
    text: str
    position: tuple[int, int] | None = None
    """(epoch, step) where the experiment's own code raised it; None when that is not known."""
    certain: bool = False
    """Whether the next generation would meet it again, whatever it does."""

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]


@dataclass(frozen=True)
class History:
    """The failures of a run so far."""

    errors: int = 0  # errors and stalls
    losses: int = 0  # processes and nodes
    deaths_here: int = 0  # processes that died since the last checkpoint
    memory_here: int = 0  # those that were ended for lack of memory since then
    last: Failure | None = None
    repeated: bool = False  # the last failure is the one before it, once more
    trained: bool = False  # whether a step was ever done

    def after(self, failure: Failure, *, trained: bool) -> History:
        """With one more failure; ``trained``: a step was done in the generation that it ended."""
        own = failure.kind in ("error", "stall")
        return History(
            self.errors + own,
            self.losses + (not own),
            self.deaths_here + (failure.kind == "process"),
            self.memory_here + (failure.kind == "memory"),
            failure,
            failure.kind == "error" and _same(self.last, failure),
            self.trained or trained,
        )

    @property
    def count(self) -> int:
        """All of them."""
        return self.errors + self.losses

    def saved(self) -> History:
        """Once a checkpoint was taken: what comes now is at another position."""
        return replace(self, deaths_here=0, memory_here=0, trained=True)


@dataclass(frozen=True)
class FailureDecision:
    """``retry``: go on with the next generation. ``raise``: the run ends with this failure, for this ``reason``."""

    action: Literal["retry", "raise"]
    reason: str = ""


def decide(failure: Failure, history: History, max_failures: int) -> FailureDecision:
    """What to do about the newest failure, which is in ``history`` already."""
    reason = _why_final(failure, history, max_failures)
    return FailureDecision("raise", reason) if reason else FailureDecision("retry")


def _why_final(failure: Failure, history: History, max_failures: int) -> str:
    """Why a failure is the last one, or ""."""
    if failure.kind == "error" and not history.trained:
        return BEFORE_THE_FIRST_STEP
    if failure.certain:
        return WOULD_COME_AGAIN
    if history.repeated:
        return "the same error came twice in a row at the same place: it will not get better"
    if failure.kind in ("error", "stall") and history.errors > max_failures:
        return f"it is failure {history.errors}, and failures.max is {max_failures}"
    if failure.kind == "process" and history.deaths_here > DEATHS_IN_ONE_POSITION:
        return f"processes died {history.deaths_here} times with no checkpoint in between"
    if failure.kind == "memory" and history.memory_here > MEMORY_DEATHS_IN_ONE_POSITION:
        return (
            f"{history.memory_here} times with no checkpoint in between: lower training.global_batch_size or "
            "data.cpus, have fewer workers on a node, or use nodes with more memory"
        )
    return ""


def _same(before: Failure | None, now: Failure) -> bool:
    return before is not None and (before.kind, _what(before), before.position) == (now.kind, _what(now), now.position)


def _what(failure: Failure) -> str:
    """The text without who it happened to."""
    first, _, rest = failure.text.partition("\n")
    return first.split(": ", 1)[-1] + rest
