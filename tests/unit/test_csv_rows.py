"""progress.csv: one header for ever, whatever rows come."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from raymx.results.csv_rows import add_row

WHOLE = {"epoch": 1.0, "train_loss": 0.5, "validation_loss": 0.4, "nodes": "n1,n2"}
INTERRUPTED = {"epoch": 0.3, "num_workers": 2}


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("rows", [[INTERRUPTED, WHOLE, WHOLE], [WHOLE, INTERRUPTED, WHOLE], [WHOLE, WHOLE]])
def test_every_value_stands_under_its_name(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    file = tmp_path / "progress.csv"
    for row in rows:
        add_row(file, row)
    columns = {name for row in rows for name in row}
    assert read(file) == [{name: str(row.get(name, "")) for name in columns} for row in rows]


def test_a_row_with_known_columns_is_appended(tmp_path: Path) -> None:
    file = tmp_path / "progress.csv"
    add_row(file, WHOLE)
    before = file.read_text()
    add_row(file, {"train_loss": 0.1})
    assert file.read_text().startswith(before)
    assert file.read_text().count("epoch") == 1
    assert read(file)[1] == {"epoch": "", "train_loss": "0.1", "validation_loss": "", "nodes": ""}


def test_lines_that_do_not_fit_are_left_out_when_it_is_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "progress.csv"
    add_row(file, INTERRUPTED)
    with file.open("a") as appended:
        appended.write("1.0,2,0.5,0.4\n")  # as Tune wrote a resumed run's
    add_row(file, WHOLE)
    assert [row["epoch"] for row in read(file)] == ["0.3", "1.0"]
    assert list(tmp_path.iterdir()) == [file]
