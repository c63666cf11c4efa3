"""Weighted sums of losses and scores that stay on the device until they are asked for.

sums = Sums(ctx.sums)                                   # goes on where a restored run stopped
for epoch in ctx.epochs():
    for batch in ctx.train_batches(epoch):
        for part in batch.parts:
            ...                                         # outputs, and losses of shape (rows,)
            sums.add(losses, outputs.argmax(axis=1) == part.labels, part.weights)
        sums.count(batch.samples)
        ...
        ctx.report(sums=sums.values)                    # a checkpoint made here has the sums so far
    ctx.report(sums.means(ctx.total, "train", "accuracy"))
    sums.clear()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raymx.training.shapes import require_a_row_each

Total = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # sums over all workers, such as WorkerContext.total


class Sums:
    """Adds per-row losses and scores with per-row weights, with no wait for MXNet's engine.

    A score is whatever is larger for a better row: 1 for a hit and 0 for a miss makes their mean the accuracy. Batches
    are added in float64: sums of float32 numbers are exact there, so a run that was stopped and resumed, whose sums
    are added in another order, reports the same means.
    """

    def __init__(self, saved: Mapping[str, float] | None = None) -> None:
        """``saved``: what `values` gave when a checkpoint was made."""
        self._saved = dict(saved or {"loss": 0.0, "score": 0.0, "samples": 0})
        self._on_device: dict[Any, tuple[Any, Any]] = {}

    def add(self, losses: Any, scores: Any, weights: Any) -> None:
        """Add NDArrays of shape (rows,) of one device: ``part.weights`` is 0 for rows that only fill a batch up.

        Raises TrainingError for other shapes, whose sums would be over something else than rows.
        """
        require_a_row_each("the loss that Sums.add got", losses, len(weights))
        require_a_row_each("the score that Sums.add got", scores, len(weights))
        sums = tuple((values.astype("float32") * weights).sum().astype("float64") for values in (losses, scores))
        before = self._on_device.get(weights.context)
        self._on_device[weights.context] = sums if before is None else (before[0] + sums[0], before[1] + sums[1])

    def count(self, samples: int) -> None:
        """Add to the number of real rows, ``batch.samples``; arithmetic knows it, so the device need not be asked."""
        self._saved["samples"] += samples

    def values(self) -> dict[str, float]:
        """This worker's sums so far, ``loss``, ``score`` and ``samples``; waits for the engine."""
        losses, scores = zip(*self._on_device.values(), strict=True) if self._on_device else ((), ())
        return {
            "loss": self._saved["loss"] + sum(float(v.asscalar()) for v in losses),
            "score": self._saved["score"] + sum(float(v.asscalar()) for v in scores),
            "samples": self._saved["samples"],
        }

    def means(self, total: Total, prefix: str, metric: str) -> dict[str, float]:
        """Means over all workers' real rows, ``{prefix}_loss`` and ``{prefix}_{metric}``, and ``{prefix}_samples``.

        Every worker calls it at the same point of its loop; it waits for the engine.
        """
        sums = total(self.values())
        samples = max(sums["samples"], 1)
        return {
            f"{prefix}_loss": sums["loss"] / samples,
            f"{prefix}_{metric}": sums["score"] / samples,
            f"{prefix}_samples": sums["samples"],
        }

    def clear(self) -> None:
        """Begin again from 0."""
        self._saved = dict.fromkeys(self._saved, 0)
        self._on_device.clear()
