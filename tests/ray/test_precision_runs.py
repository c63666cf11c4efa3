"""Runs in each precision: what travels, what a step does whose gradients overflow, what is saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from by_hand import TrialByHand
from conftest import RAY_CPUS, TESTS, shared
from factories import IMAGES, make_experiment, make_loop, make_trial, part_of_the_images

from raymx.checkpoint.files import Saved
from raymx.experiment.loading import ExperimentConfig
from raymx.kvstore.loss_scale import FIRST

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

HAS_AVX512 = " avx512bw" in Path("/proc/cpuinfo").read_text()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part_of_the_images(tmp_path_factory.mktemp("data") / "part.rec", 3_200)


def with_loop(loop: str, at: tuple[int, ...] = (), store: str = "dist_sync", **sections: Any) -> ExperimentConfig:
    return make_loop(
        f"precision_loops:{loop}",
        store=store,
        model={"options": {"at": list(at)}},
        training={"optimizer": {"name": "sgd", "momentum": 0.5, "wd": 0.01}} | sections.pop("training", {}),
        **sections,
    )


def values(row: dict[str, Any]) -> list[float]:
    return [row[f"value_{i}"] for i in range(7)]


OFF_STORE: dict[str, Any] = {"kvstore": {"update_on_kvstore": False}}
TWO_BIT = {"compression": {"type": "2bit", "threshold": 0.5}}


class TestOverflow:
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

    @pytest.mark.long
    def test_amp_is_in_processes_of_its_own(self, trial: TrialByHand) -> None:
        """One that began with it is not used without, nor for another type, and the other way round."""
        rows = [
            trial.begin(with_loop("tells_amp", resources={"workers": 1}, precision={"dtype": dtype})).step()
            for dtype in ("float32", "amp_float16", "amp_float16", "amp_bfloat16", "float32")
        ]
        assert [row["amp"] for row in rows] == [0, 1, 1, 1, 0]
        assert rows[1]["processes"] == rows[2]["processes"]
        assert len({row["processes"] for row in rows}) == 4


def mlp(
    records: Path, *, workers: int = 2, epochs: int = 1, device: dict[str, Any] | None = None, **sections: Any
) -> ExperimentConfig:
    return make_experiment(
        directory=TESTS,
        model={"net": "own_nets:mlp"} | sections.pop("model", {}),
        data={**IMAGES, "train": str(records)},
        training={
            "epochs": epochs,
            "global_batch_size": 64,
            "base_lr": 0.05,
            "optimizer": {"name": "sgd", "momentum": 0.9, "wd": 0.001},
        },
        kvstore={"type": "dist_sync"} | sections.pop("kvstore", {}),
        resources={"workers": workers, "standby": False, **(device or {})},
        **sections,
    )


def weights(saved: Saved) -> dict[str, np.ndarray]:
    return {name: array.asnumpy() for name, array in mx.nd.load_frombuffer(saved.parameters).items()}


def trained(trial: TrialByHand, experiment: ExperimentConfig, folder: Path) -> tuple[dict[str, Any], Saved]:
    row = trial.begin(experiment).run()[-1]
    return row, trial.save(folder)


class TestTraining:
    @pytest.fixture(scope="class")
    def plain(self, trial: TrialByHand, records: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
        return trained(trial, mlp(records), tmp_path_factory.mktemp("plain"))

    @pytest.mark.parametrize("update_on_kvstore", [True, pytest.param(False, marks=pytest.mark.long)])
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

    @pytest.mark.parametrize("update_on_kvstore", [True, pytest.param(False, marks=pytest.mark.long)])
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


ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(mx.context.num_gpus() == 0, reason="needs a GPU")]


class TestOnAGpu:
    pytestmark = ON_A_GPU

    @pytest.fixture(scope="class")
    def gpu_trial(self) -> Iterator[TrialByHand]:
        shared.ray(RAY_CPUS)
        by_hand = make_trial(1, {"CPU": 3, "GPU": 1})
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
