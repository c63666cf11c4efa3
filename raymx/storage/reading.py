"""Files that are read: at any place by any number of threads, many ahead of their use, or small ones whole."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from raymx.storage.locations import location
from raymx.storage.paths import errors_name, is_uri

URI_THREADS = 8  # requests at a time: a store far away answers each after tens of milliseconds

_T = TypeVar("_T")
_R = TypeVar("_R")


class Reader(ABC):
    """A file opened for reads at any place, by any number of threads. A context manager."""

    path: str
    size: int  # bytes

    @abstractmethod
    def read_at(self, offset: int, count: int) -> bytes:
        """``count`` bytes from ``offset`` on; fewer only at the end of the file. DataError when it cannot be read."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; nothing can be read after it."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_reader(path: str) -> Reader:
    """Open a file by path or URI. Raises DataError "PATH: cannot be read on this node (reason)"."""
    return _UriReader(path) if is_uri(path) else _LocalReader(path)


class _LocalReader(Reader):
    def __init__(self, path: str) -> None:
        self.path = path
        with errors_name(path, "read"), ExitStack() as stack:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, self._file)
            self.size = os.fstat(self._file).st_size
            os.pread(self._file, 1, 0)  # a folder can be opened, but not read
            self._stack = stack.pop_all()

    def read_at(self, offset: int, count: int) -> bytes:
        with errors_name(self.path, "read"):
            found = os.pread(self._file, count, offset)
            while 0 < len(found) < count and offset + len(found) < self.size:  # Linux gives at most 2 GiB at a time
                found += os.pread(self._file, count - len(found), offset + len(found))
            return found

    def close(self) -> None:
        self._stack.close()


class _UriReader(Reader):
    def __init__(self, path: str) -> None:
        self.path = path
        with errors_name(path, "read"):
            self._file = location(path).open_for_reads()
            self.size = int(self._file.size())

    def read_at(self, offset: int, count: int) -> bytes:
        count = max(0, min(count, self.size - offset))  # some stores refuse a range beyond the end
        with errors_name(self.path, "read"):
            return bytes(self._file.read_at(count, offset)) if count else b""

    def close(self) -> None:
        self._file.close()


def map_ahead(function: Callable[[_T], _R], items: Iterable[_T], ahead: int = URI_THREADS) -> Iterator[_R]:
    """``map`` in threads: results in order, at most ``ahead`` calls under way or waiting to be taken."""
    waiting: deque[Future[_R]] = deque()
    with ThreadPoolExecutor(min(ahead, URI_THREADS)) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


# ---- whole ----


def content(path: str) -> bytes | None:
    """A file's bytes; None when it is not there."""
    with errors_name(path, "read"):
        place = location(path)
        return place.read() if place.is_file else None


def text(path: str) -> str | None:
    """A file's text; None when it is not there."""
    found = content(path)
    return None if found is None else found.decode(errors="replace")


def names_in(path: str) -> tuple[list[str], list[str]]:
    """Names of the folders and of the files in a folder, sorted; none where there is no folder."""
    with errors_name(path, "read"):
        place = location(path)
        return place.names() if place.is_folder else ([], [])


def folders_in(path: str) -> list[str]:
    """The names of the folders in a folder, sorted; none where there is no folder."""
    return names_in(path)[0]
