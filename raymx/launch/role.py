"""The Ray actor of one role of a script: it runs the role's command and hands on what that prints."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import ray

from raymx.launch import commands, environment, resume
from raymx.launch.hook import FOLDER as HOOK

SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
ROOT = str(Path(__file__).resolve().parents[2])
"""The folder that the package raymx lies in on this node."""
_MOST_BYTES = 1 << 16  # of a line
_GATHER_S = 0.05  # lines that come together travel together


@dataclass(frozen=True)
class Place:
    """Where a role's actor is: its node's id and address, its process, and the folder that Ray unpacked for it."""

    node: str
    host: str
    pid: int
    folder: str


@dataclass(frozen=True)
class Task:
    """What a role runs. ``folder`` is "" for the one that Ray unpacked. ``env`` is the role's own, ``client`` the whole
    one of who gave the command, where that was on this node. ``hooked``: `raymx.launch.hook` is in its interpreters.
    """

    command: tuple[str, ...]
    folder: str
    env: Mapping[str, str]
    client: Mapping[str, str] | None
    threads: int
    hooked: bool


@ray.remote(max_restarts=0, concurrency_groups={"run": 1, "lines": 1, "control": 2})
class Role:
    """One role. `run` blocks until its command has ended; `lines` gives what it prints meanwhile."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._some = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._over = self._stopped = False

    @ray.method(concurrency_group="control")
    def place(self) -> Place:
        return Place(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.getpid(), os.getcwd())

    @ray.method(concurrency_group="control")
    def free_port(self, host: str, wanted: int = 0) -> int:
        """A port of this node that nobody listens on now: the wanted one, or any. Raises OSError when it is taken."""
        with socket.socket() as probe:
            probe.bind((host, wanted))
            return int(probe.getsockname()[1])

    @ray.method(concurrency_group="control")
    def epochs(self, folder: str, prefix: str) -> set[int]:
        """The epochs of which this node has parameters by that prefix."""
        path = os.path.dirname(os.path.join(folder or os.getcwd(), prefix))
        try:
            return resume.epochs_of(os.listdir(path), prefix)
        except OSError:
            return set()

    @ray.method(concurrency_group="run")
    def run(self, task: Task) -> int:
        """Run the command to its end; its exit code, as `raymx.launch.supervisor` has it."""
        env = environment.child(os.environ, task.client, task.threads, task.env, HOOK if task.hooked else "")
        env[environment.ROOT] = ROOT
        if task.client is None:  # a node where nobody has chosen an interpreter: raymx's own
            env["PATH"] = f"{os.path.dirname(sys.executable)}:{env.get('PATH', os.defpath)}"
        own = task.command[0] == commands.PYTHON
        command = [sys.executable, *task.command[1:]] if own else task.command
        with self._some:
            if self._stopped:
                return 0
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", SUPERVISOR, *command],
                cwd="/" if own else task.folder or None,  # raymx's own is not to find modules of the script's
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that Ctrl-C in a terminal is the driver's alone
            )
        assert self._process.stdout is not None
        try:
            self._read(self._process.stdout)
            return self._process.wait()
        finally:
            with self._some:
                self._over = True
                self._some.notify_all()

    def _read(self, output: IO[bytes]) -> None:
        while line := output.readline(_MOST_BYTES):
            text = line.decode(errors="replace").rstrip("\r\n").rpartition("\r")[2]  # the last state of a progress bar
            with self._some:
                self._lines.append(text)
                self._some.notify_all()

    @ray.method(concurrency_group="lines")
    def lines(self) -> list[str] | None:
        """The next lines that the command has printed; blocks until there are some. None once all have been given."""
        with self._some:
            while not self._lines and not self._over:
                self._some.wait()
            if not self._lines:
                return None
        time.sleep(_GATHER_S)
        with self._some:
            taken, self._lines = self._lines, []
        return taken

    @ray.method(concurrency_group="control")
    def stop(self) -> None:
        """Have the command end: SIGTERM, and SIGKILL three seconds later."""
        with self._some:
            self._stopped = True
            process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(b"t")
                process.stdin.flush()
