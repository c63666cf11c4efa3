"""The records of a set of files by number: where each one is. No Ray, no MXNet."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raymx.data.recordio import scan
from raymx.errors import DataError


@dataclass(frozen=True, eq=False)
class RecordSet:
    """The records of one or more files, numbered from 0 in the order of the files. Build it once a process."""

    paths: tuple[str, ...]
    starts: NDArray[np.int64]  # int64 (files + 1,): number of the first record of each file, and the count of all
    offsets: NDArray[np.int64]  # int64 (records,): byte offset in the record's own file

    @classmethod
    def open(cls, paths: Sequence[str | os.PathLike[str]]) -> RecordSet:
        """Index files; a name with ``*``, ``?`` or ``[]`` stands for all that match, sorted.

        Raises DataError for a file that is missing, damaged or empty, and for a pattern that nothing matches.
        """
        files = [file for path in paths for file in _expand(os.fspath(path))]
        if not files:
            raise DataError("no record files were given; name at least one .rec file")
        indexes = [scan(file) for file in files]
        for index in indexes:
            if not len(index):
                raise DataError(f"{index.path}: the file has no records")
        starts = np.cumsum([0] + [len(index) for index in indexes], dtype=np.int64)
        return cls(tuple(files), starts, np.concatenate([index.offsets for index in indexes]))

    @property
    def num_records(self) -> int:
        """Records in all files."""
        return len(self.offsets)

    def locate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(index into ``paths``, byte offset), each int64 (rows,), of records by number. IndexError beyond them."""
        return np.searchsorted(self.starts, ids, side="right") - 1, self.offsets[ids]


def _expand(path: str) -> list[str]:
    path = os.path.abspath(path)  # read tasks have another working directory
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise DataError(f"{path}: no file matches this pattern")
    return found
