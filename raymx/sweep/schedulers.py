"""Tune's trial schedulers, each with what raymx adds: who stops, pauses and clones trials, and who else gets a turn."""

from __future__ import annotations

import random
import time
from typing import Any

from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)

from raymx import _ray
from raymx.cluster.waiting import anybody_waits, must_yield
from raymx.errors import ExperimentError
from raymx.experiment.loading import Experiment, parse_experiment
from raymx.results.rows import diverged
from raymx.sweep.listener import listener
from raymx.sweep.search import domain
from raymx.sweep.space import Axis, Point, Space, verdict

TIME = "epoch"  # what trials are compared by
YIELD_S = 10.0  # at most, for others to be placed
NONE_PENDING = -1  # Tune takes 0 for its own default
PERTURBATION_TRIES = 20


class Fair:
    """What raymx adds to a trial scheduler of Tune's: a trial whose loss is no number any more is stopped; and between
    two trials the warm processes are given up when another job has been waiting for their place."""

    _yields_until = 0.0  # while it gives others the time to be placed

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if not trial.is_finished():  # else of a run that is resumed: others would wait for its results
            super().on_trial_add(tune_controller, trial)  # type: ignore[misc]

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision: str = super().on_trial_result(tune_controller, trial, result)  # type: ignore[misc]
        if diverged(result):
            decision = TrialScheduler.STOP
        at_its_end = result.get(TIME, 0) >= trial.config["experiment"]["training"]["epochs"]
        if decision == TrialScheduler.STOP and not at_its_end:
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


class FairFIFO(Fair, FIFOScheduler):
    """Every trial to its end."""


class FairASHA(Fair, ASHAScheduler):
    """Stops trials that are worse than most were after as many epochs."""


class FairHyperBand(Fair, HyperBandScheduler):
    """Pauses trials and goes on with the best."""


class FairBOHB(Fair, HyperBandForBOHB):
    """HyperBand as BOHB needs it."""


class FairMedian(Fair, MedianStoppingRule):
    """Stops trials that are worse than the median."""


class FairPBT(Fair, PopulationBasedTraining):
    """Clones the best trials in place of the worst, with other settings, all in step with each other."""

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


def trial_scheduler(experiment: Experiment) -> TrialScheduler:
    """Tune's trial scheduler for a sweep; metric and mode come from the TuneConfig."""
    sweep, epochs = experiment.sweep, experiment.training.epochs
    chosen = sweep.scheduler
    grace = min(chosen.grace_epochs, epochs)
    if sweep.search == "bohb":
        return FairBOHB(time_attr=TIME, max_t=epochs, reduction_factor=chosen.reduction_factor)
    if chosen.name == "asha":
        return FairASHA(time_attr=TIME, max_t=epochs, grace_period=grace, reduction_factor=chosen.reduction_factor)
    if chosen.name == "hyperband":
        return FairHyperBand(time_attr=TIME, max_t=epochs, reduction_factor=chosen.reduction_factor)
    if chosen.name == "median":
        return FairMedian(time_attr=TIME, grace_period=grace)
    if chosen.name == "pbt":
        # Not in step with each other, trials that share a place can go on for ever: a bad one is cloned from a paused
        # one, falls behind it, and is chosen to run before it again.
        mutations = {"point": {"axes": {axis.key: _mutations(axis) for axis in Space(experiment).axes}}}
        return FairPBT(
            time_attr=TIME,
            perturbation_interval=chosen.perturbation_epochs,
            hyperparam_mutations=mutations,
            custom_explore_fn=_Explore(sweep.seed),
            synch=True,
            require_attrs=False,
        )
    return FairFIFO()


def _mutations(axis: Axis) -> Any:
    return list(axis.values) if axis.values else domain(axis)


class _Explore:
    """Keeps what PBT makes of a trial within what can run: otherwise a point is drawn that can."""

    def __init__(self, seed: int) -> None:
        self._numbers = random.Random(seed)

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        base = parse_experiment(config["experiment"], config["directory"])
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
