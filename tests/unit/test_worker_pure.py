"""A worker's pure parts: the channel to the trial, the meter, cores."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from raymx.cluster import cores
from raymx.errors import CheckpointError, DataError, ExperimentError, KVStoreError, RaymxError, TrainingError
from raymx.training.channel import Channel, LoopEnded
from raymx.training.meter import Meter


class Loop:
    """A loop in a thread, as a worker has it."""

    def __init__(self, body: Callable[[Channel], Any], handlers: dict[str, Callable[[Any], Any]] | None = None) -> None:
        self.channel = Channel(handlers or {})
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, args=[body], daemon=True)
        self._thread.start()

    def _run(self, body: Callable[[Channel], Any]) -> None:
        try:
            self.result = body(self.channel)
        except LoopEnded:
            self.result = "ended"

    def join(self) -> Any:
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()
        return self.result


def test_an_answer_comes_back_to_the_loop() -> None:
    loop = Loop(lambda channel: channel.ask("total", 3))
    event = loop.channel.next_event()
    assert (event.kind, event.payload) == ("total", 3)
    loop.channel.command("answer", 42)
    assert loop.join() == 42


def test_a_waiting_loop_does_what_it_is_told_in_its_own_thread() -> None:
    loop = Loop(
        lambda channel: (threading.get_ident(), channel.ask("report")), {"where": lambda _: threading.get_ident()}
    )
    loop.channel.next_event()
    where = loop.channel.command("where")
    loop.channel.command("answer")
    assert loop.join()[0] == where


def test_a_failing_command_fails_at_its_caller_and_the_loop_goes_on() -> None:
    loop = Loop(lambda channel: channel.ask("report"), {"snapshot": lambda _: 1 / 0})
    loop.channel.next_event()
    with pytest.raises(ZeroDivisionError):
        loop.channel.command("snapshot")
    loop.channel.command("answer", "on")
    assert loop.join() == "on"


def test_an_ended_loop_passes_a_users_except() -> None:
    def body(channel: Channel) -> str:
        try:
            channel.ask("report")
        except Exception:
            return "swallowed"
        return "answered"

    loop = Loop(body)
    loop.channel.next_event()
    loop.channel.command("end")
    assert loop.join() == "ended"


def test_boundaries_cost_nothing_until_held_and_run_on_to_a_count() -> None:
    def body(channel: Channel) -> int:
        channel.ask("begin")
        for _ in range(10):
            channel.boundary()
        return 10

    loop = Loop(body)
    loop.channel.next_event()
    loop.channel.hold()
    loop.channel.command("answer")
    assert loop.channel.next_event().count == 1
    loop.channel.command("answer", 4)  # on to the fourth
    event = loop.channel.next_event()
    assert (event.kind, event.count) == ("held", 4)
    loop.channel.command("answer", None)  # and go on
    assert loop.join() == 10


def test_the_meter_keeps_the_first_step_apart() -> None:
    now = [0.0]
    meter = Meter(clock=lambda: now[0])
    meter.start()
    for seconds in (5.0, 1.0, 1.0):
        now[0] += seconds
        meter.batch_came(now[0] - seconds / 2)
        meter.step_done(32, lambda: None)
    meter.stop()
    first = {"first_step_s": 5.0, "first_batch_s": 2.5}
    assert meter.take() == {"steps": 2, "samples": 64, "train_s": 2.0, **first}
    assert meter.take() == {"steps": 0, "samples": 0, "train_s": 0.0, **first}


def test_cores_are_disjoint_between_processes_and_free_after_them() -> None:
    prefix = uuid.uuid4().hex
    assert cores.claim(2, {4, 5, 6}, prefix) == [4, 5]
    code = (
        "import sys; from raymx.cluster.cores import claim; "
        "print(claim(1, {4, 5, 6}, sys.argv[1]), claim(1, {4, 5}, sys.argv[1]))"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code, prefix], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.strip() == "[6] []"


def test_threads_are_bound_where_cores_were_claimed() -> None:
    assert cores.thread_env(2, []) == {"OMP_NUM_THREADS": "2"}
    assert cores.thread_env(2, [4, 5]) == {"OMP_NUM_THREADS": "2", "OMP_PLACES": "{4},{5}", "OMP_PROC_BIND": "close"}


@pytest.mark.parametrize("kind", [RaymxError, ExperimentError, DataError, KVStoreError, TrainingError, CheckpointError])
def test_errors_pickle(kind: type[RaymxError]) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(kind("what, why and the fix")))
    assert type(again) is kind
    assert str(again) == "what, why and the fix"


def test_importing_raymx_is_light() -> None:
    code = "import sys, raymx; assert not {'mxnet', 'ray', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=os.environ)
