"""One trial from its first generation to its end: what happens, in order.

Every call of `Controller.advance` is one transition of a named state (`raymx.trial.states`). Observing the cluster,
deciding (`raymx.cluster.scaling_policy`, `raymx.cluster.failure_policy`) and applying what was decided are calls of
their own.

When a role's process is killed: `Generation.poll` raises RoleLost, `Controller.next_row` catches it,
`Controller._recover` asks the failure policy and ends what is left of the generation, and
`Controller._form_when_there_is_room` forms the next one, with standbys where there are some.
"""

from __future__ import annotations

import math
import time
from typing import Any

from ray.exceptions import RayError
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from raymx.cluster import failure_policy, scaling_policy
from raymx.cluster.generation import Generation
from raymx.cluster.role_group import Interrupted
from raymx.cluster.role_manager import RoleManager
from raymx.cluster.scaling_policy import Decision, Limits
from raymx.errors import KVStoreError, RaymxError, RoleLost, TrainingError
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.results import rows
from raymx.storage import Location
from raymx.training.channel import Event
from raymx.trial import failures
from raymx.trial.checkpoints import TrialCheckpoints
from raymx.trial.hold import Hold, behind
from raymx.trial.mailbox import Mailbox
from raymx.trial.meetings import require_meeting, require_report, require_together
from raymx.trial.progress import Progress, Speedometer
from raymx.trial.requests import Requests, check_bad_records
from raymx.trial.stalls import StallMonitor
from raymx.trial.states import OVER, Failed, Finished, Forming, Holding, Paused, Recovering, Resizing, Running, State
from raymx.trial.tracing import Tracing

POLL_S = 0.25


class Controller:
    """Trains one experiment through failures and resizes, and gives a row for each report of its loops."""

    def __init__(
        self,
        experiment: ExperimentConfig,
        roles: RoleManager,
        mailbox: Mailbox,
        trial_id: str,
        location: Location,
        *,
        is_of_sweep: bool,
        saved_as: str = "",
    ) -> None:
        """``roles`` are configured for the experiment; ``location`` is where the trial's files are to stay.

        ``saved_as``: the trial's name in its checkpoints, that of the run when it began; "" for the name of now.
        """
        self.state: State = Forming()
        self.form_s = 0.0  # to dissolve the last generations and form the next, all together
        self.checkpoints = TrialCheckpoints(location, saved_as or mailbox.name_of(trial_id))
        self._experiment = self._sized = experiment  # ``_sized``: as the generation that runs has it
        self._roles, self._mailbox, self._trial_id, self._location = roles, mailbox, trial_id, location
        self._is_of_sweep = is_of_sweep
        self._progress, self._speedometer = Progress(mailbox, trial_id, self.checkpoints), Speedometer()
        self._tracing = Tracing(experiment.profile, location)
        self._stopping = False
        self._watched_at = 0.0
        self._requests: Requests  # of the generation that runs
        self._stalls: StallMonitor
        checkpoint, resources = experiment.checkpoint, experiment.resources
        self._hold = Hold(checkpoint.every_steps, checkpoint.every_s, time.monotonic())
        self._limits = Limits(resources.min_workers, resources.max_workers, resources.resize_cooldown_s)

    # Transitions

    def next_row(self) -> dict[str, Any] | None:
        """Go on until the loops' next report, and give its row; None when there is nothing to add to the last one.

        Raises the run's final error, and Relocation when the trial is to be placed anew.
        """
        while not isinstance(self.state, OVER):
            try:
                row = self.advance()
            except Interrupted:  # nothing was trained since the last checkpoint, and Tune ends this process
                self.state = Paused()
            except failures.Relocation:
                self._roles.kill()
                raise
            except RaymxError as error:
                self._recover(error)
            except RayError as error:
                self._recover(RoleLost(f"Ray: {str(error).strip().splitlines()[0]}"))
            except BaseException:
                self._roles.kill()
                raise
            else:
                if row is not None:
                    return row
        if isinstance(self.state, Paused):
            self._mailbox.wait_over()  # before, a row that adds nothing would tell Tune that the trial is done
        return None

    def advance(self) -> dict[str, Any] | None:
        """One transition; the row when the loops have reported one."""
        match self.state:
            case Forming() | Recovering():
                self._form_when_there_is_room()
            case Holding():
                self._go_on_or_resize()
            case Resizing(decision):
                self._form(decision, time.monotonic())
            case _:
                return self._listen()
        return None

    def _recover(self, error: RaymxError) -> None:
        """After an error: the next generation goes on from the newest checkpoint, or the run ends with this error."""
        since = self.state.since if isinstance(self.state, Recovering) else time.monotonic()
        if running := self._roles.group.generation:
            error = failures.with_roles(error, running.pids())
        trained = self.checkpoints.saved is not None or self._has_trained(error)
        failure = failures.failure_of(error, self._roles.node_is_gone(), trained)
        self._progress.history = history = self._progress.history.after(failure, trained=trained)
        if isinstance(error, RoleLost):
            for text in self._roles.note_death(error):
                self._progress.note(text)
        self._roles.end_generation()
        decision = failure_policy.decide(failure, history, self._experiment.failures.max)
        if decision.action == "raise":
            self.state = Failed()
            self._roles.kill()
            self.checkpoints.close()
            self._mailbox.end(self._trial_id)
            raise failures.final(error, decision.reason)
        self.state = Paused() if self._stopping else Recovering(failure, since)

    def _form_when_there_is_room(self) -> None:
        """Form the first generation, or the next one after a failure."""
        began = self.state.since if isinstance(self.state, Recovering) else None
        if began is None:
            self._roles.wait_for_slots()
        while (decision := self._decide()).action == "wait":
            self._progress.waits(decision.reason)
            self._stop_when_asked()
            time.sleep(POLL_S)
        if decision.action == "leave":
            self._relocate(decision)
        self._form(decision, began or time.monotonic())

    def _go_on_or_resize(self) -> None:
        """The loops wait at a checkpoint: let them go on, or have more or fewer of them."""
        decision = self._decide()
        if decision.action == "leave":
            self._relocate(decision)
        if decision.action in ("grow", "shrink"):
            self.state = Resizing(decision)
            return
        self._roles.add_standbys(of_sweep=self._is_of_sweep)
        if waiting := self._generation.waiting():
            self._hold.release(time.monotonic())
            self._generation.answer_all(self._hold.planned_after(max(event.count for event in waiting.values())))
        self.state = Running()

    def _form(self, decision: Decision, began: float) -> None:
        """The next generation, from the newest checkpoint; ``began``: when the last one had to end."""
        before = self._sized.resources.min_workers
        self._progress.post("forming")
        self._progress.warn(self.checkpoints.seek())
        saved = self.checkpoints.saved
        self._sized = self._roles.form(decision.workers, saved, self._hold.planned_after(0), self._stop_when_asked)
        self._requests = Requests(self._sized, self._generation, saved.optimizer if saved else None)
        self.form_s += time.monotonic() - began
        self._stalls = StallMonitor(self._experiment.failures.stall_timeout_s, self._location)
        self._hold.release(time.monotonic())
        now = self._sized.resources.min_workers
        resumed = saved is not None and not self._is_of_sweep  # in a sweep trials are paused and cloned
        if decision.action != "start" or now != before or resumed:
            took_s = time.monotonic() - began
            self._progress.note(failures.line(decision, before, now, took_s) + self.checkpoints.in_words)
        self.state = Running()

    def _relocate(self, decision: Decision) -> None:
        self.checkpoints.close()
        self._progress.note(f"{decision.reason}: giving up its place, to go on elsewhere{self.checkpoints.in_words}")
        self._progress.post("leaving")
        raise failures.Relocation(decision.reason)

    def _decide(self) -> Decision:
        """Look at the cluster, decide, and have slots as that wants them."""
        failed = self.state.failure.first_line if isinstance(self.state, Recovering) else ""
        observed = self._roles.observe(saved=isinstance(self.state, Holding), recovers_from=failed)
        decision = scaling_policy.decide(observed.status, self._limits)
        self._roles.tend_slots(observed, decision)
        return decision

    # While the loops train

    @property
    def _generation(self) -> Generation:
        if self._roles.group.generation is None:
            raise KVStoreError("no KVStore generation is formed")
        return self._roles.group.generation

    def _listen(self) -> dict[str, Any] | None:
        """Wait a moment for what all loops post, and serve it; the row when it is a report."""
        if time.monotonic() - self._watched_at > POLL_S:
            self._watch()
        events = self._generation.poll(POLL_S)
        if events is None:
            met = {rank: said.get("met", 0) for rank, said in self._generation.progress.items()}
            require_meeting(self._generation.waiting(), met)
            self._generation.answer(self._hold.let_on(self._generation.waiting()))
            return None
        kinds = {event.kind for event in events}
        if "held" in kinds:
            return self._held(events)
        require_together(events)
        payloads, kind = [event.payload for event in events], kinds.pop()
        if kind == "report":
            return self._row(payloads)
        if kind == "end":
            require_report(self._experiment.training.loop, self.checkpoints.metrics)
            self._take_snapshot()
            self._progress.note(self._tracing.missing())
            self.state = Finished()
        else:
            self._generation.answer_all(self._requests.answer(kind, payloads))
        return None

    def _held(self, events: list[Event]) -> dict[str, Any] | None:
        """Bring all loops to one boundary; there, save."""
        if answers := behind(events):
            self._generation.answer(answers)
            return None
        self._take_snapshot()
        if not self._stopping:
            self.checkpoints.write()
            self.state = Holding()
            return None
        self.state = Paused()
        validation = {name: value for name, value in self.checkpoints.metrics.items() if name.startswith("validation_")}
        epoch = rows.epochs_done(*events[0].payload)
        return {"epoch": epoch, **validation, "num_workers": len(events), SHOULD_CHECKPOINT: True}

    def _row(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """The row of one report of all workers, and its checkpoint.

        That is taken here and not when Tune asks: what fails here is mended here.
        """
        check_bad_records(reports, self._experiment.data.max_bad)
        self._hold.release(time.monotonic())
        self._progress.warn(self._requests.refused())
        self._show()
        self.checkpoints.metrics |= reports[0]["metrics"]
        row = {
            **rows.row(reports, self.checkpoints.metrics, in_step=not rules.is_async(self._experiment)),
            "form_s": self.form_s,
            "restarts": self._progress.history.count,
            "nodes": ",".join(self._roles.addresses()),
            "learning_rate": self._requests.learning_rate(),
        }
        row |= self._requests.usage(row, reports[0]["arrays"])
        traced, said = self._tracing.write(reports, self._generation)
        self._progress.note(said)
        self._take_snapshot()
        if problem := rows.divergence(row):
            self._progress.warn_of_loss(problem)
            self._show()
        row |= traced
        if rows.ends_trial(row, self._experiment.failures.nan):
            self.state = Failed()
            return {**row, DONE: True}
        # A loop of the user's may have more to report; it is finished when it returns.
        done = row["epoch"] >= self._experiment.training.epochs and self._experiment.training.loop == "default"
        self._progress.note(self._tracing.missing() if done else "")
        self.state = Finished() if done else Paused() if self._stopping else Holding()
        return {**row, DONE: done}

    def _watch(self) -> None:
        """Show where the loops are, and look whether anything is to be done about it."""
        self._show()
        self._stalls.check(self._generation, self._roles.unreachable)
        self._roles.add_standbys(of_sweep=self._is_of_sweep)
        if not self._stopping and self._mailbox.stop_requested():
            self._stopping = True
        elif not self._roles.due or self._hold.asked or not self._save_is_wanted():
            return
        self._hold.ask()
        self._generation.hold()

    def _save_is_wanted(self) -> bool:
        """Whether the loops are to be held now: for what is decided about the cluster, or since it is time."""
        wanted = self._decide().action == "save"
        return wanted or (self._hold.is_due(time.monotonic()) and not self.checkpoints.busy)

    def _show(self) -> None:
        self._watched_at = time.monotonic()
        self._progress.warn(self._generation.look())
        self._progress.warn(self.checkpoints.take_problem())
        if self._generation.progress:
            first = self._generation.progress.get(0, {})
            speed = self._speedometer.samples_per_sec(first, self._sized.training.global_batch_size)
            self._progress.post("training", first | {"samples_per_sec": speed})
            if not math.isfinite(first.get("loss", 0.0)):
                said = f"the loss is {first['loss']} in epoch {first['epoch'] + 1}, step {first['step']}"
                self._progress.warn_of_loss(said)

    def _take_snapshot(self) -> None:
        """A checkpoint of where all loops wait now, in memory."""
        batch = self._sized.training.global_batch_size
        with self._tracing.noting("checkpoint"):
            self.checkpoints.take(self._generation, self._requests, batch)
        self._progress.history = self._progress.history.saved()

    # What Tune asks

    def restore(self, folder: str) -> None:
        """Go on from the checkpoint in a local folder, or a newer one of this trial. Raises CheckpointError."""
        self._roles.group.dissolve()
        self._progress.warn(self.checkpoints.restore(folder))
        self.state = Forming()

    # Helpers

    def _stop_when_asked(self) -> None:
        if self._mailbox.stop_requested():
            raise Interrupted("stopped while no KVStore generation was running")

    def _has_trained(self, error: RaymxError) -> bool:
        """Whether a first step was done before it; its position counts the step that it was in."""
        position = error.position if isinstance(error, TrainingError) else None
        running = self._roles.group.generation
        seen = running is not None and any(said.get("step") for said in running.progress.values())
        return seen or (position is not None and position > (0, 1))
