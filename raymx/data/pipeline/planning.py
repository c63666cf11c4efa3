"""Which records one worker reads, in which batches, and how many of these a stream covers. Pure: no file is opened.

plan = WorkerPlan(experiment, Share(rank, num_workers, devices=1), num_records=6000)
for rows in plan.rows(plan.starts(epoch, first_record)): ...
for segment in plan.train_segments(epoch, first_record, last_epoch, most_batches): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.order import BatchPlan, Rows, Shuffle, epoch_order, validation_rows
from raymx.data.pipeline.prefetch import Segment
from raymx.experiment.loading import ExperimentConfig

BatchStart = tuple[int, int]  # (epoch, record of its order): where a batch begins


@dataclass(frozen=True)
class Share:
    """Which part of every batch is this worker's."""

    rank: int
    num_workers: int
    devices: int


class WorkerPlan:
    """One worker's plan for one generation: arithmetic over the numbers of records, workers and devices."""

    def __init__(self, experiment: ExperimentConfig, share: Share, num_records: int) -> None:
        """``num_records``: of the training records."""
        self._experiment, self._share = experiment, share
        self.batches = BatchPlan(
            num_records=num_records,
            global_batch_size=experiment.training.global_batch_size,
            num_workers=share.num_workers,
            devices_per_worker=share.devices,
        )
        self._order = lru_cache(maxsize=2)(self._epoch_order)

    def starts(self, epoch: int, record: int, last: int | None = None) -> Iterator[BatchStart]:
        """Where every batch begins, from a record of an epoch on, to the end of the epoch ``last`` (default: this)."""
        for number in range(epoch, (epoch if last is None else last) + 1):
            for start in self.batches.starts(record if number == epoch else 0):
                yield number, start

    def rows(self, starts: Iterable[BatchStart]) -> Iterator[Rows]:
        """This worker's rows of the batches that begin there."""
        for epoch, start in starts:
            yield replace(self.batches.worker_rows(self._order(epoch), start, self._share.rank), epoch=epoch)

    def train_segments(self, epoch: int, record: int, last: int, most: int) -> Iterator[Segment]:
        """From here to the end of the epoch ``last``, at most ``most`` batches each."""
        starts = self.starts(epoch, record, last)
        while cut := list(islice(starts, most)):
            yield Segment(f"train {cut[0]}", len(cut), partial(self._row_list, cut))

    def validation_segments(self, num_records: int, most: int) -> list[Segment]:
        """This worker's part of so many validation records, at most ``most`` batches each."""
        rows = list(
            validation_rows(
                num_records,
                rows=self.batches.rows_per_worker,
                num_workers=self._share.num_workers,
                rank=self._share.rank,
            )
        )
        cuts = {start: rows[start : start + most] for start in range(0, len(rows), most)}
        return [Segment(f"validation {start}", len(cut), partial(list, cut)) for start, cut in cuts.items()]

    def validation_rows_here(self, num_records: int) -> int:
        """Rows of this worker, with padding, for so many validation records."""
        rows = self.batches.rows_per_worker
        mine = -(-num_records // self._share.num_workers)
        return -(-mine // rows) * rows

    def _row_list(self, starts: Iterable[BatchStart]) -> list[Rows]:
        return list(self.rows(starts))

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        data = self._experiment.data
        shuffle = Shuffle(data.order, self._experiment.training.seed, data.chunk_records, data.window_records)
        return epoch_order(self.batches.num_records, shuffle, epoch)
