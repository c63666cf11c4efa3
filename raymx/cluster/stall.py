"""Whether a loop stands still. Pure: the time is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping


class StallWatch:
    """Sees how long each worker's loop has not moved, by its heartbeat: a number that grows whenever it does.

    A loop that waits for the trial's answer is not still: others may have much to do before it gets one.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._moved: dict[int, tuple[int, float]] = {}  # rank -> (its heartbeat, since when it is that)

    def look(self, heartbeats: Mapping[int, int], waiting: Collection[int], num_workers: int, now: float) -> list[int]:
        """Ranks that have not moved for the time-out. One that does not answer has no entry in ``heartbeats``."""
        for rank in range(num_workers):
            number, since = self._moved.get(rank, (-1, now))
            latest = heartbeats.get(rank, number)
            self._moved[rank] = (latest, now if latest != number or rank in waiting else since)
        return [rank for rank, (_, since) in sorted(self._moved.items()) if now - since >= self._timeout_s]
