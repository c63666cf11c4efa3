"""How fast a worker trains: its first step, and the steps after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Meter:
    """Counts one report's steps, samples and seconds; times are the caller's clock's.

    The first step of a generation (memory, graph building, first data) is kept apart: it is in ``first_step_s`` and in
    nothing else.
    """

    clock: Callable[[], float] = time.perf_counter
    first_step_s: float | None = None
    first_batch_s: float | None = None  # of it: until the first batch was there
    steps: int = 0
    samples: float = 0
    train_s: float = 0.0
    _since: float | None = field(default=None, repr=False)

    @property
    def runs(self) -> bool:
        """Whether training goes on, and no validation or checkpoint."""
        return self._since is not None

    def start(self) -> None:
        """Training begins or goes on."""
        if self._since is None:
            self._since = self.clock()

    def stop(self) -> None:
        """Training pauses: for validation, for a checkpoint."""
        if self._since is not None:
            self.train_s += self.clock() - self._since
            self._since = None

    def batch_came(self, now: float) -> None:
        """A batch is there, by the same clock; the first of all is a part of the first step."""
        if self.first_batch_s is None and self._since is not None:
            self.first_batch_s = now - self._since

    def step_done(self, samples: float, synchronize: Callable[[], None]) -> None:
        """One step was issued; the first of all is waited for with ``synchronize``."""
        if self.first_step_s is None:
            synchronize()
            assert self._since is not None
            self.first_step_s = self.train_s + self.clock() - self._since
            self.train_s = 0.0
            self._since = self.clock()
        else:
            self.steps += 1
            self.samples += samples

    def take(self) -> dict[str, float]:
        """The figures since the last call, and start again (the first step stays)."""
        figures = {
            "steps": self.steps,
            "samples": self.samples,
            "train_s": self.train_s,
            "first_step_s": self.first_step_s or 0.0,
            "first_batch_s": self.first_batch_s or 0.0,
        }
        self.steps = self.samples = 0
        self.train_s = 0.0
        return figures
