"""What a trial goes on from: the newest checkpoint in memory, on its storage, or the one that Tune restores."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from raymx.checkpoint.files import Saved
from raymx.checkpoint.in_epoch import Checkpoints
from raymx.cluster.generation import Generation
from raymx.kvstore.state import OptimizerState
from raymx.storage import Location
from raymx.trial.requests import Requests, total


class TrialCheckpoints:
    """The checkpoints of one trial.

    ``saved`` is the newest, None before the first. ``metrics`` are the last of each name that was reported: Tune
    expects its objective in every row.
    """

    def __init__(self, folder: Location, name: str) -> None:
        """``folder`` is the trial's; ``name`` the trial's among all of all runs."""
        self._files = Checkpoints(folder.system, folder.path, name)
        self._name = name
        self._given: str | None = None  # the folder of the checkpoint that Tune restores
        self._was_sought = False
        self.saved: Saved | None = None
        self.metrics: dict[str, float] = {}

    def restore(self, folder: str) -> list[str]:
        """Go on from Tune's checkpoint in a local folder, or from a newer one of this trial; warnings.

        It is read now, since Tune removes the folder. Raises CheckpointError when it cannot be.
        """
        self._given, self._was_sought = os.path.abspath(folder), False
        return self.seek()

    def seek(self) -> list[str]:
        """Find what to go on from, once; warnings about checkpoints that were skipped."""
        if self._was_sought:
            return []
        self._was_sought = True
        self.saved, warnings = self._files.newest(self._given)
        self.metrics = dict(self.saved.metrics) if self.saved else {}
        return warnings

    def take(self, generation: Generation, requests: Requests, global_batch_size: int) -> Saved:
        """Parameters, optimizer state and position, while all loops wait at one boundary."""
        statistics = generation.command("statistics")
        mean = {name: value / len(statistics) for name, value in total(statistics).items()}
        snapshots = generation.command("snapshot", mean)
        first = snapshots[0]
        self.saved, self._was_sought = _joined(snapshots, first["optimizer"] or requests.optimizer_state()), True
        self.saved = replace(self.saved, metrics=self.metrics, trial=self._name, global_batch_size=global_batch_size)
        return self.saved

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._files.busy

    def write(self) -> None:
        """Write the newest into the trial's folder, beside training; one that hangs does not hold up the next."""
        if self.saved and not self.busy:
            self._files.save(self.saved)

    def take_problem(self) -> list[str]:
        """Why one could not be written, since the last call."""
        problem = self._files.take_problem()
        return [f"a checkpoint could not be written, the last good one stays: {problem}"] if problem else []

    @property
    def in_words(self) -> str:
        """Where a generation that begins now goes on."""
        return f", from epoch {self.saved.epoch} step {self.saved.step}" if self.saved else ", from the beginning"

    def close(self) -> None:
        """Let one be written to its end."""
        self._files.close()

    def clear(self) -> None:
        """Those within epochs are of no use once the last one is there."""
        self._files.clear()


def _joined(snapshots: list[dict[str, Any]], optimizer: OptimizerState) -> Saved:
    """One checkpoint out of what all workers gave; parameters and position are those of rank 0."""
    first = snapshots[0]
    return Saved(
        first["parameters"],
        optimizer,
        first["epoch"],
        first["step"],
        first["state"],
        total([snapshot["sums"] for snapshot in snapshots]),
        {},
        records=first["records"],
        num_workers=len(snapshots),
        schedule_shift=first["schedule_shift"],
    )
