"""A sweep through Ray Tune: where points come from, and who stops trials early.

Every trial's config has ``point``: ``axes`` (a label or number for each axis), ``cell`` (its number) and ``repeat``.
"""

from __future__ import annotations

import importlib
import logging
import math
import random
import time
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any

from ray import tune
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from ray.tune.search import Repeater, Searcher

from raymx.cells import Cell, Prepared, judge
from raymx.cluster.nodes import cluster_nodes
from raymx.cluster.waiting import anybody_waits, must_yield
from raymx.config import Experiment, parse_experiment
from raymx.errors import ExperimentError
from raymx.space import Axis, Point, Space, pausing, short, trial_config, verdict
from raymx.sweep_schema import Sweep
from raymx.watch import Watch

TIME = "epoch"                  # what trials are compared by
YIELD_S = 10.0                  # at most, for others to be placed
NONE_PENDING = -1               # Tune takes 0 for its own default
PERTURBATION_TRIES = 20
SUGGESTION_TRIES = 200          # of points that cannot run, one after the other
_SEARCHERS = {"optuna": ("ray.tune.search.optuna", "OptunaSearch"),
              "hyperopt": ("ray.tune.search.hyperopt", "HyperOptSearch"),
              "bohb": ("ray.tune.search.bohb", "TuneBOHB")}


# What is tried

def points(prepared: Prepared) -> Any:
    """``point`` of Tune's param_space: all trials of a grid or random search, in random order."""
    sweep = prepared.base.sweep
    found = [{"axes": dict(cell.point), "cell": cell.number, "repeat": repeat}
             for repeat in range(sweep.repeats) for cell in prepared.planned]
    if not sweep.space:
        return found[0]
    random.Random(sweep.seed).shuffle(found)    # else what drifts on the machine would look like an effect
    return tune.grid_search(found)


def param_space(prepared: Prepared, run_id: str, *, gpus_available: int) -> dict[str, Any]:
    """Tune's param_space."""
    base = prepared.base
    point = None if Space(base).searched else points(prepared)
    # Of what a restored trial is given anew, Tune takes the objects and leaves plain data as they were saved.
    made = trial_config(base, UserDict(base.to_dict()), run_id, point=point, gpus=prepared.gpus,
                        spare_cpus=prepared.spare_cpus, gpus_available=gpus_available)
    made["cluster"] = UserDict(made["cluster"])
    if point is None:
        del made["point"]       # the searcher's
    return made


def tune_config(prepared: Prepared, metric: str, mode: str) -> tune.TuneConfig:
    """How many trials, chosen and stopped by whom."""
    base, space = prepared.base, Space(prepared.base)
    if not space.axes:
        return tune.TuneConfig(reuse_actors=True, trial_dirname_creator=_folder)
    return tune.TuneConfig(
        metric=metric, mode=mode, reuse_actors=True, trial_dirname_creator=_folder,
        scheduler=trial_scheduler(base), num_samples=prepared.trials if space.searched else 1,
        max_concurrent_trials=None if pausing(base.sweep) else prepared.at_once,
        search_alg=searcher(space, base.sweep, metric, mode, Judge(space)) if space.searched else None)


def checkpoint_config(experiment: Experiment, metric: str, mode: str) -> tune.CheckpointConfig:
    """Which checkpoints Tune keeps of a trial: the best, or, for pbt to clone, the newest."""
    kept, score = experiment.checkpoint.keep_best, (metric, mode)
    if experiment.sweep.scheduler.name == "pbt":
        kept, score = max(kept, experiment.sweep.scheduler.perturbation_epochs + 1), (TIME, "max")
    return tune.CheckpointConfig(num_to_keep=kept, checkpoint_score_attribute=score[0], checkpoint_score_order=score[1],
                                 checkpoint_frequency=1, checkpoint_at_end=True)


def _folder(trial: Any) -> str:
    return f"Trial_{trial.trial_id}"


class Judge:
    """Judges the points of a search library on the cluster as it is then, and tells the watch."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(self, number: int, point: Point) -> Cell:
        cell = judge(self._space, number, point, cluster_nodes())
        if Watch.current:
            Watch.current.on_cell(cell)
        return cell


# Who stops trials

class Fair:
    """What raymx adds to a trial scheduler of Tune's: a trial whose loss is no number any more is stopped; and between
    two trials the warm processes are given up when another job has been waiting for their place."""

    _yields_until = 0.0         # while it gives others the time to be placed

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if not trial.is_finished():     # else of a run that is resumed: others would wait for its results
            super().on_trial_add(tune_controller, trial)                            # type: ignore[misc]

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision: str = super().on_trial_result(tune_controller, trial, result)     # type: ignore[misc]
        if hopeless(result):
            decision = TrialScheduler.STOP
        at_its_end = result.get(TIME, 0) >= trial.config["experiment"]["training"]["epochs"]
        if decision == TrialScheduler.STOP and not at_its_end and Watch.current:
            Watch.current.stopped(trial.trial_id)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, trial, result)                   # type: ignore[misc]
        yields = must_yield(*trial.config["cluster"]["yields"])
        tune_controller._reuse_actors = not yields
        if yields:
            self._yields_until = time.monotonic() + YIELD_S
            tune_controller.update_max_pending_trials(NONE_PENDING)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if self._yields_until:
            # Ray tries a new placement group before those that it has tried already, so the next one must wait.
            if time.monotonic() < self._yields_until and anybody_waits():
                return None
            self._yields_until = 0.0
            tune_controller._tune_controller.update_max_pending_trials()
        return super().choose_trial_to_run(tune_controller)                         # type: ignore[misc]


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
        PopulationBasedTraining.on_trial_add(self, tune_controller, trial)      # it wants to know finished ones too
        if trial.is_finished():
            tune_controller._tune_controller._live_trials.discard(trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision = super().on_trial_result(tune_controller, trial, result)
        self._go_on_without(tune_controller, None)      # in a run that is resumed the next step may lie behind them
        return decision

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_error(tune_controller, trial)
        tune_controller._live_trials.discard(trial)     # Tune leaves it in, and the others would wait for it
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


def hopeless(result: Mapping[str, Any]) -> bool:
    """Whether the training loss is NaN or infinite: no later epoch mends that."""
    loss = result.get("train_loss")
    return isinstance(loss, float) and not math.isfinite(loss)


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
        return FairPBT(time_attr=TIME, perturbation_interval=chosen.perturbation_epochs, hyperparam_mutations=mutations,
                       custom_explore_fn=_Explore(sweep.seed), synch=True, require_attrs=False)
    return FairFIFO()


def _mutations(axis: Axis) -> Any:
    return list(axis.values) if axis.values else _domain(axis)


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


# Who chooses points

class Checked(Searcher):
    """A search library's suggestions, but for those that cannot run: it is told that they failed, and asked again.

    ``judge`` gives the cell of (number, point).
    """

    def __init__(self, searcher: Searcher, judge: Callable[[int, Point], Cell], metric: str, mode: str,
                 most: int) -> None:
        super().__init__(metric=metric, mode=mode)
        self.searcher = searcher
        self._judge, self._most = judge, most
        self._number = self._possible = 0
        self._names: dict[str, str] = {}        # of trials that have not ended, as the library knows them

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self._possible == self._most:
            return Searcher.FINISHED
        for attempt in range(SUGGESTION_TRIES):
            name = f"{trial_id}-{attempt}" if attempt else trial_id
            found = self.searcher.suggest(name)
            if found is None or found == Searcher.FINISHED:
                return found
            cell = self._judge(self._number, _plain(found["axes"]))
            self._number += 1
            if not cell.reason:
                self._possible += 1
                self._names[trial_id] = name
                return {"point": {"axes": dict(cell.point), "cell": cell.number, "repeat": 0}}
            self.searcher.on_trial_complete(name, error=True)
        if Watch.current:
            Watch.current.warn(f"the search ends: {SUGGESTION_TRIES} points in a row could not run")
        return Searcher.FINISHED

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self._names and self.metric in result:       # a row of an interrupted epoch may lack it
            self.searcher.on_trial_result(self._names[trial_id], result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        name = self._names.pop(trial_id, None)
        if name is not None:            # else a trial that is run again: the library has been told before
            known = result if result and self.metric in result else None
            self.searcher.on_trial_complete(name, result=known, error=error or known is None)

    def on_pause(self, trial_id: str) -> None:
        """HyperBandForBOHB's word to TuneBOHB."""
        if trial_id in self._names:
            self.searcher.on_pause(self._names[trial_id])

    def on_unpause(self, trial_id: str) -> None:
        if trial_id in self._names:
            self.searcher.on_unpause(self._names[trial_id])

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        """The library was given space, metric and mode when it was made."""
        return True

    def get_state(self) -> dict[str, Any]:
        return {"number": self._number, "possible": self._possible, "names": self._names}

    def set_state(self, state: dict[str, Any]) -> None:
        self._number, self._possible, self._names = state["number"], state["possible"], state["names"]

    def save(self, checkpoint_path: str) -> None:
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)


def searcher(space: Space, sweep: Sweep, metric: str, mode: str, judge: Callable[[int, Point], Cell]) -> Searcher:
    """The search library's searcher for a sweep, checked and repeated."""
    module, name = _SEARCHERS[sweep.search]
    domains = {"axes": {axis.key: _domain(axis) for axis in space.axes}}
    seed = {"random_state_seed" if sweep.search == "hyperopt" else "seed": sweep.seed}
    kind = getattr(importlib.import_module(module), name)
    logging.getLogger(sweep.search).setLevel(logging.WARNING)       # optuna says each step
    made = kind(metric=metric, mode=mode, **seed)
    made.set_search_properties(metric, mode, domains)
    checked = Checked(made, judge, metric, mode, space.samples)
    return Repeater(checked, repeat=sweep.repeats) if sweep.repeats > 1 else checked


def _domain(axis: Axis) -> Any:
    if axis.values:
        return tune.choice(list(axis.values))
    if axis.kind == "randint":
        return tune.randint(int(axis.low), int(axis.high))
    return (tune.loguniform if axis.kind == "loguniform" else tune.uniform)(axis.low, axis.high)


def _plain(axes: Mapping[str, Any]) -> dict[str, Any]:
    """Without NumPy's types, and with four figures."""
    values = {key: value.item() if hasattr(value, "item") else value for key, value in axes.items()}
    return {key: short(value) if isinstance(value, float) else value for key, value in values.items()}
