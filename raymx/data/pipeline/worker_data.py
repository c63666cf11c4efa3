"""What one worker reads: its files, the plan of its batches, and the feed that brings them.

    data = WorkerData(experiment, Share(rank, num_workers, devices=1), open_stream)
    for batch in data.train(epoch, first_step, first_record): ...
    for batch in data.validation(): ...

No Ray and no mxnet: ``open_stream(records, rows, decoding)`` gives the batches (`raymx.data.pipeline.stream.batches`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.batch import Batch
from raymx.data.pipeline.decoding import Decoding, task_batches, tasks_in_flight
from raymx.data.pipeline.order import BatchPlan, Rows, Shuffle, epoch_order, validation_rows
from raymx.data.pipeline.prefetch import Part, Prefetcher, RecordCache, Stream
from raymx.data.pipeline.splits import Splits
from raymx.data.pipeline.warmup import decode_head
from raymx.data.recordio.record_set import RecordSet
from raymx.experiment.loading import Experiment

log = logging.getLogger(__name__)

OpenStream = Callable[[RecordSet, Sequence[Rows], Decoding], Stream]
Place = tuple[int, int]  # (epoch, record of its order): where a batch begins
# Read tasks of one stream: planning more of them takes a noticeable part of a second.
STREAM_TASKS = 64


@dataclass(frozen=True)
class Share:
    """Which part of every batch is this worker's."""

    rank: int
    num_workers: int
    devices: int


class WorkerData:
    """One worker's data for one generation."""

    def __init__(self, experiment: Experiment, share: Share, open_stream: OpenStream) -> None:
        self._experiment, self._share, self._open_stream = experiment, share, open_stream
        self._sets = Splits(experiment, self._note_damage)
        self._epoch = self._first_epoch = -1  # the last one that was trained, and the first
        self._validated = False
        self._skipped: dict[str, list[str]] = {}  # file -> why each of its records was skipped
        self._validation_kept: list[Batch] | None = None
        self._flow: Stream | None = None  # training batches, over the epochs
        self._flow_at: Place | None = None  # what it gives next
        self._left_to_keep: Iterator[tuple[Rows, Batch]] = iter(())
        self._order = lru_cache(maxsize=2)(self._epoch_order)

    # What there is

    def fingerprint(self) -> list[tuple[str, str]]:
        """(file name, digest) of every file: equal wherever the data are. The folder may differ between nodes."""
        return self._sets.fingerprint()

    @property
    def label_width(self) -> int:
        """Labels a record: ``data.label_width``, or for ``auto`` the most that any record has."""
        return self._sets.label_width

    @property
    def floats(self) -> bool:
        """Whether images are float32 (C, H, W) of the user's transforms, and not uint8 (H, W, C)."""
        return self._sets.floats

    @cached_property
    def plan(self) -> BatchPlan:
        """Pure arithmetic over this generation's numbers. Raises DataError when the records cannot be had."""
        return BatchPlan(
            num_records=self._sets.records("train").num_records,
            global_batch_size=self._experiment.training.global_batch_size,
            num_workers=self._share.num_workers,
            devices_per_worker=self._share.devices,
        )

    # Batches

    def train(self, epoch: int, first_step: int, first_record: int | None = None) -> Iterator[Batch]:
        """This worker's batches of an epoch, from step ``first_step`` on.

        That step begins at ``first_record`` of the epoch's order; without it, behind ``first_step`` whole batches. What
        is left of the epoch is cut into batches from there, so it has ``plan.steps_from(first_step, first_record)``
        steps. Each batch tells the ``records_done`` after it, which is where the next begins.
        """
        record = first_step * self.plan.global_batch_size if first_record is None else first_record
        self._epoch = epoch
        self._first_epoch = epoch if self._first_epoch < 0 else self._first_epoch
        kept = self._train_kept
        self._fill()
        batches: Iterator[Batch]
        if kept is not None and kept.complete:
            batches = map(kept.batch, self._rows(self._places(epoch, record)))
        elif kept is not None:
            batches = self._filling(kept, list(self._rows(self._places(epoch, record))))
        else:
            batches = self._flowing(epoch, record)
        for batch in batches:
            self._note(batch)
            yield batch

    def _flowing(self, epoch: int, record: int) -> Iterator[Batch]:
        """Batches of a stream that goes on over the epochs: a new one an epoch would leave CPUs idle at its start."""
        if self._flow is None or self._flow_at != (epoch, record):
            self._end_flow()
            count, head = self._head(self._rows(self._places(epoch, record)))
            parts = self._flow_parts(epoch, record + count * self.plan.global_batch_size)
            self._flow = self._feed.play(parts, self._validation_part(epoch), head)
        self._flow_at, flow, whole = None, self._flow, False
        try:
            for _ in self.plan.starts(record):
                yield next(flow)
            whole = True
        finally:
            if self._flow is flow:  # else another epoch was begun before this generator was closed
                self._flow_at = (epoch + 1, 0)
                if not whole or self._is_cut(epoch) or epoch + 1 >= self._experiment.training.epochs:
                    self._end_flow()

    def _head(self, rows: Iterable[Rows]) -> tuple[int, Iterator[Batch]]:
        """How many batches are decoded here, and they: only where no stream can have been started ahead."""
        if self._has_read:
            return 0, iter(())
        return decode_head(self._sets.records("train"), rows, self._sets.decoding("train"))

    def _end_flow(self) -> None:
        if self._flow is not None:
            self._flow.close()
        self._flow = None

    def _filling(self, kept: RecordCache, planned: list[Rows]) -> Iterator[Batch]:
        """Read ``planned`` and keep it. What else is missing is streamed behind it, for `_fill`."""
        count, head = self._head(planned)
        others = kept.fill_rows(planned, self.plan.rows_per_worker)
        streamed = [*planned[count:], *others]
        parts = [Part(f"keep {self._epoch}", len(streamed), lambda: streamed)] if streamed else []
        stream = self._feed.play(parts, head=head)
        for rows in planned:
            batch = next(stream)
            kept.add(rows, batch)
            yield batch
        self._left_to_keep = zip(others, stream, strict=True)

    def _fill(self) -> None:
        """Keep what is still missing: between epochs, when much of it has been decoded already."""
        left, self._left_to_keep = self._left_to_keep, iter(())
        for rows, batch in left:
            assert self._train_kept is not None
            self._train_kept.add(rows, batch)

    def validation(self) -> Iterator[Batch]:
        """This worker's part of the validation records, each once over all workers; padding has weight 0."""
        self._validated = True
        if self._validation_kept is None:
            kept: list[Batch] = []
            for batch in self._feed.play(self._validation_parts(), self._next_training()):
                if self._keeps_validation:  # a copy: the object store has other uses for its memory
                    kept.append(batch.copy())
                self._note(batch)
                yield batch
            self._validation_kept = kept if self._keeps_validation else None
        else:
            for batch in self._validation_kept:
                self._note(batch)
                yield batch.copy()  # a loop may change what it gets
        self._fill()

    def close(self) -> None:
        """End what is streamed and what was started ahead, and let go of what is kept."""
        self._left_to_keep = iter(())
        self._validation_kept = None
        self.__dict__.pop("_train_kept", None)
        self._end_flow()
        if self._has_read:
            self._feed.close()

    # Streams

    @cached_property
    def _feed(self) -> Prefetcher:
        # When a stream's last tasks are under way, those of the next may queue up behind them.
        tasks = tasks_in_flight(self._experiment.data.read_cpus)
        return Prefetcher(self._open_part, lead=tasks * self._task_batches)

    @property
    def _has_read(self) -> bool:
        return "_feed" in self.__dict__

    def _open_part(self, part: Part) -> Stream:
        if part.name.startswith("validation"):
            return self._open_stream(self._sets.records("validation"), part.rows(), self._sets.decoding("validation"))
        return self._open_stream(self._sets.records("train"), part.rows(), self._sets.decoding("train"))

    @cached_property
    def _task_batches(self) -> int:
        return task_batches(self.plan.rows_per_worker, self._sets.decoding("train").row_bytes)

    def _is_cut(self, epoch: int) -> bool:
        """Whether the validation records are probably streamed after an epoch: the loop is one that validates."""
        if "validation" not in self._sets.names or (self._keeps_validation and self._validation_kept is not None):
            return False
        first_time = epoch == self._first_epoch
        return first_time or (self._validated and not self._keeps_validation)

    def _flow_parts(self, epoch: int, record: int) -> Iterator[Part]:
        """From here to the end of an epoch that is cut, or of the last one, in streams that are quickly planned."""
        last = max(epoch, self._experiment.training.epochs - 1)
        end = next((later for later in range(epoch, last) if self._is_cut(later)), last)
        places = self._places(epoch, record, end)
        while part := list(islice(places, STREAM_TASKS * self._task_batches)):
            yield Part(f"train {part[0]}", len(part), partial(self._row_list, part))

    def _places(self, epoch: int, record: int, last: int | None = None) -> Iterator[Place]:
        """Where every batch begins, from a record of an epoch on, to the end of the epoch ``last``."""
        for number in range(epoch, (epoch if last is None else last) + 1):
            for start in self.plan.starts(record if number == epoch else 0):
                yield number, start

    def _row_list(self, places: Iterable[Place]) -> list[Rows]:
        return list(self._rows(places))

    def _rows(self, places: Iterable[Place]) -> Iterator[Rows]:
        for epoch, start in places:
            yield replace(self.plan.worker_rows(self._order(epoch), start, self._share.rank), epoch=epoch)

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        data = self._experiment.data
        shuffle = Shuffle(data.order, self._experiment.training.seed, data.chunk_records, data.window_records)
        return epoch_order(self.plan.num_records, shuffle, epoch)

    def _validation_parts(self) -> list[Part]:
        rows = list(
            validation_rows(
                self._sets.records("validation").num_records,
                rows=self.plan.rows_per_worker,
                num_workers=self._share.num_workers,
                rank=self._share.rank,
            )
        )
        most = STREAM_TASKS * self._task_batches
        cuts = {start: rows[start : start + most] for start in range(0, len(rows), most)}
        return [Part(f"validation {start}", len(cut), partial(list, cut)) for start, cut in cuts.items()]

    def _validation_part(self, epoch: int) -> Part | None:
        """What follows an epoch's last training step, when that is streamed."""
        return next(iter(self._validation_parts()), None) if self._is_cut(epoch) else None

    def _next_training(self) -> Part | None:
        """What follows the validation records."""
        following = self._epoch + 1
        within = self._flow is not None  # an epoch is under way
        if within or following >= self._experiment.training.epochs or self._train_kept is not None:
            return None
        return next(self._flow_parts(following, 0))

    # What is kept in memory

    @cached_property
    def _keeps_validation(self) -> bool:
        return self._validation_bytes <= self._experiment.data.cache_bytes

    @property
    def _validation_bytes(self) -> int:
        """Of this worker's part."""
        if "validation" not in self._sets.names:
            return 0
        rows = self.plan.rows_per_worker
        mine = -(-self._sets.records("validation").num_records // self._share.num_workers)
        return RecordCache.size(-(-mine // rows) * rows, self._sets.decoding("validation"))

    @cached_property
    def _train_kept(self) -> RecordCache | None:
        """Room for all training records, when they fit beside the validation records and never change."""
        left = self._experiment.data.cache_bytes - (self._validation_bytes if self._keeps_validation else 0)
        decoding, records = self._sets.decoding("train"), self.plan.num_records
        return (
            RecordCache(records, decoding) if decoding.repeats and RecordCache.size(records, decoding) <= left else None
        )

    # Bad records

    def _note_damage(self, records: RecordSet) -> None:
        for path, problem in records.problems if self._share.rank == 0 else ():  # every worker finds them
            self._skipped.setdefault(path, []).append(f"at byte {problem.offset}: {problem.reason}")

    def _note(self, batch: Batch) -> None:
        for record in batch.bad:
            self._skipped.setdefault(record.path, []).append(f"at byte {record.offset}: {record.reason}")

    def take_skipped(self) -> int:
        """How many bad records were skipped since the last call; says so in the log, a line a file."""
        skipped, self._skipped = self._skipped, {}
        for path, reasons in skipped.items():
            log.warning(
                "%s: %d bad record%s skipped, the first %s",
                path,
                len(reasons),
                "" if len(reasons) == 1 else "s",
                reasons[0],
            )
        return sum(map(len, skipped.values()))
