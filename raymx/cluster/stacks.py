"""What the threads of a process are doing, as text, for a run that stands still."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import traceback

PY_SPY_TIMEOUT_S = 10.0


def of_this_process() -> str:
    """The stack of every Python thread, innermost frame last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)).rstrip()
        for ident, frame in sys._current_frames().items()
    )


def of_process(pid: int) -> str:
    """The same from outside, for a process on this node that cannot answer; with py-spy, which ray[default] brings."""
    py_spy = shutil.which("py-spy", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""))))
    if py_spy is None:
        return "no stacks: py-spy is not installed on this node (pip install 'ray[default]')"
    try:
        done = subprocess.run(
            [py_spy, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False, timeout=PY_SPY_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no stacks: {error}"
    return done.stdout.strip() or f"no stacks: {done.stderr.strip()}"
