"""How far a loop is. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LoopPosition:
    """The epoch that a loop is in, and what of it is done: ``step`` of its ``steps``, and ``records``, by all workers.

    Records are kept too, since a resized run may have another batch size from some step of an epoch on.
    """

    epoch: int = 0
    step: int = 0
    records: int = 0
    steps: int = 0

    def enter(self, epoch: int) -> None:
        """An epoch begins, from its first record unless the loop is in it."""
        if epoch != self.epoch:
            self.epoch, self.step, self.records = epoch, 0, 0

    def step_done(self, records: int) -> None:
        """So many ``records`` of the epoch are done once this step is."""
        self.step += 1
        self.records = records

    @property
    def at_end(self) -> bool:
        """Whether all steps of the epoch are done."""
        return 0 < self.steps <= self.step

    def epoch_done(self, epoch: int) -> None:
        """The next one begins."""
        self.epoch, self.step, self.records = epoch + 1, 0, 0
