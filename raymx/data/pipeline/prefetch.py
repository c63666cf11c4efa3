"""One worker's streams, played one after the other.

    prefetcher = Prefetcher(open_segment, lead=8)
    train, validation = Segment("train 0", 50, rows_of_epoch_0), Segment("validation", 10, its_rows)
    for batch in prefetcher.play([train], following=validation):
        ...

A stream takes a moment to start, so the next one is started before this one ends. No Ray here: a stream is whatever
``open_segment(segment)`` returns, a generator of batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from raymx.data.pipeline.batch import Batch, Stream
from raymx.data.pipeline.order import Rows

_END = object()
CLOSE_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Segment:
    """Batches that one stream gives. ``rows`` is called in another thread when the stream is started ahead."""

    name: str  # tells it from every other segment
    count: int  # of batches
    rows: Callable[[], Sequence[Rows]]


class Prefetcher:
    """Plays segments one after the other; at most one stream is started ahead."""

    def __init__(self, open_stream: Callable[[Segment], Stream], lead: int) -> None:
        """``lead``: the next stream is started when so many batches of this one are left."""
        self._open, self._lead = open_stream, lead
        self._ahead: tuple[tuple[str, int], _StreamAhead] | None = None
        self._threads: list[threading.Thread] = []

    def play(
        self, segments: Iterable[Segment], following: Segment | None = None, warmup: Iterable[Batch] = ()
    ) -> Stream:
        """The batches of all ``segments``; ``following`` is what will probably be asked for after them.

        ``warmup`` are batches before them that need no stream: the first stream is started when one of them is there.
        """
        coming = iter(segments)
        segment = next(coming, None)
        first = segment or following
        for batch in warmup:
            if first is not None:
                self.prepare(first)
            yield batch
        while segment is not None:
            upcoming = next(coming, None)
            yield from self._play(segment, upcoming or following)
            segment = upcoming

    def _play(self, segment: Segment, after: Segment | None) -> Stream:
        stream = self._take(segment)
        # Not in the first half: processes that read it are then free for the next, and no more are started.
        lead = min(self._lead, max(1, segment.count // 2))
        try:
            for left in range(segment.count - 1, -1, -1):
                batch = next(stream)
                if left < lead and after is not None:
                    self.prepare(after)
                yield batch
        finally:
            stream.close()

    def prepare(self, segment: Segment) -> None:
        """Start a stream now; one that was started for something else is given up."""
        if not self._is_ahead(segment):
            self._give_up()
            ahead = _StreamAhead(lambda: self._open(segment))
            self._ahead = ((segment.name, segment.count), ahead)
            self._threads = [*(thread for thread in self._threads if thread.is_alive()), ahead.thread]

    def _take(self, segment: Segment) -> Stream:
        if not self._is_ahead(segment):
            self._give_up()
            return self._open(segment)
        assert self._ahead is not None
        ahead, self._ahead = self._ahead[1], None
        return ahead.stream()

    def _is_ahead(self, segment: Segment) -> bool:
        return self._ahead is not None and self._ahead[0] == (segment.name, segment.count)

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


class _StreamAhead:
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
