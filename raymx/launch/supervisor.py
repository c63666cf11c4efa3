"""The parent of one role's command: it runs it, and sees to it that nothing of it stays.

    python -I -S supervisor.py COMMAND ...

Its standard input is a pipe that the role's actor holds open. Nothing is written there but ``t``, which asks for an
end: SIGTERM, and SIGKILL after `GRACE_S`. When the actor is gone the pipe is closed, and everything is killed at once.
Ray kills the children of an actor's process, and would kill this one before it can do its work: so the work is done by
a child of it. The command leads a process group of its own and is killed with that child; whatever it has started
becomes its child when its own parent ends, so that is found too. The exit code is the command's, 128 and the signal's
number where a signal ended it, 127 where it cannot be started. Standard library alone: it starts in some 50 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

GRACE_S = 3.0
NOT_FOUND = 127
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_EVERY_S = 0.05  # while what is left is being killed


def main(command: Sequence[str]) -> int:
    child = os.fork()
    if child == 0:
        os._exit(_supervise(command))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _supervise(command: Sequence[str]) -> int:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    def begin() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setpgid(0, 0)

    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=begin)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror or error}\n")
        sys.stderr.flush()
        return NOT_FOUND
    code = _watch(child.pid, woken)
    _kill_rest(child.pid)
    return code


def _watch(pid: int, woken: int) -> int:
    """Wait for the command's end, and bring it about when that is asked for; its exit code."""
    kill_at, waits_for = float("inf"), [0, woken]
    while True:
        code = _reap(pid)
        if code is not None:
            return code
        left = kill_at - time.monotonic()
        if left <= 0:
            _signal(pid, signal.SIGKILL)
        ready = select.select(waits_for, [], [], None if left == float("inf") else max(left, _EVERY_S))[0]
        if woken in ready:
            os.read(woken, 512)
        if 0 in ready:
            asked = os.read(0, 16)
            if asked:
                _signal(pid, signal.SIGTERM)
                kill_at = min(kill_at, time.monotonic() + GRACE_S)
            else:
                _signal(pid, signal.SIGKILL)
                waits_for = [woken]


def _reap(pid: int) -> int | None:
    """Take in what has ended; the command's exit code once it is among that."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not ended:
            return found
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            found = 128 - code if code < 0 else code


def _kill_rest(group: int) -> None:
    """Kill what the command has left, its children's children too, until nothing is there."""
    _signal(group, signal.SIGKILL)
    while True:
        for pid in _children():
            _kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_EVERY_S)


def _children() -> list[int]:
    """This process's children, among them those whose own parent has ended."""
    found, me = [], str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    after_name = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if after_name[1].decode() == me:
                found.append(int(name))
    return found


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        _kill(group, number)  # it has not made its group yet, or nobody of it is left


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
