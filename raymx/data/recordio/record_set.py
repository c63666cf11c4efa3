"""The records of a set of files by number: where each one is, and what all of them have in common.

    records = RecordSet.open(["data/", "s3://bucket/train-*.rec"])
    files, offsets, sizes = records.locate(np.array([17, 3]))

No Ray, no MXNet.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from raymx.data.recordio.index import index_of
from raymx.data.recordio.labels import Headers, headers, label_widths
from raymx.data.recordio.scan import FileIndex, OnBad, Problem
from raymx.errors import DataError
from raymx.storage import NO_RECORDS, expand, is_uri, map_ahead, open_reader

SAMPLE = 64  # records whose bytes tell one file from another of the same name
SAMPLE_BYTES = 64  # of each: the frame's header, the record's header and the beginning of what follows

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, eq=False)
class RecordSet:
    """The records of one or more files, numbered from 0 in the order of the files. Build it once a process."""

    paths: tuple[str, ...]
    starts: NDArray[np.int64]  # int64 (files + 1,): number of the first record of each file, and the count of all
    offsets: NDArray[np.int64]  # int64 (records,): byte offset in the record's own file
    sizes: NDArray[np.int64]  # int64 (records,): bytes on disk
    keys: NDArray[np.int64] | None  # int64 (records,): from the .idx files, when all files have one that is right
    file_bytes: tuple[int, ...]  # by file
    problems: tuple[tuple[str, Problem], ...]  # (path, what was skipped there)

    @classmethod
    def open(cls, paths: Sequence[str | os.PathLike[str]], on_bad_record: OnBad = "fail") -> RecordSet:
        """Index files, patterns, folders and URIs; see `raymx.storage.expand` for what they stand for.

        Raises DataError for a file that is missing or something else (a Git LFS pointer, a web page) and, with
        ``"fail"``, for one that is damaged or empty; with ``"skip"`` that is a problem, and only a set without any
        record is an error.
        """
        files = expand([os.fspath(path) for path in paths])
        if not files:
            raise DataError("no record files were given; name at least one .rec file")
        indexes = list(_map_files(lambda path: index_of(path, on_bad_record), files, files))
        problems = [problem for index in indexes for problem in _problems(index)]
        empty = [index for index in indexes if not len(index)]
        for path, problem in problems:
            if problem.reason.startswith(NO_RECORDS):
                raise DataError(f"{path} is {problem.reason}")
        if empty and (on_bad_record == "fail" or len(empty) == len(files)):
            raise DataError(f"{empty[0].path}: {_problems(empty[0])[0][1].reason}; a file needs one record or more")
        return cls._joined(indexes, tuple(problems))

    @classmethod
    def _joined(cls, indexes: Sequence[FileIndex], problems: tuple[tuple[str, Problem], ...]) -> RecordSet:
        keys = [index.keys for index in indexes if index.keys is not None]
        return cls(
            paths=tuple(index.path for index in indexes),
            starts=np.cumsum([0] + [len(index) for index in indexes], dtype=np.int64),
            offsets=np.concatenate([index.offsets for index in indexes]),
            sizes=np.concatenate([index.sizes for index in indexes]),
            keys=np.concatenate(keys) if len(keys) == len(indexes) else None,
            file_bytes=tuple(index.file_bytes for index in indexes),
            problems=problems,
        )

    @property
    def num_records(self) -> int:
        """Records in all files."""
        return len(self.offsets)

    def locate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(index into ``paths``, byte offset, bytes on disk), each int64 (rows,), of records by number.

        IndexError for numbers beyond them.
        """
        return np.searchsorted(self.starts, ids, side="right") - 1, self.offsets[ids], self.sizes[ids]

    def fingerprint(self) -> dict[str, str]:
        """By path, a hex digest of the file's size, its records' offsets and the first bytes of some of its records.

        Cheap, and it differs between two machines whose files of one name were written from different data. Bytes that
        are not looked at may still differ. Raises DataError when a file cannot be read.
        """
        return dict(zip(self.paths, _map_files(self._digest, range(len(self.paths)), self.paths), strict=True))

    @property
    def damaged(self) -> int:
        """How many records were lost where bytes were skipped: one a place at least, else as many as usual ones."""
        lost = sum(self.file_bytes) - int(self.sizes.sum())
        return max(len(self.problems), round(lost / max(1.0, float(self.sizes.mean())))) if self.problems else 0

    def headers(self, ids: NDArray[np.int64]) -> Headers:
        """What the headers of records say, by number, int64 (rows,) ascending. DataError when a file cannot be read."""
        files, offsets, _ = self.locate(ids)
        parts = [headers(self.paths[file], offsets[files == file]) for file in np.unique(files).tolist()]
        return Headers(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(Headers)))

    def label_widths(self, *, with_image: bool = False) -> dict[int, int]:
        """How many records have how many labels, from a few bytes of each.

        Records that are damaged, or too short for the labels that they announce, are not counted: reading one is an
        error of its own. ``with_image``: nor are those without one. Raises DataError when a file cannot be read.
        """
        total: dict[int, int] = {}
        widths = partial(self._widths, with_image=with_image)
        for found in _map_files(widths, range(len(self.paths)), self.paths):
            for width, count in found.items():
                total[width] = total.get(width, 0) + count
        return dict(sorted(total.items()))

    def max_label_width(self) -> int:
        """The largest number of labels of a record; 0 when no record has whole labels."""
        return max(self.label_widths(), default=0)

    def _file_records(self, file: int) -> slice:
        return slice(int(self.starts[file]), int(self.starts[file + 1]))

    def _widths(self, file: int, with_image: bool) -> dict[int, int]:
        rows = self._file_records(file)
        return label_widths(self.paths[file], self.offsets[rows], self.sizes[rows], with_image=with_image)

    def _digest(self, file: int) -> str:
        offsets, sizes = self.offsets[self._file_records(file)], self.sizes[self._file_records(file)]
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{self.file_bytes[file]} {len(offsets)}".encode())
        digest.update(offsets.astype("<i8").tobytes())
        rows = np.unique(np.linspace(0, len(offsets) - 1, SAMPLE).astype(np.int64))[: len(offsets)].tolist()
        with open_reader(self.paths[file]) as reader:

            def first_bytes(row: int) -> bytes:
                return reader.read_at(int(offsets[row]), min(SAMPLE_BYTES, int(sizes[row])))

            for data in map_ahead(first_bytes, rows) if is_uri(reader.path) else map(first_bytes, rows):
                digest.update(data)
        return digest.hexdigest()


def _problems(index: FileIndex) -> list[tuple[str, Problem]]:
    """(path, problem) of a file; one without any record is a problem in itself."""
    found = index.problems or (() if len(index) else (Problem(0, "the file has no records"),))
    return [(index.path, problem) for problem in found]


def _map_files(function: Callable[[_T], _R], items: Iterable[_T], paths: Sequence[str]) -> Iterator[_R]:
    """``map`` over files; in threads when one is far away, since each takes several requests."""
    return map_ahead(function, items) if any(map(is_uri, paths)) else map(function, items)
