"""Servers that unpickle nothing: what they understand, what travels, and from which update on a change holds."""

from __future__ import annotations

import json
import pickle
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from raymx.launch import guard_server, optimizers
from raymx.launch.guard_server import CHANGE, INSTALL, GuardedServer, Refused, Updates, message, understood

TOKEN = "0123456789abcdef"


def test_a_message_is_understood() -> None:
    assert understood(message(TOKEN, CHANGE, {"lr": 0.5}).encode(), TOKEN) == (CHANGE, {"lr": 0.5})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (pickle.dumps(mx.optimizer.SGD(), 0), "not this run's token"),
        (b"", "not this run's token"),
        (message("other", CHANGE, {}).encode(), "not this run's token"),
        (TOKEN.encode() + b" " + pickle.dumps([1], 0), "no JSON"),
        (TOKEN.encode() + b" []", "neither an optimizer"),
        (TOKEN.encode() + b' {"run": {}}', "neither an optimizer"),
    ],
)
def test_anything_else_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(Refused, match=said):
        understood(body, TOKEN)


def test_without_a_token_nothing_is_understood() -> None:
    with pytest.raises(Refused):
        understood(b" {}", "")


@pytest.mark.parametrize("name", sorted({*mx.optimizer.Optimizer.opt_registry} - {"noalphasgd"}))
def test_every_optimizer_of_mxnets_travels(name: str) -> None:
    sent = mx.optimizer.create(name, rescale_grad=0.25, wd=0.01)
    again = optimizers.of_text(json.loads(json.dumps(optimizers.as_text(sent, mx))), mx)
    assert type(again) is type(sent)
    assert {key: value for key, value in vars(again).items() if key != "sym_info"} == {
        key: value for key, value in vars(sent).items() if key != "sym_info"
    }


@pytest.mark.parametrize(
    "schedule",
    [
        mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1.0),
        mx.lr_scheduler.MultiFactorScheduler(step=[2, 4], factor=0.1, base_lr=1.0),
        mx.lr_scheduler.PolyScheduler(max_update=10, base_lr=1.0),
        mx.lr_scheduler.CosineScheduler(max_update=10, base_lr=1.0, warmup_steps=2),
    ],
)
def test_every_schedule_of_mxnets_travels(schedule: Any) -> None:
    sent = mx.optimizer.SGD(learning_rate=1.0, lr_scheduler=schedule)
    again = optimizers.of_text(json.loads(json.dumps(optimizers.as_text(sent, mx))), mx)
    assert [again.lr_scheduler(update) for update in range(12)] == [schedule(update) for update in range(12)]


def test_multipliers_travel_by_key() -> None:
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.bias.lr_mult, net.weight.wd_mult = 0.0, 0.5
    parameters = dict(enumerate(net.collect_params().values()))
    sent = mx.optimizer.SGD(param_dict=parameters, param_idx2name={0: "w"})
    again = optimizers.of_text(json.loads(json.dumps(optimizers.as_text(sent, mx))), mx)
    assert (again.lr_mult, again.wd_mult, again.idx2name) == ({0: 1.0, 1: 0.0}, {0: 0.5, 1: 1.0}, {0: "w"})


def test_what_a_script_defines_is_refused() -> None:
    class Mine(mx.optimizer.SGD):
        pass

    class MySchedule(mx.lr_scheduler.LRScheduler):
        pass

    with pytest.raises(TypeError, match=r"the optimizer Mine is not one of MXNet's own.*leave --guard"):
        optimizers.as_text(Mine(), mx)
    with pytest.raises(TypeError, match="the learning-rate schedule MySchedule is not one"):
        optimizers.as_text(mx.optimizer.SGD(lr_scheduler=MySchedule()), mx)
    optimizer = mx.optimizer.SGD()
    optimizer.clip_gradient = object()
    with pytest.raises(TypeError, match=r"SGD.clip_gradient is <object"):
        optimizers.as_text(optimizer, mx)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "os.system"},
        {"values": {"nothing_like_it": 1}},
        {"values": {"lr": {}}},
        {"schedule": ["Popen", {}]},
    ],
)
def test_a_text_that_is_no_optimizer_is_refused(changes: dict[str, Any]) -> None:
    text = {**optimizers.as_text(mx.optimizer.SGD(), mx), **changes}
    with pytest.raises((KeyError, ValueError)):
        optimizers.of_text(text, mx)


def updates() -> Updates:
    optimizer = mx.optimizer.SGD(learning_rate=1.0)
    return Updates(optimizer, mx.optimizer.get_updater(optimizer))


def stepped(what: Updates, key: int, weight: Any) -> float:
    before = float(weight.asnumpy()[0])
    what(key, mx.nd.ones((1,)), weight)
    return before - float(weight.asnumpy()[0])


def test_a_change_holds_from_its_update_on_for_each_key() -> None:
    """Whatever the order in which keys and messages come."""
    what, one, other = updates(), mx.nd.zeros((1,)), mx.nd.zeros((1,))
    assert stepped(what, 0, one) == 1.0
    what.change({"lr": 0.5, "from_update": 3})
    assert stepped(what, 1, other) == 1.0
    assert [stepped(what, 0, one) for _ in range(3)] == [1.0, 0.5, 0.5]
    what.change({"lr": 0.5, "from_update": 3})  # the same, from another worker
    what.change({"rescale_grad": 2.0, "lr_mult": [[1, 0.5]], "from_update": 4})
    assert [stepped(what, 1, other) for _ in range(3)] == [1.0, 0.5, 0.5]
    assert stepped(what, 0, one) == 1.0


class Store:
    def __init__(self) -> None:
        self.updater: Any = None

    def _set_updater(self, updater: Any) -> None:
        self.updater = updater


def test_a_server_takes_its_optimizer_and_changes_from_who_knows_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    store, weight = Store(), mx.nd.zeros((1,))
    server = GuardedServer(mx, store, TOKEN)
    server.on_command(0, pickle.dumps(mx.optimizer.SGD(), 0))
    server.on_command(5, message(TOKEN, INSTALL, optimizers.as_text(mx.optimizer.SGD(), mx)).encode())
    assert store.updater is None
    assert capsys.readouterr().err.splitlines() == [
        "raymx: refused command 0 from the network: it has not this run's token",
        "raymx: refused command 5 from the network: raymx knows none of that number",
    ]
    server.on_command(0, message(TOKEN, INSTALL, optimizers.as_text(mx.optimizer.SGD(learning_rate=2.0), mx)).encode())
    store.updater(0, mx.nd.ones((1,)), weight)
    server.on_command(0, message(TOKEN, CHANGE, {"lr": 3.0, "from_update": 2}).encode())
    store.updater(0, mx.nd.ones((1,)), weight)
    assert np.allclose(weight.asnumpy(), -5.0)


def test_the_kinds_are_two() -> None:
    assert {guard_server.INSTALL, guard_server.CHANGE} == {"install", "change"}
