"""The size of a run, and what it may change: the experiment as so many workers run it. Pure: no ray, no mxnet.

for_three = sized(experiment, 3)            # what one generation of three workers gets
differences = resume_problems(before, now)  # [] when a run of ``before`` may go on as ``now``
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.rules import is_dist, resolved_store_type
from raymx.experiment.schema import Training

RESUME_MAY_CHANGE = (
    "resources.workers",
    "resources.standby",
    "resources.resize_cooldown_s",
    "failures",
    "checkpoint.every_steps",
    "checkpoint.every_s",
    "report",
    "sweep.priority",
    "sweep.yield_after_s",
    "sweep.price_per_hour",
)
"""Keys and sections that do not change what is computed."""


def sized(experiment: ExperimentConfig, workers: int) -> ExperimentConfig:
    """The experiment as one generation of ``workers`` runs it: a number of workers, a type of store, a batch.

    With ``on_resize: keep_global`` the batch stays. With ``keep_per_worker`` the file's ``global_batch_size`` is that
    of ``min`` workers and grows in proportion, rounded to a whole sample; ``base_batch_size`` stays the file's, so that
    the learning rate follows. Raises ValueError for a number of workers that the experiment does not allow.
    """
    resources = experiment.resources
    if not resources.min_workers <= workers <= resources.max_workers:
        raise ValueError(f"workers is {workers}: this experiment runs with {resources.workers_in_words}")
    training = experiment.training
    return experiment.model_copy(
        update={
            "resources": resources.model_copy(update={"workers": workers}),
            "kvstore": experiment.kvstore.model_copy(update={"type": resolved_store_type(experiment)}),
            "training": _with_batch(training, workers, resources.min_workers) if _grows(experiment) else training,
        }
    )


def _grows(experiment: ExperimentConfig) -> bool:
    """Whether more workers have a larger global batch."""
    return experiment.resources.elastic and experiment.resources.on_resize == "keep_per_worker"


def _with_batch(training: Training, workers: int, of_workers: int) -> Training:
    batch = training.global_batch_size
    return training.model_copy(
        update={
            "global_batch_size": round(batch * workers / of_workers),
            "base_batch_size": training.base_batch_size or batch,
        }
    )


def resume_problems(before: ExperimentConfig, now: ExperimentConfig) -> list[str]:
    """Why a run of ``before`` cannot go on as ``now``, a line for each key; [] when it can.

    All keys must be as they were but those of `RESUME_MAY_CHANGE`. The number of workers must leave the type of store
    as it was and, with ``keep_per_worker``, how many workers ``global_batch_size`` is for.
    """
    old, new = dict(_compared(before)), dict(_compared(now))
    changed = [
        f"{key} was {old.get(key)!r} and is {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    return changed + list(_size_problems(before, now))


def _size_problems(before: ExperimentConfig, now: ExperimentConfig) -> Iterator[str]:
    was, store = resolved_store_type(before), resolved_store_type(now)
    if was != store:
        words = [
            f"{kind} ({one.kvstore.type}, {one.resources.workers_in_words})"
            for kind, one in ((was, before), (store, now))
        ]
        fix = f": set it to {was}" if now.kvstore.type == "auto" and is_dist(before) else ""
        yield f"kvstore.type was {words[0]} and is {words[1]}{fix}"
    least = before.resources.min_workers, now.resources.min_workers
    if (_grows(before) or _grows(now)) and least[0] != least[1]:
        yield (
            f"training.global_batch_size was for {least[0]} workers and is for {least[1]} (resources.on_resize is "
            "keep_per_worker)"
        )


def _compared(experiment: ExperimentConfig) -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of what must be equal; kvstore.type is looked at with the number of workers."""
    free = (*RESUME_MAY_CHANGE, "kvstore.type")
    return (
        (key, value)
        for key, value in _flat(experiment.to_dict())
        if not any(key == name or key.startswith(f"{name}.") for name in free)
    )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
