"""progress.csv: one header for ever, whatever rows come."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raymx.driver.monitor import TuneHooks
from raymx.results.csv_rows import add_row
from raymx.storage import location

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


class TestCallback:
    """Tune's callback, as it comes out of the pickle of a run that an older release began: without its __init__."""

    def trial(self, folder: Path, stored: Path) -> Any:
        stored.mkdir(exist_ok=True)
        there = location(str(stored))
        return SimpleNamespace(
            trial_id="t",
            local_path=str(folder),
            init_local_path=lambda: folder.mkdir(exist_ok=True),
            checkpoint="a checkpoint",
            storage=SimpleNamespace(storage_filesystem=there.system, trial_fs_path=there.path),
        )

    def log(self, trial: Any, *rows: dict[str, Any]) -> None:
        hooks = TuneHooks.__new__(TuneHooks)
        for row in rows:
            hooks.on_trial_result(1, [trial], trial, {**row, "config": {"point": 1}})
            hooks.on_checkpoint(1, [trial], trial, None)
        hooks.on_trial_complete(1, [trial], trial)

    def test_a_resumed_run_goes_on_with_the_stored_file(self, tmp_path: Path) -> None:
        stored = tmp_path / "stored"
        self.log(self.trial(tmp_path / "first", stored), INTERRUPTED)
        (tmp_path / "first" / "progress.csv").rename(stored / "progress.csv")  # as Tune copies it
        self.log(self.trial(tmp_path / "second", stored), {**WHOLE, "hist": {"a": 1}})
        rows = read(tmp_path / "second" / "progress.csv")
        assert [row["epoch"] for row in rows] == ["0.3", "1.0"]
        assert (rows[1]["hist/a"], rows[1]["nodes"], rows[0]["nodes"]) == ("1", "n1,n2", "")
        assert "config" not in rows[0]

    def test_without_a_checkpoint_it_begins_anew(self, tmp_path: Path) -> None:
        trial = self.trial(tmp_path / "first", tmp_path / "stored")
        (tmp_path / "stored" / "progress.csv").write_text("epoch\n9\n")
        trial.checkpoint = None
        self.log(trial, WHOLE)
        assert [row["epoch"] for row in read(tmp_path / "first" / "progress.csv")] == ["1.0"]

    def test_tune_takes_it_for_its_own(self) -> None:
        """Else it would write a second file, over this one."""
        from ray.tune.logger import CSVLoggerCallback

        assert issubclass(TuneHooks, CSVLoggerCallback)
