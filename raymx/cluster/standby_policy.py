"""Whether a run is to have standbys. Pure: no Ray, no mxnet, no clock.

A standby saves the seconds that a new process takes to import what it needs, when a role is lost. To import it, it
takes CPU time of the node that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

STANDBY_AFTER_S = 10.0  # of training: a short run is over before a standby has imported mxnet
WORTH_S = 180.0  # of training that is still to come: with less, a lost role is rare and what it costs is small


def epochs_done(progress: Mapping[str, Any]) -> float | None:
    """How far a loop is, by what it says of its progress; None for one that has batches of its own."""
    if "steps" not in progress:
        return None
    return float(progress["epoch"]) + progress["step"] / max(progress["steps"], 1)


@dataclass(frozen=True)
class Pace:
    """When a loop was first seen to train, and how far it was; times are seconds of one clock."""

    since_s: float
    epochs: float | None

    def to_come_s(self, now_s: float, progress: Mapping[str, Any], epochs: int) -> float:
        """Seconds of training to come, of so many epochs in all.

        Where that is not known, as much as there was: half of what is met at a random moment is over.
        """
        first, now, trained_s = self.epochs, epochs_done(progress), now_s - self.since_s
        if first is None or now is None or now <= first:
            return trained_s
        return trained_s * (epochs - now) / (now - first)


def wanted(
    setting: bool | str, *, of_sweep: bool, trained_s: float, to_come_s: float, have_memory: Callable[[], bool]
) -> bool:
    """Whether to start standbys now. ``setting`` is ``resources.standby``.

    For ``auto``: not in a sweep, whose trials are compared by their speed; nor for what is nearly over.
    """
    if setting != "auto":
        return bool(setting)
    return not of_sweep and trained_s > STANDBY_AFTER_S and to_come_s >= WORTH_S and have_memory()
