"""Ctrl-C: a checkpoint of every trial that trains, and then an orderly end of Tune's loop.

Tune saves a trial only between its steps and, on Ctrl-C, kills a step that lasts. So its own handler is off: the first
Ctrl-C asks the trials, through the mailbox, to stop at their next step; once those checkpoints are registered, Tune is
told to end with the signal that it keeps for that, SIGUSR1, and leaves the trials unfinished for ``--resume``. A second
Ctrl-C ends the run at once.

The signal is raised in Tune's own thread, between two steps of its loop: there it takes no more results. A trial that
was told so any earlier would give Tune a row that adds nothing, which Tune takes for the end of its training.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping

from raymx.driver.interrupt import Interrupt
from raymx.trial.mailbox import Mailbox

SAVE_GRACE_S = 5.0  # for a trial to come to its next step's end and save; then it ends without


class Stopper:
    """Listens for Ctrl-C between ``start`` and ``close``; the monitor calls its steps."""

    def __init__(self, interrupt: Interrupt, mailbox: Mailbox, say: Callable[[str], None]) -> None:
        """``say`` tells the user what happens."""
        self._interrupt, self._mailbox, self._say = interrupt, mailbox, say
        self._saving: set[str] = set()  # trials whose checkpoint is waited for
        self._asked_at = 0.0
        self._all_saved = False

    def start(self) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: None)  # it would end the process until Tune has its own handler
        self._interrupt.listen(True)

    def close(self) -> None:
        self._interrupt.listen(False)

    def step(self, phases: Mapping[str, str]) -> None:
        """Go on with the end of the run, once Ctrl-C was pressed. ``phases`` of all trials that run, by their ids."""
        if self._interrupt.requested and not self._asked_at:
            self._saving = {trial_id for trial_id, phase in phases.items() if phase == "training"}
            self._ask_to_stop()
        elif self._asked_at and (not self._saving or time.monotonic() - self._asked_at > SAVE_GRACE_S):
            self._all_saved = True

    def saved(self, trial_id: str) -> None:
        """A trial's checkpoint is registered; when all are that were waited for, Tune's loop ends."""
        self._saving.discard(trial_id)
        self._all_saved |= bool(self._asked_at) and not self._saving

    def between_steps(self) -> None:
        """Tune's loop, in whose thread this is called, is between two of its steps: end it, once all is saved."""
        if self._all_saved:
            signal.raise_signal(signal.SIGUSR1)
            self._mailbox.say_over()

    def _ask_to_stop(self) -> None:
        self._mailbox.request_stop()
        self._asked_at = time.monotonic()
        self._say(
            "stopping: saving a checkpoint (Ctrl-C again to stop at once)"
            if self._saving
            else "stopping: nothing was trained since the last checkpoint"
        )
