"""Watches a run from the driver: shows its progress, and turns Ctrl-C into a checkpoint and an orderly end.

Tune saves a trial only between its steps and, on Ctrl-C, kills a step that lasts. So its own handler is off: the first
Ctrl-C asks the trial, through the mailbox, to stop at its next step; once that checkpoint is registered, Tune is told
to end with the signal that it keeps for that, SIGUSR1, and leaves the trial unfinished for ``--resume``. A second
Ctrl-C ends the run at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from typing import Any

import ray
from ray import cloudpickle
from ray.tune import Callback

from raymx.cluster.slots import remove_slots
from raymx.driver.display import Display
from raymx.driver.interrupt import Interrupt
from raymx.results import run_folder
from raymx.sweep.listener import Listener, listen
from raymx.sweep.plan import Cell
from raymx.sweep.trial_records import State, TrialRecords
from raymx.trial.mailbox import Mailbox

LOOK_S = 0.25
ROOM_S = 10.0  # for a trial to be placed; then the user is told what it waits for
# For Tune's Trial.max_failures: it starts a trial again that was lost. What else fails, the trial sees to itself.
LAST, FOR_EVER = 0, -1
RESTARTS_IN_ONE_PLACE = 10  # with no checkpoint in between: the next failure is the last
SAVE_GRACE_S = 5.0  # for a trial to come to its next step's end and save; then it ends without


class Monitor(Listener):
    """A context: its thread runs inside it, and Tune's callbacks report to it."""

    current: Monitor | None = None  # for the callbacks, which Tune pickles

    def __init__(self, run_id: str, display: Display, interrupt: Interrupt, trials: TrialRecords, needs: str) -> None:
        """``needs`` says what the run waits for when the cluster has no room yet."""
        self._display, self._interrupt, self._mailbox, self._needs = display, interrupt, Mailbox(run_id), needs
        self._written = trials
        self._trials: dict[str, Any] = {}  # Tune's own, by id
        self._noted: dict[str, int] = {}  # notes of each trial that were shown
        self._restarts: dict[str, tuple[list[int], int]] = {}  # how far each was, and how often it was lost there
        self._given_up: set[str] = set()  # trials that are not started again
        self._stopped: set[str] = set()  # by the trial scheduler, before their end
        self._saving: set[str] = set()  # trials whose checkpoint Ctrl-C waits for
        self._left, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._look, daemon=True, name="raymx-monitor")
        self._asked_at = 0.0

    def __enter__(self) -> Monitor:
        self._mailbox.clear()
        self._mailbox.watch()
        signal.signal(signal.SIGUSR1, lambda *_: None)  # it would end the process until Tune has its own handler
        self._thread.start()
        self._interrupt.listen(True)
        Monitor.current = self
        listen(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._interrupt.listen(False)
        self._left.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # Ray may be gone already
            self._mailbox.clear()
        Monitor.current = None
        listen(Listener())

    def on_start(self, trial: Any) -> None:
        """Every time that it gets its place: in a new process or in one that another trial has left."""
        trial.max_failures = LAST if trial.trial_id in self._given_up else FOR_EVER
        self._begun(trial)

    def _begun(self, trial: Any) -> None:
        record = self._written.begun(trial.trial_id, trial.storage.trial_dir_name, trial.config)
        self._trials[trial.trial_id] = trial
        self._display.trial(record)

    def warn(self, text: str) -> None:
        self._display.warnings([text])

    def _give_up(self, trial_id: str) -> None:
        self._given_up.add(trial_id)
        self._trials[trial_id].max_failures = LAST

    def on_recover(self, trial: Any) -> None:
        """The trial's process or its place was lost, and Tune starts it again; not for ever at one place."""
        self.on_end(trial)
        progress = self._mailbox.read(trial.trial_id)
        here = progress.get("saved") or [0, 0]
        where, count = self._restarts.get(trial.trial_id, (here, 0))
        self._restarts[trial.trial_id] = (max(here, where), 1 if here > where else count + 1)
        if self._restarts[trial.trial_id][1] >= RESTARTS_IN_ONE_PLACE:
            self._give_up(trial.trial_id)
        if progress.get("phase") != "leaving":
            self._display.note(trial.trial_id, "the trial's process was lost: starting it again")

    def on_end(self, trial: Any) -> None:
        """The trial's process has ended, in whatever way."""
        remove_slots(self._mailbox.name_of(trial.trial_id))

    def on_error(self, trial: Any) -> None:
        """The trial has failed for good."""
        self.on_end(trial)
        if trial.trial_id not in self._written.records:  # it failed before it had its place
            self._begun(trial)
        self._over(trial.trial_id, "failed", str(run_folder.root_cause(_error_of(trial)) or "no reason is known"))

    def on_complete(self, trial: Any) -> None:
        """The trial has done its last epoch, or the trial scheduler has stopped it."""
        ended = (trial.last_result or {}).get("done") and trial.trial_id not in self._stopped
        self._over(trial.trial_id, "finished" if ended else "stopped")

    def on_stop(self, trial_id: str) -> None:
        """The trial scheduler stops this trial before its end."""
        self._stopped.add(trial_id)

    def on_pauses(self, trials: list[Any]) -> None:
        """Look which trials the trial scheduler has paused."""
        for trial in trials:
            record = self._written.records.get(trial.trial_id)
            if record and trial.status == trial.PAUSED and record.state == "running":
                self._over(trial.trial_id, "paused")

    def _over(self, trial_id: str, state: State, error: str | None = None) -> None:
        record = self._written.over(trial_id, state, error)
        if record:
            self._show_messages(trial_id)
            self._display.trial(record)

    def on_cell(self, cell: Cell) -> None:
        """A search library has chosen a point."""
        self._written.add_cell(cell)

    def on_row(self, row: dict[str, Any]) -> None:
        self._show_messages(row["trial_id"])
        self._display.row(row)

    def on_checkpoint(self, trial: Any) -> None:
        """The trial has saved; when all have that were asked to for Ctrl-C, end Tune's loop."""
        self._saving.discard(trial.trial_id)
        if self._asked_at and not self._saving:
            self._end_tune()

    def _look(self) -> None:
        begun = time.monotonic()
        while not self._left.wait(LOOK_S):
            if not self._trials and time.monotonic() - begun > ROOM_S:
                self._display.warnings([f"waiting for room in the cluster: {self._needs}; free now: {free()}"], "note")
                begun = math.inf
            with contextlib.suppress(Exception):  # a look that failed is tried again
                self._look_once()

    def _look_once(self) -> None:
        if problem := self._written.take_problem():
            self.warn(problem)
        phases = {trial_id: self._show(trial_id) for trial_id in self._running()}
        self._display.refresh()
        if self._interrupt.requested and not self._asked_at:
            self._saving = {trial_id for trial_id, phase in phases.items() if phase == "training"}
            self._ask_to_stop()
        elif self._asked_at and (not self._saving or time.monotonic() - self._asked_at > SAVE_GRACE_S):
            self._end_tune()  # again and again: Tune may not listen yet

    def _running(self) -> list[str]:
        return [trial_id for trial_id in list(self._trials) if self._written.records[trial_id].state == "running"]

    def _show(self, trial_id: str) -> str:
        if self._mailbox.take_end(trial_id):  # it is about to fail, and has tried all it could itself
            self._give_up(trial_id)
        progress = self._show_messages(trial_id)
        self._display.progress(trial_id, progress)
        return str(progress.get("phase", ""))

    def _show_messages(self, trial_id: str) -> dict[str, Any]:
        """Show the trial's warnings, each once, and its new notes."""
        with self._lock:
            progress = self._mailbox.read(trial_id)
            self._display.warnings(progress.get("warnings", []))
            notes, shown = progress.get("notes", []), self._noted.get(trial_id, 0)
            for note in notes[shown:]:
                self._display.note(trial_id, note)
            self._noted[trial_id] = max(shown, len(notes))
        return progress

    def _ask_to_stop(self) -> None:
        self._mailbox.request_stop()
        self._asked_at = time.monotonic()
        self._display.say(
            "stopping: saving a checkpoint (Ctrl-C again to stop at once)"
            if self._saving
            else "stopping: nothing was trained since the last checkpoint"
        )

    def _end_tune(self) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        self._mailbox.say_over()


def _error_of(trial: Any) -> Any:
    """What a trial has just failed with. Tune's own way to it looks in the storage, where it is not yet."""
    try:
        with open(trial.pickled_error_file, "rb") as file:
            return cloudpickle.load(file)
    except Exception:  # no file, or an exception that cannot be unpickled here
        return trial.get_error()


def free() -> str:
    """What of the cluster nobody has reserved."""
    resources = ray.available_resources()
    return ", ".join(f"{resources.get(name, 0):g} {name}s" for name in ("CPU", "GPU"))


class TuneHooks(Callback):
    """Tune's events, passed on to this process's watch. It has no state, since Tune saves it with the run."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if Monitor.current:
            Monitor.current.on_start(trial)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if Monitor.current:
            Monitor.current.on_recover(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if Monitor.current:
            Monitor.current.on_error(trial)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if Monitor.current:
            Monitor.current.on_complete(trial)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if Monitor.current:
            Monitor.current.on_pauses(trials)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if Monitor.current:
            Monitor.current.on_row(result)

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        if Monitor.current:
            Monitor.current.on_checkpoint(trial)
