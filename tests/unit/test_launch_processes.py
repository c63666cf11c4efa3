"""What stands between a role's actor and the user's command: the supervisor, and the hook in a worker's Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from raymx.launch import environment, supervisor
from raymx.launch.hook import FOLDER

pytestmark = pytest.mark.timeout(60)


def supervised(*command: str, **options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **options},
    )


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + 20
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline, f"of {pids} some are left"
        time.sleep(0.02)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_the_exit_code_is_the_commands(script: str, code: int) -> None:
    process = supervised("sh", "-c", script)
    process.communicate(timeout=30)
    # Its input was closed with that, but it had ended or ends by itself: the code is never the supervisor's own.
    assert process.returncode in (code, 137)


def test_the_exit_code_while_the_actor_lives() -> None:
    process = supervised("sh", "-c", "exit 3")
    assert process.wait(timeout=30) == 3


def test_a_command_that_is_not_there_is_told_of() -> None:
    process = supervised("no-such-command-here")
    assert process.wait(timeout=30) == supervisor.NOT_FOUND
    assert process.stdout is not None
    assert process.stdout.read() == "no-such-command-here: No such file or directory\n"


FAMILY = "sleep 600 & echo $!; setsid sleep 601 & echo $!; sh -c 'trap \"\" TERM; echo $$; sleep 602; sleep 602' & wait"
"""A child in the group, one in a session of its own, and one that does not mind SIGTERM."""


def family(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(process.stdout.readline()) for _ in range(3)]


def test_nothing_is_left_when_the_actor_is_gone() -> None:
    process = supervised("sh", "-c", FAMILY)
    pids = family(process)
    assert all(map(is_there, pids))
    assert process.stdin is not None
    process.stdin.close()
    wait_gone(pids)
    assert process.wait(timeout=30) == 137


def test_nothing_is_left_when_ray_kills_the_actors_children() -> None:
    process = supervised("sh", "-c", FAMILY)
    pids = family(process)
    process.kill()
    process.wait(timeout=30)
    assert process.stdin is not None
    process.stdin.close()
    wait_gone(pids)


def test_an_end_that_is_asked_for_is_first_asked_of_the_command() -> None:
    process = supervised("sh", "-c", "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.05; done")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.stdin.write("t")
    process.stdin.flush()
    assert process.wait(timeout=30) == 5
    assert process.stdout.read().endswith("bye\n")  # some shells say too that their sleep was terminated


def test_a_command_that_does_not_end_is_killed() -> None:
    process = supervised("sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.05; done")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.stdin.write("t")
    process.stdin.flush()
    assert process.wait(timeout=30) == 137


def test_what_the_command_leaves_behind_ends_with_it() -> None:
    process = supervised("sh", "-c", "setsid sleep 600 & echo $!")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.wait(timeout=30) == 0
    wait_gone([pid])


def test_a_command_that_is_killed_from_outside() -> None:
    process = supervised("sh", "-c", "echo $$; sleep 600")
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    assert process.wait(timeout=30) == 137


# ---- the hook ----

FAKE = """
import os

class _Store:
    @staticmethod
    def create(name="local"):
        return name, os.environ["DMLC_ROLE"], os.environ["DMLC_PS_ROOT_PORT"]

kvstore = _Store
role = os.environ["DMLC_ROLE"]
"""


def hooked(folder: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A script in a Python with the hook and a module that stands for mxnet."""
    (folder / "mxnet.py").write_text(FAKE)
    fixed = {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_PORT": "9000"}
    env = {**os.environ, **fixed, environment.FIXED: json.dumps(fixed), "PYTHONPATH": f"{FOLDER}:{folder}", **more}
    return subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False, timeout=30
    )


def test_what_a_script_sets_is_set_again(tmp_path: Path) -> None:
    done = hooked(
        tmp_path,
        "import os\nos.environ['DMLC_ROLE'] = 'server'\nimport mxnet\nos.environ['DMLC_PS_ROOT_PORT'] = '1'\n"
        "print(mxnet.role, *mxnet.kvstore.create('dist_sync'))",
    )
    assert done.stdout == "worker dist_sync worker 9000\n"
    assert "the script sets DMLC_ROLE; raymx.launch" in done.stderr
    assert "the script sets DMLC_PS_ROOT_PORT; raymx.launch" in done.stderr


def test_a_script_that_sets_nothing_hears_nothing(tmp_path: Path) -> None:
    assert hooked(tmp_path, "import mxnet; mxnet.kvstore.create()").stderr == ""


WAITS = "import atexit, mxnet, time\nclass Waits:\n    def __del__(self): time.sleep(600)\nmxnet.waits = Waits()\n"
"""A process that waits at its end, as one with a store does while other workers go on."""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("exit(4)", 4),
        ("import sys; sys.exit('told')", 1),
        ("1 / 0", 1),
        ("import sys\ndef f():\n    try: sys.exit(6)\n    finally: print('late')\nf()", 6),
        ("import sys\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.exit(7)", 7),
    ],
)
def test_a_script_that_fails_ends_at_once(tmp_path: Path, script: str, code: int) -> None:
    done = hooked(tmp_path, f"{WAITS}print('some output')\n{script}")
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("some output")
    assert ("told" in done.stderr) is ("told" in script)
    assert ("ZeroDivisionError" in done.stderr) is (script == "1 / 0")


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.exit()",
        "import sys; sys.exit(0)",
        "import sys\ntry:\n    sys.exit(3)\nexcept SystemExit as error:\n    assert error.code == 3",
        "import sys, threading\nt = threading.Thread(target=lambda: sys.exit(3)); t.start(); t.join()",
    ],
)
def test_a_script_that_ends_well_ends_as_ever(tmp_path: Path, script: str) -> None:
    done = hooked(tmp_path, f"import mxnet\n{script}")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_sitecustomize_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    assert hooked(tmp_path, "print('script')").stdout == "mine\nscript\n"
