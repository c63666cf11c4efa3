"""Which files a path, a pattern or a folder stands for, and what is there instead where it stands for none."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from raymx.errors import DataError
from raymx.storage.locations import Location, location
from raymx.storage.paths import errors_name, is_uri
from raymx.text.nearest import nearest

RECORDS = "*.rec"


def exists(path: str) -> bool:
    """Whether there is a file at ``path``. DataError when its file system cannot be asked."""
    if not is_uri(path):
        return os.path.isfile(path)
    with errors_name(path, "read"):
        return location(path).is_file


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
    pattern = _with_folders_as_they_are(path)
    return sorted(file for file in glob.glob(pattern, recursive=True) if not os.path.isdir(file))


def _with_folders_as_they_are(path: str) -> str:
    """A pattern in which no folder that is there is one: ``photos [v1]/*.rec`` has its wildcard in the last part."""
    folder = os.path.dirname(path)
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return glob.escape(folder) + path[len(folder) :]


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


def _uri_files(uri: str) -> list[str]:
    base, mark, options = uri.partition("?")
    parts = base.rstrip("/").split("/")
    fixed = next((at for at, part in enumerate(parts) if "*" in part or "[" in part), len(parts))
    folder, pattern = "/".join(parts[:fixed]), parts[fixed:] or [RECORDS]
    with errors_name(uri, "read"):
        place = location(folder + mark + options)
        if fixed == len(parts) and place.is_file:
            return [uri]
        _, names = place.names(recursive=len(pattern) > 1)
        found = [name for name in names if _matches(name.split("/"), pattern)]
        if not found:
            no_match = f"no file matches {uri}{_listing(names, folder)}"
            raise DataError(no_match if fixed < len(parts) else _why_no_records(uri, folder, place, names))
    return [f"{folder}/{quote(name)}{mark}{options}" for name in found]


def _why_no_records(uri: str, folder: str, place: Location, names: list[str]) -> str:
    """What is wrong with a URI, which names ``folder``, that has the files ``names`` and no records."""
    if names:
        return f"{uri} is a folder without {RECORDS} files{_listing(names, 'it')}"
    above = os.path.dirname(place.path.rstrip("/"))  # a store has no empty folders, and a bucket nothing above it
    beside = Location(place.system, above).names()[1] if above else None
    listing = "" if beside is None else _listing(beside, os.path.dirname(folder), os.path.basename(folder))
    return f"{uri} does not exist{listing}"


def _matches(parts: list[str], pattern: list[str]) -> bool:
    # Not the globs of fsspec or pyarrow: in theirs a ? is a wildcard, and ** is another one.
    if not pattern or not parts:
        return not parts and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
