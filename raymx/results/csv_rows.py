"""Rows of different columns in one CSV file, whose header names all of them. No Ray.

Rows come one by one, and a later one may have columns that none had before: an interrupted epoch's has few.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def add_row(file: Path, row: Mapping[str, Any]) -> None:
    """Append a row; where it brings new columns, write the file anew with them, empty in the rows before.

    Lines that do not fit their header, as older releases wrote them, are left out then: result.json has them.
    """
    before = _lines(file, 1)
    columns = before[0] if before else []
    new = [name for name in row if name not in columns]
    if new:
        kept = [dict(zip(columns, line, strict=True)) for line in _lines(file)[1:] if len(line) == len(columns)]
        _write(file, [*columns, *new], [*kept, row])
    else:
        with file.open("a", newline="") as appended:
            csv.DictWriter(appended, columns).writerow(row)


def _lines(file: Path, most: int | None = None) -> list[list[str]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(itertools.islice(csv.reader(lines), most))


def _write(file: Path, columns: list[str], rows: Iterable[Mapping[str, Any]]) -> None:
    part = file.with_name(f"{file.name}.tmp")
    with part.open("w", newline="") as written:
        writer = csv.DictWriter(written, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(part, file)
