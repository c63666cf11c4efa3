"""Weighted sums of losses and scores that stay on the device until they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Total = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Sums:
    """Adds per-row losses and scores with per-row weights, with no wait for the engine.

    Batches are added in float64: sums of float32 numbers are exact there, so a run that was stopped and resumed, whose
    sums are added in another order, reports the same means.
    """

    def __init__(self, saved: Mapping[str, float] | None = None) -> None:
        self._saved = dict(saved or {"loss": 0.0, "score": 0.0, "samples": 0})
        self._on_device: dict[Any, tuple[Any, Any]] = {}

    def add(self, losses: Any, scores: Any, weights: Any) -> None:
        """Add NDArrays of shape (rows,)."""
        sums = tuple((values.astype("float32") * weights).sum().astype("float64") for values in (losses, scores))
        before = self._on_device.get(weights.context)
        self._on_device[weights.context] = sums if before is None else (before[0] + sums[0], before[1] + sums[1])

    def count(self, samples: int) -> None:
        """Add to the number of real rows; arithmetic knows it, so the device need not be asked."""
        self._saved["samples"] += samples

    def values(self) -> dict[str, float]:
        """The sums so far; waits for the engine."""
        losses, scores = zip(*self._on_device.values(), strict=True) if self._on_device else ((), ())
        return {
            "loss": self._saved["loss"] + sum(float(v.asscalar()) for v in losses),
            "score": self._saved["score"] + sum(float(v.asscalar()) for v in scores),
            "samples": self._saved["samples"],
        }

    def means(self, total: Total, prefix: str, metric: str) -> dict[str, float]:
        """Means over all workers' real rows, ``{prefix}_loss`` and ``{prefix}_{metric}``, and ``{prefix}_samples``."""
        sums = total(self.values())
        samples = max(sums["samples"], 1)
        return {
            f"{prefix}_loss": sums["loss"] / samples,
            f"{prefix}_{metric}": sums["score"] / samples,
            f"{prefix}_samples": sums["samples"],
        }

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]
