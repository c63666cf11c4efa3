"""What the headers of a file's records say of their labels, from a few bytes of each record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raymx.data.recordio.framing import FRAME_HEADER, LENGTH_BITS, MAGIC, MAX_FRAME_BYTES, DamagedRecord, payload_of
from raymx.data.recordio.load import map_file
from raymx.data.recordio.reading import Range, ranges
from raymx.storage import is_uri, map_ahead, open_reader

_HEADER_BYTES = 24  # of a payload: flag, label, id, id2; the labels follow
_WIDTH_WORDS = 3  # magic, length, flag
_LABEL_WORDS = 9  # with the header's label, the ids, and the first of the labels that follow the header
_URI_GAP_BYTES = 1 << 16  # records this near each other are read together rather than by a request each


@dataclass(frozen=True, eq=False)
class Headers:
    """What the headers of some records say."""

    widths: NDArray[np.int64]  # int64 (rows,): how many labels
    labels: NDArray[np.float32]  # float32 (rows,): the first of them
    odd: NDArray[np.bool_]  # bool (rows,): the other two say nothing; without an image, damaged, or of several frames


def headers(path: str, offsets: NDArray[np.int64]) -> Headers:
    """What the headers of the records at ``offsets`` (int64, rows) say. DataError when the file cannot be read."""
    words = _first_words(path, offsets, _LABEL_WORDS)
    lengths, widths = words[:, 1].astype(np.int64), np.maximum(words[:, 2].astype(np.int64), 1)
    whole = (words[:, 0] == MAGIC) & (lengths <= MAX_FRAME_BYTES)  # one frame: with a flag it would be far longer
    floats = words.view("<f4")
    labels = np.where(words[:, 2] == 0, floats[:, 3], floats[:, 8])
    return Headers(widths, labels, ~whole | (lengths <= _HEADER_BYTES + 4 * words[:, 2].astype(np.int64)))


def label_widths(
    path: str, offsets: NDArray[np.int64], sizes: NDArray[np.int64], *, with_image: bool = False
) -> dict[int, int]:
    """Label count -> records, of the records at ``offsets`` (int64, rows) that take ``sizes`` bytes on disk.

    A record that is damaged or too short for the labels that it announces is left out; ``with_image``: so is one that
    ends behind its labels. Raises DataError when the file cannot be read.
    """
    magic, words, flags = _first_words(path, offsets, _WIDTH_WORDS).T
    room = sizes - FRAME_HEADER.size - _HEADER_BYTES
    usable = (magic == MAGIC) & (words & MAX_FRAME_BYTES >= 4) & (room >= 4 * flags.astype(np.int64))
    if with_image:
        usable &= (words >> LENGTH_BITS > 0) | (words.astype(np.int64) > _HEADER_BYTES + 4 * flags.astype(np.int64))
    widths, counts = np.unique(np.maximum(flags[usable], 1), return_counts=True)
    found: dict[int, int] = dict(zip(widths.tolist(), counts.tolist(), strict=True))
    # A flag of which a frame of several holds less than 4 bytes, the magic itself or what precedes one, is rare.
    cut = np.flatnonzero((magic == MAGIC) & (words >> LENGTH_BITS > 0) & (words & MAX_FRAME_BYTES < 4))
    for width in _widths_of_cut(path, offsets[cut], sizes[cut]):
        found[width] = found.get(width, 0) + 1
    return found


def _first_words(path: str, offsets: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
    """uint32 (rows, count): magic, length word, flag, ...; beyond the end of a record, or of the file, they are any."""
    if is_uri(path):
        return _uri_first_words(path, offsets, count)
    view = map_file(path)
    words = np.frombuffer(view, "<u4", len(view) // 4)
    numbers = (offsets // 4)[:, None] + np.arange(count)
    if not len(words):
        return np.zeros((len(offsets), count), np.uint32)
    return np.asarray(words[np.minimum(numbers, len(words) - 1)])


def _uri_first_words(path: str, offsets: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
    wanted = 4 * count
    first = np.zeros((len(offsets), wanted), np.uint8)
    with open_reader(path) as reader:

        def read(one: Range) -> tuple[Range, bytes]:
            return one, reader.read_at(one.start, one.count)

        for one, data in map_ahead(read, ranges(offsets, np.full(len(offsets), wanted), _URI_GAP_BYTES)):
            rows = np.array(one.rows)
            read_bytes = np.frombuffer(data.ljust(one.count, b"\0"), np.uint8)
            first[rows] = read_bytes[(offsets[rows] - one.start)[:, None] + np.arange(wanted)]
    return first.view("<u4")


def _widths_of_cut(path: str, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[int]:
    if not len(offsets):
        return
    with open_reader(path) as reader:
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
            try:
                payload = payload_of(reader.read_at(offset, size), offset, path, size)
            except DamagedRecord:
                continue
            flag = int.from_bytes(payload[:4], "little")
            if len(payload) >= _HEADER_BYTES + 4 * flag:
                yield max(flag, 1)
