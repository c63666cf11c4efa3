"""How the loops of a generation are brought to one boundary, where a checkpoint can be taken. Pure: no Ray, no clock.

A boundary is a loop's call of ``report()``. Loops count them, and are told from which count on to wait:

- *planned*, for ``checkpoint.every_steps``: with every answer a loop gets the count at which to wait next. It is the
  same for all, so they meet with no message between.
- *at once*, for ``checkpoint.every_s``, a stop, a drained node, a job that waits: each loop waits at its next boundary,
  wherever it is, and those behind are let on to the count of the furthest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raymx.training.channel import Event


class Hold:
    """The protocol of one trial; ``now`` is its clock in seconds."""

    def __init__(self, every_steps: int | None, every_s: float | None, now: float) -> None:
        self._every_steps, self._every_s = every_steps, every_s
        self.release(now)

    def release(self, now: float) -> None:
        """The loops go on, or have reported a result: a hold at once is over, and the time to the next one begins."""
        self.asked, self._more_steps, self._released_at = False, 1, now

    def ask(self) -> None:
        """All loops were asked to wait at their next boundary, wherever each is."""
        self.asked, self._more_steps = True, 1

    def planned_after(self, count: int) -> int | None:
        """The count at whose boundary all loops wait next, when they are at ``count`` now."""
        return None if self._every_steps is None else count + self._every_steps

    def is_due(self, now: float) -> bool:
        """Whether it is time for a checkpoint by ``checkpoint.every_s``."""
        return self._every_s is not None and now - self._released_at >= self._every_s

    def let_on(self, waiting: Mapping[int, Event]) -> dict[int, int]:
        """Answers for held loops, by rank, while another loop posts nothing: the counts from which to wait again.

        That one may be past its last boundary and wait inside MXNet for what the held ones have not pushed yet, or, in
        async, at the barrier of an epoch's end. The steps double each time, so however far apart they are, they meet.
        Where all were told to wait at the same boundary they meet there, however late the slowest is.
        """
        held = {rank: event for rank, event in waiting.items() if event.kind == "held"}
        if not held or not self.asked:
            return {}
        self._more_steps *= 2
        return {rank: event.count + self._more_steps for rank, event in held.items()}


def behind(events: Sequence[Event]) -> dict[int, int]:
    """Answers for the loops that are to go on to where the furthest one is, by rank; {} when all wait at one boundary.

    ``events`` are those of all ranks, at least one of them "held".
    """
    furthest = max(event.count for event in events)
    elsewhere = any(event.kind != "held" for event in events)
    return {
        rank: furthest + elsewhere
        for rank, event in enumerate(events)
        if event.kind == "held" and (elsewhere or event.count < furthest)
    }
