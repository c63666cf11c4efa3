"""What more than one place prints. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns are as wide as their widest cell; every row has as many cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
