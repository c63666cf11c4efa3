"""One trial as Ray Tune has it. What it does is `raymx.trial.controller`'s."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayError
from ray.tune.result import RESULT_DUPLICATE

from raymx import _ray
from raymx.checkpoint import files
from raymx.cluster import placement
from raymx.cluster.role_manager import RoleManager
from raymx.errors import CheckpointError, RaymxError
from raymx.storage import Location, location, reason
from raymx.sweep.space import experiment_of, run_id_of
from raymx.trial.controller import Controller
from raymx.trial.mailbox import Mailbox
from raymx.trial.states import Finished

FINISH_TIMEOUT_S = 5.0  # for what a loop still does after its last report
LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)  # a restart does not mend them


class Trial(tune.Trainable):
    """Trains one experiment, that of its config: see `raymx.sweep.space.trial_config`.

    A step ends where the loops report: for raymx's own loop, at an epoch's end. What goes wrong in it is mended in it.
    Runs that people have know this class by its name.
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
        began = time.monotonic()
        try:
            self._roles.group.dissolve()
        except (RayError, RaymxError):  # of the trial before, which has ended: this one begins with new processes
            self._roles.kill()
        self._leave_checkpoints()
        self._configure(new_config)
        self._roles.start()
        self._controller.form_s = time.monotonic() - began
        return True

    def _configure(self, config: Mapping[str, Any]) -> None:
        experiment, gpus = experiment_of(config)
        self._mailbox = Mailbox(run_id_of(config))
        name = self._mailbox.name_of(self.trial_id)
        code = config["cluster"].get("code", "")
        self._roles.configure(name, experiment, gpus, placement.plan(experiment, gpus), code)
        self._controller = Controller(
            experiment,
            self._roles,
            self._mailbox,
            self.trial_id,
            self._location(),
            is_of_sweep=bool(config["point"]["axes"]),
            saved_as=Mailbox(config["run_id"]).name_of(self.trial_id),  # also when the run's folder was renamed
        )
        self._has_last_checkpoint = False  # Tune's, of the trial's end

    def _location(self) -> Location:
        """Where this trial's files are to stay."""
        if self._storage is None:  # driven by hand
            return location(self.logdir)
        return Location(self._storage.storage_filesystem, self._storage.trial_fs_path)

    @property
    def _is_finished(self) -> bool:
        return isinstance(self._controller.state, Finished)

    def step(self) -> dict[str, Any]:
        """Go on until the loops' next report, and give its row; a duplicate of the last one when there is none."""
        row = self._controller.next_row()
        return {**(self._last_result or {}), RESULT_DUPLICATE: True} if row is None else row

    def save(self, checkpoint_dir: str | None = None) -> Any:
        """Tune's: write a checkpoint and copy it under the storage path."""
        with self._final_when_raised():
            return super().save(checkpoint_dir)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Tune's, after a row."""
        assert self._controller.checkpoints.saved
        files.write(checkpoint_dir, self._controller.checkpoints.saved)
        self._has_last_checkpoint = self._is_finished

    def restore(self, checkpoint_path: Any) -> None:
        """Tune's own would unpickle a file of that name, which raymx never writes."""
        with self._final_when_raised():
            _refuse_pickle(checkpoint_path)
            super().restore(checkpoint_path)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Go on from a checkpoint, or a newer one of this trial: the next step forms a generation with it."""
        self._controller.restore(checkpoint_dir)

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
            raise CheckpointError(f"a checkpoint cannot be copied: {reason(error)}") from error

    def cleanup(self) -> None:
        """Leave nothing running; a loop that has done its last report may finish what it does after it."""
        try:
            self._leave_checkpoints()
            if self._is_finished:
                self._roles.group.finish(FINISH_TIMEOUT_S)
        finally:
            self._roles.kill()

    def _leave_checkpoints(self) -> None:
        """Let one be written to its end; those within epochs are of no use once the last one is there."""
        self._controller.checkpoints.close()
        if self._has_last_checkpoint:
            self._controller.checkpoints.clear()


def _refuse_pickle(given: Any) -> None:
    """Raise CheckpointError when Tune would unpickle something of this checkpoint: a path, or an object of Tune's."""
    given = getattr(given, "checkpoint", given)
    folder = location(given) if isinstance(given, str) else Location(given.filesystem, given.path)
    pickled = folder / _ray.tune_pickle()
    if pickled.is_there:
        raise CheckpointError(
            f"{pickled.path} is there, which raymx never writes, and Tune would run code out of it: "
            "remove it if you know where it comes from, or go on from another checkpoint"
        )
