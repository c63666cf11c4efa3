"""The states of a trial's controller, as Ray Train's own controller has them. Pure.

Forming -> Running -> Holding -> Running            a checkpoint, and on
                      Holding -> Resizing -> Running    another number of workers
           any of them -> Recovering -> Running     a role was lost, or failed
                      Holding, Recovering -> Paused     somebody wants the run to stop
                                      -> Finished, Failed
"""

from __future__ import annotations

from dataclasses import dataclass

from raymx.cluster.failure_policy import Failure
from raymx.cluster.scaling_policy import Decision


@dataclass(frozen=True)
class Forming:
    """No generation runs, and nothing has failed: the first one is formed once there is room."""


@dataclass(frozen=True)
class Running:
    """The loops train."""


@dataclass(frozen=True)
class Holding:
    """All loops wait at one boundary, of which there is a checkpoint."""


@dataclass(frozen=True)
class Resizing:
    """This generation ends, and one of ``decision.workers`` is formed from its checkpoint."""

    decision: Decision


@dataclass(frozen=True)
class Recovering:
    """A generation failed; the next one is formed from the newest checkpoint once there is room."""

    failure: Failure
    since: float  # the trial's clock, in seconds


@dataclass(frozen=True)
class Paused:
    """Somebody asked the run to stop: what there is to save is saved, and Tune is about to end this process."""


@dataclass(frozen=True)
class Finished:
    """The loops have trained to their end."""


@dataclass(frozen=True)
class Failed:
    """The last failure was final."""


State = Forming | Running | Holding | Resizing | Recovering | Paused | Finished | Failed
OVER = (Paused, Finished, Failed)
"""In these nothing more is trained."""
