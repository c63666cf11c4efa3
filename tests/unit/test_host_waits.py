"""Which lines hold a loop."""

from __future__ import annotations

import threading
from pathlib import Path

import mxnet as mx
import numpy as np

from raymx.training.host_waits import HostWaits
from raymx.training.sums import Sums

HERE = str(Path(__file__).parent)


def ones() -> mx.nd.NDArray:
    return mx.nd.ones((1,))


def test_waits_are_told_by_line_and_by_what_was_called() -> None:
    with HostWaits(lambda: True) as waits:
        for _ in range(3):
            ones().asscalar()
        ones().asnumpy()
        ones().wait_to_read()
        mx.nd.waitall()
    told = {line.split(":")[0]: set() for line, _, _ in waits.take(HERE)}
    assert told == {"test_host_waits.py": set()}


def test_the_name_is_that_of_the_users_call_and_calls_are_counted() -> None:
    with HostWaits(lambda: True) as waits:
        for _ in range(3):
            ones().asscalar()
    found = {line.split(" ")[1]: calls for line, _, calls in waits.take(HERE)}
    assert found == {"asscalar()": 3}
    assert waits.take(HERE) == []


def test_a_metric_of_mxnets_is_the_users_line() -> None:
    metric = mx.metric.Accuracy()
    with HostWaits(lambda: True) as waits:
        metric.update([ones()], [mx.nd.ones((1, 2))])
    assert [line.split(" ")[1] for line, _, _ in waits.take(HERE)] == ["update()"]


def test_what_is_not_counted() -> None:
    """raymx's own waits, other threads', and those outside of training."""
    sums = Sums()
    sums.add(ones(), ones(), ones())
    with HostWaits(lambda: True) as waits:
        sums.values()
        other = threading.Thread(target=lambda: ones().asnumpy())
        other.start()
        other.join()
    with HostWaits(lambda: False) as paused:
        ones().asnumpy()
    assert (waits.take(), paused.take()) == ([], [])


def test_each_forward_pass_that_is_recorded_is_told() -> None:
    told: list[int] = []
    with HostWaits(lambda: True, lambda: told.append(1)):
        for _ in range(2):
            with mx.autograd.record():
                assert mx.autograd.is_recording()
    with mx.autograd.record():
        pass
    assert told == [1, 1]


def test_all_is_as_before_afterwards() -> None:
    before = (mx.nd.NDArray.asnumpy, mx.nd.NDArray.wait_to_read, mx.nd.waitall)
    with HostWaits(lambda: True):
        np.testing.assert_array_equal(ones().asnumpy(), [1.0])
    assert (mx.nd.NDArray.asnumpy, mx.nd.NDArray.wait_to_read, mx.nd.waitall) == before
