"""One Tune trial owns one role group: it trains through failures and resizes, and turns reports into rows."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import ray
from pyarrow import fs
from ray import tune
from ray.exceptions import RayError
from ray.tune.result import DONE, RESULT_DUPLICATE, SHOULD_CHECKPOINT
from ray.tune.trainable.trainable import _DICT_CHECKPOINT_FILE_NAME

from raymx.checkpoint import files
from raymx.checkpoint.in_epoch import Checkpoints
from raymx.cluster import placement
from raymx.cluster.generation import Generation
from raymx.cluster.role_group import Interrupted
from raymx.cluster.role_manager import RoleManager
from raymx.cluster.scaling_policy import Decision, Failure
from raymx.cluster.stall import StallWatch
from raymx.errors import CheckpointError, KVStoreError, RaymxError, RoleLost, TrainingError
from raymx.results import rows
from raymx.sweep.space import experiment_of
from raymx.training.channel import Event
from raymx.trial import failures
from raymx.trial.mailbox import Mailbox
from raymx.trial.requests import Requests, total

POLL_S = 0.25
SILENT_S = 10.0  # loops that stand still for so long: can their nodes still be reached?
FINISH_TIMEOUT_S = 5.0  # for what a loop still does after its last report
LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)  # a restart does not mend them
PAUSE_S = 8.0  # for Tune to end this process once it was asked to stop


class Trial(tune.Trainable):
    """Trains one experiment, that of its config: see `raymx.sweep.space.trial_config`.

    A step ends where the loops report: for raymx's own loop, at an epoch's end. What goes wrong in it is mended in it,
    as far as `raymx.cluster.scaling_policy` says.
    """

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
        """The trial's least resources as one placement group, which Tune schedules whole."""
        plan = placement.with_spare(placement.plan(*experiment_of(config)), config["cluster"]["spare_cpus"])
        return tune.PlacementGroupFactory([dict(bundle) for bundle in plan.bundles], strategy=plan.strategy)

    def setup(self, config: dict[str, Any]) -> None:
        """Start the role processes; the generation is formed by the first step, once it is known what to restore."""
        self._roles = RoleManager(ray.util.get_current_placement_group())
        self._configure(config)
        self._roles.start()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """End this generation in good order; the next one is formed in the same warm processes."""
        begun = time.monotonic()
        try:
            self._roles.group.dissolve()
        except (RayError, RaymxError):  # of the trial before, which has ended: this one begins with new processes
            self._roles.kill()
        self._leave_checkpoints()
        self._configure(new_config)
        self._roles.start()
        self._form_s = time.monotonic() - begun
        return True

    def _configure(self, config: Mapping[str, Any]) -> None:
        self._experiment, gpus = experiment_of(config)
        self._is_of_sweep = bool(config["point"]["axes"])
        self._sized = self._experiment  # as the generation that runs has it
        self._mailbox = Mailbox(config["run_id"])
        self._name = self._mailbox.name_of(self.trial_id)
        self._roles.configure(self._name, self._experiment, gpus, placement.plan(self._experiment, gpus))
        self._checkpoints = Checkpoints(*self._place(), self._name)
        self._given: str | None = None  # the folder of the checkpoint that Tune restores
        self._saved: files.Saved | None = None
        self._sought = self._is_saved = False  # whether it was looked for; whether it is of where the loops wait now
        self._failure: Failure | None = None  # what ended the last generation, until the next one is formed
        self._next: Decision | None = None  # what was decided then
        self._failed_at = 0.0
        self._requests: Requests | None = None
        self._metrics: dict[str, float] = {}  # the last of each: Tune expects its objective in every row
        before = self._mailbox.read(self.trial_id)  # of this trial, when its process had died
        self._notes: list[str] = before.get("notes", [])
        self._roles.history = failures.history(before)
        self._warnings: list[str] = []
        self._pausing = self._finished = False
        self._is_written = False  # whether Tune has the checkpoint of its end
        self._form_s = 0.0  # to dissolve the last generations and form the next, all together
        self._seen = (0, 0.0, 0)  # epoch, time and step of the first look since this epoch's first step
        self._watched_at = 0.0
        self._hold_off()

    def _place(self) -> tuple[fs.FileSystem, str]:
        """Where this trial's files are to stay."""
        if self._storage is None:  # driven by hand
            return fs.LocalFileSystem(), self.logdir
        return self._storage.storage_filesystem, self._storage.trial_fs_path

    @property
    def _generation(self) -> Generation:
        if self._roles.group.generation is None:
            raise KVStoreError("no KVStore generation is formed")
        return self._roles.group.generation

    # Steps

    def step(self) -> dict[str, Any]:
        """Go on until the loops' next report, and give its row."""
        while not self._pausing:  # else saved already; Tune is about to end this process
            try:
                self._settle()
                return self._next_row()
            except Interrupted:  # nothing was trained since the last checkpoint, and Tune ends this process
                break
            except failures.Leave:
                self._roles.kill()
                raise
            except RaymxError as error:
                self._failed(error)
            except RayError as error:
                self._failed(RoleLost(f"Ray: {str(error).strip().splitlines()[0]}"))
            except BaseException:
                self._roles.kill()
                raise
        self._mailbox.wait_over(PAUSE_S)  # before, a row that adds nothing would tell Tune that the trial is done
        return self._same_row()

    def _same_row(self) -> dict[str, Any]:
        return {**(self._last_result or {}), RESULT_DUPLICATE: True}

    def _next_row(self) -> dict[str, Any]:
        while True:
            if time.monotonic() - self._watched_at > POLL_S:
                self._watch()
            events = self._generation.poll(POLL_S)
            if events is None:
                self._let_on()
                continue
            row = self._handle(events)
            if row is not None:
                return row

    def _handle(self, events: list[Event]) -> dict[str, Any] | None:
        """Serve what all workers ask for; the row when it is a report."""
        kinds = {event.kind for event in events}
        if "held" in kinds:
            return self._held(events)
        if len(kinds) > 1:
            raise TrainingError(
                "the workers' loops are not at the same place: "
                + ", ".join(f"worker {rank} at {e.kind!r}" for rank, e in enumerate(events))
                + "; every worker must make the same calls of its context in the same order"
            )
        payloads, kind = [event.payload for event in events], kinds.pop()
        if kind == "report":
            self._hold_off()
            return self._row(payloads)
        if kind == "end":
            self._take_in(self._snapshot())
            self._finished = True
            return self._same_row()
        assert self._requests
        self._generation.answer_all(self._requests.answer(kind, payloads))
        return None

    # Generations

    def _settle(self) -> None:
        """Have a generation that runs: form one, change its size, or let the loops that wait go on."""
        running = self._roles.group.generation is not None
        if not running and self._failure is None:
            self._roles.wait_for_slots()
        decision, self._next = self._next or self._roles.look(saved=self._is_saved), None
        while not running and decision.action == "wait":
            self._wait(decision)
            decision = self._roles.look(failure=self._failure)
        if decision.action == "leave":
            self._checkpoints.close()
            self._note(f"{decision.reason}: giving up its place, to go on elsewhere{self._from_where()}")
            self._post("leaving", {})
            raise failures.Leave(decision.reason)
        if decision.action in ("start", "restart", "grow", "shrink"):
            self._form(decision)
        elif running:
            self._roles.add_standbys()
            self._go_on()
        self._is_saved = False

    def _wait(self, decision: Decision) -> None:
        self._post("waiting", {"reason": decision.reason})
        if not self._notes or not self._notes[-1].endswith(decision.reason):
            self._note(decision.reason)
        self._stop_when_asked()
        time.sleep(POLL_S)

    def _form(self, decision: Decision) -> None:
        begun, before = self._failed_at or time.monotonic(), self._sized.resources.min_workers
        self._post("forming", {})
        self._seek()
        self._sized = self._roles.form(decision, self._saved, self._next_hold(0), self._stop_when_asked)
        self._requests = Requests(self._sized, self._generation, self._saved.optimizer if self._saved else None)
        self._form_s += time.monotonic() - begun
        self._failure, self._failed_at = None, 0.0
        self._stall = StallWatch(self._experiment.failures.stall_timeout_s)
        self._silence = StallWatch(SILENT_S)
        self._hold_off()
        now = self._sized.resources.min_workers
        resumed = self._saved is not None and not self._is_of_sweep  # in a sweep trials are paused and cloned
        if decision.action != "start" or now != before or resumed:
            self._note(failures.line(decision, before, now, time.monotonic() - begun) + self._from_where())

    def _seek(self) -> None:
        """Find what to go on from, once."""
        if not self._sought:
            self._saved, warnings = self._checkpoints.newest(self._given)
            self._warnings += warnings
            self._metrics = dict(self._saved.metrics) if self._saved else {}
            self._sought = True

    def _from_where(self) -> str:
        return f", from epoch {self._saved.epoch} step {self._saved.step}" if self._saved else ", from the beginning"

    def _stop_when_asked(self) -> None:
        if self._mailbox.stop_requested():
            raise Interrupted("stopped while no KVStore generation was running")

    def _failed(self, error: RaymxError) -> None:
        """Go on after it with the next generation, or raise it."""
        self._failed_at = self._failed_at or time.monotonic()
        self._finished = False
        trained = self._saved is not None or self._has_trained(error)
        failure = failures.failure_of(error, self._roles.node_is_gone(), trained)
        decision = self._roles.failed(failure, trained=trained)
        if decision.action == "fail":
            self._roles.kill()
            self._checkpoints.close()
            self._mailbox.end(self.trial_id)
            raise failures.final(error, decision.reason)
        self._failure, self._next = failure, decision

    def _has_trained(self, error: RaymxError) -> bool:
        """Whether a first step was done before it; its place counts the step that it was in."""
        place = error.place if isinstance(error, TrainingError) else None
        running = self._roles.group.generation
        seen = running is not None and any(said.get("step") for said in running.progress.values())
        return seen or (place is not None and place > (0, 1))

    # Watching

    def _watch(self) -> None:
        """Show where the loops are, and look whether anything is to be done about it."""
        self._show()
        self._look_for_stalls()
        self._roles.add_standbys()
        if not self._pausing and self._mailbox.stop_requested():
            self._pausing = True
            self._hold_now()
        elif self._roles.due():
            wanted = self._roles.look().action == "save" or self._save_is_due()
            if wanted and not self._holding:
                self._hold_now()

    def _show(self) -> None:
        self._watched_at = time.monotonic()
        self._warn(self._generation.look())
        if problem := self._checkpoints.take_problem():
            self._warn([f"a checkpoint could not be written, the last good one stays: {problem}"])
        if self._generation.progress:
            first = self._generation.progress.get(0, {})
            self._post("training", first | {"samples_per_sec": self._speed(first)})

    def _look_for_stalls(self) -> None:
        generation, timeout_s = self._generation, self._experiment.failures.stall_timeout_s
        moves = {rank: said["moves"] for rank, said in generation.progress.items()}
        waiting, count, now = generation.waiting(), len(generation.workers), time.monotonic()
        if self._silence.look(moves, waiting, count, now):
            self._silence = StallWatch(SILENT_S)  # asked again after as long
            if gone := self._roles.unreachable():
                raise RoleLost(f"{' and '.join(gone)} cannot be reached any more")
        still = self._stall.look(moves, waiting, count, now)
        if still:
            raise failures.stalled(still, timeout_s, self._write_stacks(failures.stacks_of(generation)))

    def _write_stacks(self, text: str) -> str:
        """Where they are, in words."""
        filesystem, folder = self._place()
        path = f"{folder}/stacks_{time.strftime('%H-%M-%S')}.txt"
        try:
            with filesystem.open_output_stream(path) as file:
                file.write(text.encode())
        except files.FILE_ERRORS as error:
            return f"could not be written to {path} ({files.reason(error)}):\n{text}"
        return f"are in {path}"

    def _warn(self, texts: list[str]) -> None:
        self._warnings += [text for text in texts if text not in self._warnings]

    def _note(self, text: str) -> None:
        """A line for the user about what changed."""
        self._notes.append(text)
        self._post("forming", {})

    def _post(self, phase: str, progress: Mapping[str, Any]) -> None:
        self._mailbox.post(
            self.trial_id,
            {
                "phase": phase,
                "warnings": self._warnings,
                "notes": self._notes,
                "history": asdict(self._roles.history),
                **progress,
                "saved": [self._saved.epoch, self._saved.step] if self._saved else None,
            },
        )

    def _speed(self, progress: Mapping[str, Any]) -> float | None:
        """Samples a second since this epoch's first step was seen, all workers together."""
        epoch, step, now = progress.get("epoch", 0), progress.get("step", 0), time.monotonic()
        last_epoch, last_time, last_step = self._seen
        if epoch != last_epoch or step < last_step or last_step == 0:
            self._seen = (epoch, now, step)
            return None
        return float((step - last_step) * self._sized.training.global_batch_size / max(now - last_time, 1e-6))

    # Holding the loops

    def _hold_off(self) -> None:
        self._holding, self._more_steps, self._saved_at = False, 1, time.monotonic()

    def _hold_now(self) -> None:
        """Have the loops wait at their next boundary, wherever each is; they are then brought to one place."""
        self._holding, self._more_steps = True, 1
        self._generation.hold()

    def _next_hold(self, count: int) -> int | None:
        """The report number at whose boundary all loops wait for a checkpoint, when they are at ``count`` now."""
        every_steps = self._experiment.checkpoint.every_steps
        return None if every_steps is None else count + every_steps

    def _save_is_due(self) -> bool:
        every_s = self._experiment.checkpoint.every_s
        return every_s is not None and time.monotonic() - self._saved_at >= every_s and not self._checkpoints.busy

    def _let_on(self) -> None:
        """Let held loops do some more steps while another loop posts nothing.

        That one may be past its last boundary and wait inside MXNet for what the held ones have not pushed yet, or, in
        async, at the barrier of an epoch's end. The steps double each time, so however far apart they are, they meet.
        Where all were told to wait at the same boundary they meet there, however late the slowest is.
        """
        held = {rank: event for rank, event in self._generation.waiting().items() if event.kind == "held"}
        if held and self._holding:
            self._more_steps *= 2
            self._generation.answer({rank: event.count + self._more_steps for rank, event in held.items()})

    def _held(self, events: list[Event]) -> dict[str, Any] | None:
        """Bring all loops to one boundary: those behind go on to where the furthest one is. There, save."""
        furthest = max(event.count for event in events)
        elsewhere = any(event.kind != "held" for event in events)
        behind = {
            rank: furthest + elsewhere
            for rank, event in enumerate(events)
            if event.kind == "held" and (elsewhere or event.count < furthest)
        }
        if behind:
            self._generation.answer(behind)
            return None
        self._take_in(self._snapshot())
        if not self._pausing:
            if self._saved and not self._checkpoints.busy:  # one that hangs must not hold up training
                self._checkpoints.save(self._saved)
            self._settle()
            return None
        validation = {name: value for name, value in self._metrics.items() if name.startswith("validation_")}
        return {
            "epoch": rows.place(*events[0].payload),
            **validation,
            "num_workers": len(events),
            SHOULD_CHECKPOINT: True,
        }

    def _go_on(self) -> None:
        """Let the loops that wait go on."""
        waiting = self._generation.waiting()
        if waiting:
            self._hold_off()
            self._generation.answer_all(self._next_hold(max(event.count for event in waiting.values())))

    # Results

    def _row(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """A row of results out of all workers' reports."""
        assert self._requests
        self._warn(self._requests.refused())
        self._show()
        self._metrics |= reports[0]["metrics"]
        row = {
            **rows.row(reports, self._metrics),
            "form_s": self._form_s,
            "restarts": self._roles.history.count,
            "nodes": ",".join(self._roles.addresses()),
            "learning_rate": self._requests.learning_rate(),
        }
        # Here and not when Tune asks: what fails here is mended here.
        self._take_in(self._snapshot())
        # A loop of the user's may have more to report; it is finished when it returns.
        training = self._experiment.training
        self._finished = row["epoch"] >= training.epochs and training.loop == "default"
        return {**row, DONE: self._finished}

    # Checkpoints and the end

    def _snapshot(self) -> files.Saved:
        """Parameters, optimizer state and position, while all loops wait at one place."""
        assert self._requests
        statistics = self._generation.command("statistics")
        mean = {name: value / len(statistics) for name, value in total(statistics).items()}
        snapshots = self._generation.command("snapshot", mean)
        first = snapshots[0]
        return files.Saved(
            first["parameters"],
            first["optimizer"] or self._requests.optimizer_state(),
            first["epoch"],
            first["step"],
            first["state"],
            total([snapshot["sums"] for snapshot in snapshots]),
            self._metrics,
            trial=self._name,
            records=first["records"],
            num_workers=len(snapshots),
            global_batch_size=self._sized.training.global_batch_size,
            schedule_shift=first["schedule_shift"],
        )

    def _take_in(self, saved: files.Saved) -> None:
        self._saved, self._is_saved, self._sought = saved, True, True
        self._roles.saved()

    def save(self, checkpoint_dir: str | None = None) -> Any:
        """Tune's: write a checkpoint and copy it under the storage path."""
        with self._final_when_raised():
            return super().save(checkpoint_dir)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Tune's, after a row."""
        assert self._saved
        files.write(checkpoint_dir, self._saved)
        self._is_written = self._finished

    def restore(self, checkpoint_path: Any) -> None:
        """Tune's own would unpickle a file of that name, which raymx never writes."""
        with self._final_when_raised():
            _refuse_pickle(checkpoint_path)
            super().restore(checkpoint_path)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Go on from a checkpoint, or a newer one of this trial: the next step forms a generation with it."""
        self._roles.group.dissolve()
        self._given = os.path.abspath(checkpoint_dir)
        self._sought = False
        self._seek()  # now: Tune removes the folder
        self._failure = None

    @contextlib.contextmanager
    def _final_when_raised(self) -> Iterator[None]:
        """What cannot be written or read now will not be after a restart either."""
        try:
            yield
        except CheckpointError:
            self._mailbox.end(self.trial_id)
            raise
        except OSError as error:  # where Tune copies it to
            if error.errno not in LASTING:
                raise
            self._mailbox.end(self.trial_id)
            raise CheckpointError(f"a checkpoint cannot be copied: {files.reason(error)}") from error

    def cleanup(self) -> None:
        """Leave nothing running; a loop that has done its last report may finish what it does after it."""
        try:
            self._leave_checkpoints()
            if self._finished:
                self._roles.group.finish(FINISH_TIMEOUT_S)
        finally:
            self._roles.kill()

    def _leave_checkpoints(self) -> None:
        """Let one be written to its end; those within epochs are of no use once the last one is there."""
        self._checkpoints.close()
        if self._is_written:
            self._checkpoints.clear()


def _refuse_pickle(given: Any) -> None:
    """Raise CheckpointError when Tune would unpickle something of this checkpoint: a path, or an object of Tune's."""
    given = getattr(given, "checkpoint", given)
    filesystem, path = (fs.LocalFileSystem(), given) if isinstance(given, str) else (given.filesystem, given.path)
    pickled = f"{path}/{_DICT_CHECKPOINT_FILE_NAME}"
    if filesystem.get_file_info(pickled).type != fs.FileType.NotFound:
        raise CheckpointError(
            f"{pickled} is there, which raymx never writes, and Tune would run code out of it: "
            "remove it if you know where it comes from, or go on from another checkpoint"
        )
