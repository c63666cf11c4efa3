"""Watches a run from the driver: Tune's callbacks keep the trials' records, and a thread shows their progress.

A trial whose process is lost is counted here (`Monitor.on_recover`), and so is one that says that it fails for good.
Ctrl-C is `raymx.driver.stopper`'s.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from typing import Any

from ray import cloudpickle
from ray.exceptions import RayActorError

from raymx.cluster.slots import remove_slots
from raymx.cluster.waiting import own_wait
from raymx.driver.display import Display
from raymx.driver.interrupt import Interrupt
from raymx.driver.messages import Messages
from raymx.driver.progress_csv import ProgressCsv
from raymx.driver.restarts import Restarts
from raymx.driver.stopper import Stopper
from raymx.results import run_folder
from raymx.results.rows import divergence, ends_trial
from raymx.sweep.listener import Listener, listen
from raymx.sweep.plan import Cell
from raymx.sweep.trial_records import State, TrialRecords
from raymx.text.out_of_memory import lack_of_memory
from raymx.trial.mailbox import Mailbox

EVERY_S = 0.25
ROOM_S = 10.0  # for a trial to be placed; then the user is told what it waits for


class Monitor(Listener):
    """A context: its thread runs inside it, and Tune's callbacks report to it."""

    current: Monitor | None = None  # for the callbacks, which Tune pickles

    def __init__(self, run_id: str, display: Display, interrupt: Interrupt, trials: TrialRecords, needs: str) -> None:
        """``needs`` says what the run waits for when the cluster has no room yet."""
        self._display, self._mailbox, self._needs = display, Mailbox(run_id), needs
        self._messages = Messages(self._mailbox, display)
        self._stopper = Stopper(interrupt, self._mailbox, display.say)
        self._restarts = Restarts()
        self._trials = trials
        self._begun: set[str] = set()  # trials that had their place in this process
        self._stopped: set[str] = set()  # by the trial scheduler, before their end
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="raymx-monitor")

    def __enter__(self) -> Monitor:
        self._mailbox.clear()
        self._mailbox.watch()
        self._stopper.start()
        self._thread.start()
        Monitor.current = self
        listen(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopper.close()
        self._left.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # Ray may be gone already
            self._mailbox.clear()
        Monitor.current = None
        listen(Listener())

    # The thread

    def _run(self) -> None:
        self._look_for_room_at = time.monotonic() + ROOM_S
        while not self._left.wait(EVERY_S):
            with contextlib.suppress(Exception):  # a step that failed is tried again
                self._tell_what_it_waits_for()
                self._step()

    def _tell_what_it_waits_for(self) -> None:
        """Once, when no trial has its place yet since there is no room for it; a process that is slow to start has."""
        if self._begun or time.monotonic() < self._look_for_room_at:
            return
        self._look_for_room_at = time.monotonic() + ROOM_S
        if held := own_wait():
            self._display.warnings([f"waiting for room in the cluster: {self._needs}; {held}"], "note")
            self._look_for_room_at = math.inf

    def _step(self) -> None:
        if problem := self._trials.take_problem():
            self.warn(problem)
        running = [trial_id for trial_id in list(self._begun) if self._trials.records[trial_id].state == "running"]
        phases = {trial_id: self._show(trial_id) for trial_id in running}
        self._display.refresh()
        self._stopper.step(phases)

    def _show(self, trial_id: str) -> str:
        """Show how a trial stands; its phase."""
        if self._mailbox.take_end(trial_id):  # it is about to fail, and has tried all it could itself
            self._restarts.give_up(trial_id)
        progress = self._messages.show(trial_id)
        self._display.progress(trial_id, progress)
        return str(progress.get("phase", ""))

    # Tune's callbacks

    def on_start(self, trial: Any) -> None:
        """Every time that it gets its place: in a new process or in one that another trial has left."""
        self._restarts.begun(trial)
        self._record(trial)

    def _record(self, trial: Any) -> None:
        record = self._trials.begun(trial.trial_id, trial.storage.trial_dir_name, trial.config)
        self._begun.add(trial.trial_id)
        self._display.trial(record)

    def on_recover(self, trial: Any) -> None:
        """The trial's process or its place was lost, and Tune starts it again; not for ever at one place."""
        self._restarts.know([trial])
        remove_slots(self._mailbox.name_of(trial.trial_id))
        progress = self._mailbox.read(trial.trial_id)
        short = lack_of_memory(_last_failure(trial))
        self._restarts.lost(trial.trial_id, progress.get("saved") or [0, 0], lack_of_memory=bool(short))
        if _cannot_start(trial):  # the process is well: what it raised when it began it will raise again
            self._restarts.give_up(trial.trial_id)
        elif progress.get("phase") != "leaving":
            self._display.note(trial.trial_id, f"the trial's process was {short or 'lost'}: starting it again")

    def on_error(self, trial: Any) -> None:
        """The trial has failed for good."""
        remove_slots(self._mailbox.name_of(trial.trial_id))
        if trial.trial_id not in self._trials.records:  # it failed before it had its place
            self._record(trial)
        self._over(trial.trial_id, "failed", str(run_folder.root_cause(_error_of(trial)) or "no reason is known"))

    def on_complete(self, trial: Any) -> None:
        """The trial has done its last epoch, or the trial scheduler has stopped it, or a loss that is no number."""
        row = trial.last_result or {}
        record = self._trials.records.get(trial.trial_id)
        if record and ends_trial(row, record.experiment.failures.nan):
            failed = not record.axes  # of a sweep it has a place in the report
            self._over(trial.trial_id, "failed" if failed else "stopped", divergence(row) if failed else None)
            return
        ended = row.get("done") and trial.trial_id not in self._stopped
        self._over(trial.trial_id, "finished" if ended else "stopped")

    def on_step_end(self, trials: list[Any]) -> None:
        """Tune's loop is between two steps."""
        self._restarts.know(trials)
        self._look_for_pauses(trials)
        self._stopper.between_steps()

    def _look_for_pauses(self, trials: list[Any]) -> None:
        """Which trials the trial scheduler has paused."""
        for trial in trials:
            record = self._trials.records.get(trial.trial_id)
            if record and trial.status == trial.PAUSED and record.state == "running":
                self._over(trial.trial_id, "paused")

    def _over(self, trial_id: str, state: State, error: str | None = None) -> None:
        record = self._trials.over(trial_id, state, error)
        if record:
            self._messages.show(trial_id)
            self._display.trial(record)

    def on_row(self, row: dict[str, Any]) -> None:
        self._messages.show(row["trial_id"])
        self._display.row(row)

    def on_checkpoint(self, trial: Any) -> None:
        """The trial has saved."""
        self._stopper.saved(trial.trial_id)

    # What trial schedulers and searchers tell

    def on_stop(self, trial_id: str) -> None:
        """The trial scheduler stops this trial before its end."""
        self._stopped.add(trial_id)

    def on_cell(self, cell: Cell) -> None:
        """A search library has chosen a point."""
        self._trials.add_cell(cell)

    def warn(self, text: str) -> None:
        self._display.warnings([text])


def _last_failure(trial: Any) -> str:
    """What a trial has just failed with, as text: Tune adds each failure to one file."""
    try:
        with open(trial.error_file) as file:
            return run_folder.last_failure(file.read())
    except (OSError, TypeError):  # none was written
        return ""


def _cannot_start(trial: Any) -> bool:
    """Whether the trial's process raised an error when it began."""
    error = _error_of(trial)
    return isinstance(error, RayActorError) and bool(error.actor_init_failed)


def _error_of(trial: Any) -> Any:
    """What a trial has just failed with. Tune's own way to it looks in the storage, where it is not yet."""
    if lack_of_memory(text := _last_failure(trial)):  # Tune pickles no such error, and an older one may lie there
        return text
    try:
        with open(trial.pickled_error_file, "rb") as file:
            return cloudpickle.load(file)
    except Exception:  # no file, or an exception that cannot be unpickled here
        return trial.get_error()


class TuneHooks(ProgressCsv):
    """Tune's events, passed on to this process's watch. It has no state, since Tune saves it with the run.

    It writes progress.csv too, so that runs that began before it did are resumed with it.
    """

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
            Monitor.current.on_step_end(trials)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.log_trial_result(iteration, trial, result)
        if Monitor.current:
            Monitor.current.on_row(result)

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        if Monitor.current:
            Monitor.current.on_checkpoint(trial)
