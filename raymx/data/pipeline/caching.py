"""What one worker keeps of what it has decoded: all training records, and its validation batches, where they fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.augment import draw, generator
from raymx.data.pipeline.batch import Batch
from raymx.data.pipeline.decoding import BadRecord, Decoded, Decoding
from raymx.data.pipeline.order import Rows, all_rows
from raymx.data.pipeline.planning import WorkerPlan
from raymx.data.pipeline.splits import Splits


class WorkerCache:
    """Both caches, in ``cache_bytes`` together; validation records go first, and are kept when they fit."""

    def __init__(self, cache_bytes: int, splits: Splits, plan: WorkerPlan) -> None:
        self._cache_bytes, self._splits, self._plan = cache_bytes, splits, plan
        self.validation: list[Batch] | None = None  # once they were all read, if they are kept
        self._to_fill: Iterator[tuple[Rows, Batch]] = iter(())

    @cached_property
    def keeps_validation(self) -> bool:
        """Whether this worker's validation batches are kept."""
        return self._validation_bytes <= self._cache_bytes

    @property
    def _validation_bytes(self) -> int:
        if "validation" not in self._splits.names:
            return 0
        rows = self._plan.validation_rows_here(self._splits.records("validation").num_records)
        return RecordCache.size(rows, self._splits.decoding("validation"))

    @cached_property
    def train(self) -> RecordCache | None:
        """Room for all training records, when they fit beside the validation records and never change."""
        room = self._cache_bytes - (self._validation_bytes if self.keeps_validation else 0)
        decoding, records = self._splits.decoding("train"), self._plan.batches.num_records
        fits = decoding.repeats and RecordCache.size(records, decoding) <= room
        return RecordCache(records, decoding) if fits else None

    def fill_later(self, batches: Iterable[tuple[Rows, Batch]]) -> None:
        """Training batches for `fill` to add."""
        self._to_fill = iter(batches)

    def fill(self) -> None:
        """Add what training has not brought: between epochs, when much of it has been decoded already."""
        batches, self._to_fill = self._to_fill, iter(())
        for rows, batch in batches:
            assert self.train is not None
            self.train.add(rows, batch)

    def close(self) -> None:
        """Let go of everything."""
        self._to_fill = iter(())
        self.validation = None
        self.__dict__.pop("train", None)


class RecordCache:
    """Decoded records in memory, filled as their batches come by; for records that give the same pixels every epoch."""

    def __init__(self, num_records: int, decoding: Decoding) -> None:
        self._decoding = decoding
        self._images = np.empty((num_records, *decoding.image_shape), decoding.image_dtype)
        self._labels = np.empty((num_records, decoding.label_width), np.float32)
        self._usable = np.ones(num_records, np.uint8)
        self._have = np.zeros(num_records, bool)
        self._bad: dict[int, BadRecord] = {}

    @staticmethod
    def size(num_records: int, decoding: Decoding) -> int:
        """Bytes that keeping so many records takes."""
        return num_records * decoding.row_bytes

    @property
    def complete(self) -> bool:
        return bool(self._have.all())

    def missing(self, rows: Sequence[Rows]) -> NDArray[np.int64]:
        """Numbers of the records that are neither here nor in ``rows``, ascending."""
        wanted = ~self._have
        for part in rows:
            if part.real_local:  # else nothing of it will be kept
                wanted[part.ids] = False
        return np.flatnonzero(wanted)

    def add(self, rows: Rows, batch: Batch) -> None:
        """Keep a batch that was streamed for ``rows``."""
        if not rows.real_local:  # padding only: its records are another worker's, and so is what is bad of them
            return
        ids = rows.ids
        self._images[ids], self._have[ids] = batch.images, True
        self._labels[ids] = batch.labels.reshape(len(ids), -1)
        if batch.bad:
            real = ids[: rows.real_local]
            unusable = real[batch.weights[: rows.real_local] == 0]
            self._usable[unusable] = 0
            self._bad.update(zip(unusable.tolist(), batch.bad, strict=True))

    def batch(self, rows: Rows) -> Batch:
        """A batch out of memory; everything in ``rows`` must be here."""
        ids = rows.ids
        bad = [self._bad[record] for record in ids[: rows.real_local].tolist() if record in self._bad]
        mirror = self._mirrored(ids.tolist(), rows.epoch)
        return Batch.of(Decoded(self._images[ids], self._labels[ids], mirror, self._usable[ids], bad), rows)

    def _mirrored(self, records: list[int], epoch: int) -> NDArray[np.uint8]:
        """What decoding these records in this epoch would have drawn."""
        augment, seed = self._decoding.pixels.augment, self._decoding.seed
        if augment is None or not augment.rand_mirror:
            return np.zeros(len(records), np.uint8)
        return np.array([draw(augment, generator(seed, epoch, record)).mirror for record in records], np.uint8)

    def fill_rows(self, planned: Sequence[Rows], rows: int) -> list[Rows]:
        """Rows that bring in what ``planned`` leaves missing, in batches of ``rows``."""
        return list(all_rows(self.missing(planned), rows))
