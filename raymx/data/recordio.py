"""The RecordIO format: write, index and read ``.rec`` files, byte for byte as MXNet does.

    with RecordIOWriter("train.rec", "train.idx") as writer:
        writer.write(pack(label=3, image=png_bytes, id=17))
    index = scan("train.rec")
    with open("train.rec", "rb") as file:
        record = unpack(read_payload(file, int(index.offsets[0])))

On disk (little-endian) a record is one or more parts. A part is a magic word (u32), a word with the continuation flag
in its upper 3 bits and the length in the lower 29, the bytes, and zero padding to 4 bytes. The magic inside a payload
would look like the start of a part to a reader that searches for one, so the writer cuts a payload wherever the magic
stands at a multiple of 4 bytes and leaves it out; the reader puts it back between parts.

A payload made by MXNet's im2rec is a header (struct ``IfQQ``: flag, label, id, id2), then ``flag`` float32 labels, then
the image file's bytes. No Ray and no MXNet here.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from raymx.errors import DataError

MAGIC = 0xCED7230A
_MAGIC_BYTES = struct.pack("<I", MAGIC)
_PART = struct.Struct("<II")  # magic, (continuation flag << 29) | length
_LENGTH_BITS = 29
MAX_PART_BYTES = (1 << _LENGTH_BITS) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)  # continuation flags
_HEADER = struct.Struct("<IfQQ")  # flag, label, id, id2

# (offset, count) -> up to `count` bytes; fewer only at the end of the source.
_ReadAt = Callable[[int, int], bytes]


@dataclass(frozen=True, eq=False)
class FileIndex:
    """Where the logical records of one file lie, in file order."""

    path: str
    offsets: NDArray[np.int64]  # int64 (records,): byte offset of the record's first part
    sizes: NDArray[np.int64]  # int64 (records,): bytes on disk, all parts with their headers and padding

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, eq=False)
class Record:
    """One unpacked payload."""

    flag: int  # 0: the label is the header's own; n > 0: n labels follow the header
    label: NDArray[np.float32]  # float32 (width,)
    id: int
    id2: int
    image: bytes  # the encoded image file


def damaged(path: str | Path, offset: int, reason: str) -> DataError:
    """The error for a record that cannot be used: names the file, the byte offset and the reason."""
    return DataError(f"{path}, record at byte {offset}: {reason}")


class RecordIOWriter:
    """Writes records to ``path``, and ``key<TAB>offset`` lines to ``index_path`` when given. A context manager.

    Both files appear under their names only when the writer is closed; an exception inside ``with`` leaves nothing.
    """

    def __init__(self, path: str | Path, index_path: str | Path | None = None) -> None:
        self._targets = [Path(p) for p in (path, index_path) if p is not None]
        self._files = [_part_name(target).open("wb") for target in self._targets]
        self._count = 0
        self._offset = 0

    def write(self, payload: bytes, key: int | None = None) -> int:
        """Append one record and return its byte offset. ``key`` is its number in the .idx file (default: its position).

        Raises DataError for a payload that has no place in the format's 29-bit length.
        """
        offset = self._offset
        for flag, part in _parts_of(payload):
            if len(part) > MAX_PART_BYTES:
                raise damaged(self._targets[0], offset, f"{len(part)} bytes; a part holds at most {MAX_PART_BYTES}")
            pad = bytes(-len(part) % 4)
            self._files[0].write(_PART.pack(MAGIC, flag << _LENGTH_BITS | len(part)) + part + pad)
            self._offset += _PART.size + len(part) + len(pad)
        if len(self._files) > 1:
            self._files[1].write(f"{self._count if key is None else key}\t{offset}\n".encode())
        self._count += 1
        return offset

    def close(self) -> None:
        """Finish both files and give them their names. Closing again does nothing."""
        self._finish(keep=True)

    def _finish(self, keep: bool) -> None:
        files, self._files = self._files, []
        for file, target in zip(files, self._targets):  # noqa: B905 - no files are left when closed before
            file.close()
            if keep:
                os.replace(file.name, target)
            else:
                os.unlink(file.name)

    def __enter__(self) -> RecordIOWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(keep=kind is None)


def _part_name(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _parts_of(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """(continuation flag, bytes) of each part of a payload, cut at magics that stand at a multiple of 4."""
    start = 0
    at = payload.find(_MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0:
            yield (_MIDDLE if start else _FIRST), payload[start:at]
            start = at + 4
        at = payload.find(_MAGIC_BYTES, at + 1)
    yield (_LAST if start else _WHOLE), payload[start:]


def scan(path: str | Path) -> FileIndex:
    """Index every logical record of a file by walking the part headers; payloads are not read.

    Raises DataError that names the file, the offset and the reason when the file is missing, cut short or damaged.
    """
    path = str(path)
    try:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return FileIndex(path, np.empty(0, np.int64), np.empty(0, np.int64))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
                offsets = np.fromiter(_walk(buffer, path), np.int64)
                end = len(buffer)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return FileIndex(path, offsets, np.diff(offsets, append=end))


def _walk(buffer: mmap.mmap, path: str) -> Iterator[int]:
    """Byte offset of each logical record in a mapped file."""
    start, end = 0, len(buffer)
    while start < end:
        yield start
        for at, length in _part_spans(lambda o, n: buffer[o : o + n], start, path):
            start = at + length + -length % 4
            if start > end:
                raise damaged(path, at - _PART.size, f"cut short: the record ends at byte {start}, the file at {end}")


def _part_spans(read_at: _ReadAt, offset: int, path: str) -> Iterator[tuple[int, int]]:
    """(offset of the bytes, their count) of each part of the record at ``offset``, from the part headers alone."""
    flag, expected = _FIRST, (_WHOLE, _FIRST)
    while flag in (_FIRST, _MIDDLE):
        header = read_at(offset, _PART.size)
        if len(header) < _PART.size:
            raise damaged(path, offset, f"cut short: {len(header)} of {_PART.size} bytes of a part header")
        magic, word = _PART.unpack(header)
        flag, length = word >> _LENGTH_BITS, word & MAX_PART_BYTES
        if magic != MAGIC:
            raise damaged(path, offset, f"damaged: expected the magic {MAGIC:#x}, found {magic:#x}")
        if flag not in expected:
            raise damaged(path, offset, f"damaged: continuation flag {flag}, expected {expected[0]} or {expected[1]}")
        yield offset + _PART.size, length
        offset += _PART.size + length + -length % 4
        expected = (_MIDDLE, _LAST)


def read_payload(source: BinaryIO | bytes | bytearray | memoryview | mmap.mmap, offset: int, path: str = "") -> bytes:
    """The payload of the logical record at a byte offset, its parts joined.

    ``source`` is a seekable binary file or a buffer; ``path`` names it in errors (default: the file's own name).
    Raises DataError when no whole, undamaged record begins there.
    """
    path = path or str(getattr(source, "name", "buffer"))
    read_at = _reader(source)
    spans = _part_spans(read_at, offset, path)
    return _MAGIC_BYTES.join(_part_bytes(read_at, at, length, path) for at, length in spans)


def _reader(source: BinaryIO | bytes | bytearray | memoryview | mmap.mmap) -> _ReadAt:
    if isinstance(source, (bytes, bytearray, memoryview, mmap.mmap)):
        return lambda offset, count: bytes(source[offset : offset + count])

    def read_at(offset: int, count: int) -> bytes:
        source.seek(offset)
        return source.read(count)

    return read_at


def _part_bytes(read_at: _ReadAt, offset: int, length: int, path: str) -> bytes:
    found = read_at(offset, length)
    if len(found) < length:
        raise damaged(path, offset - _PART.size, f"cut short: {len(found)} of {length} bytes are there")
    return found


def pack(label: float | Sequence[float] | NDArray[Any], image: bytes, id: int = 0, id2: int = 0) -> bytes:
    """A payload from a label and an encoded image. A number is kept in the header; a sequence follows it."""
    if np.ndim(label) == 0:
        return _HEADER.pack(0, float(label), id, id2) + image  # type: ignore[arg-type]
    labels = np.asarray(label, "<f4").ravel()
    return _HEADER.pack(labels.size, 0.0, id, id2) + labels.tobytes() + image


def unpack(payload: bytes, where: str = "record") -> Record:
    """Split a payload into header, labels and image bytes. Raises DataError, naming ``where``, when it is too short."""
    if len(payload) < _HEADER.size:
        raise DataError(f"{where}: {len(payload)} bytes, but the record header alone has {_HEADER.size}")
    flag, label, record_id, id2 = _HEADER.unpack_from(payload)
    start = _HEADER.size + 4 * flag
    if len(payload) < start:
        raise DataError(f"{where}: the header announces {flag} labels, but only {len(payload)} bytes are there")
    labels = np.frombuffer(payload, "<f4", flag, _HEADER.size) if flag else np.array([label])
    return Record(flag, labels.astype(np.float32), record_id, id2, payload[start:])
