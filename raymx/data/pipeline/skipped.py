"""The records of a worker that could not be used and were skipped: counted, and named in the log. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from raymx.data.pipeline.batch import Batch
from raymx.data.pipeline.source import Source

log = logging.getLogger(__name__)


class SkippedRecords:
    """Those since the last `take`. ``tells_damage``: damage of a file is found by every worker, and told by one."""

    def __init__(self, *, tells_damage: bool) -> None:
        self._tells_damage = tells_damage
        self._reasons: dict[str, list[str]] = {}  # file -> why each of its records was skipped

    def note_damage(self, records: Source) -> None:
        """What was found when the files were indexed."""
        for path, problem in records.problems if self._tells_damage else ():
            self._reasons.setdefault(path, []).append(f"at byte {problem.offset}: {problem.reason}")

    def note(self, batch: Batch) -> None:
        """What was found when a batch was decoded."""
        for record in batch.bad:
            self._reasons.setdefault(record.path, []).append(f"{record.place.removeprefix('record ')}: {record.reason}")

    def noted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """``batches``, each of which is noted."""
        for batch in batches:
            self.note(batch)
            yield batch

    def take(self) -> int:
        """How many there were since the last call; says so in the log, a line a file."""
        taken, self._reasons = self._reasons, {}
        for path, reasons in taken.items():
            log.warning(
                "%s: %d bad record%s skipped, the first %s",
                path,
                len(reasons),
                "" if len(reasons) == 1 else "s",
                reasons[0],
            )
        return sum(map(len, taken.values()))
