"""What one worker reads: its files, the plan of its batches, and the feed that brings them.

    data = WorkerData(experiment, Share(rank, num_workers, devices=1), open_stream)
    for batch in data.train(epoch, first_step): ...
    for batch in data.validation(): ...

No Ray and no mxnet: ``open_stream(records, rows, decoding)`` gives the batches (`raymx.data.stream.batches`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from raymx.config import Experiment
from raymx.data.batch import Batch
from raymx.data.decoding import Decoding, TransformFailed, gives_floats, task_batches, tasks_in_flight
from raymx.data.feed import Feed, Kept, Part, Stream
from raymx.data.files import open_reader
from raymx.data.image import Pixels
from raymx.data.order import BatchPlan, Rows, Shuffle, epoch_order, validation_rows
from raymx.data.parts import read_payload
from raymx.data.records import RecordSet
from raymx.errors import DataError

log = logging.getLogger(__name__)

OpenStream = Callable[[RecordSet, Sequence[Rows], Decoding], Stream]
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
        self._opened: dict[str, RecordSet] = {}
        self._epoch = self._first_epoch = -1  # the last one that was trained, and the first
        self._validated = False
        self._skipped: dict[str, list[str]] = {}  # file -> why each of its records was skipped
        self._validation_kept: list[Batch] | None = None
        self._flow: Stream | None = None  # training batches, over the epochs
        self._flow_at: tuple[int, int] | None = None  # (epoch, step) that it gives next
        self._left_to_keep: Iterator[tuple[Rows, Batch]] = iter(())
        self._order = lru_cache(maxsize=2)(self._epoch_order)

    # What there is

    def records(self, which: str) -> RecordSet:
        """The ``train`` or the ``validation`` records. Raises DataError when they cannot be had."""
        if which not in self._opened:
            data = self._experiment.data
            paths = getattr(data, which)
            if not paths:
                raise DataError(f"data.{which} is not set; name a .rec file")
            paths = [paths] if isinstance(paths, str) else paths
            records = RecordSet.open([self._experiment.resolve(path) for path in paths], data.on_bad_record)
            for path, problem in records.problems if self._share.rank == 0 else ():  # every worker finds them
                self._skipped.setdefault(path, []).append(f"at byte {problem.offset}: {problem.reason}")
            self._opened[which] = records
        return self._opened[which]

    @property
    def sets(self) -> list[str]:
        """The names of the sets that the experiment has."""
        return [which for which in ("train", "validation") if getattr(self._experiment.data, which)]

    def fingerprint(self) -> list[tuple[str, str]]:
        """(file name, digest) of every file: equal wherever the data are. The folder may differ between nodes."""
        return [(os.path.basename(path), digest)
                for which in self.sets for path, digest in self.records(which).fingerprint().items()]

    @cached_property
    def plan(self) -> BatchPlan:
        return BatchPlan(num_records=self.records("train").num_records,
                         global_batch_size=self._experiment.training.global_batch_size,
                         num_workers=self._share.num_workers, devices_per_worker=self._share.devices)

    @cached_property
    def label_width(self) -> int:
        """Labels a record: ``data.label_width``, or for ``auto`` the most that any record has."""
        width = self._experiment.data.label_width
        return width if width != "auto" else max(1, *(self.records(which).max_label_width() for which in self.sets))

    @cached_property
    def floats(self) -> bool:
        """Whether images are float32 (C, H, W) of the user's transforms, and not uint8 (H, W, C)."""
        found = {which: self._try_transform(which) for which in self.sets}
        if len(set(found.values())) > 1:
            raise DataError("data.transform and data.validation_transform must agree: one makes float32 images, the "
                            "other uint8 ones (raymx's own makes uint8): set both, or have both return uint8")
        return found["train"]

    def _try_transform(self, which: str) -> bool:
        """Whether its images are float32, by the first record that can be used."""
        decoding, records = self._decoding(which), self.records(which)
        if decoding.transform is None:
            return False
        for record in range(records.num_records):
            try:
                return self._floats_of(records, record, decoding)
            except TransformFailed:
                raise
            except DataError:
                if not decoding.skip_bad or record + 1 == records.num_records:
                    raise
        return False

    @staticmethod
    def _floats_of(records: RecordSet, record: int, decoding: Decoding) -> bool:
        (file,), (offset,), (size,) = records.locate(np.array([record]))
        path = records.paths[int(file)]
        with open_reader(path) as reader:
            payload = read_payload(reader, int(offset), size=int(size))
        return gives_floats(payload, f"{path}, record at byte {offset}", decoding)

    def _decoding(self, which: str) -> Decoding:
        """All but the epoch and ``floats``."""
        data, training = self._experiment.data, which == "train"
        return Decoding(
            Pixels(data.image_shape, data.resize, data.exif, data.augment if training else None),
            self.label_width, data.label_width == "auto",
            seed=self._experiment.training.seed, skip_bad=data.on_bad_record == "skip",
            transform=data.transform if training else data.validation_transform, directory=self._experiment.directory)

    @cached_property
    def _train_decoding(self) -> Decoding:
        return replace(self._decoding("train"), floats=self.floats)

    @cached_property
    def _validation_decoding(self) -> Decoding:
        return replace(self._decoding("validation"), floats=self.floats)

    # Batches

    def train(self, epoch: int, first: int) -> Iterator[Batch]:
        """This worker's batches of an epoch, from step ``first`` on."""
        self._epoch = epoch
        self._first_epoch = epoch if self._first_epoch < 0 else self._first_epoch
        kept = self._train_kept
        self._fill()
        batches: Iterator[Batch]
        if kept is not None and kept.complete:
            batches = map(kept.batch, self._rows(epoch, first, self.plan.steps))
        elif kept is not None:
            batches = self._filling(kept, list(self._rows(epoch, first, self.plan.steps)))
        else:
            batches = self._flowing(epoch, first)
        for batch in batches:
            self._note(batch)
            yield batch

    def _flowing(self, epoch: int, first: int) -> Iterator[Batch]:
        """Batches of a stream that goes on over the epochs: a new one an epoch would leave CPUs idle at its start."""
        if self._flow is None or self._flow_at != (epoch, first):
            self._end_flow()
            self._flow = self._feed.play(self._flow_parts(epoch, first), self._validation_part(epoch))
        self._flow_at, flow, whole = None, self._flow, False
        try:
            for _ in range(first, self.plan.steps):
                yield next(flow)
            whole = True
        finally:
            if self._flow is flow:  # else another epoch was begun before this generator was closed
                self._flow_at = (epoch + 1, 0)
                if not whole or self._is_cut(epoch) or epoch + 1 >= self._experiment.training.epochs:
                    self._end_flow()

    def _end_flow(self) -> None:
        if self._flow is not None:
            self._flow.close()
        self._flow = None

    def _filling(self, kept: Kept, planned: list[Rows]) -> Iterator[Batch]:
        """Stream ``planned`` and keep it. What else is missing is streamed behind it, for `_fill`."""
        others = kept.fill_rows(planned, self.plan.rows_per_worker)
        part = Part(f"keep {self._epoch}", len(planned) + len(others), lambda: [*planned, *others])
        stream = self._feed.play([part])
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
        if "_feed" in self.__dict__:  # else nothing was ever read
            self._feed.close()

    # Streams

    @cached_property
    def _feed(self) -> Feed:
        # When a stream's last tasks are under way, those of the next may queue up behind them.
        tasks = tasks_in_flight(self._experiment.data.read_cpus)
        return Feed(self._open_part, lead=tasks * self._task_batches)

    def _open_part(self, part: Part) -> Stream:
        if part.name.startswith("validation"):
            return self._open_stream(self.records("validation"), part.rows(), self._validation_decoding)
        return self._open_stream(self.records("train"), part.rows(), self._train_decoding)

    @cached_property
    def _task_batches(self) -> int:
        return task_batches(self.plan.rows_per_worker, self._train_decoding.row_bytes)

    def _is_cut(self, epoch: int) -> bool:
        """Whether the validation records are probably streamed after an epoch: the loop is one that validates."""
        if "validation" not in self.sets or (self._keeps_validation and self._validation_kept is not None):
            return False
        first_time = epoch == self._first_epoch
        return first_time or (self._validated and not self._keeps_validation)

    def _flow_parts(self, epoch: int, first: int) -> Iterator[Part]:
        """The steps from here to an epoch that is cut, or to the end, in streams that are quickly planned."""
        steps, most = self.plan.steps, STREAM_TASKS * self._task_batches
        last = max(epoch, self._experiment.training.epochs - 1)
        end = next((later for later in range(epoch, last) if self._is_cut(later)), last)
        start, stop = epoch * steps + first, (end + 1) * steps
        for at in range(start, stop, most):
            count = min(most, stop - at)
            yield Part(f"train {at}", count, partial(self._row_list, at, at + count))

    def _row_list(self, start: int, stop: int) -> list[Rows]:
        """Rows of steps that are counted over all epochs."""
        steps = self.plan.steps
        return [rows for epoch in range(start // steps, -(-stop // steps))
                for rows in self._rows(epoch, max(start - epoch * steps, 0), min(stop - epoch * steps, steps))]

    def _rows(self, epoch: int, start: int, stop: int) -> Iterator[Rows]:
        order = self._order(epoch)
        parts = (self.plan.worker_rows(order, step, self._share.rank) for step in range(start, stop))
        return (replace(part, epoch=epoch) for part in parts)

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        data = self._experiment.data
        shuffle = Shuffle(data.order, self._experiment.training.seed, data.chunk_records, data.window_records)
        return epoch_order(self.plan.num_records, shuffle, epoch)

    def _validation_parts(self) -> list[Part]:
        rows = list(validation_rows(self.records("validation").num_records, rows=self.plan.rows_per_worker,
                                    num_workers=self._share.num_workers, rank=self._share.rank))
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
        if "validation" not in self.sets:
            return 0
        rows, mine = self.plan.rows_per_worker, -(-self.records("validation").num_records // self._share.num_workers)
        return Kept.size(-(-mine // rows) * rows, self._validation_decoding)

    @cached_property
    def _train_kept(self) -> Kept | None:
        """Room for all training records, when they fit beside the validation records and never change."""
        left = self._experiment.data.cache_bytes - (self._validation_bytes if self._keeps_validation else 0)
        decoding, records = self._train_decoding, self.plan.num_records
        return Kept(records, decoding) if decoding.repeats and Kept.size(records, decoding) <= left else None

    # Bad records

    def _note(self, batch: Batch) -> None:
        for record in batch.bad:
            self._skipped.setdefault(record.path, []).append(f"at byte {record.offset}: {record.reason}")

    def take_skipped(self) -> int:
        """How many bad records were skipped since the last call; says so in the log, a line a file."""
        skipped, self._skipped = self._skipped, {}
        for path, reasons in skipped.items():
            log.warning("%s: %d bad record%s skipped, the first %s", path, len(reasons),
                        "" if len(reasons) == 1 else "s", reasons[0])
        return sum(map(len, skipped.values()))
