"""Read many records: by their locations in any order, or a whole local file in its own.

with open_reader(path) as reader:
    for payload in read_payloads(reader, index.offsets[ids], index.sizes[ids]): ...
for payload in iter_payloads("train.rec"): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from raymx.data.recordio.framing import FRAME_HEADER, LENGTH_BITS, DamagedRecord, payload_of
from raymx.data.recordio.load import map_file
from raymx.data.recordio.scan import record_spans
from raymx.storage import URI_THREADS, Reader, is_uri

MERGED_BYTES = 16 << 20  # the most that neighbours are read at once
_LOCAL_BYTES = 256 << 10  # of a local file: memory for more is new from the system each time, which costs more
WINDOW_BYTES = 32 << 20  # records are sorted and merged among the next ones of about this size together
Payload = bytes | memoryview
_Get = Callable[[], bytes]


@dataclass(frozen=True)
class Range:
    """One read that covers one or more records."""

    start: int  # byte
    count: int  # bytes
    rows: tuple[int, ...]  # the records in it, as indexes into what was asked for


def ranges(
    offsets: NDArray[np.int64], sizes: NDArray[np.int64], max_gap_bytes: int = 0, merged_bytes: int = MERGED_BYTES
) -> list[Range]:
    """The reads, in file order, that cover records at ``offsets`` of ``sizes`` bytes; each int64 (rows,), any order.

    Neighbours with at most ``max_gap_bytes`` between them share a read of at most ``merged_bytes``; a larger record has
    its own. A record that is asked for twice is read once.
    """
    found: list[Range] = []
    start, end, rows = 0, 0, []  # type: int, int, list[int]
    order = np.argsort(offsets, kind="stable")
    for row, offset, size in zip(order.tolist(), offsets[order].tolist(), sizes[order].tolist(), strict=True):
        behind = max(end, offset + size)
        if rows and (offset > end + max_gap_bytes or behind - start > merged_bytes):
            found.append(Range(start, end - start, tuple(rows)))
            rows = []
        if not rows:
            start, behind = offset, offset + size
        end = behind
        rows.append(row)
    return [*found, Range(start, end - start, tuple(rows))] if rows else found


def read_payloads(
    reader: Reader, offsets: NDArray[np.int64], sizes: NDArray[np.int64], max_gap_bytes: int = 0
) -> Iterator[Payload | DamagedRecord]:
    """The payloads of records at ``offsets`` that take ``sizes`` bytes on disk, in the order asked for.

    A payload is bytes, or a view of a larger read. For a damaged record its DamagedRecord is yielded, not
    raised. A file that cannot be read is a DataError, raised. URIs are read by threads, up to two windows ahead.
    """
    if is_uri(reader.path):
        yield from _read_ahead(reader, offsets, sizes, max_gap_bytes)
        return
    for rows in _windows(sizes):
        reads = ranges(offsets[rows], sizes[rows], max_gap_bytes, _LOCAL_BYTES)
        gets: list[_Get] = [partial(reader.read_at, read.start, read.count) for read in reads]
        yield from _payloads(reader.path, offsets[rows], sizes[rows], reads, gets)


def _read_ahead(
    reader: Reader, offsets: NDArray[np.int64], sizes: NDArray[np.int64], max_gap_bytes: int
) -> Iterator[Payload | DamagedRecord]:
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(URI_THREADS)
        stack.callback(pool.shutdown, cancel_futures=True)

        def begin(rows: slice) -> Iterator[Payload | DamagedRecord]:
            reads = ranges(offsets[rows], sizes[rows], max_gap_bytes)
            gets: list[_Get] = [pool.submit(reader.read_at, read.start, read.count).result for read in reads]
            return _payloads(reader.path, offsets[rows], sizes[rows], reads, gets)

        waiting: list[Iterator[Payload | DamagedRecord]] = []
        for rows in _windows(sizes):
            waiting.append(begin(rows))
            if len(waiting) == 2:
                yield from waiting.pop(0)
        for window in waiting:
            yield from window


def _windows(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Runs of rows of about WINDOW_BYTES together."""
    window = np.cumsum(sizes) // WINDOW_BYTES
    edges = [0, *(np.flatnonzero(np.diff(window)) + 1).tolist(), len(sizes)]
    return (slice(a, b) for a, b in pairwise(edges) if b > a)


def _payloads(
    path: str,
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    reads: list[Range],
    gets: list[_Get],
) -> Iterator[Payload | DamagedRecord]:
    """The payloads of one window. A read is made when its first record is due, and kept until its last one is."""
    by_row = {row: at for at, read in enumerate(reads) for row in read.rows}
    left = [len(read.rows) for read in reads]
    loaded: dict[int, memoryview] = {}
    for row, (offset, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        at = by_row[row]
        if at not in loaded:
            loaded[at] = memoryview(gets[at]())
        start = offset - reads[at].start
        record = loaded[at][start : start + size]
        left[at] -= 1
        if not left[at]:
            del loaded[at]
            gets[at] = bytes  # a finished read is let go of
        yield _payload_or_error(record, offset, path, size)


def _payload_or_error(record: memoryview, offset: int, path: str, size: int) -> Payload | DamagedRecord:
    try:
        return payload_of(record, offset, path, size)
    except DamagedRecord as error:
        return error


def iter_payloads(path: str) -> Iterator[Payload]:
    """All payloads of a local file, in file order: views of the mapped file, or bytes for records of several frames.

    A view may be kept for as long as it is needed; it keeps the file mapped. Raises DamagedRecord where the file is
    damaged or cut, after the records before, and DataError when it cannot be read.
    """
    view = map_file(path)
    words = np.frombuffer(view, "<u4", len(view) // 4)
    for offsets, ends in record_spans(lambda offset, count: view[offset : offset + count], len(view), path):
        lengths = words[offsets // 4 + 1]
        starts = (offsets + FRAME_HEADER.size).tolist()
        if not (lengths >> LENGTH_BITS).any():
            for start, end in zip(starts, (offsets + FRAME_HEADER.size + lengths).tolist(), strict=True):
                yield view[start:end]
            continue
        for start, end in zip(offsets.tolist(), ends.tolist(), strict=True):
            yield payload_of(view[start:end], start, path, end - start)
