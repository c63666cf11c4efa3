"""The in-epoch checkpoints of a trial, and the choice of what it goes on from.

    TRIAL FOLDER/checkpoint_000002/                     Tune's own, between the steps of a trial
    TRIAL FOLDER/in_epoch/epoch00002_step00000150/      raymx's, in the middle of an epoch

An in-epoch one goes before Tune's only when it is of the same life of the same trial, and further. A trial that was
cloned from another one (population based training) is given that one's checkpoint: what it had itself is of a life that
was given up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os.path import realpath
from typing import Any

from raymx.checkpoint import files
from raymx.checkpoint.files import STATE, Position, Saved
from raymx.errors import CheckpointError
from raymx.storage import FILE_ERRORS, location, reason

IN_EPOCH, TUNE = "in_epoch", "checkpoint_"
KEEP = 2  # in-epoch ones: the older is for when the newer is damaged
CLOSE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that is there, and where the run was in it."""

    folder: str
    position: Position
    filesystem: Any = None  # None for local paths


def to_try(
    trial: str, restored: Candidate | None, in_epoch: Iterable[Candidate], tune: Iterable[Candidate]
) -> list[Candidate]:
    """The checkpoints that ``trial`` may go on from, the best first. Pure.

    ``restored`` is the one that Tune restores: None when there is none, or when its position cannot be told.
    """
    if restored and restored.position.trial != trial:
        return [restored]
    in_epoch = [candidate for candidate in in_epoch if candidate.position.trial == trial]
    tune = [candidate for candidate in tune if candidate.position.trial == trial]
    if restored is None:
        return _furthest_first([*in_epoch, *tune])
    reached = restored.position.reached
    further = [candidate for candidate in in_epoch if candidate.position.reached > reached]
    not_further = [candidate for candidate in (*in_epoch, *tune) if candidate.position.reached <= reached]
    return [*_furthest_first(further), restored, *_furthest_first(not_further)]


def to_keep(written: Candidate, others: Iterable[Candidate]) -> list[Candidate]:
    """The in-epoch checkpoints to keep once ``written`` is there. Pure.

    Those are the furthest up to it: one that is further than the trial itself is damaged, or of a life given up.
    """
    before = [
        candidate
        for candidate in others
        if candidate.position.trial == written.position.trial and candidate.position.reached < written.position.reached
    ]
    return [written, *_furthest_first(before)[: KEEP - 1]]


def _furthest_first(checkpoints: Iterable[Candidate]) -> list[Candidate]:
    return sorted(checkpoints, key=lambda candidate: candidate.position.reached, reverse=True)


class Checkpoints:
    """The checkpoints in ``trial_folder`` of a pyarrow ``filesystem``, of the trial with this id.

    In-epoch ones are written by a thread, at most one at a time. A failure there is never raised, since training can go
    on without: `take_problem` tells it. For one thread, but for the writing.
    """

    def __init__(self, filesystem: Any, trial_folder: str, trial_id: str) -> None:
        self._filesystem, self._trial_folder, self._trial = filesystem, trial_folder, trial_id
        self._folder = f"{trial_folder}/{IN_EPOCH}"
        self._thread: threading.Thread | None = None
        self._problems: deque[str] = deque(maxlen=1)

    # Writing

    def save(self, saved: Saved) -> None:
        """Write it in the background; waits until an earlier one is written, so that at most one lies in memory."""
        self.wait()
        self._thread = threading.Thread(
            target=self._write, args=[replace(saved, trial=self._trial)], name="in-epoch checkpoint", daemon=True
        )
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until nothing is being written, or the time is over; whether nothing is."""
        if self._thread:
            self._thread.join(timeout_s)
        return not self.busy

    def take_problem(self) -> str | None:
        """What failed since the last call, for the user; None when nothing did."""
        try:
            return self._problems.pop()
        except IndexError:
            return None

    def clear(self) -> None:
        """Delete all in-epoch checkpoints: the trial has finished, or begins another life."""
        self.wait(CLOSE_TIMEOUT_S)
        self._remove(self._folder)

    def close(self) -> None:
        """Let the one that is being written get done, unless that takes longer than ``CLOSE_TIMEOUT_S``."""
        self.wait(CLOSE_TIMEOUT_S)

    def _write(self, saved: Saved) -> None:
        folder = f"{self._folder}/epoch{saved.epoch:05d}_step{saved.step:08d}"
        self._remove(folder)  # what a killed write or an earlier life left
        try:
            files.write(folder, saved, self._filesystem)
        except Exception as error:
            self._remove(folder)
            self._problem("written", error.__cause__ or error)
        else:
            self._prune(Candidate(folder, saved.position))

    def _prune(self, written: Candidate) -> None:
        try:
            kept = {candidate.folder for candidate in to_keep(written, self._candidates(self._folder, "", []))}
            old = [folder for folder in self._folders(self._folder, "") if folder not in kept]
        except FILE_ERRORS as error:
            self._problem("listed", error)
            return
        for folder in old:
            self._remove(folder)

    def _remove(self, folder: str) -> None:
        there = location(folder, self._filesystem)
        try:
            if there.is_there:
                there.remove_folder()
        except FILE_ERRORS as error:
            self._problem("deleted", error)

    def _problem(self, what: str, error: BaseException) -> None:
        # The same text whichever checkpoint it was: it is shown as a warning, once.
        self._problems.append(
            f"in-epoch checkpoints in {self._folder} cannot be {what} ({reason(error)}); training goes on"
        )

    # Reading

    def newest(self, restored: str | None = None, filesystem: Any = None) -> tuple[Saved | None, list[str]]:
        """What to go on from, and a warning for each checkpoint that was skipped.

        ``restored`` is the folder of the checkpoint that Tune restores, None when there is none; (None, warnings) when
        there is nothing to go on from. A trial that was cloned loses its own in-epoch checkpoints here. Raises
        CheckpointError, naming what was tried, when one was to be restored and none can be read.
        """
        self.wait()
        skipped: list[str] = []
        first = self._look_at(restored, filesystem, skipped) if restored else None
        if first and first.position.trial != self._trial:
            self._remove(self._folder)
        damaged: list[str] = [] if first else skipped  # of Tune's: told when it comes to the older ones
        in_epoch = self._candidates(self._folder, "", skipped)
        tune = self._candidates(self._trial_folder, TUNE, damaged, but=restored)
        for candidate in to_try(self._trial, first, in_epoch, tune):
            try:
                return files.read(candidate.folder, candidate.filesystem), skipped
            except CheckpointError as error:
                skipped.append(_skipped(error))
            if candidate is first:
                skipped += damaged
        if restored:
            raise CheckpointError(f"trial {self._trial} has no checkpoint to go on from: " + "; ".join(skipped))
        return None, skipped

    def _candidates(self, folder: str, prefix: str, skipped: list[str], but: str | None = None) -> list[Candidate]:
        """The checkpoints in a folder, but for a local one. One without state.json is not written to its end: none."""
        candidates = []
        try:
            for path in self._folders(folder, prefix):
                checkpoint = location(path, self._filesystem)
                local = checkpoint.local_path
                left_out = but is not None and local is not None and realpath(local) == realpath(but)
                if not left_out and (checkpoint / STATE).is_file:
                    candidates.append(self._look_at(path, self._filesystem, skipped))
        except FILE_ERRORS as error:
            skipped.append(f"{folder} cannot be listed: {reason(error)}")
        return [candidate for candidate in candidates if candidate]

    def _look_at(self, folder: str, filesystem: Any, skipped: list[str]) -> Candidate | None:
        try:
            return Candidate(folder, files.position(folder, filesystem), filesystem)
        except CheckpointError as error:
            skipped.append(_skipped(error))
            return None

    def _folders(self, folder: str, prefix: str) -> list[str]:
        folders, _ = location(folder, self._filesystem).names()
        return [f"{folder}/{name}" for name in folders if name.startswith(prefix)]


def _skipped(error: CheckpointError) -> str:
    return f"skipped a checkpoint: {error}"
