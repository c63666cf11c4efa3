"""What raymx adds to every trial scheduler of Tune's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ray.tune.schedulers import TrialScheduler

from raymx import _ray
from raymx.cluster.waiting import anybody_waits, must_yield
from raymx.sweep.listener import listener
from raymx.sweep.space import experiment_of

TIME = "epoch"  # what trials are compared by
YIELD_S = 10.0  # at most, for others to be placed
NONE_PENDING = -1  # Tune takes 0 for its own default


class Fair:
    """What raymx adds to a trial scheduler of Tune's: between two trials the warm processes are given up when another
    job has been waiting for their place."""

    _yields_until = 0.0  # while it gives others the time to be placed

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if not trial.is_finished():  # else of a run that is resumed: others would wait for its results
            super().on_trial_add(tune_controller, trial)  # type: ignore[misc]

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision: str = super().on_trial_result(tune_controller, trial, result)  # type: ignore[misc]
        if decision == TrialScheduler.STOP and not _at_its_end(trial.config, result):
            listener().on_stop(trial.trial_id)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, trial, result)  # type: ignore[misc]
        yields = must_yield(*trial.config["cluster"]["yields"])
        _ray.reuse_actors(tune_controller, not yields)
        if yields:
            self._yields_until = time.monotonic() + YIELD_S
            tune_controller.update_max_pending_trials(NONE_PENDING)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if self._yields_until:
            # Ray tries a new placement group before those that it has tried already, so the next one must wait.
            if time.monotonic() < self._yields_until and anybody_waits():
                return None
            self._yields_until = 0.0
            _ray.whole_controller(tune_controller).update_max_pending_trials()
        return super().choose_trial_to_run(tune_controller)  # type: ignore[misc]


def _at_its_end(config: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Whether a trial has done the epochs of its own experiment, which may be an axis."""
    return bool(result.get(TIME, 0) >= experiment_of(config)[0].training.epochs)
