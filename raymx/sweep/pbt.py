"""Population-based training: Tune's, in step, within what can run, and in a run that is resumed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ray.tune.schedulers import PopulationBasedTraining

from raymx import _ray
from raymx.errors import ExperimentError
from raymx.experiment.loading import parse_experiment
from raymx.sweep.axis import Axis, Point, axes_of
from raymx.sweep.fair import Fair
from raymx.sweep.search import domain
from raymx.sweep.space import Space, directory_of, verdict

PERTURBATION_TRIES = 20


class FairPBT(Fair, PopulationBasedTraining):
    """Clones the best trials in place of the worst, with other settings, all in step with each other."""

    def __init__(self, *, space: Mapping[str, Any], seed: int, **of_tune: Any) -> None:
        """``space`` is ``sweep.space``; ``seed`` that of what is drawn where a change cannot run."""
        # Not in step with each other, trials that share a place can go on for ever: a bad one is cloned from a paused
        # one, falls behind it, and is chosen to run before it again.
        super().__init__(
            hyperparam_mutations={"point": {"axes": {axis.key: _mutations(axis) for axis in axes_of(space)}}},
            custom_explore_fn=_Explore(seed),
            synch=True,
            require_attrs=False,
            **of_tune,
        )

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        PopulationBasedTraining.on_trial_add(self, tune_controller, trial)  # it wants to know finished ones too
        if trial.is_finished():
            _ray.forget_live_trial(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision = super().on_trial_result(tune_controller, trial, result)
        self._go_on_without(tune_controller, None)  # in a run that is resumed the next step may lie behind them
        return decision

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_error(tune_controller, trial)
        _ray.forget_live_trial(tune_controller, trial)  # Tune leaves it in, and the others would wait for it
        self._go_on_without(tune_controller, trial)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, trial, result)
        self._go_on_without(tune_controller, trial)

    def _go_on_without(self, tune_controller: Any, gone: Any) -> None:
        """Where all others are paused until it has done as much as they have: let them go on."""
        others = [trial for trial in tune_controller.get_live_trials() if trial is not gone]
        if others and all(self._trial_state[trial].last_train_time >= self._next_perturbation_sync for trial in others):
            self._next_perturbation_sync += self._perturbation_interval

    def _exploit(self, tune_controller: Any, trial: Any, trial_to_clone: Any) -> None:
        own = trial.config["point"]
        super()._exploit(tune_controller, trial, trial_to_clone)
        cloned = {**trial.config["point"], "cell": own["cell"], "repeat": own["repeat"]}
        trial.set_config({**trial.config, "point": cloned})


def _mutations(axis: Axis) -> Any:
    return list(axis.values) if axis.values else domain(axis)


class _Explore:
    """Keeps what PBT makes of a trial within what can run: otherwise a point is drawn that can."""

    def __init__(self, seed: int) -> None:
        self._numbers = random.Random(seed)

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        base = parse_experiment(config["experiment"], directory_of(config))
        space, point = Space(base), config["point"]
        axes = {axis.key: axis.bounded(point["axes"][axis.key]) for axis in space.axes}
        for _ in range(PERTURBATION_TRIES):
            if not _impossible(space, axes, config["cluster"]["gpus_available"]):
                break
            axes = {axis.key: axis.draw(self._numbers) for axis in space.axes}
        return {**config, "point": {**point, "axes": axes}}


def _impossible(space: Space, axes: Point, gpus_available: int) -> str:
    try:
        return verdict(space.at(axes), gpus_available)
    except ExperimentError as error:
        return str(error)
