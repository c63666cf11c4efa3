"""The ``.idx`` file beside a ``.rec`` file: lines of ``key<TAB>offset``, in any order, keys with or without gaps.

    index = index_of("train.rec")   # by train.idx when it is there and right, else by a scan

A right .idx saves the scan: only a sample of the records it lists is looked at, so a huge file is never read whole. One
that does not fit its .rec is said in a warning and left alone.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from raymx.data.recordio.framing import DamagedRecord, record_end
from raymx.data.recordio.scan import FileIndex, OnBad, scan
from raymx.errors import DataError
from raymx.storage import (
    HEAD_BYTES,
    Reader,
    exists,
    is_uri,
    map_ahead,
    open_output,
    open_reader,
    placeholder_of,
    with_suffix,
)

__all__ = ["FIX", "FileIndex", "index_of", "index_path", "index_problem", "scan", "write_index"]

_log = logging.getLogger(__name__)

SAMPLE = 64  # records of an .idx that are looked at
FIX = "python -m raymx.data index {path} writes a new one"

_Lines = tuple[NDArray[np.int64], NDArray[np.int64]]  # int64 (lines,) each: keys and offsets


class _Stale(Exception):
    """Why an .idx file is not the one of its .rec."""


def index_path(path: str) -> str:
    """Where the .idx of a .rec file is: beside it, under the same name."""
    return with_suffix(path, ".idx")


def index_of(path: str, on_bad: OnBad = "fail") -> FileIndex:
    """Index every record of a file: by its .idx when that is right, with its keys, else by ``scan``.

    A stale .idx is a warning. With an .idx, damage outside the sample is met only when the record is read. Raises
    DataError when the file cannot be read and, unless ``on_bad`` is ``"skip"``, for damage that is met.
    """
    path = str(path)
    beside = index_path(path)
    if beside == path or not exists(beside):
        return scan(path, on_bad)
    listed = None
    try:
        listed = _read_lines(beside)
        return _by_lines(path, *listed)
    except _Stale as error:
        reason = str(error)
    found = scan(path, on_bad)
    if not found.problems:
        _log.warning("%s is not the index of %s and is not used: %s; %s", beside, path, reason, FIX.format(path=path))
        return found
    return found if listed is None else _with_keys(found, *listed)  # the file is damaged, the .idx may be right


def index_problem(path: str, found: FileIndex) -> str | None:
    """Why the .idx of ``path`` is stale, compared with all records that a scan found; None when it is right."""
    try:
        keys, offsets = _read_lines(index_path(path))
        order = _order(offsets, found.file_bytes)
    except _Stale as error:
        return str(error)
    missing = np.setdiff1d(found.offsets, offsets)
    if len(missing):
        return _more(len(keys), int(missing[0]))
    wrong = order[~np.isin(offsets[order], found.offsets)]
    if len(wrong) and not found.problems:  # it may list what is now damaged
        return _no_record(int(wrong[0]), int(offsets[wrong[0]]))
    return None


def write_index(path: str, index_path: str) -> int:
    """Write the .idx of a .rec file: keys from 0 on, in file order. Returns the number of records.

    The new file has its name only when it is whole. Raises DataError for a damaged .rec file.
    """
    offsets = scan(path).offsets.tolist()
    with open_output(str(index_path)) as file:
        file.write("".join(f"{key}\t{offset}\n" for key, offset in enumerate(offsets)).encode())
    return len(offsets)


# ---- reading an .idx ----


def _read_lines(path: str) -> _Lines:
    """Keys and offsets in the order of the lines."""
    try:
        with open_reader(path) as reader:
            data = reader.read_at(0, reader.size)
    except DataError as error:
        raise _Stale(str(error)) from None
    lines = data.splitlines()
    try:
        # All numbers at once: there may be millions.
        numbers = np.array(list(map(int, data.split())), np.int64)
        keys, offsets = numbers.reshape(len(lines), 2).T
    except (ValueError, OverflowError):
        kind = placeholder_of(data[:HEAD_BYTES])
        raise _Stale(f"it is {kind}" if kind else _bad_line(lines)) from None
    return keys, offsets


def _bad_line(lines: list[bytes]) -> str:
    for number, line in enumerate(lines, 1):
        try:
            np.array(list(map(int, line.split())), np.int64).reshape(1, 2)
        except (ValueError, OverflowError):
            return f"line {number} is not a key, a tab and an offset, but {line[:40].decode(errors='replace')!r}"
    return "it has lines that are not a key, a tab and an offset"


def _with_keys(found: FileIndex, keys: NDArray[np.int64], offsets: NDArray[np.int64]) -> FileIndex:
    """What a scan found, with keys when all of it is listed."""
    if not np.isin(found.offsets, offsets).all():
        return found
    order = np.argsort(offsets, kind="stable")
    of_found = keys[order][np.searchsorted(offsets[order], found.offsets)]
    return FileIndex(found.path, found.file_bytes, found.offsets, found.sizes, of_found, found.problems)


def _by_lines(path: str, keys: NDArray[np.int64], offsets: NDArray[np.int64]) -> FileIndex:
    with open_reader(path) as reader:
        order = _order(offsets, reader.size)
        edges = np.append(offsets[order], reader.size)
        rows = np.unique(np.linspace(0, len(order) - 1, SAMPLE).astype(np.int64)) if len(order) else order

        def check(row: int) -> str | None:
            return _sample_problem(reader, row, order, edges)

        for problem in map_ahead(check, rows.tolist()) if is_uri(path) else map(check, rows.tolist()):
            if problem is not None:
                raise _Stale(problem)
        return FileIndex(path, reader.size, edges[:-1], np.diff(edges), keys[order])


def _order(offsets: NDArray[np.int64], file_bytes: int) -> NDArray[np.int64]:
    """The order of the lines by offset. Raises _Stale for offsets that no file of this size can have."""
    if bool(len(offsets)) != bool(file_bytes):
        raise _Stale("it is empty, the file is not" if file_bytes else "the file is empty")
    order = np.argsort(offsets, kind="stable")
    for row in np.flatnonzero((offsets < 0) | (offsets >= file_bytes) | (offsets % 4 != 0))[:1].tolist():
        raise _Stale(f"{_no_record(row, int(offsets[row]))} (the file has {file_bytes} bytes)")
    for row in np.flatnonzero(np.diff(offsets[order]) == 0)[:1].tolist():
        lines = sorted(order[row : row + 2] + 1)
        raise _Stale(f"lines {lines[0]} and {lines[1]} both say byte {offsets[order[row]]}")
    if len(order) and offsets[order[0]] != 0:
        raise _Stale(_more(len(order), 0))
    return order


def _sample_problem(reader: Reader, row: int, order: NDArray[np.int64], edges: NDArray[np.int64]) -> str | None:
    """What is wrong with the record of a row; ``edges`` are the offsets, sorted, and the file's size."""
    offset, behind = int(edges[row]), int(edges[row + 1])
    try:
        end = record_end(reader.read_at, offset, reader.path, reader.size)
    except DamagedRecord as error:
        return f"{_no_record(int(order[row]), offset)} ({error.reason})"
    if end < behind:
        return _more(len(order), end)
    return _no_record(int(order[row + 1]), behind) if end > behind else None


def _no_record(row: int, offset: int) -> str:
    return f"line {row + 1} says byte {offset}, where no record begins"


def _more(count: int, offset: int) -> str:
    return f"it lists {count} records, the file has more: byte {offset} is not listed"
