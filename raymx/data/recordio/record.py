"""The RecordIO format: write, index and read ``.rec`` files, byte for byte as MXNet does.

    with RecordIOWriter("train.rec", "train.idx") as writer:
        writer.write(pack(label=3, image=png_bytes, id=17))
    index = index_of("train.rec")
    with open_reader("train.rec") as reader:
        record = unpack(read_payload(reader, int(index.offsets[0])))

A payload made by MXNet's im2rec is a header (struct ``IfQQ``: flag, label, id, id2), then ``flag`` float32 labels, then
the image file's bytes. No Ray and no MXNet here. `framing` has the bytes of a record on disk, `scan` finds all records
of a file, `index` knows ``.idx`` files, `reading` reads many records.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

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
    MIDDLE,
    WHOLE,
    DamagedRecord,
    damaged,
    read_payload,
)
from raymx.data.recordio.index import index_of, write_index
from raymx.data.recordio.reading import iter_payloads, ranges, read_payloads
from raymx.data.recordio.scan import FileIndex, Problem, scan
from raymx.errors import DataError
from raymx.storage import errors_name, kind_of, open_output

__all__ = [
    "MAGIC",
    "MAX_FRAME_BYTES",
    "DamagedRecord",
    "FileIndex",
    "Problem",
    "Record",
    "RecordIOWriter",
    "damaged",
    "index_of",
    "iter_payloads",
    "pack",
    "ranges",
    "read_payload",
    "read_payloads",
    "require_image",
    "scan",
    "unpack",
    "write_index",
]

HEADER = struct.Struct("<IfQQ")  # flag, label, id, id2


@dataclass(frozen=True, eq=False)
class Record:
    """One unpacked payload."""

    flag: int  # 0: the label is the header's own; n > 0: n labels follow the header
    label: NDArray[np.float32]  # float32 (width,)
    id: int
    id2: int
    image: bytes | memoryview  # the encoded image file; a view when the payload was one


class RecordIOWriter:
    """Writes records to ``path``, and ``key<TAB>offset`` lines to ``index_path`` when given. A context manager.

    Both may be URIs. Both files appear under their names only when the writer is closed; an exception inside ``with``
    leaves nothing. Raises DataError for a file that cannot be written.
    """

    def __init__(self, path: str | Path, index_path: str | Path | None = None) -> None:
        self._path, self._count, self._offset = str(path), 0, 0
        with ExitStack() as stack:
            # The records are entered last, so closed first: an index of records that are not there never appears.
            self._index = None if index_path is None else stack.enter_context(open_output(str(index_path)))
            self._file = stack.enter_context(open_output(self._path))
            self._files = stack.pop_all()

    def write(self, payload: bytes, key: int | None = None) -> int:
        """Append one record and return its byte offset. ``key`` is its number in the .idx file (default: its position).

        Raises DataError for a payload that has no place in the format's 29-bit length, and when the disk is full.
        """
        offset = self._offset
        with errors_name(self._path, "written"):
            for flag, data in _frames_of(payload):
                if len(data) > MAX_FRAME_BYTES:
                    raise damaged(self._path, offset, f"{len(data)} bytes; a part holds at most {MAX_FRAME_BYTES}")
                pad = bytes(-len(data) % 4)
                self._file.write(FRAME_HEADER.pack(MAGIC, flag << LENGTH_BITS | len(data)) + data + pad)
                self._offset += FRAME_HEADER.size + len(data) + len(pad)
            if self._index is not None:
                self._index.write(f"{self._count if key is None else key}\t{offset}\n".encode())
        self._count += 1
        return offset

    def close(self) -> None:
        """Finish both files and give them their names. Closing again does nothing."""
        self._files.close()

    def __enter__(self) -> RecordIOWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)


def _frames_of(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """(continuation flag, bytes) of each frame of a payload, cut at magics that stand at a multiple of 4."""
    start = 0
    at = payload.find(MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0:
            yield (MIDDLE if start else FIRST), payload[start:at]
            start = at + 4
        at = payload.find(MAGIC_BYTES, at + 1)
    yield (LAST if start else WHOLE), payload[start:]


def pack(label: float | Sequence[float] | NDArray[Any], image: bytes, id: int = 0, id2: int = 0) -> bytes:
    """A payload from a label and an encoded image. A number is kept in the header; a sequence follows it."""
    if np.ndim(label) == 0:
        return HEADER.pack(0, float(label), id, id2) + image  # type: ignore[arg-type]
    labels = np.asarray(label, "<f4").ravel()
    return HEADER.pack(labels.size, 0.0, id, id2) + labels.tobytes() + image


def unpack(payload: bytes | memoryview, where: str = "record") -> Record:
    """Split a payload into header, labels and image bytes; the image of a memoryview is one too, not a copy.

    Raises DataError, naming ``where``, when it is too short, with what it is instead where that is known.
    """
    if len(payload) < HEADER.size:
        reason = f"{len(payload)} bytes, but the record header alone has {HEADER.size}"
        raise DataError(f"{where}: {_other_format(payload) or reason}")
    flag, label, record_id, id2 = HEADER.unpack_from(payload)
    start = HEADER.size + 4 * flag
    if len(payload) < start:
        reason = f"the header announces {flag} labels, but only {len(payload)} bytes are there"
        raise DataError(f"{where}: {_other_format(payload) or reason}")
    labels = np.frombuffer(payload, "<f4", flag, HEADER.size) if flag else np.array([label])
    return Record(flag, labels.astype(np.float32), record_id, id2, payload[start:])


def require_image(record: Record, where: str) -> None:
    """Raise a DataError that names ``where`` for a record that ends behind its labels."""
    if not len(record.image):
        count = f"{len(record.label)} label{'s' * (len(record.label) != 1)}"
        raise DataError(
            f"{where}: it has no image, only {count}, as the identity records of face data do: leave such records out "
            "of the file, or skip them (data.on_bad_record: skip, data.max_bad)"
        )


_SAGEMAKER = re.compile(rb"[\x0a\x12].{1,3}\x0a\x06values", re.DOTALL)  # protobuf: a map's entry of that key


def _other_format(payload: bytes | memoryview) -> str | None:
    """What a payload is that is not an image record of MXNet's, where that can be told."""
    head = bytes(payload[:64])
    known = "a protobuf record of Amazon SageMaker's" if _SAGEMAKER.match(head) else (kind_of(head) or "").split(":")[0]
    if not known:
        return None
    return f"it is {known}, not a header, labels and an image as im2rec writes: python -m raymx.pack makes such records"
