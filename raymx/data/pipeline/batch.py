"""A worker's batch: decoded rows with their weights. No Ray, no mxnet."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.decoding import BadRecord, Decoded
from raymx.data.pipeline.order import Rows

MEMORY, HERE, TASKS = "memory", "here", "tasks"
"""Where a batch comes from: kept from an earlier epoch, decoded by the worker itself, or by read tasks."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One worker's part of one global batch, decoded. Arrays may be read-only views of the object store."""

    images: NDArray[Any]  # uint8 (rows, H, W, C); float32 (rows, C, H, W) when a transform made that
    labels: NDArray[np.float32]  # float32 (rows,), or (rows, label_width) when label_width > 1
    mirror: NDArray[np.uint8]  # uint8 (rows,): 1 where the picture is to be mirrored
    weights: NDArray[np.float32]  # float32 (rows,): 1 for a real row, 0 for padding and for a bad record
    real_local: int  # rows of this worker with weight 1
    real_global: int  # real rows over all workers, as planned: bad records count
    bad: tuple[BadRecord, ...] = ()  # those of the real rows that were skipped
    records_done: int = 0  # of the epoch, by all workers, when this step is done; 0 for validation
    # How it was made, which says nothing of what it is: where, how many seconds each stage took, and since when.
    source: str = field(default=MEMORY, compare=False)
    spent: Mapping[str, float] = field(default_factory=dict, compare=False)
    began: float = field(
        default=0.0, compare=False
    )  # when that began, by ``time.time`` there; 0 where it was not decoded now

    def copy(self) -> Batch:
        """With arrays of its own."""
        return replace(
            self,
            images=self.images.copy(),
            labels=self.labels.copy(),
            mirror=self.mirror.copy(),
            weights=self.weights.copy(),
        )

    @classmethod
    def of(cls, decoded: Decoded, rows: Rows, source: str = MEMORY) -> Batch:
        """The decoded rows of ``rows``."""
        labels = decoded.labels[:, 0] if decoded.labels.shape[1] == 1 else decoded.labels
        weights, real_local = rows.weights, rows.real_local
        if decoded.bad:
            weights = rows.weights * decoded.usable
            real_local = int(weights.sum())
        bad = tuple(decoded.bad) if rows.real_local else ()  # a worker with padding only counts none
        return cls(
            decoded.images,
            labels,
            decoded.mirror,
            weights,
            real_local,
            rows.real_global,
            bad,
            rows.records_done,
            source,
            decoded.spent,
            decoded.began,
        )


Stream = Generator[Batch, None, None]
