"""Types and scales: what the net computes in, what travels, what a step does whose gradients overflow."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from raymx.checkpoint.masters import with_masters
from raymx.errors import TrainingError
from raymx.kvstore import loss_scale
from raymx.kvstore.loss_scale import FIRST, GROW_AFTER, MOST, MOST_IN_A_ROW, LossScale
from raymx.kvstore.overflow import all_finite
from raymx.kvstore.schedule import Schedule
from raymx.kvstore.spec import OptimizerSpec, StoreSettings
from raymx.kvstore.trainer import Trainer
from raymx.training.precision import require_avx512

# The scale


def test_a_dynamic_scale_is_halved_by_an_overflow_and_doubled_after_many_good_steps() -> None:
    scale = loss_scale.loss_scale("dynamic", {})
    assert scale == LossScale(FIRST, dynamic=True)
    for overflow in (True, False, True):
        scale.step_done(overflow)
    assert (scale.value, scale.take_skipped(), scale.take_skipped()) == (FIRST / 4, 2, 0)
    for _ in range(GROW_AFTER - 1):
        scale.step_done(False)
    assert scale.value == FIRST / 4
    scale.step_done(False)
    assert scale.value == FIRST / 2
    for _ in range(20 * GROW_AFTER):
        scale.step_done(False)
    assert scale.value == MOST


def test_a_fixed_scale_stays() -> None:
    scale = loss_scale.loss_scale(128, {"loss_scale.value": 4.0})
    scale.step_done(True)
    assert (scale.value, scale.skipped, scale.state()) == (128.0, 1, {})
    assert loss_scale.loss_scale(None, {}) is None


@pytest.mark.parametrize(("setting", "fix"), [("dynamic", "lower training.base_lr"), (128, "or make it dynamic")])
def test_a_run_that_only_skips_ends(setting: Any, fix: str) -> None:
    scale = loss_scale.loss_scale(setting, {})
    for _ in range(MOST_IN_A_ROW - 1):
        scale.step_done(True)
    scale.step_done(False)
    for _ in range(MOST_IN_A_ROW - 1):
        scale.step_done(True)
    with pytest.raises(TrainingError, match=f"50 steps in a row were skipped.*{fix}"):
        scale.step_done(True)


def test_a_dynamic_scale_goes_on_from_a_checkpoint() -> None:
    scale = LossScale(1024.0, dynamic=True, good_steps=7, skipped=3)
    assert loss_scale.loss_scale("dynamic", scale.state()) == LossScale(1024.0, dynamic=True, good_steps=7)


def test_all_finite_looks_at_arrays_of_all_types() -> None:
    fine = [mx.nd.ones((2, 3), dtype=dtype) for dtype in ("float16", "float32", "float64")] * 150
    assert all_finite(fine)
    for dtype in ("float16", "float32", "float64"):
        for bad in (np.inf, np.nan):
            assert not all_finite([*fine, mx.nd.array([1, bad], dtype=dtype), *fine])
    assert not all_finite([mx.nd.array([70_000]).astype("float16")])


# The trainer, in one process


def trainer_of(
    parameter: gluon.Parameter,
    *,
    batch: int = 8,
    scale: LossScale | None = None,
    on_store: bool = True,
    store: str = "local",
    **settings: Any,
) -> Trainer:
    spec = OptimizerSpec("adam", {}, rescale_grad=1 / batch, schedule=Schedule(peak=0.1))
    return Trainer(
        {"weight": parameter},
        mx.kv.create(store),
        spec,
        StoreSettings(distributed=False, update_on_kvstore=on_store, **settings),
        scale=scale,
    )


def parameter_of(devices: int = 1) -> gluon.Parameter:
    parameter = gluon.Parameter("weight", shape=(20,), init=mx.init.One())
    parameter.initialize(ctx=[mx.cpu(i) for i in range(devices)])
    return parameter


def after_steps(gradients: list[float], scale: LossScale | None, *, devices: int = 1, **options: Any) -> np.ndarray:
    parameter = parameter_of(devices)
    trainer = trainer_of(parameter, scale=scale, **options)
    for gradient in gradients:
        for grad in parameter.list_grad():
            grad[:] = gradient * trainer.loss_scale
        trainer.step()
    return parameter.list_data()[-1].asnumpy()


COMPRESSED = {"store": "device", "compression": {"type": "2bit", "threshold": 0.5}}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("options", [{}, COMPRESSED, {"devices": 2}], ids=["plain", "2bit", "two_devices"])
def test_a_scale_changes_no_update_and_a_skipped_step_changes_nothing(dynamic: bool, options: dict[str, Any]) -> None:
    """Adam counts updates, keeps two moments, and its steps do not shrink with its gradients."""
    expected = after_steps([0.6, -0.2, 1.5, 0.3], None, on_store=not dynamic, **options)
    scale = loss_scale.loss_scale("dynamic" if dynamic else 128, {})
    found = after_steps([0.6, np.inf, -0.2, np.nan, 1.5, 0.3], scale, on_store=not dynamic, **options)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(expected - 1).max() > 0.1
    assert scale.skipped == 2
    assert scale.value == (FIRST / 4 if dynamic else 128)


@pytest.mark.parametrize("on_store", [True, False])
def test_a_layer_that_a_step_leaves_out_is_not_moved_by_an_old_gradient(on_store: bool) -> None:
    """A branch that is drawn, or an auxiliary head that is dropped: backward leaves its gradient as it was."""
    used, left_out = (gluon.nn.Dense(1, in_units=1, use_bias=False) for _ in range(2))
    for layer in (used, left_out):
        layer.initialize(mx.init.One())
    trainer = Trainer(
        {"used": used.weight, "left_out": left_out.weight},
        mx.kv.create("local"),
        OptimizerSpec("sgd", {}, rescale_grad=1, schedule=Schedule(peak=0.25)),
        StoreSettings(distributed=False, update_on_kvstore=on_store),
    )
    for step in range(3):
        with autograd.record():
            losses = used(mx.nd.ones((1, 1))) + (left_out(mx.nd.ones((1, 1))) if step == 0 else 0)
        losses.backward()
        trainer.step()
    assert [layer.weight.data().asscalar() for layer in (used, left_out)] == [0.25, 0.75]


def test_groupadagrad_names_the_weights_that_it_cannot_take() -> None:
    spec = OptimizerSpec("groupadagrad", {}, rescale_grad=1, schedule=Schedule(peak=0.1))
    with pytest.raises(TrainingError, match=r"the net has weight \(20,\); use adagrad"):
        Trainer(
            {"weight": parameter_of()},
            mx.kv.create("local"),
            spec,
            StoreSettings(distributed=False, update_on_kvstore=True),
        )


# Parameters in a file


def test_masters_take_the_place_of_rounded_weights(tmp_path: Path) -> None:
    path = str(tmp_path / "net.params")
    arrays = {
        "0.weight": mx.nd.array([[1, 2, 3], [4, 5, 6]]),
        "half": mx.nd.array([1, 2], dtype="float16"),
        "1.bias": mx.nd.array([7, 8]),
        "wide": mx.nd.array([1.5], dtype="float64"),
    }
    mx.nd.save(path, arrays)
    masters = {"0.weight": np.arange(6, dtype="float32") + 0.001, "half": np.ones(2, "float32")}
    found = mx.nd.load_frombuffer(with_masters(Path(path).read_bytes(), masters))
    assert list(found) == list(arrays)
    np.testing.assert_array_equal(found["0.weight"].asnumpy().ravel(), masters["0.weight"])
    for name in ("half", "1.bias", "wide"):
        np.testing.assert_array_equal(found[name].asnumpy(), arrays[name].asnumpy())
        assert found[name].dtype == arrays[name].dtype
    assert with_masters(b"anything", masters) == b"anything"


# Nets


def test_batch_norm_keeps_float32_in_a_float16_net() -> None:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, in_channels=1), gluon.nn.BatchNorm(in_channels=4), gluon.nn.Dense(2, in_units=4))
    net.initialize()
    net.cast("float16")
    found = {name: np.dtype(param.dtype).name for name, param in net._collect_params_with_prefix().items()}
    assert {name for name, dtype in found.items() if dtype == "float32"} == {
        f"1.{name}" for name in ("gamma", "beta", "running_mean", "running_var")
    }
    assert {dtype for name, dtype in found.items() if not name.startswith("1.")} == {"float16"}


AMP_GRAPH = """
import json, sys
import mxnet as mx
from mxnet import gluon
from raymx.training.precision import Prepare, start_amp, with_input
start_amp(sys.argv[1])
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Conv2D(4, 3), gluon.nn.BatchNorm(), gluon.nn.Dense(2), gluon.nn.HybridLambda("softmax"))
net.initialize()
whole = with_input(net, Prepare([0.0], [1.0], "float32"), [mx.cpu()])
graph = json.loads(whole(mx.sym.var("data")).tojson(remove_amp_cast=False))["nodes"]
def casts(op):
    inputs = [graph[i[0]] for node in graph if node["op"] == op for i in node["inputs"]]
    return sorted({node["attrs"]["dtype"] for node in inputs if node["op"] == "amp_cast"})
print(casts("Convolution"), casts("FullyConnected"), casts("softmax"), mx.nd.SoftmaxOutput.__name__)
import numpy; print(sorted({numpy.dtype(p.dtype).name for p in net.collect_params().values()}))
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_amp_casts_in_the_graph_and_keeps_parameters_in_float32(dtype: str) -> None:
    """In a process of its own: AMP cannot be undone."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AMP_GRAPH, dtype], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [f"['{dtype}'] ['{dtype}'] ['float32'] SoftmaxOutput", "['float32']"]


def test_bfloat16_needs_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.open", lambda *_: io.StringIO("flags : fpu sse2 avx2"))
    with pytest.raises(TrainingError, match="has none; use float32"):
        require_avx512()
