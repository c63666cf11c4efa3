"""What a trial tells of itself while it is in a step: by the mailbox, to the driver and to its own next process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from raymx.cluster.failure_policy import Failure, History
from raymx.trial.checkpoints import TrialCheckpoints
from raymx.trial.mailbox import Mailbox


class Progress:
    """Warnings, notes, the failures so far and where the trial is.

    ``history``, and the epoch and step of the newest checkpoint, are posted with whatever is posted next.
    """

    def __init__(self, mailbox: Mailbox, trial_id: str, checkpoints: TrialCheckpoints) -> None:
        """A trial whose process had died goes on with its notes, and with the count of its failures."""
        self._mailbox, self._trial_id, self._checkpoints = mailbox, trial_id, checkpoints
        before = mailbox.read(trial_id)
        self._notes: list[str] = before.get("notes", [])
        self._warnings: list[str] = []
        self._warned_of_loss = False
        self.history = history_of(before)

    def post(self, phase: str, progress: Mapping[str, Any] | None = None) -> None:
        """``phase``: waiting, forming, training or leaving."""
        saved = self._checkpoints.saved
        content = {
            "phase": phase,
            "warnings": self._warnings,
            "notes": self._notes,
            "history": asdict(self.history),
            **(progress or {}),
            "saved": [saved.epoch, saved.step] if saved else None,
        }
        self._mailbox.post(self._trial_id, content)

    def warn(self, texts: Iterable[str]) -> None:
        """Each one once."""
        self._warnings += [text for text in texts if text not in self._warnings]

    def warn_of_loss(self, text: str) -> None:
        """Once a trial: what comes of it is said at the end."""
        if not self._warned_of_loss:
            self._warned_of_loss = True
            self.warn([text])

    def note(self, text: str) -> None:
        """A line for the user about what changed; "" is none."""
        if text:
            self._notes.append(text)
            self.post("forming")

    def waits(self, reason: str) -> None:
        """The trial waits for room; said once."""
        self.post("waiting", {"reason": reason})
        if not self._notes or not self._notes[-1].endswith(reason):
            self.note(reason)


def history_of(posted: Mapping[str, Any]) -> History:
    """The failures that a trial's process posted before it died, or none."""
    known = dict(posted.get("history", {}))
    last = known.pop("last", None)
    if last:
        last["position"] = tuple(last["position"]) if last["position"] else None
    return History(**known, last=Failure(**last) if last else None)


class Speedometer:
    """Samples a second since an epoch's first step was seen, all workers together."""

    def __init__(self) -> None:
        self._epoch, self._since, self._first_step = 0, 0.0, 0

    def samples_per_sec(self, progress: Mapping[str, Any], global_batch_size: int) -> float | None:
        """By the ``epoch`` and ``step`` of a loop; None when this is the first look at an epoch."""
        epoch, step, now = progress.get("epoch", 0), progress.get("step", 0), time.monotonic()
        if epoch != self._epoch or step < self._first_step or self._first_step == 0:
            self._epoch, self._since, self._first_step = epoch, now, step
            return None
        return float((step - self._first_step) * global_batch_size / max(now - self._since, 1e-6))
