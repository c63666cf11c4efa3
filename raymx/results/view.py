"""A run as somebody sees it from outside, at one moment: what its card, ``status`` and ``results`` show. Pure.

The driver writes a view (`raymx.driver.journal`), as plain data; clients read it (`raymx.jobs.run`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from raymx.results import run_folder

ENDED = ("finished", "interrupted", "failed", "lost")
"""States that do not change any more. ``lost``: its process or its cluster ended with no word."""


@dataclass(frozen=True)
class TrialView:
    """One trial. Numbers that are not known yet are NaN."""

    trial_id: str
    settings: str = ""  # of a sweep: "dtype float16, compression none"
    state: str = "running"  # running, paused, finished, stopped, failed, interrupted
    phase: str = ""  # of a running one: waiting, forming, training, leaving
    epoch: float = 0.0  # epochs done, with the part of the current one
    epochs: int = 1
    samples_per_sec: float = math.nan
    loss: float = math.nan  # the last one seen within the epoch
    objective: float = math.nan  # its best value
    flag: str = ""  # "loss is NaN", "at chance", "slower than its twins"
    error: str = ""
    left_s: float = math.nan
    curve: tuple[tuple[float, float], ...] = ()  # (epoch, objective)


@dataclass(frozen=True)
class View:
    """A run or a sweep. Times are seconds since 1970."""

    run_id: str
    name: str = ""
    state: str = "pending"  # pending, starting, running, or one of ENDED
    is_sweep: bool = False
    metric: str = ""  # the objective's name
    mode: str = "max"
    axes: tuple[str, ...] = ()  # of a sweep
    planned: int = 1  # trials
    skipped: int = 0  # cells of a sweep that cannot run there
    trials: tuple[TrialView, ...] = ()
    messages: tuple[str, ...] = ()  # warnings, notes and what happened, the newest last
    error: str = ""
    started: float = math.nan
    ended: float = math.nan
    left_s: float = math.nan
    path: str = ""  # the run's folder or URI, as its cluster sees it
    address: str = ""  # of the cluster's dashboard
    rows: int = 0  # reports so far
    summary: Mapping[str, Any] = field(default_factory=dict)  # of a run that has ended, as in summary.json

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in which NaN is null."""
        return dict(run_folder.plain(asdict(self)))

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> View:
        """What ``as_dict`` gave, perhaps in another version of raymx: unknown keys are left out."""
        trials = tuple(_read(TrialView, one) for one in raw.get("trials", ()))
        return _read(View, {**raw, "trials": trials})


def _read(kind: Any, raw: Mapping[str, Any]) -> Any:
    known = {one.name: one for one in fields(kind)}
    values = {name: _typed(known[name].type, value) for name, value in raw.items() if name in known}
    return kind(**values)


def _typed(kind: Any, value: Any) -> Any:
    if value is None and kind == "float":
        return math.nan
    if isinstance(value, list):
        return tuple(
            tuple(math.nan if one is None else one for one in item) if isinstance(item, list) else item
            for item in value
        )
    return value
