"""A command that starts processes which outlive it: all of them are ended again when what follows fails."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from raymx.errors import JobError

END_TIMEOUT_S = 5.0  # for them to end by themselves; then they are killed
_MOST_CHARACTERS = 500


class Started:
    """A context. The command gets a session of its own, by which the processes that it leaves are known."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Raises JobError when it cannot be run at all."""
        self._command = shlex.join(command)
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  its life is this object's
        try:
            self._process = subprocess.Popen(
                command, env=environment, stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            self._said.close()
            raise JobError(f"Ray could not be started on this machine with {self._command}: {error}") from None

    def __enter__(self) -> Started:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if kind is not None:
            end_session(self._process.pid)
        self._said.close()

    @property
    def output(self) -> str:
        """The end of what it has printed, in one line."""
        self._said.seek(0)
        return " ".join(self._said.read().split())[-_MOST_CHARACTERS:] or "nothing"

    def wait(self, timeout_s: float) -> None:
        """Until the command is done. Raises JobError with what it printed when that went wrong, or took longer."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise JobError(
                f"Ray could not be started on this machine within {timeout_s:.0f} s: {self._command} printed: "
                f"{self.output}"
            ) from None
        if code:
            raise JobError(f"Ray could not be started on this machine: {self._command} ended with: {self.output}")


def end_session(session: int) -> None:
    """End all processes of a session, those that were started in the meantime too."""
    for number, rounds in ((signal.SIGTERM, 1 + int(END_TIMEOUT_S / 0.1)), (signal.SIGKILL, 10)):
        for at in range(rounds):
            members = list(_members(session))
            if not members:
                return
            for process in members if at == 0 or number == signal.SIGKILL else ():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            time.sleep(0.1)


def _members(session: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                yield int(folder.name)
