"""A trial driven by hand, as Tune would drive it."""

from __future__ import annotations

import os
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conftest import MARK, marked, started_at


class TrialByHand:
    """raymx's Trial in its own process and placement group, stepped by the test. Reset re-forms it warm."""

    def __init__(self, bundles: list[dict[str, float]]) -> None:
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        from raymx.trial.trainable import Trial

        self._ray, self._number, self._id = ray, 0, uuid.uuid4().hex[:8]
        self.placement_group = placement_group(bundles, strategy="PACK")
        ray.get(self.placement_group.ready(), timeout=60)
        self._actor_class = ray.remote(Trial).options(
            num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(self.placement_group, 0)
        )
        self._actor: Any = None

    def begin(self, experiment: Any) -> TrialByHand:
        """Start the trial, or give the running one this experiment."""
        from raymx.sweep.space import trial_config

        self._number += 1
        config = trial_config(
            experiment, experiment.to_dict(), self.run_id, gpus=int(experiment.resources.gpus_per_worker)
        )
        if self._actor is None:
            self._actor = self._actor_class.remote(config=config)
        else:
            assert self._ray.get(self._actor.reset.remote(config), timeout=120)
        return self

    @property
    def run_id(self) -> str:
        return f"test-{self._id}-{self._number}"

    def notes(self) -> list[str]:
        """What the run has said about changes."""
        from raymx.trial.mailbox import Mailbox

        return list(Mailbox(self.run_id).read("default").get("notes", []))

    def step(self) -> dict[str, Any]:
        """The next row of results; raises the trial's own error."""
        from ray.exceptions import RayTaskError

        try:
            return dict(self._ray.get(self._actor.train.remote(), timeout=240))
        except RayTaskError as error:
            raise error.cause from None

    def stop_in_the_middle(self, when: Any) -> dict[str, Any]:
        """Step, ask the run to stop once its progress satisfies ``when``, and give the row that it stops with.

        Progress is posted four times a second: what an epoch was too fast to show is waited for in the next.
        """
        from raymx.trial.mailbox import Mailbox

        mailbox, ref = Mailbox(self.run_id), self._actor.train.remote()
        deadline = time.monotonic() + 120
        while not when(mailbox.read("default")):
            assert time.monotonic() < deadline
            if self._ray.wait([ref], timeout=0.02)[0]:
                assert not self._ray.get(ref)["done"], "the run ended before it could be stopped"
                ref = self._actor.train.remote()
        mailbox.request_stop()
        return dict(self._ray.get(ref, timeout=120))

    def run(self, disturb: Mapping[int, Callable[[], None]] | None = None) -> list[dict[str, Any]]:
        """Step until done; once there is a checkpoint within an epoch (from 0), do what ``disturb`` has for it."""
        rows, disturb = [self.step()], disturb or {}
        while not rows[-1]["done"]:
            epoch = len(rows)
            row = self._disturbed(epoch, disturb[epoch]) if epoch in disturb else self.step()
            if "__duplicate__" in row:  # the loop has returned: Tune's word for a row that adds nothing
                break
            rows.append(row)
        return rows

    def _disturbed(self, epoch: int, disturb: Callable[[], None]) -> dict[str, Any]:
        from raymx.trial.mailbox import Mailbox

        ref, deadline, saved = self._actor.train.remote(), time.monotonic() + 120, None
        while not saved or saved[0] != epoch or saved[1] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            saved = Mailbox(self.run_id).read("default").get("saved")
        disturb()
        return dict(self._ray.get(ref, timeout=120))

    def roles(self, *names: str) -> list[int]:
        """The process ids of the trial's roles, of one kind or of all."""
        return list(marked(MARK, *(f"ray::{name}" for name in names or ("Worker", "Server", "KVScheduler"))))

    def starting(self) -> bool:
        """Whether one of them still imports what it needs."""
        return any("__init__" in title for title in marked(MARK, "ray::Worker", "ray::Server").values())

    def kill(self, role: str) -> None:
        """SIGKILL one process of a role: the oldest, which is no standby."""
        os.kill(min(self.roles(role), key=started_at), signal.SIGKILL)

    def save(self, folder: Path) -> Any:
        """The checkpoint that Tune would take now, as `raymx.checkpoint.files.Saved`."""
        from raymx.checkpoint import files

        self._ray.get(self._actor.save.remote(str(folder)), timeout=120)
        return files.read(str(folder))

    def restore(self, folder: Path) -> None:
        self._ray.get(self._actor.restore.remote(str(folder)), timeout=120)

    def close(self) -> None:
        from ray.util.placement_group import remove_placement_group

        if self._actor is not None:
            logdir = self._ray.get(self._actor.__ray_call__.remote(lambda trial: trial.logdir))
            self._ray.get(self._actor.stop.remote(), timeout=60)
            shutil.rmtree(logdir)
            self._ray.kill(self._actor)
        remove_placement_group(self.placement_group)
