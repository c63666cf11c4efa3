"""Find every record of a file, damaged ones too, without reading the payloads where that can be helped.

    index = scan("train.rec", on_bad="skip")
    index.offsets, index.sizes, index.problems

Small records: all magic words of a block are found with NumPy, and the frames that begin there must follow each other
without a gap. Large records: from header to header, which touches a page each. What the first way finds odd, the second
one looks at again, so that both give the same records and the same words for what is wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raymx.data.recordio.framing import (
    FIRST,
    FRAME_HEADER,
    LAST,
    LENGTH_BITS,
    MAGIC,
    MAGIC_BYTES,
    MAX_FRAME_BYTES,
    WHOLE,
    DamagedRecord,
    damaged,
    record_end,
)
from raymx.data.recordio.load import BLOCK_BYTES, Load, open_load
from raymx.storage import HEAD_BYTES, NO_RECORDS, kind_of

OnBad = Literal["fail", "skip"]
SEARCH_BYTES = 32 << 20  # how much of a file is searched at a time: bounds the memory
SMALL_BYTES = 4096  # records of this mean size and less are searched for, larger ones walked
_SAMPLE = 256  # records that tell the mean size

Spans = tuple[NDArray[np.int64], NDArray[np.int64]]  # int64 (records,) each: byte offsets, and of the bytes behind


@dataclass(frozen=True)
class Problem:
    """Bytes of a file that were skipped."""

    offset: int  # byte
    reason: str


@dataclass(frozen=True, eq=False)
class FileIndex:
    """Where the logical records of one file lie, in file order."""

    path: str
    file_bytes: int
    offsets: NDArray[np.int64]  # int64 (records,): byte offset of the record's first frame
    sizes: NDArray[np.int64]  # int64 (records,): bytes on disk, all frames with their padding
    keys: NDArray[np.int64] | None = None  # int64 (records,): from the .idx
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.offsets)


def scan(path: str, on_bad: OnBad = "fail") -> FileIndex:
    """Index every logical record of a file, local or by URI, without its .idx.

    ``on_bad="fail"``: the first damaged or cut record is a DamagedRecord with offset and reason. ``"skip"``: it becomes
    a problem, and the scan goes on at the next offset where a whole record begins. A record is dropped with the damage
    behind it when its own length may be what is wrong. Raises DataError when the file cannot be read.
    """
    path = str(path)
    problems: list[Problem] = []
    spans = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    with open_load(path) as (load, file_bytes):
        spans.extend(record_spans(load, file_bytes, path, on_bad, problems))
    offsets, ends = (np.concatenate(arrays) for arrays in zip(*spans, strict=True))
    return FileIndex(path, file_bytes, offsets, ends - offsets, None, tuple(problems))


def record_spans(
    load: Load, file_bytes: int, path: str, on_bad: OnBad = "fail", problems: list[Problem] | None = None
) -> Iterator[Spans]:
    """The whole records of a file, many at a time. What is skipped is appended to ``problems``.

    Raises DamagedRecord, after the records before it, unless ``on_bad`` is ``"skip"``.
    """
    start, count = 0, _SAMPLE
    problems = [] if problems is None else problems
    while start < file_bytes:
        walk = _walk(load, start, file_bytes, path, on_bad, problems)
        begun, ends = start, np.empty(0, np.int64)
        for spans in _gathered(islice(walk, count)):
            yield spans
            ends = spans[1]
        walk.close()
        if len(ends) < count:
            return  # the end of the file
        start, found = int(ends[-1]), 0
        if start - begun <= SMALL_BYTES * count:
            for spans in _search(load, start, file_bytes):
                yield spans
                found += len(spans[0])
                start = int(spans[1][-1])
        # A search that finds little (a writer that did not cut at magics, much damage) is tried ever more rarely.
        count = _SAMPLE if found > count else 2 * count


def _gathered(walk: Iterator[tuple[int, int]]) -> Iterator[Spans]:
    """All that a walk yields as one pair of arrays, also when it ends with an error, which is raised after them."""
    found: list[tuple[int, int]] = []
    error = None
    try:
        found.extend(walk)
    except DamagedRecord as caught:
        error = caught
    if found:
        spans = np.array(found, np.int64)
        yield spans[:, 0], spans[:, 1]
    if error is not None:
        raise error


# ---- small records: search ----


def _search(load: Load, start: int, file_bytes: int) -> Iterator[Spans]:
    """Whole records from ``start`` on, a block at a time, as long as each begins where the one before ends.

    The last record of each block waits for the next block, where the header behind it is seen.
    """
    while start < file_bytes:
        offsets, ends = _block_records(load(start, SEARCH_BYTES), start, file_bytes)
        known = len(ends) - (len(ends) > 0 and ends[-1] < file_bytes)
        if not known:
            return
        yield offsets[:known], ends[:known]
        start = int(ends[known - 1])


def _block_records(block: bytes | memoryview, start: int, file_bytes: int) -> Spans:
    """The records that follow each other from the first byte of a block on, the block being at byte ``start``."""
    words = np.frombuffer(block, "<u4", len(block) // 4)
    headers = np.flatnonzero(words[:-1] == MAGIC)
    at = start + 4 * headers.astype(np.int64)
    flags, lengths = words[headers + 1] >> LENGTH_BITS, (words[headers + 1] & MAX_FRAME_BYTES).astype(np.int64)
    ends = at + FRAME_HEADER.size + (lengths + 3 & ~3)
    begins = flags <= FIRST
    closes = (flags == WHOLE) | (flags == LAST)
    good = (at == np.append(start, ends[:-1])) & (ends <= file_bytes) & (flags <= LAST)
    good &= begins == np.append(True, closes[:-1])
    count = len(good) if good.all() else int(np.argmin(good))
    offsets, behind = at[:count][begins[:count]], ends[:count][closes[:count]]
    return offsets[: len(behind)], behind  # the last record may not be whole in this block


# ---- large records, and all that is odd: walk ----


def _walk(
    load: Load, start: int, file_bytes: int, path: str, on_bad: OnBad, problems: list[Problem]
) -> Generator[tuple[int, int], None, None]:
    """(byte offset, byte behind) of each whole record; each is held until what follows it has been seen."""
    held: tuple[int, int] | None = None
    while start < file_bytes:
        try:
            end = record_end(load, start, path, file_bytes)
        except DamagedRecord as error:
            bad, reason, resume = _damage(load, start, file_bytes, path, held, _named(load, error))
            if held is not None and (on_bad == "fail" or bad == start):
                yield held
            if on_bad == "fail":
                raise _named(load, error) from None
            problems.append(Problem(bad, f"{reason}; {resume - bad} bytes were skipped"))
            held, start = None, resume
            continue
        if held is not None:
            yield held
        held, start = (start, end), end
    if held is not None:
        yield held


def _named(load: Load, error: DamagedRecord) -> DamagedRecord:
    """The error, or at the beginning of a file of a known other kind one that names it."""
    kind = kind_of(bytes(load(0, HEAD_BYTES))) if error.offset == 0 else None
    return damaged(error.path, 0, NO_RECORDS + kind) if kind else error


def _damage(
    load: Load, start: int, file_bytes: int, path: str, held: tuple[int, int] | None, error: DamagedRecord
) -> tuple[int, str, int]:
    """(where damage begins, the reason, where the next whole record begins); ``held`` ends at ``start``.

    Without a magic at ``start``, damage has struck the magic, or the length of the record before, or bytes of both.
    """
    if held is None or MAGIC_BYTES.startswith(bytes(load(start, 4))):
        return start, error.reason, _resume(load, start + 4, file_bytes, path)
    resume = _resume(load, held[0] + 4, file_bytes, path)
    if resume > start and _only_the_magic_is_wrong(load, start, file_bytes):
        return start, error.reason, resume
    return held[0], f"damaged: its length says that it ends at byte {start}, where no record begins", resume


def _only_the_magic_is_wrong(load: Load, start: int, file_bytes: int) -> bool:
    header = bytes(load(start, FRAME_HEADER.size))
    if len(header) < FRAME_HEADER.size:
        return False
    length = FRAME_HEADER.unpack(header)[1] & MAX_FRAME_BYTES
    end = start + FRAME_HEADER.size + length + -length % 4
    return end == file_bytes or bytes(load(end, 4)) == MAGIC_BYTES


def _resume(load: Load, start: int, file_bytes: int, path: str) -> int:
    """Where the next whole record begins, from ``start`` on; the end of the file when there is none."""
    block_bytes = 1 << 16
    while start < file_bytes:
        block = load(start, block_bytes)
        words = np.frombuffer(block, "<u4", len(block) // 4)
        for at in (start + 4 * np.flatnonzero(words == MAGIC)).tolist():
            try:
                record_end(load, at, path, file_bytes)
            except DamagedRecord:
                continue
            return int(at)
        start, block_bytes = start + block_bytes, min(2 * block_bytes, BLOCK_BYTES)
    return file_bytes
