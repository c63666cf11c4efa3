"""Each trial's progress.csv in raymx's hand: Tune's own puts a resumed run's rows under the header of its first row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.air.constants import EXPR_PROGRESS_FILE
from ray.tune.logger import CSVLoggerCallback
from ray.tune.utils import flatten_dict

from raymx.results.columns import WHOLE_EXPERIMENT
from raymx.results.csv_rows import add_row
from raymx.storage import FILE_ERRORS, Location


class ProgressCsv(CSVLoggerCallback):
    """Stands for Tune's own, which adds one where none of its class is there. It has no state."""

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        """Add a row; a run that is resumed goes on with the file under the storage path."""
        trial.init_local_path()
        file = Path(trial.local_path, EXPR_PROGRESS_FILE)
        if not file.exists() and trial.checkpoint:  # without a checkpoint it begins anew, and so does its file
            _fetch(Location(trial.storage.storage_filesystem, trial.storage.trial_fs_path) / EXPR_PROGRESS_FILE, file)
        row = {name: value for name, value in result.items() if name not in WHOLE_EXPERIMENT}
        add_row(file, flatten_dict(row, delimiter="/"))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        """Nothing is open between two rows."""


def _fetch(stored: Location, file: Path) -> None:
    try:
        if stored.is_file:
            file.write_bytes(stored.read())
    except FILE_ERRORS:  # result.json has the rows
        return
