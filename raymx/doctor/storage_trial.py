"""Trying out a storage path on one node: a small file is written, looked for, and removed. It travels by its source."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from typing import Any

from raymx.doctor.facts import Space, space

_PATIENCE_S = 5.0  # network file systems show a new file late to those who have looked for it before


class StorageTrial:
    """One node's files under a storage path, a folder or a URI of pyarrow's, and what it sees of the others'."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._made: list[str] = []  # local folders that were not there, the innermost first
        self._written: list[str] = []

    def write(self, name: str) -> str:
        """Write a file whose content is its name; what went wrong, "" when nothing did."""
        try:
            self._made += self._missing_folders()
            fs, path = self._filesystem()
            fs.create_dir(path)
            self._written.append(f"{path}/{name}")
            with fs.open_output_stream(f"{path}/{name}") as file:
                file.write(name.encode())
        except Exception as error:  # pyarrow's own kinds, of every file system
            return next(iter(str(error).strip().splitlines()), type(error).__name__)
        return ""

    def sees(self, names: Iterable[str]) -> list[str]:
        """Those of the files that are there with their content, for which it waits up to 5 s."""
        wanted, seen, deadline = list(names), [], time.monotonic() + _PATIENCE_S
        while True:
            seen = [name for name in wanted if name in seen or self._is_there(name)]
            if len(seen) == len(wanted) or time.monotonic() > deadline:
                return seen
            time.sleep(0.2)

    def remove_files(self) -> None:
        for path in self._written:
            with contextlib.suppress(Exception):  # never written, or gone
                self._filesystem()[0].delete_file(path)

    def remove_folders(self) -> None:
        """Those that this node made, once all nodes have removed their files."""
        for path in self._made:
            with contextlib.suppress(OSError):
                os.rmdir(path)

    @property
    def disk(self) -> Space | None:
        return None if "://" in self._path else space(self._path)

    def _is_there(self, name: str) -> bool:
        try:
            fs, path = self._filesystem()
            with fs.open_input_stream(f"{path}/{name}") as file:
                return bool(file.read() == name.encode())
        except Exception:
            return False

    def _missing_folders(self) -> list[str]:
        missing, path = [], self._path
        while "://" not in path and not os.path.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        return missing

    def _filesystem(self) -> tuple[Any, str]:
        from pyarrow import fs  # not raymx.storage: the node that this runs on may have no raymx

        return fs.FileSystem.from_uri(self._path) if "://" in self._path else (fs.LocalFileSystem(), self._path)


def try_here(path: str, name: str) -> tuple[str, Space | None]:
    """(what went wrong, the disk) of a storage path on this machine; nothing is left there."""
    trial = StorageTrial(path)
    try:
        return trial.write(name), trial.disk
    finally:
        trial.remove_files()
        trial.remove_folders()
