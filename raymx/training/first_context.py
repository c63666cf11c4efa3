"""A worker's context whose loop ends where its first step does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import mxnet as mx

from raymx.training.channel import LoopEnded
from raymx.training.context import WorkerContext


class FirstStepContext(WorkerContext):
    """For one process with a store of its own: there is no trial to ask.

    Attributes: ``first_loss``, the mean loss of the step's records where the loop sums it.
    """

    first_loss: float | None = None

    def report(
        self,
        metrics: Mapping[str, float] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        sums: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """End the loop; what it has queued is computed first, so that its errors are met."""
        if self._trainer is None:
            super().report(metrics)
        self._end(sums)

    def _step_begins(self) -> None:
        if self._has_stepped:  # a loop that does not report after a step
            self._end(dict)
        super()._step_begins()

    def _end(self, sums: Callable[[], Mapping[str, float]]) -> NoReturn:
        mx.nd.waitall()
        found = sums()
        if found.get("samples"):
            self.first_loss = found["loss"] / found["samples"]
        if self.experiment.data.validation:
            next(self._batches.validation(padded=False), None)
        raise LoopEnded
