"""What trials leave in their mailboxes for people: shown once each."""

from __future__ import annotations

import threading
from typing import Any

from raymx.driver.display import Display
from raymx.trial.mailbox import Mailbox


class Messages:
    """Warnings and notes of trials; asked for by the monitor's thread, and by Tune's."""

    def __init__(self, mailbox: Mailbox, display: Display) -> None:
        self._mailbox, self._display = mailbox, display
        self._shown: dict[str, int] = {}  # notes of each trial
        self._lock = threading.Lock()

    def show(self, trial_id: str) -> dict[str, Any]:
        """Show the trial's warnings, each once, and its new notes; its newest progress."""
        with self._lock:
            progress = self._mailbox.read(trial_id)
            self._display.warnings(progress.get("warnings", []))
            notes, shown = progress.get("notes", []), self._shown.get(trial_id, 0)
            for note in notes[shown:]:
                self._display.note(trial_id, note)
            self._shown[trial_id] = max(shown, len(notes))
        return progress
