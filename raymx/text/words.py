"""What more than one place prints. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns are as wide as their widest cell.

    A row may have fewer cells than others: the last of those is as long as it is, and makes no column wider.
    """
    most = max(map(len, rows))
    widths = [max(len(row[at]) for row in rows if at + (len(row) < most) < len(row)) for at in range(most)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def duration(seconds: float) -> str:
    """``45 s``, ``3 min``, ``2.5 h``; "" when not known."""
    if math.isnan(seconds):
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def some(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: so many of them, and how many are left."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def either(names: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join([*([", ".join(names[:-1])] if names[:-1] else []), *names[-1:]])
