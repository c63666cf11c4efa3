"""The table of settings that change nothing where others are as they are, and what an experiment comes to without them.

    idle(experiment)                    # {"kvstore.compression.threshold": "kvstore.compression.type is none"}
    effective(one) == effective(other)  # whether both train the same

Two cells of a sweep that come to the same are one cell, and a flag or an axis that changes nothing is refused by name.
To add a setting: a row here. Pure: no mxnet, no ray.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from raymx.experiment import rules
from raymx.experiment.keys import section_of
from raymx.experiment.schema import ExperimentConfig
from raymx.experiment.values import Section

Why = Callable[[ExperimentConfig], str]


@dataclass(frozen=True)
class IdleSetting:
    """A key, and ``why`` it changes nothing in an experiment ("" where it does)."""

    key: str
    why: Why


def _where(holds: Callable[[ExperimentConfig], bool], words: str) -> Why:
    """Why a key is idle where ``holds``, in words; braces in them name what `_Values` has."""

    def why(experiment: ExperimentConfig) -> str:
        return words.format_map(_Values(experiment)) if holds(experiment) else ""

    return why


class _Values(dict[str, Any]):
    """What words about an experiment may name in braces."""

    def __init__(self, experiment: ExperimentConfig) -> None:
        super().__init__(
            store=rules.resolved_store_type(experiment),
            decay=experiment.training.decay.type,
            workers=experiment.resources.max_workers,
            order=experiment.data.order,
        )


def _no_servers(experiment: ExperimentConfig) -> bool:
    return not rules.is_dist(experiment)


def _ratio_is_one(experiment: ExperimentConfig) -> bool:
    """Whether every learning-rate rule gives 1; a run that may change its size has more than one ratio."""
    return not experiment.resources.elastic and rules.batch_ratio(experiment) == 1


def _decay_is_not(*types: str) -> Callable[[ExperimentConfig], bool]:
    return lambda experiment: experiment.training.decay.type not in types


_NO_SERVERS = "a store of type {store} has no servers"
_NOT_ASYNC = "{store} is not async"
_DECAY = "training.decay.type is {decay}"
_NO_REGION = "data.augment.random_resized_crop is false"

_ROWS = (
    IdleSetting(
        "kvstore.compression.threshold",
        _where(lambda one: one.kvstore.compression.type == "none", "kvstore.compression.type is none"),
    ),
    *(IdleSetting(f"training.decay.{key}", _where(_decay_is_not("step"), _DECAY)) for key in ("epochs", "factor")),
    IdleSetting("training.decay.power", _where(_decay_is_not("poly"), _DECAY)),
    IdleSetting("training.decay.final_lr", _where(_decay_is_not("poly", "cosine"), _DECAY)),
    IdleSetting("training.async_lr_factor", _where(lambda one: not rules.is_async(one), _NOT_ASYNC)),
    IdleSetting("training.async_warmup_factor", _where(lambda one: not rules.is_async(one), _NOT_ASYNC)),
    IdleSetting(
        "training.async_warmup_factor",
        _where(lambda one: one.training.warmup_epochs == 0, "training.warmup_epochs is 0"),
    ),
    IdleSetting(
        "training.warmup_lengthen",
        _where(lambda one: one.training.warmup_epochs == 0, "training.warmup_epochs is 0"),
    ),
    IdleSetting(
        "training.lr_rule", _where(_ratio_is_one, "the batch of an update is that of training.base_batch_size")
    ),
    IdleSetting(
        "training.base_batch_size", _where(lambda one: one.training.lr_rule == "none", "training.lr_rule is none")
    ),
    IdleSetting("kvstore.servers", _where(lambda one: _no_servers(one) and one.kvstore.servers > 1, _NO_SERVERS)),
    *(
        IdleSetting(f"kvstore.{key}", _where(_no_servers, _NO_SERVERS))
        for key in ("cpus_per_server", "server_placement")
    ),
    IdleSetting(
        "precision.wire_dtype",
        _where(
            lambda one: one.precision.wire_dtype == "float16" and not rules.is_half_on_wire(one),
            "with a store of type {store} and this precision.dtype nothing travels otherwise",
        ),
    ),
    *(
        IdleSetting(f"model.{key}", _where(lambda one: one.model.parameters is None, "model.parameters is null"))
        for key in ("allow_missing", "ignore_extra")
    ),
    *(
        IdleSetting(f"data.{key}", _where(lambda one: one.data.order != "chunk", "data.order is {order}"))
        for key in ("chunk_records", "window_records")
    ),
    *(
        IdleSetting(f"data.augment.{key}", _where(lambda one: not one.data.augment.random_resized_crop, _NO_REGION))
        for key in ("min_random_area", "max_random_area", "min_aspect_ratio", "max_aspect_ratio")
    ),
    IdleSetting(
        "data.augment.pad",
        _where(
            lambda one: (
                bool(one.data.augment.pad) and (one.data.augment.random_resized_crop or not one.data.augment.rand_crop)
            ),
            "only data.augment.rand_crop can reach into it",
        ),
    ),
    IdleSetting(
        "data.augment.fill_value",
        _where(
            lambda one: not one.data.augment.pad and not one.data.augment.max_rotate_angle,
            "nothing is padded or rotated",
        ),
    ),
    *(
        IdleSetting(
            f"resources.{key}",
            _where(lambda one: not one.resources.elastic, "there are always {workers} workers"),
        )
        for key in ("on_resize", "resize_cooldown_s")
    ),
)


KEYS = frozenset(row.key for row in _ROWS)
"""All keys that may be idle."""


def idle(experiment: ExperimentConfig) -> dict[str, str]:
    """The keys that change nothing in this experiment, and why."""
    found: dict[str, str] = {}
    for row in _ROWS:
        why = row.why(experiment)
        if why:
            found.setdefault(row.key, why)
    return found


def effective(experiment: ExperimentConfig) -> str:
    """All that an experiment's trial depends on, as text: equal for experiments that train the same in the same way.

    What is idle has its default, and what ``auto`` or null stands for takes their place.
    """
    raw = experiment.to_dict()
    for key in ("name", "sweep", "tracking", "checkpoint", "report", "failures", "profile"):
        raw.pop(key, None)
    for key in idle(experiment):
        *sections, last = key.split(".")
        node: Any = raw
        for section in sections:
            node = node[section]
        node[last] = _default(key)
    _settle(raw, experiment)
    return json.dumps([raw, experiment.directory], sort_keys=True)


def _settle(raw: Mapping[str, Any], experiment: ExperimentConfig) -> None:
    """Put in what settings stand for that can be written in several ways."""
    training, kvstore = raw["training"], raw["kvstore"]
    kvstore["type"] = rules.resolved_store_type(experiment)
    kvstore["update_on_kvstore"] = rules.update_on_kvstore(experiment)
    raw["precision"]["loss_scale"] = rules.loss_scale(experiment)
    training["base_batch_size"] = training["base_batch_size"] or training["global_batch_size"]


def _default(key: str) -> Any:
    section: type[Section] = ExperimentConfig
    field: FieldInfo | None = None
    for part in key.split("."):
        field = section.model_fields[part]
        section = section_of(field) or section
    assert field is not None
    return field.get_default()
