"""Whether the loops of a generation can still meet: updates of a sync store, and barriers, need all of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raymx.errors import LoopError
from raymx.training.channel import Event


def require_meeting(waiting: Mapping[int, Event], met: Mapping[int, int]) -> None:
    """Raise LoopError when a loop waits in MXNet for one that waits for the trial: neither would ever go on.

    ``waiting`` are the events that wait for an answer, by rank, which comes when all ranks have posted one; ``met`` is
    how many operations that need all workers each rank has begun, as far as is known.
    """
    for rank, event in waiting.items():
        further = [other for other, count in met.items() if other not in waiting and count > event.met]
        if event.kind != "held" and further:
            raise _apart(f"{_where(rank, event)}, and worker {further[0]}'s is in number {met[further[0]]}")


def require_together(events: Sequence[Event]) -> None:
    """Raise LoopError when loops that have all posted an event, none of them *held*, are not at one place."""
    kinds = {event.kind for event in events}
    if "end" in kinds and len(kinds) > 1:
        ended = next(rank for rank, event in enumerate(events) if event.kind == "end")
        other = next(rank for rank, event in enumerate(events) if event.kind != "end")
        raise _apart(f"worker {ended}'s loop has ended, and worker {other}'s has not: it is at {events[other].kind!r}")
    if len(kinds) > 1:
        where = ", ".join(f"worker {rank} at {event.kind!r}" for rank, event in enumerate(events))
        raise _apart(f"the workers' loops are not at the same place: {where}")
    behind = min(range(len(events)), key=lambda rank: events[rank].met)
    ahead = max(range(len(events)), key=lambda rank: events[rank].met)
    if events[behind].met < events[ahead].met:
        raise _apart(f"{_where(behind, events[behind])}, and worker {ahead}'s after {events[ahead].met}")


def require_report(loop: str, metrics: Mapping[str, float]) -> None:
    """Raise LoopError when a loop has ended and never reported ``metrics``: it has no result."""
    if not metrics:
        raise LoopError(
            f"training.loop {loop} ended without a report: call ctx.report({{...}}) with an epoch's figures, such as "
            "train_loss, at the end of each epoch"
        )


def _apart(what: str) -> LoopError:
    return LoopError(
        f"{what}; every worker must make the same calls of its context in the same order: take the batches of "
        "ctx.train_batches, of which each worker has as many, or give each as many of your own"
    )


def _where(rank: int, event: Event) -> str:
    does = "has ended" if event.kind == "end" else f"is at {event.kind!r}"
    return f"worker {rank}'s loop {does} after {event.met} updates that need all workers"
