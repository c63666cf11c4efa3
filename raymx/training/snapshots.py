"""What the trial asks of a loop that waits for it: what a checkpoint has of this worker, and the learning rate.

The trial asks all workers for their `statistics`, takes the mean, and gives it to each for its `snapshot`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import mxnet as mx
from numpy.typing import NDArray

from raymx.checkpoint.files import Saved
from raymx.errors import TrainingError
from raymx.kvstore.state import OptimizerState, rekey
from raymx.kvstore.trainer import Trainer
from raymx.training import parameters
from raymx.training.membership import Membership
from raymx.training.parameters import Parameters, mean_over_devices, running_statistics
from raymx.training.position import LoopPosition

Sums = Callable[[], Mapping[str, float]]


class Snapshots:
    """Snapshots of one worker's loop. All of it runs in the loop's thread (`raymx.training.channel.Channel.ask`)."""

    def __init__(self, membership: Membership, position: LoopPosition, saved: Saved | None, asynchronous: bool) -> None:
        self._rank, self._asynchronous, self._position = membership.rank, asynchronous, position
        self._params: Parameters = {}
        self._trainer: Trainer | None = None
        self._schedule_shift = 0.0
        self._state: Mapping[str, Any] = saved.state if saved else {}
        self._sums: Sums = dict

    def train(self, params: Parameters, trainer: Trainer, schedule_shift: float) -> None:
        """The loop has a net and a trainer."""
        self._params, self._trainer, self._schedule_shift = params, trainer, schedule_shift

    def keep(self, state: Mapping[str, Any] | None, sums: Sums) -> None:
        """What the loop wants to have back; ``sums`` is called when a snapshot is taken, ``state`` None leaves it."""
        self._state = self._state if state is None else _plain(dict(state))
        self._sums = sums

    @property
    def commands(self) -> dict[str, Callable[[Any], Any]]:
        """By the name that the trial calls them."""
        return {"statistics": self.statistics, "snapshot": self.snapshot, "learning_rate": self.learning_rate}

    def statistics(self, _: Any) -> dict[str, NDArray[Any]]:
        """Batch norm's running statistics here; and when all workers have answered, none has a push under way."""
        mx.nd.waitall()
        return {name: mean_over_devices(param) for name, param in running_statistics(self._params).items()}

    def snapshot(self, statistics: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Everything that a checkpoint has of this worker; parameters, with these statistics, from rank 0 alone."""
        first = self._rank == 0
        if first and self._asynchronous and self._trainer:
            self._trainer.pull()
            mx.nd.waitall()
        return {
            "epoch": self._position.epoch,
            "step": self._position.step,
            "state": dict(self._state),
            "schedule_shift": self._schedule_shift,
            "records": self._position.records,
            "sums": numbers("sums", self._sums()),
            "parameters": parameters.dump(self._params, statistics) if first else b"",
            "optimizer": self._optimizer_state() if first else None,
        }

    def learning_rate(self, _: Any) -> float | None:
        """The rate of the last update; None where the servers know it."""
        return self._trainer.learning_rate() if self._trainer else None

    def _optimizer_state(self) -> OptimizerState | None:
        """By structural name; None where the servers have it."""
        if self._trainer is None:
            return OptimizerState()
        state = self._trainer.optimizer_state()
        return None if state is None else rekey(state, dict(enumerate(self._trainer.names)))


def numbers(what: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Python floats: numpy's, which asscalar() gives, cannot be written as JSON."""
    try:
        return {name: float(value) for name, value in values.items()}
    except (TypeError, ValueError) as error:
        raise TrainingError(f"report() got {what} that are no numbers: {dict(values)} ({error})") from None


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(state)
    except (TypeError, ValueError) as error:
        raise TrainingError(
            f"report() got a state that is not plain data (numbers, text, lists, dictionaries): {error}"
        ) from None
    return state
