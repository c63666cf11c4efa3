"""The optimizer as plain data that crosses Ray. Pure: the trial reads it without mxnet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
