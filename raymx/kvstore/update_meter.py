"""How much of a server's time its optimizer takes, update by update, without waiting for MXNet's engine.

An update lasts from the call of the updater to the moment when its weight is written, which a mark of the engine's
tells. A server makes one after the other, since MXNet's waits for each before it answers the next request. Where there
are many, one in several of each key is measured, and stands for the others of that key.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_PER_SEC = 300.0  # updates that are measured: each costs some 30 microseconds
MOST_OPEN = 1024  # marks that may be under way
MOST_KEPT = 250_000  # updates
SKIPPED = 64  # steps before those of a trace that an overflow may have kept from being updates


@dataclass
class _Figures:
    """By key: updates, and the seconds of those that were measured."""

    counts: Counter[int] = field(default_factory=Counter)
    measured: Counter[int] = field(default_factory=Counter)
    seconds: dict[int, float] = field(default_factory=dict)

    def add(self, key: int, seconds: float) -> None:
        self.measured[key] += 1
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds

    def told(self) -> dict[str, float]:
        """``updates``; ``rounds``, of the key that has most; ``update_s``, of all, measured or not."""
        each = (self.seconds[key] / self.measured[key] * self.counts[key] for key in self.seconds)
        rounds = max(self.counts.values(), default=0)
        return {"updates": self.counts.total(), "rounds": rounds, "update_s": sum(each)}


class UpdateMeter:
    """Of one server in one generation: updates in one thread, `take` in another.

    ``mark`` gives the number of a mark behind some arrays, ``reached`` when it was reached, None as long as it was not
    (`raymx.training.marks`).
    """

    def __init__(
        self,
        mark: Callable[[Sequence[Any]], int],
        reached: Callable[[int], float | None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._mark, self._reached, self._clock = mark, reached, clock
        self._figures, self._stride, self._since = _Figures(), 1, clock()
        self._open: list[tuple[int, float, int, bool]] = []  # key, when it began, its mark, whether it is kept
        self._traced: tuple[int, int] | None = None  # of each key the updates from this to before that, from 0 on
        self._made: Counter[int] = Counter()  # by key, until that is reached
        self._kept: list[tuple[int, float, float]] = []

    def keep(self, first: int, last: int, updates_a_step: int = 1) -> None:
        """All updates of these steps, counted from 1, are measured and kept: for a trace.

        And some more: a step may be skipped, and with several updates a step workers are not at one step.
        """
        self._traced = max(0, first - 1 - SKIPPED), (last if updates_a_step == 1 else 2 * last * updates_a_step)

    def kept(self, since: float, until: float) -> list[tuple[int, float, float]]:
        """(key, begin, end) of those that began in between, once; times of the clock. No more are kept."""
        self._close()
        found, self._kept, self._traced = [one for one in self._kept if since <= one[1] <= until], [], None
        self._made.clear()
        return found

    def _is_traced(self, key: int) -> bool:
        """Whether the next update of this key is to be kept; it is counted."""
        if self._traced is None:
            return False
        number = self._made[key]
        self._made[key] += 1
        return self._traced[0] <= number < self._traced[1] and len(self._kept) < MOST_KEPT

    def update(self, key: int, weight: Any, make: Callable[[], None]) -> None:
        """Have an update of ``weight`` made."""
        figures = self._figures
        is_traced = self._is_traced(key)
        is_due = figures.counts[key] % self._stride == 0 or is_traced
        is_measured = is_due and len(self._open) < MOST_OPEN
        figures.counts[key] += 1
        began = self._clock() if is_measured else 0.0
        make()
        if is_measured:
            self._close()
            self._open.append((key, began, self._mark([weight]), is_traced))

    def take(self) -> dict[str, float]:
        """See `_Figures.told`; since the last call."""
        self._close()
        figures, self._figures = self._figures, _Figures()
        now = self._clock()
        rate = figures.counts.total() / max(now - self._since, 1e-6)
        self._since = now
        while rate / self._stride > MOST_PER_SEC:
            self._stride *= 2
        return figures.told()

    def _close(self) -> None:
        """Take in the marks that were reached."""
        waiting, self._open = self._open, []
        for key, began, number, is_traced in waiting:
            at = self._reached(number)
            if at is None:
                self._open.append((key, began, number, is_traced))
            else:
                self._figures.add(key, at - began)
                if is_traced:
                    self._kept.append((key, began, at))
