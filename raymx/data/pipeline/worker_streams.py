"""One worker's streams: the training batches over the epochs, the validation batches between them. No Ray, no mxnet.

A stream goes on over the epochs, since a new one an epoch would leave CPUs idle at its start, unless validation records
are streamed between. The first batches of a worker's life are decoded here, while its first stream starts; what takes
a moment only needs no stream at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from raymx.data.pipeline.batch import Batch, Stream
from raymx.data.pipeline.caching import WorkerCache
from raymx.data.pipeline.decoding import Decoding, task_batches, tasks_in_flight
from raymx.data.pipeline.order import Rows
from raymx.data.pipeline.planning import BatchStart, WorkerPlan
from raymx.data.pipeline.prefetch import Prefetcher, Segment
from raymx.data.pipeline.samples import SampleSource
from raymx.data.pipeline.source import Source
from raymx.data.pipeline.splits import Splits
from raymx.data.pipeline.warmup import decode_here, warm_up
from raymx.experiment.loading import ExperimentConfig

OpenStream = Callable[[Source, Sequence[Rows], Decoding], Stream]
# Read tasks of one stream: planning more of them takes a noticeable part of a second.
STREAM_TASKS = 64
# Of a worker's life, spent on decoding what a stream would: less than its processes take to start. Small data never
# need one where they are kept.
HERE_S = 3.0


class WorkerStreams:
    """What ``open_stream`` gives for the segments of ``plan``, each stream started before the one before it ends."""

    def __init__(
        self,
        experiment: ExperimentConfig,
        splits: Splits,
        plan: WorkerPlan,
        cache: WorkerCache,
        open_stream: OpenStream,
    ) -> None:
        self._experiment, self._splits, self._plan, self._cache = experiment, splits, plan, cache
        self._open_stream = open_stream
        self._epoch = self._first_epoch = -1  # the last one that was trained, and the first
        self._validated = False
        self._training: Stream | None = None  # training batches, over the epochs
        self._training_at: BatchStart | None = None  # what it gives next
        self._batch_s, self._here_s = math.inf, HERE_S  # that a batch takes here; that are left

    def train(self, epoch: int, record: int) -> Stream:
        """The batches of an epoch from a record of its order on."""
        self._epoch = epoch
        self._first_epoch = epoch if self._first_epoch < 0 else self._first_epoch
        if self._training is None or self._training_at != (epoch, record):
            self._end_training()
            count, warmup = self._warm_up(self._plan.rows(self._plan.starts(epoch, record)))
            segments = self._train_segments(epoch, record + count * self._plan.batches.global_batch_size)
            self._training = self._prefetcher.play(segments, self._validation_segment(epoch), warmup)
        self._training_at, training, complete = None, self._training, False
        try:
            for _ in self._plan.batches.starts(record):
                yield next(training)
            complete = True
        finally:
            if self._training is training:  # else another epoch was begun before this generator was closed
                self._training_at = (epoch + 1, 0)
                if not complete or self._validation_follows(epoch) or epoch + 1 >= self._experiment.training.epochs:
                    self._end_training()

    def once(self, name: str, planned: Sequence[Rows], behind: Sequence[Rows]) -> Stream:
        """The batches of ``planned``, then those of ``behind``: read once, to be kept."""
        count, warmup = self._warm_up(planned)
        streamed = [*planned[count:], *behind]
        segments = [Segment(name, len(streamed), lambda: streamed)] if streamed else []
        return self._prefetcher.play(segments, warmup=warmup)

    def validation(self) -> Stream:
        """This worker's validation batches."""
        self._validated = True
        yield from self._prefetcher.play(self._validation_segments(), self._next_training())

    def close(self) -> None:
        """End what is streamed and what was started ahead."""
        self._end_training()
        if self._has_read:
            self._prefetcher.close()

    def _warm_up(self, rows: Iterable[Rows]) -> tuple[int, Iterator[Batch]]:
        """How many batches are decoded here, and they: only where no stream can have been started ahead."""
        if self._has_read:
            return 0, iter(())
        count, batches, self._batch_s = warm_up(self._splits.records("train"), rows, self._splits.decoding("train"))
        return count, batches

    def _end_training(self) -> None:
        if self._training is not None:
            self._training.close()
        self._training = None

    @cached_property
    def _prefetcher(self) -> Prefetcher:
        # When a stream's last tasks are under way, those of the next may queue up behind them.
        tasks = tasks_in_flight(self._experiment.data.read_cpus)
        return Prefetcher(self._open, lead=tasks * self._task_batches)

    @property
    def _has_read(self) -> bool:
        return "_prefetcher" in self.__dict__

    def _open(self, segment: Segment) -> Stream:
        split = "validation" if segment.name.startswith("validation") else "train"
        rows = segment.rows()
        source = self._splits.records(split)
        in_memory = isinstance(source, SampleSource) and source.in_memory  # here, as in no other process
        opened = decode_here if in_memory or self._is_quick(len(rows)) else self._open_stream
        return opened(source, rows, self._splits.decoding(split))

    def _is_quick(self, batches: int) -> bool:
        """Whether so many are to be decoded here; their time is then spent."""
        needed = batches * self._batch_s
        if needed > self._here_s:
            return False
        self._here_s -= needed
        return True

    @cached_property
    def _task_batches(self) -> int:
        return task_batches(self._plan.batches.rows_per_worker, self._splits.decoding("train").row_bytes)

    def _validation_follows(self, epoch: int) -> bool:
        """Whether the validation records are probably streamed after an epoch: the loop is one that validates."""
        if "validation" not in self._splits.names or self._cache.validation is not None:
            return False
        first_time = epoch == self._first_epoch
        return first_time or (self._validated and not self._cache.keeps_validation)

    def _train_segments(self, epoch: int, record: int) -> Iterator[Segment]:
        """From here to the end of an epoch that validation follows, or of the last one, in quickly planned streams."""
        last = max(epoch, self._experiment.training.epochs - 1)
        end = next((later for later in range(epoch, last) if self._validation_follows(later)), last)
        return self._plan.train_segments(epoch, record, end, STREAM_TASKS * self._task_batches)

    def _validation_segments(self) -> list[Segment]:
        num_records = self._splits.records("validation").num_records
        return self._plan.validation_segments(num_records, STREAM_TASKS * self._task_batches)

    def _validation_segment(self, epoch: int) -> Segment | None:
        """What follows an epoch's last training step, when that is streamed."""
        return next(iter(self._validation_segments()), None) if self._validation_follows(epoch) else None

    def _next_training(self) -> Segment | None:
        """What follows the validation records."""
        following = self._epoch + 1
        under_way = self._training is not None
        if under_way or following >= self._experiment.training.epochs or self._cache.train is not None:
            return None
        return next(self._train_segments(following, 0))
