"""Where files are: local paths and URIs (``s3://``, ``gs://``, ``hdfs://``, ``file://``), found, read and written.

    for path in expand(["data/", "s3://bucket/train-*.rec"]):
        with open_reader(path) as reader:
            reader.read_at(0, 8)

URIs go through ``pyarrow.fs``, which is imported when the first one is used. A space may stand in a URI as it is; what
follows ``?`` is options of the file system (``s3://bucket/a.rec?region=eu-west-1``), so of the wildcards only ``*`` and
``[...]`` can be used there. Everything that fails is a DataError of one line that names the path.
"""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote

from raymx.errors import DataError
from raymx.text.nearest import nearest

RECORDS = "*.rec"
URI_THREADS = 8  # requests at a time: a store far away answers each after tens of milliseconds

_T = TypeVar("_T")
_R = TypeVar("_R")
_GCS_PATIENCE = "retry_limit_seconds=30"  # the client's own is 15 minutes, in silence
_URI_CHARACTERS = "%/:?=&@+,;!$'()~#*"  # all others are written as %XX before pyarrow sees them


def is_uri(path: str) -> bool:
    """Whether ``path`` names a file by URI; everything without ``://`` is a local path."""
    return "://" in path


def with_suffix(path: str, suffix: str) -> str:
    """``path`` with another ending, such as ``.idx``; the options of a URI stay behind it."""
    base, mark, options = path.partition("?") if is_uri(path) else (path, "", "")
    return os.path.splitext(base)[0] + suffix + mark + options


def exists(path: str) -> bool:
    """Whether there is a file at ``path``. DataError when its file system cannot be asked."""
    if not is_uri(path):
        return os.path.isfile(path)
    with errors_name(path, "read"):
        system, place = file_system(path)
        return bool(system.get_file_info(place).is_file)


@contextmanager
def errors_name(path: str, what: str) -> Iterator[None]:
    """Turn what the operating system or pyarrow raises into a DataError: PATH cannot be ``what`` (reason)."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own exceptions are among the last two
        reason = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path}: cannot be {what} on this node ({reason})") from error


# ---- finding ----


def expand(paths: Sequence[str]) -> list[str]:
    """The files that ``paths`` stand for, in that order; local ones absolute.

    A path is a file, a pattern (``*``, ``?``, ``[...]``, ``**``; its matches are sorted) or a folder (the ``*.rec``
    directly in it, sorted). Raises DataError, saying what is there instead, for one that stands for no file.
    """
    return [file for path in paths for file in (_uri_files(path) if is_uri(path) else _local_files(path))]


def local_matches(path: str) -> list[str]:
    """The files that a local path, pattern or folder stands for, maybe none."""
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), RECORDS)
    elif os.path.exists(path):
        return [path]
    return sorted(file for file in glob.glob(path, recursive=True) if not os.path.isdir(file))


def why_no_match(path: str) -> str:
    """What is wrong with a local path that ``local_matches`` finds nothing for."""
    if os.path.isdir(path):
        return f"{path} is a folder without {RECORDS} files{_listing(os.listdir(path), 'it')}"
    if glob.has_magic(path):
        return f"no file matches {path}{_beside(Path(path))}"
    return f"{path} does not exist{_beside(Path(path))}"


def _local_files(path: str) -> list[str]:
    path = os.path.abspath(path)  # read tasks have another working directory
    with errors_name(path, "read"):
        found = local_matches(path)
        if not found:
            raise DataError(why_no_match(path))
    return found


def _beside(path: Path) -> str:
    """The rest of a message about a path that is not there: what there is in its place."""
    if not path.parent.is_dir():
        existing = next(parent for parent in path.parents if parent.is_dir())
        return f" (of that path, {existing} exists)"
    return _listing((entry.name for entry in path.parent.iterdir()), str(path.parent), path.name)


def _listing(names: Iterable[str], folder: str, wanted: str = RECORDS) -> str:
    names = sorted(names)
    near = nearest(wanted, names, count=3) or names[:5]
    return f"; {folder} has {', '.join(near)}" if near else f"; {folder} is empty"


def file_system(uri: str) -> tuple[Any, str]:
    """pyarrow's file system of a URI, and the path in it."""
    from pyarrow import fs

    if uri.startswith(("gs://", "gcs://")) and "retry_limit_seconds=" not in uri:
        uri += ("&" if "?" in uri else "?") + _GCS_PATIENCE
    system, place = fs.FileSystem.from_uri(quote(uri, safe=_URI_CHARACTERS))
    return system, place


def _uri_files(uri: str) -> list[str]:
    base, mark, options = uri.partition("?")
    parts = base.rstrip("/").split("/")
    fixed = next((at for at, part in enumerate(parts) if "*" in part or "[" in part), len(parts))
    folder, pattern = "/".join(parts[:fixed]), parts[fixed:] or [RECORDS]
    with errors_name(uri, "read"):
        system, place = file_system(folder + mark + options)
        if fixed == len(parts) and system.get_file_info(place).is_file:
            return [uri]
        names = _uri_names(system, place, recursive=len(pattern) > 1)
        found = [name for name in names if _matches(name.split("/"), pattern)]
        if not found and fixed < len(parts):
            raise DataError(f"no file matches {uri}{_listing(names, folder)}")
        if not found and names:
            raise DataError(f"{uri} is a folder without {RECORDS} files{_listing(names, 'it')}")
        if not found:  # a store has no empty folders
            above = os.path.dirname(place.rstrip("/"))
            beside = _uri_names(system, above, recursive=False) if above else None  # a bucket has nothing above it
            listing = "" if beside is None else _listing(beside, os.path.dirname(folder), parts[-1])
            raise DataError(f"{uri} does not exist{listing}")
    return [f"{folder}/{quote(name)}{mark}{options}" for name in found]


def _uri_names(system: Any, place: str, recursive: bool) -> list[str]:
    """The files below a folder of a pyarrow file system, sorted, relative to it; none when it does not exist."""
    from pyarrow import fs

    place = place.rstrip("/")
    found = system.get_file_info(fs.FileSelector(place, recursive=recursive, allow_not_found=True))
    return sorted(info.path[len(place) :].lstrip("/") for info in found if info.is_file)


def _matches(parts: list[str], pattern: list[str]) -> bool:
    if not pattern or not parts:
        return not parts and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


# ---- reading ----


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
            system, place = file_system(path)
            self._file = system.open_input_file(place)
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


# ---- writing ----


@contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """A binary file to write that has its name only when it is whole: an exception inside ``with`` leaves nothing.

    A local file is written under ``PATH.part`` first. A store has no such step: a file that was at the URI is lost when
    writing fails. Raises DataError "PATH: cannot be written on this node (reason)" for what opening or closing meets.
    """
    with (_uri_output if is_uri(path) else _local_output)(path) as file:
        yield file


@contextmanager
def _local_output(path: str) -> Iterator[BinaryIO]:
    part = path + ".part"
    with errors_name(path, "written"):
        file = open(part, "wb")  # noqa: SIM115 - closed below, before it is renamed
    try:
        yield file
        with errors_name(path, "written"):
            file.close()
            os.replace(part, path)
    except BaseException:
        with suppress(OSError):  # of a full disk, again
            file.close()
        with suppress(OSError):
            os.unlink(part)
        raise


@contextmanager
def _uri_output(path: str) -> Iterator[BinaryIO]:
    with errors_name(path, "written"):
        system, place = file_system(path)
        file = system.open_output_stream(place)
    try:
        yield file
        with errors_name(path, "written"):
            file.close()
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            file.close()
            system.delete_file(place)
        raise
