"""The optimizer, and how a store is used, as plain data that crosses Ray. Pure: the trial reads it without mxnet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.kvstore.schedule import Schedule


@dataclass(frozen=True)
class OptimizerSpec:
    """What an optimizer is made of. Multipliers are by key.

    ``updates_a_step`` is 1 where a key is updated once a global step, and the number of workers in async, where the
    optimizer counts every worker's push. ``spare_key`` is no weight's: what is pushed to it is what it then holds.
    """

    name: str
    options: Mapping[str, Any]
    rescale_grad: float
    schedule: Schedule
    updates_a_step: int = 1
    lr_mult: Mapping[int, float] = field(default_factory=dict)
    wd_mult: Mapping[int, float] = field(default_factory=dict)
    directory: str = ""
    spare_key: int | None = None
    traced: tuple[int, int] | None = None  # the first and the last step of which the moments of updates are kept

    @classmethod
    def of(cls, experiment: ExperimentConfig, schedule: Schedule, updates_a_step: int) -> OptimizerSpec:
        """The experiment's optimizer."""
        training = experiment.training
        options = dict(training.optimizer.arguments)
        if experiment.precision.dtype == "float16" or rules.is_half_on_wire(experiment):
            options.setdefault("multi_precision", True)
        return cls(
            name=training.optimizer.name,
            options=options,
            rescale_grad=1.0 / training.global_batch_size,
            schedule=schedule,
            updates_a_step=updates_a_step,
            directory=experiment.directory,
            traced=experiment.profile.steps,
        )


@dataclass(frozen=True)
class StoreSettings:
    """How a trainer uses its store."""

    distributed: bool
    update_on_kvstore: bool
    asynchronous: bool = False
    compression: Mapping[str, Any] | None = None  # {"type": "2bit", "threshold": 0.5}
    half: bool = False  # gradients and weights travel in float16

    @classmethod
    def of(cls, experiment: ExperimentConfig, distributed: bool) -> StoreSettings:
        """The experiment's."""
        compression = experiment.kvstore.compression
        return cls(
            distributed=distributed,
            update_on_kvstore=rules.update_on_kvstore(experiment),
            asynchronous=rules.is_async(experiment),
            half=rules.is_half_on_wire(experiment),
            compression={"type": compression.type, "threshold": compression.threshold}
            if compression.type != "none"
            else None,
        )
