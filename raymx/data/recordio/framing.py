"""The frames that a RecordIO record is made of on disk, and the payload that they hold.

A frame is what dmlc-core's recordio.h writes for a record, or for a part of one: a header of two little-endian words
(the magic; the continuation flag in the upper 3 bits and the length in the lower 29), the bytes, and zero padding to 4
bytes. Flag 0 is a whole record; 1, 2 and 3 are the first, a middle and the last part of one. The magic inside a payload
would look like the start of a frame to a reader that searches for one, so the writer cuts a payload wherever the magic
stands at a multiple of 4 bytes and leaves it out; the reader puts it back between frames. So every magic at a multiple
of 4 in a file is the start of a frame.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from raymx.errors import DataError
from raymx.storage import RECORDS_BEGIN, Reader

MAGIC_BYTES = RECORDS_BEGIN
MAGIC = int.from_bytes(MAGIC_BYTES, "little")  # 0xced7230a
FRAME_HEADER = struct.Struct("<II")  # magic, (continuation flag << 29) | length
LENGTH_BITS = 29
MAX_FRAME_BYTES = (1 << LENGTH_BITS) - 1
WHOLE, FIRST, MIDDLE, LAST = range(4)  # continuation flags

Buffer = bytes | bytearray | memoryview | mmap.mmap
# (offset, count) -> up to `count` bytes; fewer only at the end of the source.
ReadAt = Callable[[int, int], bytes | memoryview]


class DamagedRecord(DataError):
    """A record that cannot be used. ``path``, ``offset`` (byte) and ``reason`` make up its text."""

    def __init__(self, path: str | Path, offset: int, reason: str) -> None:
        super().__init__(f"{path}, record at byte {offset}: {reason}")
        self.path, self.offset, self.reason = str(path), offset, reason

    def __reduce__(self) -> tuple[type[DamagedRecord], tuple[str, int, str]]:
        return type(self), (self.path, self.offset, self.reason)


def damaged(path: str | Path, offset: int, reason: str) -> DamagedRecord:
    """The error for a record that cannot be used: names the file, the byte offset and the reason."""
    return DamagedRecord(path, offset, reason)


def frame_spans(read_at: ReadAt, offset: int, path: str) -> Iterator[tuple[int, int]]:
    """(offset of the bytes, their count) of each frame of the record at ``offset``, from the headers alone.

    Raises DamagedRecord with the offset of the frame's header that is missing or wrong.
    """
    expected = (WHOLE, FIRST)
    while True:
        header = read_at(offset, FRAME_HEADER.size)
        if len(header) < FRAME_HEADER.size:
            raise damaged(path, offset, f"cut short: {len(header)} of {FRAME_HEADER.size} bytes of a part header")
        magic, word = FRAME_HEADER.unpack(header)
        flag, length = word >> LENGTH_BITS, word & MAX_FRAME_BYTES
        if magic != MAGIC:
            raise damaged(path, offset, f"damaged: expected the magic {MAGIC:#x}, found {magic:#x}")
        if flag not in expected:
            raise damaged(path, offset, f"damaged: continuation flag {flag}, expected {expected[0]} or {expected[1]}")
        yield offset + FRAME_HEADER.size, length
        if flag in (WHOLE, LAST):
            return
        offset += FRAME_HEADER.size + length + -length % 4
        expected = (MIDDLE, LAST)


def record_end(read_at: ReadAt, offset: int, path: str, file_bytes: int) -> int:
    """The byte offset behind the record at ``offset``, with its padding. DamagedRecord when the file ends before."""
    header = read_at(offset, FRAME_HEADER.size)
    if len(header) == FRAME_HEADER.size:
        magic, length = FRAME_HEADER.unpack(header)
        end = offset + FRAME_HEADER.size + length + -length % 4
        if magic == MAGIC and length <= MAX_FRAME_BYTES and end <= file_bytes:  # one frame: most records
            return end
    for at, length in frame_spans(read_at, offset, path):
        end = at + length + -length % 4
        if end > file_bytes:
            raise damaged(
                path, at - FRAME_HEADER.size, f"cut short: the record ends at byte {end}, the file at {file_bytes}"
            )
    return end


def read_payload(source: BinaryIO | Buffer | Reader, offset: int, path: str = "", size: int | None = None) -> bytes:
    """The payload of the logical record at a byte offset, its frames joined.

    ``source`` is a seekable binary file, a buffer or a Reader; ``path`` names it in errors (default: its own name).
    With ``size``, the bytes that the record takes on disk as an index has them, it is read at once and must fill them.
    Raises DamagedRecord when no whole, undamaged record begins there.
    """
    path = path or str(getattr(source, "path", "") or getattr(source, "name", "buffer"))
    read_at = _reader(source)
    if size is not None:
        return bytes(payload_of(read_at(offset, size), offset, path, size))
    spans = frame_spans(read_at, offset, path)
    return MAGIC_BYTES.join(_frame_bytes(read_at, at, length, path) for at, length in spans)


def payload_of(record: bytes | memoryview, offset: int, path: str, size: int) -> bytes | memoryview:
    """The payload of a record whose bytes on disk are ``record``, cut out of it without a copy if it is one frame.

    Raises DamagedRecord unless one whole, undamaged record fills exactly ``size`` bytes.
    """
    if len(record) < size:
        raise damaged(path, offset, f"cut short: {len(record)} of {size} bytes are there")
    if size >= FRAME_HEADER.size:
        magic, length = FRAME_HEADER.unpack_from(record)
        if (
            magic == MAGIC and FRAME_HEADER.size + length + -length % 4 == size
        ):  # one frame: with a flag it would be far longer
            return record[FRAME_HEADER.size : FRAME_HEADER.size + length]
    return _joined(record, offset, path, size)


def _joined(record: bytes | memoryview, offset: int, path: str, size: int) -> bytes:
    """``payload_of`` for several frames and for all that is wrong."""
    pieces, end = [], offset
    for at, length in frame_spans(lambda o, n: bytes(record[o - offset : o - offset + n]), offset, path):
        end = at + length + -length % 4
        pieces.append(record[at - offset : at - offset + length])
        if end > offset + size:
            break
    if end != offset + size:
        reason = f"the record takes {'at least ' * (end > offset + size)}{end - offset} bytes, the index says {size}"
        raise damaged(path, offset, f"{reason}: the index is stale, or the record is damaged")
    return MAGIC_BYTES.join(pieces)


def _reader(source: BinaryIO | Buffer | Reader) -> ReadAt:
    if isinstance(source, Reader):
        return source.read_at
    if isinstance(source, (bytes, bytearray, memoryview, mmap.mmap)):
        return lambda offset, count: bytes(source[offset : offset + count])

    def read_at(offset: int, count: int) -> bytes:
        source.seek(offset)
        return source.read(count)

    return read_at


def _frame_bytes(read_at: ReadAt, offset: int, length: int, path: str) -> bytes | memoryview:
    data = read_at(offset, length)
    if len(data) < length:
        raise damaged(path, offset - FRAME_HEADER.size, f"cut short: {len(data)} of {length} bytes are there")
    return data
