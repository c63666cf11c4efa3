"""A run as Ray Tune has it: what is tried, how many at once, and what is kept.

Every trial's config has ``point``: ``axes`` (a label or number for each axis), ``cell`` (its number) and ``repeat``.
"""

from __future__ import annotations

import random
from collections import UserDict
from typing import Any

from ray import tune

from raymx.experiment.loading import ExperimentConfig
from raymx.sweep.combinations import pausing, scheduler_of
from raymx.sweep.plan import RunPlan
from raymx.sweep.schedulers import TIME, trial_scheduler
from raymx.sweep.search import Judge, searcher
from raymx.sweep.space import Space, trial_config


def points(prepared: RunPlan) -> Any:
    """``point`` of Tune's param_space: all trials of a grid or random search, in random order."""
    sweep = prepared.base.sweep
    found = [
        {"axes": dict(cell.point), "cell": cell.number, "repeat": repeat}
        for repeat in range(sweep.repeats)
        for cell in prepared.planned
    ]
    if not sweep.space:
        return found[0]
    random.Random(sweep.seed).shuffle(found)  # else what drifts on the machine would look like an effect
    return tune.grid_search(found)


def param_space(prepared: RunPlan, run_id: str, *, gpus_available: int, code: str = "") -> dict[str, Any]:
    """Tune's param_space. ``code``: the driver's copy of the experiment's modules."""
    base = prepared.base
    point = None if Space(base).searched else points(prepared)
    # Of what a restored trial is given anew, Tune takes the objects and leaves plain data as they were saved.
    made = trial_config(
        base,
        UserDict(base.to_dict()),
        run_id,
        point=point,
        gpus=prepared.gpus,
        spare_cpus=prepared.spare_cpus,
        gpus_available=gpus_available,
        code=code,
    )
    made["cluster"] = UserDict(made["cluster"])
    if point is None:
        del made["point"]  # the searcher's
    return made


def tune_config(prepared: RunPlan, metric: str, mode: str) -> tune.TuneConfig:
    """How many trials, chosen and stopped by whom."""
    base, space = prepared.base, Space(prepared.base)
    if not space.axes:
        return tune.TuneConfig(reuse_actors=True, trial_dirname_creator=_folder)
    return tune.TuneConfig(
        metric=metric,
        mode=mode,
        reuse_actors=True,
        trial_dirname_creator=_folder,
        scheduler=trial_scheduler(base),
        num_samples=prepared.trials if space.searched else 1,
        max_concurrent_trials=None if pausing(base.sweep) else prepared.at_once,
        search_alg=searcher(space, base.sweep, metric, mode, Judge(space)) if space.searched else None,
    )


def checkpoint_config(experiment: ExperimentConfig, metric: str, mode: str) -> tune.CheckpointConfig:
    """Which checkpoints Tune keeps of a trial: the best, or, where trials are cloned, the newest."""
    kept, score = experiment.checkpoint.keep_best, (metric, mode)
    if scheduler_of(experiment.sweep).clones:
        kept, score = max(kept, experiment.sweep.scheduler.perturbation_epochs + 1), (TIME, "max")
    return tune.CheckpointConfig(
        num_to_keep=kept,
        checkpoint_score_attribute=score[0],
        checkpoint_score_order=score[1],
        checkpoint_frequency=1,
        checkpoint_at_end=True,
    )


def _folder(trial: Any) -> str:
    return f"Trial_{trial.trial_id}"
