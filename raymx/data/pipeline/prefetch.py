"""One worker's batches: streams played one after the other, and decoded records that are kept in memory.

    feed = Prefetcher(open_part, lead=8)
    for batch in feed.play([Part("train 0", 50, rows_of_epoch_0)], following=Part("validation", 10, its_rows)):
        ...

A stream takes a moment to start, so the next one is started before this one ends. No Ray here: a stream is whatever
``open_part(part)`` returns, a generator of batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.augment import draw, generator
from raymx.data.pipeline.batch import Batch
from raymx.data.pipeline.decoding import BadRecord, Decoded, Decoding
from raymx.data.pipeline.order import Rows, all_rows

Stream = Generator[Batch, None, None]
_END = object()
CLOSE_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Part:
    """Batches that are streamed as one. ``rows`` is called in another thread when the stream is started ahead."""

    name: str  # tells it from every other part
    count: int  # of batches
    rows: Callable[[], Sequence[Rows]]


class Prefetcher:
    """Plays parts one after the other; at most one stream is started ahead."""

    def __init__(self, open_stream: Callable[[Part], Stream], lead: int) -> None:
        """``lead``: the next stream is started when so many batches of this one are left."""
        self._open, self._lead = open_stream, lead
        self._ahead: tuple[tuple[str, int], _Ahead] | None = None
        self._threads: list[threading.Thread] = []

    def play(self, parts: Iterable[Part], following: Part | None = None, head: Iterable[Batch] = ()) -> Stream:
        """The batches of all ``parts``; ``following`` is what will probably be asked for after them.

        ``head`` are batches before them that need no stream: the first stream is started when one of them is there.
        """
        coming = iter(parts)
        part = next(coming, None)
        first = part or following
        for batch in head:
            if first is not None:
                self.prepare(first)
            yield batch
        while part is not None:
            upcoming = next(coming, None)
            yield from self._play(part, upcoming or following)
            part = upcoming

    def _play(self, part: Part, after: Part | None) -> Stream:
        stream = self._take(part)
        # Not in the first half: processes that read this part are then free for the next, and no more are started.
        lead = min(self._lead, max(1, part.count // 2))
        try:
            for left in range(part.count - 1, -1, -1):
                batch = next(stream)
                if left < lead and after is not None:
                    self.prepare(after)
                yield batch
        finally:
            stream.close()

    def prepare(self, part: Part) -> None:
        """Start a stream now; one that was started for something else is given up."""
        if self._ahead is None or self._ahead[0] != (part.name, part.count):
            self._give_up()
            ahead = _Ahead(lambda: self._open(part))
            self._ahead = ((part.name, part.count), ahead)
            self._threads = [*(thread for thread in self._threads if thread.is_alive()), ahead.thread]

    def _take(self, part: Part) -> Stream:
        if self._ahead is None or self._ahead[0] != (part.name, part.count):
            self._give_up()
            return self._open(part)
        ahead, self._ahead = self._ahead[1], None
        return ahead.stream()

    def _give_up(self) -> None:
        if self._ahead:
            self._ahead[1].cancel()
        self._ahead = None

    def close(self) -> None:
        """Give up what was started ahead, and wait a moment for its thread to end: it must not outlive Ray."""
        self._give_up()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Ahead:
    """A stream whose first batch is fetched in a thread."""

    def __init__(self, opened: Callable[[], Stream]) -> None:
        self._opened = opened
        self._first: Future[tuple[Stream, Any]] = Future()
        self._cancelled = False
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, daemon=True, name="raymx-stream-ahead")
        self.thread.start()

    def _run(self) -> None:
        try:
            stream = self._opened()
            first = _END if self._cancelled else next(stream, _END)
        except BaseException as error:
            self._first.set_exception(error)
            return
        with self._lock:
            self._first.set_result((stream, first))
            unwanted = self._cancelled
        if unwanted:
            stream.close()

    def stream(self) -> Stream:
        """The stream from its beginning; raises here what starting it raised."""
        stream, first = self._first.result()
        try:
            if first is not _END:
                yield first
                yield from stream
        finally:
            stream.close()

    def cancel(self) -> None:
        """Close the stream, or have the thread close it once it is there."""
        with self._lock:
            self._cancelled = True
            opened = self._first.done() and not self._first.exception()
        if opened:
            self._first.result()[0].close()


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
