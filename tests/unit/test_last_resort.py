"""Signals to a run and to all its processes at once, with no Ray."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import is_there

from raymx.cli.exit import EXIT_INTERRUPTED, exit_code
from raymx.driver.display import Display
from raymx.driver.interrupt import Interrupt
from raymx.driver.last_resort import GONE_S, LONGEST_S, LastResort, answers, must_end


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    """Nothing is ignored, as nohup would have it."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "since_signal_s", "ray_gone_s", "ends"),
    [
        (signal.SIGTERM, 1.0, 0.0, False),
        (signal.SIGTERM, GONE_S + 1, GONE_S, True),
        (signal.SIGINT, GONE_S + 1, GONE_S, True),
        (signal.SIGTERM, LONGEST_S, 0.0, True),
        (signal.SIGHUP, LONGEST_S, 0.0, True),
        (signal.SIGINT, 10 * LONGEST_S, 0.0, False),  # whoever waits may press it again
    ],
)
def test_when_everything_is_ended(number: int, since_signal_s: float, ray_gone_s: float, ends: bool) -> None:
    assert must_end(number, since_signal_s, ray_gone_s) == ends
    assert GONE_S < 25


class TestLastResort:
    def run(self, there: list[bool], monkeypatch: pytest.MonkeyPatch, number: int = signal.SIGTERM) -> list[int]:
        """The signals for which it ended everything; after the last of ``there`` the run is over."""
        monkeypatch.setattr("raymx.driver.last_resort.GONE_S", 0.01)
        ended, over = list[int](), threading.Event()

        def is_there() -> bool:
            if len(there) == 1:
                over.set()
            return there.pop(0) if len(there) > 1 else there[0]

        def end(number: int) -> None:
            ended.append(number)
            over.set()

        with Interrupt() as interrupt, LastResort(is_there, end, every_s=0.03):
            interrupt.listen(True)
            os.kill(os.getpid(), number)
            assert over.wait(10)
        assert interrupt.requested
        return ended

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_a_run_whose_ray_is_gone_is_ended(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.run([False, False, False, False], monkeypatch, number) == [number]

    def test_a_run_whose_ray_answers_saves_in_peace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.run([True, False, True, True], monkeypatch) == []

    def test_without_a_signal_nothing_happens(self) -> None:
        before = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(before)
        with LastResort(lambda: False, lambda _: pytest.fail("nobody asked for it"), every_s=0.01):
            pass
        after = signal.set_wakeup_fd(before)
        assert after == before


def test_all_that_was_started_ends_with_the_run() -> None:
    """A process of its own, which leaves one that has a session of its own, is sent nothing and is told by nobody."""
    code = (
        "import subprocess, sys, signal; from raymx.driver import last_resort; last_resort.mark();"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
        "print(child.pid, flush=True); last_resort.end_all(signal.SIGTERM, 'COMMAND')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == "raymx: ended by SIGTERM, and Ray with it; go on with  COMMAND\n"
    deadline = time.monotonic() + 10
    while is_there(int(done.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, EXIT_INTERRUPTED), (signal.SIGHUP, 128 + signal.SIGHUP)],
)
def test_exit_codes(number: int, code: int) -> None:
    with Interrupt() as interrupt:
        interrupt.listen(True)
        signal.raise_signal(number)
        assert (interrupt.requested, interrupt.code) == (True, code)

    def work() -> int:
        with Interrupt():  # nobody listens
            signal.raise_signal(number)
        return 0

    assert exit_code(work) == code


def test_a_hang_up_that_nohup_has_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            interrupt.listen(True)
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_address_that_nobody_listens_at() -> None:
    assert not answers("127.0.0.1:9")
    assert not answers("nonsense")


def test_a_terminal_that_was_closed_ends_no_run() -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(5, "Input/output error")

    Display(Closed()).say("stopping: saving a checkpoint")
