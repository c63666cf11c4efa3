"""Commands as a user gives them, and what a run leaves in its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import marked

ROLES = ("ray::Worker", "ray::Server", "ray::KVScheduler", "ray::Trial")


class Command:
    """One ``python -m raymx.run``, and every process that it leads to, known by a mark in their environment."""

    def __init__(
        self, *arguments: object, cwd: Path, standby: bool = False, module: str = "raymx.run", **environment: str
    ) -> None:
        if module == "raymx.run" and not standby and "--resume" not in arguments:  # processes that nothing waits for
            arguments = (*arguments, "--set", "resources.standby=false")
        self._mark = f"RAYMX_TEST={uuid.uuid4().hex}"
        name, value = self._mark.split("=")
        clean = {key: text for key, text in os.environ.items() if not key.startswith("RAY")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=cwd,
            text=True,
            env=clean | environment | {name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self.out = self.err = ""

    def wait(self, timeout_s: float = 180) -> int:
        try:
            self.out, self.err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode

    def left(self, *names: str) -> list[str]:
        """Processes that still run, by title; those that begin with ``names`` when there are any."""
        return list(marked(self._mark, *names).values())

    def kill(self, name: str) -> None:
        """SIGKILL one of the processes whose title begins so."""
        os.kill(min(marked(self._mark, name)), signal.SIGKILL)


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.1)
    return value


def the_run(storage: Path) -> Path:
    """The folder of the only run in it."""
    return next(path for path in storage.iterdir() if path.is_dir())


def rows(run: Path) -> list[dict[str, Any]]:
    """The rows of the run's only trial so far, from where Tune keeps them while it runs."""
    return [json.loads(line) for file in run.glob("Trial*/result.json") for line in file.read_text().splitlines()]


def records(run: Path) -> list[dict[str, Any]]:
    """What is written down of each trial of a sweep, in the order in which they began."""
    found = [json.loads(path.read_text()) | {"folder": path.parent} for path in run.glob("Trial_*/trial.json")]
    return sorted(found, key=lambda one: one["started"])


def epochs_of(record: dict[str, Any]) -> list[float]:
    return [json.loads(line)["epoch"] for line in (record["folder"] / "result.json").read_text().splitlines()]
