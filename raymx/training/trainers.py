"""A loop's trainer: the experiment's optimizer, schedule, precision and compression over its store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from raymx.checkpoint.files import Saved
from raymx.data.pipeline.order import BatchPlan
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.kvstore import schedule
from raymx.kvstore.loss_scale import loss_scale
from raymx.kvstore.spec import OptimizerSpec, StoreSettings
from raymx.kvstore.state import rekey
from raymx.kvstore.trainer import Trainer, Watch, trained_parameters
from raymx.training import parameters
from raymx.training.membership import Membership
from raymx.training.parameters import Parameters


def make_trainer(
    experiment: ExperimentConfig,
    membership: Membership,
    store: Any,
    params: Parameters,
    rates: schedule.Schedule,
    saved: Saved | None,
    ask: Callable[[str, Any], Any],
    on_step: Callable[[], None],
    watch: Watch,
) -> Trainer:
    """A trainer of ``params``, with what was saved in it. ``ask`` is how the trial is asked (`Channel.ask`)."""
    trained = trained_parameters(params)
    names = list(trained)
    if saved:
        parameters.load(params, saved.parameters)
    distributed = membership.distributed
    updates_a_step = membership.num_workers if rules.is_async(experiment) and distributed else 1
    return Trainer(
        trained,
        store,
        OptimizerSpec.of(experiment, rates, updates_a_step),
        StoreSettings.of(experiment, distributed),
        scale=loss_scale(rules.loss_scale(experiment), saved.optimizer.scalars if saved else {}),
        restored=rekey(saved.optimizer, {name: key for key, name in enumerate(names)}) if saved else None,
        install=lambda spec, sizes: ask("install", (spec, sizes, names)),
        set_remote_rate=lambda rate: ask("rate", rate),
        on_step=on_step,
        watch=watch,
    )


def make_schedule(experiment: ExperimentConfig, plan: BatchPlan, saved: Saved | None) -> schedule.Schedule:
    """Where it stands is the number of updates, but for those that were made with another batch size."""
    if saved is None or saved.global_batch_size == experiment.training.global_batch_size:
        made = schedule.from_experiment(experiment, plan.steps)
        return replace(made, shift=saved.schedule_shift if saved else 0.0)
    return schedule.from_experiment(
        experiment,
        plan.steps,
        updates=max(saved.optimizer.counts.values(), default=0),
        position_epochs=saved.epoch + saved.records / plan.num_records,
    )
