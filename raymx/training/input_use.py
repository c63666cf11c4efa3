"""Where a worker's training batches come from, and how long it took to make them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from raymx.data.pipeline.batch import Batch


class InputUse:
    """Adds up one report's batches, and the seconds of their decoding by where that was and by stage."""

    def __init__(self) -> None:
        self._batches: Counter[str] = Counter()
        self._spent: dict[str, Counter[str]] = {}
        self._transfer_s = 0.0

    def took(self, batch: Batch, transfer_s: float) -> None:
        """A batch has come, and the loop's thread took so long to put it on the devices."""
        self._batches[batch.source] += 1
        self._spent.setdefault(batch.source, Counter()).update(batch.spent)
        self._transfer_s += transfer_s

    def take(self) -> dict[str, Any]:
        """Plain data since the last call: ``batches`` and ``spent`` by source, ``transfer_s``."""
        told = {
            "batches": dict(self._batches),
            "spent": {source: dict(seconds) for source, seconds in self._spent.items()},
            "transfer_s": self._transfer_s,
        }
        self._batches, self._spent, self._transfer_s = Counter(), {}, 0.0
        return told
