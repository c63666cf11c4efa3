"""Every failure that a user can cause, as one family of exceptions.

A message names the value, what is allowed and the fix. All of them pickle, since they cross Ray between processes
that do not all have mxnet: an MXNet exception never travels, its text does.
"""

from __future__ import annotations


class RaymxError(Exception):
    """Root of all errors that raymx raises on purpose. ``str(error)`` is the text for the user."""


class ExperimentError(RaymxError):
    """The experiment file, an override or a flag is wrong. Raised before Ray starts."""


class PlacementError(RaymxError):
    """The cluster cannot hold the role group that the experiment asks for."""


class DataError(RaymxError):
    """A file of records is missing, damaged or not what the experiment says."""


class TooManyBadRecords(DataError):
    """More bad records than ``data.max_bad`` lets a run skip: to go on from a checkpoint would meet them again."""


class KVStoreError(RaymxError):
    """A KVStore generation could not be formed, or one of its roles ended."""


class RoleLost(KVStoreError):
    """The process of a role died, or its node did: the run goes on from its newest checkpoint."""

    def __init__(self, text: str, *, role: str = "", nodes: tuple[str, ...] = ()) -> None:
        """``role``: whose process it was, as ``worker 1``, "" when that is not known; ``nodes``: the addresses of those
        that cannot be reached, where it was that.
        """
        super().__init__(text)
        self.role, self.nodes = role, nodes


class OutOfMemory(RoleLost):
    """The process of a role was ended, by Ray's memory monitor, since its node had hardly any memory left."""


class TrainingError(RaymxError):
    """The experiment's own code failed (net, loss, metric, loop, optimizer); the text carries its traceback."""

    position: tuple[int, int] | None = None
    """(epoch, step) where it was raised, when that is known."""


class LoopError(TrainingError):
    """The experiment's loop does not keep to what its context asks of it: it would do so each time."""


class StallError(TrainingError):
    """A loop stood still for longer than ``failures.stall_timeout_s``."""


class CheckpointError(RaymxError):
    """A checkpoint is missing, damaged or of another experiment."""


class JobError(RaymxError):
    """A submitted run cannot be reached, or does not exist."""


class ClusterUnreachable(JobError):
    """The cluster of a submitted run does not answer now; it may later."""
