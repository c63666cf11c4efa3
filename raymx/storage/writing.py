"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import BinaryIO

from raymx.storage.locations import location
from raymx.storage.paths import child, errors_name, is_uri


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
        place = location(path)
        file = place.open_for_writing()
    try:
        yield file
        with errors_name(path, "written"):
            file.close()
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            file.close()
            place.remove_file()
        raise


def write_files(folder: str, contents: Mapping[str, bytes]) -> None:
    """Write files into ``folder``, which is made; each is complete or not there. Raises a DataError that names it."""
    with errors_name(folder, "written"):
        location(folder).make_folder()
    for name, data in contents.items():
        with open_output(child(folder, name)) as file:
            file.write(data)
