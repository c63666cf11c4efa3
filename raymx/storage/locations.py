"""A file or a folder on a file system of pyarrow's: what all reading and writing of raymx's goes through."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import quote

from raymx.storage.paths import is_uri

FILE_ERRORS = (OSError, ValueError, NotImplementedError)  # pyarrow's own exceptions are among the last two
_GCS_PATIENCE = "retry_limit_seconds=30"  # the client's own is 15 minutes, in silence
_URI_CHARACTERS = "%/:?=&@+,;!$'()~#*"  # all others are written as %XX before pyarrow sees them


@dataclass(frozen=True)
class Location:
    """A file or a folder, there or not. Its methods raise what pyarrow raises: `FILE_ERRORS`."""

    system: Any  # a pyarrow.fs.FileSystem
    path: str  # in it

    def __truediv__(self, name: str) -> Location:
        return Location(self.system, f"{self.path}/{name}")

    @property
    def is_there(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self.system.get_file_info(self.path).type != FileType.NotFound)

    @property
    def is_file(self) -> bool:
        return bool(self.system.get_file_info(self.path).is_file)

    @property
    def is_folder(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self.system.get_file_info(self.path).type == FileType.Directory)

    @property
    def is_on_disk(self) -> bool:
        """Whether the file system is the machine's own, where folders are made before the files in them."""
        return bool(self.system.type_name == "local")

    @property
    def local_path(self) -> str | None:
        """The path as the operating system knows it; None where it is not local."""
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        if isinstance(self.system, SubTreeFileSystem):
            inside = os.path.join(self.system.base_path, self.path.lstrip("/"))
            return Location(self.system.base_fs, inside).local_path
        return self.path if isinstance(self.system, LocalFileSystem) else None

    def names(self, recursive: bool = False) -> tuple[list[str], list[str]]:
        """The folders and the files in a folder, sorted, relative to it; none when it is not there."""
        from pyarrow.fs import FileSelector, FileType

        place = self.path.rstrip("/")
        found = self.system.get_file_info(FileSelector(place or self.path, recursive=recursive, allow_not_found=True))
        names = sorted((str(info.path[len(place) :]).lstrip("/"), info.type) for info in found)
        return (
            [name for name, kind in names if kind == FileType.Directory],
            [name for name, kind in names if kind == FileType.File],
        )

    def open_for_reads(self) -> Any:
        """A pyarrow file with ``read_at``."""
        return self.system.open_input_file(self.path)

    def open_for_writing(self) -> BinaryIO:
        """A file that is written from its beginning. A store shows it once it is closed, the local disk at once."""
        file: BinaryIO = self.system.open_output_stream(self.path, compression=None)
        return file

    def read(self) -> bytes:
        with self.system.open_input_stream(self.path, compression=None) as file:
            return bytes(file.read())

    def write(self, data: Any) -> None:
        """Write a file; ``data`` is anything that has bytes. It may be there in part when that fails."""
        with self.open_for_writing() as file:
            file.write(data)

    def write_whole(self, data: Any) -> None:
        """Write a file that is there complete or not at all; its folder is made."""
        part = Location(self.system, f"{self.path}.tmp")
        Location(self.system, os.path.dirname(self.path)).make_folder()
        part.write(data)
        part.move(self)

    def make_folder(self) -> None:
        """With those above it."""
        self.system.create_dir(self.path, recursive=True)

    def move(self, to: Location) -> None:
        """Rename, in the place of what was there; ``to`` is on the same file system."""
        self.system.move(self.path, to.path)

    def remove_file(self) -> None:
        self.system.delete_file(self.path)

    def remove_folder(self) -> None:
        """With all that is in it."""
        self.system.delete_dir(self.path)

    def sync(self) -> None:
        """Wait until a local file, or the names in a local folder, are on the disk."""
        if (place := self.local_path) is not None:
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def location(path: str, system: Any = None) -> Location:
    """Of a local path or a URI; or of a path on a pyarrow file ``system``."""
    if system is not None:
        return Location(system, path)
    if is_uri(path):
        return Location(*file_system(path))
    from pyarrow.fs import LocalFileSystem

    return Location(LocalFileSystem(), path)


def file_system(uri: str) -> tuple[Any, str]:
    """pyarrow's file system of a URI, and the path in it."""
    from pyarrow.fs import FileSystem

    if uri.startswith(("gs://", "gcs://")) and "retry_limit_seconds=" not in uri:
        uri += ("&" if "?" in uri else "?") + _GCS_PATIENCE
    system, place = FileSystem.from_uri(quote(uri, safe=_URI_CHARACTERS))
    return system, place


def reason(error: BaseException) -> str:
    """Why something failed, in one line: pyarrow's own texts name the path again, and twice."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else next(iter(str(error).splitlines()), type(error).__name__)
