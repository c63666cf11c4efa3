"""The first batches of a worker's life, which it decodes itself: a stream's first one comes seconds later.

    count, batches, batch_s = warm_up(records, rows, decoding)

Bitwise what a stream gives. Each batch is decoded when it is asked for, in the thread that asks. No Ray here.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import cv2

from raymx.data.pipeline.batch import HERE, Batch, Stream
from raymx.data.pipeline.decoding import Decoding, RecordLocations, decode_batches
from raymx.data.pipeline.order import Rows
from raymx.data.pipeline.source import Source

# While a worker decodes, it does not train: so its batches take no longer in all than a stream takes to start, which is
# one second where Ray Data is imported and processes of read tasks are there, and several where not.
WARMUP_S = 0.8
QUICK_S = 0.1  # for a batch


def warm_up(records: Source, rows: Iterable[Rows], decoding: Decoding) -> tuple[int, Iterator[Batch], float]:
    """How many of ``rows`` this process should decode, and their batches: as many as take about WARMUP_S together.

    Also the seconds that one takes. The first one, whatever it takes, is decoded at once, since its time is the measure
    for the others; and a second one where that is quick, since in the first much is done for the first time. There may
    be fewer rows than that count. Raises DataError as a stream does.
    """
    batches = decode_here(records, rows, decoding)
    first, batch_s = _timed(batches)
    if batch_s < QUICK_S:
        second, second_s = _timed(batches)
        first, batch_s = first + second, min(batch_s, second_s) if second else batch_s
    count = max(len(first), warmup_batches(batch_s))
    return count, itertools.chain(first, itertools.islice(batches, count - len(first))), batch_s


def _timed(batches: Iterator[Batch]) -> tuple[list[Batch], float]:
    """The next batch, where there is one, and the seconds that it took."""
    began = time.monotonic()
    found = list(itertools.islice(batches, 1))
    return found, time.monotonic() - began


def warmup_batches(first_s: float) -> int:
    """How many batches are decoded here when the first one took ``first_s`` seconds."""
    return max(1, int(WARMUP_S / max(first_s, 1e-6)))


def decode_here(records: Source, rows: Iterable[Rows], decoding: Decoding) -> Stream:
    """One batch for each of ``rows``."""
    for batch in rows:
        locations = RecordLocations(batch.ids, *records.locate(batch.ids), batch.epoch)
        with _modest_opencv():
            (decoded,) = decode_batches(records.paths, [locations], decoding)
        yield Batch.of(decoded, batch, HERE)


@contextmanager
def _modest_opencv() -> Iterator[None]:
    """One thread, since the other cores are others'; and no messages, since what fails is raised."""
    threads, level = cv2.getNumThreads(), cv2.getLogLevel()
    cv2.setNumThreads(1)
    cv2.setLogLevel(0)
    try:
        yield
    finally:
        cv2.setNumThreads(threads)
        cv2.setLogLevel(level)
