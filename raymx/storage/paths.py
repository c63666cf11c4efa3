"""Paths and URIs as text, and the one line about what failed at one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from raymx.errors import DataError


def is_uri(path: str) -> bool:
    """Whether ``path`` names a file by URI; everything without ``://`` is a local path."""
    return "://" in path


def with_suffix(path: str, suffix: str) -> str:
    """``path`` with another ending, such as ``.idx``; the options of a URI stay behind it."""
    base, mark, options = path.partition("?") if is_uri(path) else (path, "", "")
    return os.path.splitext(base)[0] + suffix + mark + options


def child(path: str, *names: str) -> str:
    """The path of something below a folder; the options of a URI stay behind it."""
    base, mark, options = path.partition("?") if is_uri(path) else (path, "", "")
    return "/".join([base.rstrip("/"), *names]) + mark + options


@contextmanager
def errors_name(path: str, what: str) -> Iterator[None]:
    """Turn what the operating system or pyarrow raises into a DataError: PATH cannot be ``what`` (reason)."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own exceptions are among the last two
        reason = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path}: cannot be {what} on this node ({reason})") from error
