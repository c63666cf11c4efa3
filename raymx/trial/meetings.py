"""Whether the loops of a generation can still meet: updates of a sync store, and barriers, need all of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raymx.training.channel import Event


def cannot_meet(waiting: Mapping[int, Event], met: Mapping[int, int]) -> str:
    """Why a loop waits in MXNet for one that waits for the trial, in words; "" when none does.

    ``waiting`` are the events that wait for an answer, by rank, which comes when all ranks have posted one; ``met`` is
    how many operations that need all workers each rank has begun, as far as is known.
    """
    for rank, event in waiting.items():
        further = [other for other, count in met.items() if other not in waiting and count > event.met]
        if event.kind != "held" and further:
            return f"{_where(rank, event)}, and worker {further[0]}'s is in number {met[further[0]]}{_FIX}"
    return ""


def are_apart(events: Sequence[Event]) -> str:
    """Why loops that have all posted an event are not at one place, in words; "" when they are.

    Loops that are held may be apart: they are brought together.
    """
    kinds = {event.kind for event in events}
    if "held" in kinds:
        return ""
    if "end" in kinds and len(kinds) > 1:
        ended = next(rank for rank, event in enumerate(events) if event.kind == "end")
        other = next(rank for rank, event in enumerate(events) if event.kind != "end")
        return f"worker {ended}'s loop has ended, and worker {other}'s has not: it is at {events[other].kind!r}{_FIX}"
    if len(kinds) > 1:
        where = ", ".join(f"worker {rank} at {event.kind!r}" for rank, event in enumerate(events))
        return f"the workers' loops are not at the same place: {where}{_FIX}"
    behind = min(range(len(events)), key=lambda rank: events[rank].met)
    ahead = max(range(len(events)), key=lambda rank: events[rank].met)
    if events[behind].met < events[ahead].met:
        return f"{_where(behind, events[behind])}, and worker {ahead}'s after {events[ahead].met}{_FIX}"
    return ""


_FIX = (
    "; every worker must make the same calls of its context in the same order: take the batches of ctx.train_batches, "
    "of which each worker has as many, or give each as many of your own"
)


def _where(rank: int, event: Event) -> str:
    does = "has ended" if event.kind == "end" else f"is at {event.kind!r}"
    return f"worker {rank}'s loop {does} after {event.met} updates that need all workers"
