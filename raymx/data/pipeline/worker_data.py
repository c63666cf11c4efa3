"""What one worker reads: its files, the plan of its batches, what it streams and what it keeps.

    data = WorkerData(experiment, Share(rank, num_workers, devices=1), open_stream)
    for batch in data.train(epoch, first_step, first_record): ...
    for batch in data.validation(): ...

No Ray and no mxnet: ``open_stream(records, rows, decoding)`` gives the batches (`raymx.data.pipeline.stream.batches`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property

from raymx.data.pipeline.batch import Batch, Stream
from raymx.data.pipeline.caching import RecordCache, WorkerCache
from raymx.data.pipeline.order import BatchPlan, Rows
from raymx.data.pipeline.planning import Share, WorkerPlan
from raymx.data.pipeline.skipped import SkippedRecords
from raymx.data.pipeline.splits import Splits
from raymx.data.pipeline.worker_streams import OpenStream, WorkerStreams
from raymx.experiment.loading import ExperimentConfig

log = logging.getLogger(__name__)


def _ignore(sentence: str) -> None:
    """What one worker says is enough."""


class WorkerData:
    """One worker's data for one generation."""

    def __init__(self, experiment: ExperimentConfig, share: Share, open_stream: OpenStream) -> None:
        self._experiment, self._share, self._open_stream = experiment, share, open_stream
        self._skipped = SkippedRecords(tells_damage=share.rank == 0)
        self._splits = Splits(experiment, self._skipped.note_damage, log.warning if share.rank == 0 else _ignore)

    # What there is

    def fingerprint(self) -> list[tuple[str, str]]:
        """(file name, digest) of every file: equal wherever the data are. The folder may differ between nodes."""
        return self._splits.fingerprint()

    @property
    def label_width(self) -> int:
        """Labels a record: ``data.label_width``, or for ``auto`` the most that any record has."""
        return self._splits.label_width

    @property
    def floats(self) -> bool:
        """Whether images are float32 (C, H, W) of the user's transforms, and not uint8 (H, W, C)."""
        return self._splits.floats

    @property
    def num_records(self) -> int:
        """Of all splits that were opened, damaged ones too: what bad records are a part of."""
        return self._splits.num_opened

    @property
    def plan(self) -> BatchPlan:
        """Pure arithmetic over this generation's numbers. Raises DataError when the records cannot be had or used."""
        return self._plan.batches

    def take_skipped(self) -> int:
        """How many bad records were skipped since the last call; says so in the log, a line a file."""
        return self._skipped.take()

    # Batches

    def train(self, epoch: int, first_step: int, first_record: int | None = None) -> Iterator[Batch]:
        """This worker's batches of an epoch, from step ``first_step`` on.

        That step begins at ``first_record`` of the epoch's order; without it, behind ``first_step`` whole batches. What
        is left of the epoch is cut into batches from there, so it has ``plan.steps_from(first_step, first_record)``
        steps. Each batch tells the ``records_done`` after it, which is where the next begins.
        """
        self._splits.require("train")
        record = first_step * self.plan.global_batch_size if first_record is None else first_record
        yield from self._counted("train", self._train(epoch, record))

    def _counted(self, split: str, batches: Iterator[Batch]) -> Iterator[Batch]:
        """``batches``, whose bad records are noted. Raises TooManyBadRecords."""
        return self._splits.count_bad(split).watch(self._skipped.noted(batches))

    def _train(self, epoch: int, record: int) -> Iterator[Batch]:
        cache = self._cache.train
        self._cache.fill()
        if cache is None:
            return self._streams.train(epoch, record)
        rows = self._plan.rows(self._plan.starts(epoch, record))
        return map(cache.batch, rows) if cache.complete else self._read_and_keep(cache, epoch, list(rows))

    def _read_and_keep(self, cache: RecordCache, epoch: int, planned: list[Rows]) -> Stream:
        """Read ``planned`` and keep it. What else is missing is streamed behind it, for `WorkerCache.fill`."""
        others = cache.fill_rows(planned, self.plan.rows_per_worker)
        stream = self._streams.once(f"keep {epoch}", planned, others)
        for rows in planned:
            batch = next(stream)
            cache.add(rows, batch)
            yield batch
        self._cache.fill_later(zip(others, stream, strict=True))

    def validation(self) -> Iterator[Batch]:
        """This worker's part of the validation records, each once over all workers; padding has weight 0."""
        batches = self._read_validation() if self._cache.validation is None else self._kept_validation()
        yield from self._counted("validation", batches)
        self._cache.fill()

    def _read_validation(self) -> Stream:
        kept: list[Batch] = []
        for batch in self._streams.validation():
            if self._cache.keeps_validation:  # a copy: the object store has other uses for its memory
                kept.append(batch.copy())
            yield batch
        self._cache.validation = kept if self._cache.keeps_validation else None

    def _kept_validation(self) -> Iterator[Batch]:
        assert self._cache.validation is not None
        return (batch.copy() for batch in self._cache.validation)  # a loop may change what it gets

    def close(self) -> None:
        """End what is streamed and what was started ahead, and let go of what is kept."""
        for name in ("_cache", "_streams"):
            if name in self.__dict__:  # else there was nothing to read
                getattr(self, name).close()

    # Made when the records are first asked for

    @cached_property
    def _plan(self) -> WorkerPlan:
        if "train" not in self._splits.names:  # a loop of the user's has data of its own, and an epoch is what it says
            return WorkerPlan(self._experiment, self._share, self._experiment.training.global_batch_size)
        self._splits.check()
        return WorkerPlan(self._experiment, self._share, self._splits.records("train").num_records)

    @cached_property
    def _cache(self) -> WorkerCache:
        return WorkerCache(self._experiment.data.cache_bytes, self._splits, self._plan)

    @cached_property
    def _streams(self) -> WorkerStreams:
        return WorkerStreams(self._experiment, self._splits, self._plan, self._cache, self._open_stream)
