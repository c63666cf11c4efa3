"""Which records a worker reads at which step: arithmetic over explicit numbers. No Ray, no MXNet, no clock.

    plan = BatchPlan(num_records=392, global_batch_size=50, num_workers=3)
    order = epoch_order(392, Shuffle("global", seed=1), epoch=0)
    for start in plan.starts():
        rows = plan.worker_rows(order, start, rank)   # ids, weights

The order depends on (seed, epoch) alone. A step takes the next ``global_batch_size`` records of it and splits them over
the workers, so the global batches are the same whatever the number of workers. A position in an epoch is a count of
records, so a run may stop after any step and go on from there with another number of workers, another batch or both.
Every worker has the same number of rows at every step: what is missing is filled with records of that global batch at
weight 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Rows:
    """One worker's part of one global batch. The real rows come first, then the padding."""

    ids: NDArray[np.int64]  # int64 (rows,): record numbers
    weights: NDArray[np.float32]  # float32 (rows,): 1 for a real row, 0 for padding
    real_local: int  # rows of this worker with weight 1
    real_global: int  # the same over all workers
    epoch: int = 0  # whose random changes of images they get
    records_done: int = 0  # of the epoch, by all workers, when this global batch is done; 0 outside of training


@dataclass(frozen=True)
class Shuffle:
    """How an epoch's records are put in order.

    ``global`` shuffles all of them and ``none`` leaves them as they lie in the files. ``chunk`` is for disks and object
    stores: runs of ``chunk_records`` neighbours are shuffled whole, and then the records within each window of
    ``window_records``, so that about that many records lie between what is read soon and what is read late.
    """

    order: Literal["global", "chunk", "none"] = "global"
    seed: int = 0
    chunk_records: int = 64
    window_records: int = 4096

    def __post_init__(self) -> None:
        if self.order not in ("global", "chunk", "none"):
            raise ValueError(f"order is {self.order!r}; allowed: 'global', 'chunk', 'none'")
        if min(self.chunk_records, self.window_records) < 1:
            raise ValueError(
                f"chunk_records is {self.chunk_records} and window_records {self.window_records}; "
                "both must be at least 1"
            )


def epoch_order(num_records: int, shuffle: Shuffle, epoch: int) -> NDArray[np.int64]:
    """The order of all records in an epoch, int64 (num_records,): a pure function of its arguments.

    It ranks raw Philox words, whose stream NumPy promises never to change, which it does not promise for
    ``Generator.permutation``: so a resumed run may have another NumPy.
    """
    in_files = np.arange(num_records, dtype=np.int64)
    if shuffle.order == "none":
        return in_files
    words = np.random.Philox(np.random.SeedSequence((shuffle.seed, epoch)))
    if shuffle.order == "global":
        return in_files[_ranked(words.random_raw(num_records))]
    rank_of_chunk = words.random_raw(-(-num_records // shuffle.chunk_records))
    chunks_shuffled = _ranked(rank_of_chunk[in_files // shuffle.chunk_records])
    windows = in_files // shuffle.window_records
    return chunks_shuffled[np.lexsort((words.random_raw(num_records), windows))]


def _ranked(keys: NDArray[Any]) -> NDArray[np.int64]:
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


@dataclass(frozen=True)
class BatchPlan:
    """How an epoch's records are cut into global batches, and those into rows of workers and their devices."""

    num_records: int
    global_batch_size: int  # samples in one synchronous update, over all workers and devices
    num_workers: int
    devices_per_worker: int = 1

    def __post_init__(self) -> None:
        for name in ("num_records", "global_batch_size", "num_workers", "devices_per_worker"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def steps(self) -> int:
        """Updates in a whole epoch, the same for every worker; the last may be a short batch."""
        return self.steps_from(0, 0)

    def steps_from(self, first_step: int, first_record: int) -> int:
        """Updates in an epoch whose step ``first_step`` begins at ``first_record`` of its order.

        Without a change of the batch size that is ``steps`` for every step of an epoch.
        """
        return first_step + len(self.starts(first_record))

    def starts(self, first_record: int = 0) -> range:
        """Where the batches begin, in records of the epoch's order, from ``first_record`` on."""
        return range(first_record, self.num_records, self.global_batch_size)

    @property
    def rows_per_worker(self) -> int:
        """Rows of one worker in every batch: ceil(B / N), rounded up so that its devices have equal shares."""
        rows, devices = -(-self.global_batch_size // self.num_workers), self.devices_per_worker
        return -(-rows // devices) * devices

    def real_rows(self, start: int) -> int:
        """Real samples in the global batch that begins at record ``start`` of the epoch's order.

        Raises ValueError when the epoch has no such record.
        """
        if not 0 <= start < self.num_records:
            raise ValueError(
                f"a batch begins at record {start}; this epoch has the records 0 to {self.num_records - 1}"
            )
        return min(self.global_batch_size, self.num_records - start)

    def worker_rows(self, order: NDArray[np.int64], start: int, rank: int) -> Rows:
        """The rows of worker ``rank`` in the batch that begins at record ``start`` of the epoch's ``order``.

        ``order`` is int64 (num_records,). Real records are split contiguously, counts differ by at most 1. A worker
        without any gets padding only.
        """
        if len(order) != self.num_records:
            raise ValueError(f"order has {len(order)} records; the plan has {self.num_records}")
        real = self.real_rows(start)
        batch = order[start : start + real]
        mine = slice(*_share(real, self.num_workers, rank))
        return replace(_padded(batch[mine], batch, self.rows_per_worker, real), records_done=start + real)


def all_rows(ids: NDArray[np.int64], rows: int) -> Iterator[Rows]:
    """``ids`` in their order, in batches of the static shape ``rows``: one worker's, which counts for itself."""
    if rows < 1:
        raise ValueError(f"rows is {rows}; it must be at least 1")
    cuts = (ids[at : at + rows] for at in range(0, len(ids), rows))
    return (_padded(cut, cut, rows, len(cut)) for cut in cuts)


def validation_rows(num_records: int, *, rows: int, num_workers: int, rank: int) -> Iterator[Rows]:
    """Rows of worker ``rank`` that visit each record once over all workers, in batches of the static shape ``rows``.

    Each worker has one contiguous range and counts for itself: ``real_global`` is its own count. One without records
    yields nothing.
    """
    start, stop = _share(num_records, num_workers, rank)
    return all_rows(np.arange(start, stop, dtype=np.int64), rows)


def _share(count: int, num_workers: int, rank: int) -> tuple[int, int]:
    """[start, stop) of worker ``rank`` when ``count`` things are split contiguously, counts differing by at most 1."""
    if not 0 <= rank < num_workers:
        raise ValueError(f"rank is {rank}; with {num_workers} workers it is 0 to {num_workers - 1}")
    base, extra = divmod(count, num_workers)
    start = rank * base + min(rank, extra)
    return start, start + base + (rank < extra)


def _padded(mine: NDArray[np.int64], spare: NDArray[np.int64], rows: int, real_global: int) -> Rows:
    """``mine`` repeated in turn to fill ``rows``; a worker without a record repeats those of ``spare``."""
    weights = np.zeros(rows, np.float32)
    weights[: len(mine)] = 1
    return Rows(np.resize(mine if len(mine) else spare, rows), weights, len(mine), real_global)
