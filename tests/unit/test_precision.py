"""Types and scales: what the net computes in, what travels, what a step does whose gradients overflow."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from conftest import EXPERIMENTS, TrialByHand
from mxnet import gluon

from raymx.checkpoint.files import Saved
from raymx.checkpoint.masters import with_masters
from raymx.data.recordio.record import RecordIOWriter, read_payload, scan
from raymx.errors import TrainingError
from raymx.experiment.loading import Experiment, parse_experiment
from raymx.kvstore import loss_scale
from raymx.kvstore.loss_scale import FIRST, GROW_AFTER, MOST, MOST_IN_A_ROW, LossScale
from raymx.kvstore.overflow import all_finite
from raymx.kvstore.schedule import Schedule
from raymx.kvstore.spec import OptimizerSpec, StoreSettings
from raymx.kvstore.trainer import Trainer
from raymx.training.precision import require_avx512

TESTS = Path(__file__).parents[1]
HAS_AVX512 = " avx512bw" in Path("/proc/cpuinfo").read_text()
ON_RAY = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]


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


# Runs


@pytest.fixture(scope="module")
def trial(ray_cluster: None) -> Iterator[TrialByHand]:
    by_hand = TrialByHand([{"CPU": 1}, {"CPU": 3}, {"CPU": 3}])
    yield by_hand
    by_hand.close()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the real images."""
    source = EXPERIMENTS / "data" / "fashion_mnist_train.rec"
    path = tmp_path_factory.mktemp("data") / "part.rec"
    offsets = scan(source).offsets
    with open(source, "rb") as file, RecordIOWriter(path) as out:
        for offset in offsets[:: len(offsets) // 3200][:3200]:
            out.write(read_payload(file, int(offset)))
    return path


def with_loop(loop: str, at: tuple[int, ...] = (), store: str = "dist_sync", **sections: Any) -> Experiment:
    raw: dict[str, Any] = {
        "name": "precision",
        "model": {"net": "resnet18_v1", "classes": 10, "options": {"at": list(at)}},
        "data": {"train": str(EXPERIMENTS / "data" / "fashion_mnist_val.rec"), "image_shape": [1, 28, 28]},
        "training": {
            "global_batch_size": 2,
            "base_lr": 0.1,
            "loop": f"precision_loops:{loop}",
            "optimizer": {"name": "sgd", "momentum": 0.5, "wd": 0.01},
        },
        "kvstore": {"type": store},
        "resources": {"workers": 2, "standby": False},
    }
    for section, keys in sections.items():
        raw[section] = raw.get(section, {}) | keys
    return parse_experiment(raw, str(TESTS))


def values(row: dict[str, Any]) -> list[float]:
    return [row[f"value_{i}"] for i in range(7)]


OFF_STORE: dict[str, Any] = {"kvstore": {"update_on_kvstore": False}}
TWO_BIT = {"compression": {"type": "2bit", "threshold": 0.5}}


class TestOverflow:
    pytestmark = ON_RAY

    @pytest.mark.parametrize(
        ("scale", "sections"),
        [
            (128, {}),
            (128, OFF_STORE),
            ("dynamic", {}),
            (128, {"kvstore": TWO_BIT}),
            ("dynamic", {"kvstore": TWO_BIT}),
            (128, {"wire": "float16"}),
            ("dynamic", {"wire": "float16"}),
            (128, {"kvstore": {"servers": 2}}),
        ],
    )
    def test_all_workers_skip(self, trial: TrialByHand, scale: Any, sections: dict[str, Any]) -> None:
        """One worker's inf: no step anywhere, and what comes after is as if that step had never been."""
        sections = dict(sections)
        precision = {"loss_scale": scale, "wire_dtype": sections.pop("wire", "same")}

        def rows(at: tuple[int, ...]) -> list[dict[str, Any]]:
            trial.begin(with_loop("overflows", at, precision=precision, **sections))
            return [trial.step() for _ in range(8)]

        smooth, found = rows(()), rows((2, 3, 5))
        assert [row["skipped_steps"] for row in found] == [0, 0, 1, 1, 0, 1, 0, 0]
        assert [values(found[i]) for i in (0, 1, 4, 6, 7)] == [values(smooth[i]) for i in range(5)]
        assert values(found[3]) == values(found[1])
        assert len({tuple(values(row)) for row in smooth}) == 8
        assert {row["skipped_steps"] for row in smooth} == {0}
        assert smooth[-1]["loss_scale"] == (FIRST if scale == "dynamic" else 128)
        assert found[-1]["loss_scale"] == (FIRST / 8 if scale == "dynamic" else 128)


class TestRuns:
    pytestmark = ON_RAY

    @pytest.mark.parametrize("wire", ["same", "float16"])
    def test_an_async_worker_skips_its_own_push(self, trial: TrialByHand, wire: str) -> None:
        precision = {"loss_scale": 128, "wire_dtype": wire}

        def moved(at: tuple[int, ...]) -> tuple[float, float]:
            trial.begin(
                with_loop(
                    "overflows",
                    at,
                    "dist_async",
                    precision=precision,
                    training={"async_lr_factor": 1.0, "optimizer": {"name": "sgd"}},
                )
            )
            rows = [trial.step() for _ in range(8)]
            return sum(row["skipped_steps"] for row in rows), 1 - values(rows[-1])[0]

        assert moved(()) == (0, pytest.approx(16 * 0.1 * 0.5 / 2 / 2, rel=2e-3))
        assert moved((1, 4, 6)) == (3, pytest.approx(13 * 0.1 * 0.5 / 2 / 2, rel=2e-3))

    def test_a_checkpoint_keeps_the_loss_scale(self, trial: TrialByHand, tmp_path: Path) -> None:
        experiment = with_loop("overflows", (1, 2), precision={"loss_scale": "dynamic"})
        trial.begin(experiment)
        assert [trial.step()["loss_scale"] for _ in range(4)] == [FIRST, FIRST / 2, FIRST / 4, FIRST / 4]
        saved = trial.save(tmp_path / "one")
        assert saved.optimizer.scalars == {"loss_scale.value": FIRST / 4, "loss_scale.good_steps": 1}
        expected = [values(trial.step()) for _ in range(2)]
        trial.begin(experiment).restore(tmp_path / "one")
        rows = [trial.step() for _ in range(2)]
        assert [values(row) for row in rows] == expected
        assert rows[0]["loss_scale"] == FIRST / 4

    def test_amp_is_in_processes_of_its_own(self, trial: TrialByHand) -> None:
        """Those that began with it are not used without, nor for another type, and the other way round."""
        rows = [
            trial.begin(with_loop("tells_amp", precision={"dtype": dtype})).step()
            for dtype in ("float32", "amp_float16", "amp_float16", "amp_bfloat16", "float32")
        ]
        assert [row["amp"] for row in rows] == [0, 2, 2, 2, 0]
        assert rows[1]["processes"] == rows[2]["processes"]
        assert len({row["processes"] for row in rows}) == 4


def mlp(
    records: Path, *, workers: int = 2, epochs: int = 1, device: dict[str, Any] | None = None, **sections: Any
) -> Experiment:
    raw: dict[str, Any] = {
        "name": "precision",
        "model": {"net": "nets:mlp", "classes": 10},
        "data": {"train": str(records), "image_shape": [1, 28, 28], "mean": 73, "std": 90},
        "training": {
            "epochs": epochs,
            "global_batch_size": 64,
            "base_lr": 0.05,
            "optimizer": {"name": "sgd", "momentum": 0.9, "wd": 0.001},
        },
        "kvstore": {"type": "dist_sync"},
        "resources": {"workers": workers, "standby": False, **(device or {})},
    }
    for section, keys in sections.items():
        raw[section] = raw.get(section, {}) | keys
    return parse_experiment(raw, str(EXPERIMENTS))


def weights(saved: Saved) -> dict[str, np.ndarray]:
    return {name: array.asnumpy() for name, array in mx.nd.load_frombuffer(saved.parameters).items()}


def trained(trial: TrialByHand, experiment: Experiment, folder: Path) -> tuple[dict[str, Any], Saved]:
    row = trial.begin(experiment).run()[-1]
    return row, trial.save(folder)


class TestTraining:
    pytestmark = ON_RAY

    @pytest.fixture(scope="class")
    def plain(self, trial: TrialByHand, records: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
        return trained(trial, mlp(records), tmp_path_factory.mktemp("plain"))

    @pytest.mark.parametrize("update_on_kvstore", [True, False])
    def test_float16_on_the_wire(
        self, trial: TrialByHand, records: Path, plain: Any, tmp_path: Path, update_on_kvstore: bool
    ) -> None:
        """Half the bytes, and weights that differ by what float16 rounds; those that are saved are not rounded."""
        row, saved = trained(
            trial,
            mlp(records, precision={"wire_dtype": "float16"}, kvstore={"update_on_kvstore": update_on_kvstore}),
            tmp_path,
        )
        before, expected = plain
        size = sum(array.size for array in weights(expected).values())
        assert (before["bytes_pushed"], before["bytes_pulled"]) == (2 * 4 * size, 2 * 4 * size)
        assert (row["bytes_pushed"], row["bytes_pulled"]) == (2 * 2 * size, 2 * 2 * size)
        assert len(row["worker_samples_per_sec"]) == 2
        assert "loss_scale" not in row
        for name, array in weights(saved).items():
            assert (array != array.astype("float16")).any()
            np.testing.assert_allclose(array, weights(expected)[name], atol=5e-3)
        assert row["train_loss"] == pytest.approx(before["train_loss"], rel=1e-2)

    @pytest.mark.parametrize("update_on_kvstore", [True, False])
    def test_float16_on_the_wire_goes_on_to_the_bit(
        self, trial: TrialByHand, records: Path, tmp_path: Path, update_on_kvstore: bool
    ) -> None:
        experiment = mlp(
            records, epochs=2, precision={"wire_dtype": "float16"}, kvstore={"update_on_kvstore": update_on_kvstore}
        )
        trial.begin(experiment).step()
        trial.save(tmp_path / "one")
        trial.run()
        expected = weights(trial.save(tmp_path / "two"))
        trial.begin(experiment).restore(tmp_path / "one")
        trial.run()
        for name, array in weights(trial.save(tmp_path / "again")).items():
            np.testing.assert_array_equal(array, expected[name])

    @pytest.mark.skipif(not HAS_AVX512, reason="MXNet computes in bfloat16 with AVX-512")
    def test_amp_bfloat16(self, trial: TrialByHand, records: Path, plain: Any, tmp_path: Path) -> None:
        row, saved = trained(trial, mlp(records, precision={"dtype": "amp_bfloat16"}), tmp_path)
        assert row["train_loss"] == pytest.approx(plain[0]["train_loss"], rel=5e-2)
        assert row["bytes_pushed"] == plain[0]["bytes_pushed"]
        assert {array.dtype.name for array in weights(saved).values()} == {"float32"}
        different = [(array != weights(plain[1])[name]).any() for name, array in weights(saved).items()]
        assert any(different)


def test_bfloat16_needs_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.open", lambda *_: io.StringIO("flags : fpu sse2 avx2"))
    with pytest.raises(TrainingError, match="has none; use float32"):
        require_avx512()


ON_A_GPU = [*ON_RAY, pytest.mark.gpu, pytest.mark.skipif(mx.context.num_gpus() == 0, reason="needs a GPU")]


class TestOnAGpu:
    pytestmark = ON_A_GPU

    @pytest.fixture(scope="class")
    def gpu_trial(self, ray_cluster: None) -> Iterator[TrialByHand]:
        by_hand = TrialByHand([{"CPU": 1}, {"CPU": 3, "GPU": 1}])
        yield by_hand
        by_hand.close()

    @pytest.mark.parametrize(
        ("dtype", "update_on_kvstore", "scale"),
        [("float16", True, 128), ("float16", False, None), ("amp_float16", True, 128), ("amp_float16", False, None)],
    )
    def test_half_precision_trains(
        self,
        gpu_trial: TrialByHand,
        records: Path,
        tmp_path: Path,
        dtype: str,
        update_on_kvstore: bool,
        scale: float | None,
    ) -> None:
        """As well as float32; weights are float16 only where the net is, and their masters are saved."""
        device = {"gpus_per_worker": 1}
        sections = {"kvstore": {"update_on_kvstore": update_on_kvstore}}
        before, _ = trained(gpu_trial, mlp(records, workers=1, epochs=2, device=device, **sections), tmp_path / "32")
        row, saved = trained(
            gpu_trial,
            mlp(records, workers=1, epochs=2, device=device, precision={"dtype": dtype}, **sections),
            tmp_path / "16",
        )
        assert row["train_loss"] == pytest.approx(before["train_loss"], rel=0.1)
        assert row["loss_scale"] == (scale or pytest.approx(FIRST, rel=1))
        names = {array.dtype.name for array in weights(saved).values()}
        assert names == {"float16" if dtype == "float16" else "float32"}
        assert bool(saved.optimizer.masters) is (dtype == "float16")

    def test_a_convolutional_net_in_float16(self, gpu_trial: TrialByHand, records: Path, tmp_path: Path) -> None:
        """With batch norm, whose parameters stay float32."""
        experiment = mlp(
            records,
            workers=1,
            device={"gpus_per_worker": 1},
            precision={"dtype": "float16"},
            model={"net": "resnet18_v1"},
        )
        row, saved = trained(gpu_trial, experiment, tmp_path)
        assert np.isfinite(row["train_loss"])
        dtypes = {name: array.dtype.name for name, array in weights(saved).items()}
        assert {dtypes[name] for name in dtypes if "gamma" in name or "running" in name} == {"float32"}
