"""The bytes of a whole file for those that look through all of it: mapped, or from a URI in large blocks."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

from raymx.storage import Reader, errors_name, is_uri, open_reader

BLOCK_BYTES = 8 << 20  # of a URI, by one request
_BLOCKS_AHEAD = 4

# (offset, count) -> up to `count` bytes of the file; fewer only at its end
Load = Callable[[int, int], bytes | memoryview]


def map_file(path: str) -> memoryview:
    """The bytes of a local file, mapped. It is unmapped when the last view of it goes.

    It is not closed by hand, since that fails as long as there are views. Raises DataError.
    """
    with errors_name(path, "read"), open(path, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return memoryview(b"")  # nothing to map
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@contextmanager
def open_load(path: str) -> Iterator[tuple[Load, int]]:
    """How to get at the bytes of a file, and how many it has."""
    if is_uri(path):
        with open_reader(path) as reader, closing(_BlocksAhead(reader)) as ahead:
            yield ahead.load, reader.size
    else:
        buffer = map_file(path)
        yield (lambda offset, count: buffer[offset : offset + count]), len(buffer)


class _BlocksAhead:
    """Reads that mostly go forward, made of whole blocks that threads fetch ahead: never a request a record."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._blocks: dict[int, Future[bytes]] = {}
        self._pool = ThreadPoolExecutor(_BLOCKS_AHEAD)

    def load(self, offset: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``offset`` on."""
        first, last = offset // BLOCK_BYTES, (offset + max(1, count) - 1) // BLOCK_BYTES
        for block in [block for block in self._blocks if block < first]:
            self._blocks.pop(block).cancel()
        for block in range(first, last + _BLOCKS_AHEAD):
            if block not in self._blocks and block * BLOCK_BYTES < self._reader.size:
                self._blocks[block] = self._pool.submit(self._reader.read_at, block * BLOCK_BYTES, BLOCK_BYTES)
        at = offset - first * BLOCK_BYTES
        if first == last:
            return self._block(first)[at : at + count]
        return b"".join(map(self._block, range(first, last + 1)))[at : at + count]

    def _block(self, number: int) -> bytes:
        return self._blocks[number].result() if number in self._blocks else b""

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
