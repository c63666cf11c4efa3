"""One trial of a script: generation after generation, until one has ended well or no restart is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from raymx.launch import log_lines
from raymx.launch.bundles import Seat
from raymx.launch.epochs import Epochs
from raymx.launch.generation import Generation, Group, Where
from raymx.launch.outcome import Ended, Verdict
from raymx.launch.records import TrialRecord


class Trial:
    """Steps of one trial; ``step`` never waits long. ``say`` shows a line, with the role that it is of or None."""

    def __init__(self, record: TrialRecord, where: Where, say: Callable[[str, str], None]) -> None:
        self.record, self._where, self._say = record, where, say
        self._script = record.script
        self._patterns = log_lines.compiled(self._script.patterns)
        self._group = Group(self._script)
        self._generation: Generation | None = None
        self._epochs = Epochs(self._script.workers)
        self.restarts = 0
        self.verdict: Verdict | None = None
        self._waited = False
        record.begin()

    @property
    def waits_for(self) -> Sequence[Any]:
        return self._generation.waits_for if self._generation else ()

    def step(self) -> bool:
        """Do what can be done now; whether the trial is over, with its ``verdict``."""
        if self._generation is None:
            if not self._group.is_ready():
                return False
            self._form()
        assert self._generation is not None
        if told := self._generation.warning():
            self._say("", f"warning: {told}")
        found = self._generation.poll()
        self._keep(self._epochs.ready(time.monotonic()))
        if found is None:
            return False
        self._generation = None
        if found.code != 0 and self.restarts < self._script.restarts:
            self.restarts += 1
            self._say(
                "",
                f"warning: {found.reason}; all roles start again, restart {self.restarts} of {self._script.restarts}",
            )
            return False
        self._end(found)
        return True

    def _form(self) -> None:
        self._generation = Generation(
            self._group, self._where, self.record.planned.command, self._on_line, self._on_end
        )
        if self.restarts:
            self._mark(f"---- restart {self.restarts} ----")
        if (epoch := self._generation.epoch) is not None:
            self._keep(self._epochs.before(epoch))  # of the last generation: those that are not done again
            self._say("", f"note: it goes on from {self._script.resume_prefix}-{epoch:04d}.params")

        self._epochs = Epochs(self._script.workers)

    def _keep(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self.record.row(row, self.restarts)

    def _mark(self, text: str) -> None:
        for seat in self._group.seats:
            self.record.line(seat, text)

    def _on_line(self, seat: Seat, line: str) -> None:
        self._say(seat.name, line)
        self.record.line(seat, line)
        if seat.kind == "worker":
            for reading in log_lines.read(line, self._patterns):
                self._epochs.add(seat.index, reading, time.monotonic())

    def _on_end(self, ended: Ended) -> None:
        if ended.seat.kind == "worker" and ended.code == 0:
            self._epochs.end(ended.seat.index)

    def _end(self, found: Verdict) -> None:
        self.verdict = found
        if silent := self._epochs.silent:
            self._say(
                "",
                f"note: {silent} of {self._script.workers} workers print no speed: samples/s is that of the others",
            )
        self._group.remove()
        self.record.end("finished" if found.code == 0 else "failed", found.reason or None)

    def stop(self, state: str, reason: str) -> None:
        """End it now: it was interrupted, or raymx itself failed."""
        if self.verdict is None:
            self.verdict = Verdict(1, reason)
            if self._generation is not None:
                self._generation.close()
            self._group.remove()
            self.record.end(state, reason)
