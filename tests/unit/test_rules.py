"""Combinations of settings: which are refused, with which reason, and which are worth a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.errors import ExperimentError
from raymx.experiment import rules

DIST = {"kvstore__type": "dist_sync", "resources__workers": 2}
ELASTIC = {"resources__workers": {"min": 2, "max": 8}}
GROWING = ELASTIC | {"resources__on_resize": "keep_per_worker"}
ASYNC = {"kvstore__type": "dist_async", "resources__workers": 2}
GPU = {"resources__gpus_per_worker": 1}
DYNAMIC = {"precision__loss_scale": "dynamic"}


@pytest.mark.parametrize(
    ("overrides", "key", "reason"),
    [
        ({"kvstore__type": "local", "resources__workers": 2}, "kvstore.type", "2 workers would train 2 separate nets"),
        ({"kvstore__type": "device", "resources__workers": 3}, "kvstore.type", "inside one process"),
        (ASYNC | {"kvstore__update_on_kvstore": False}, "kvstore.update_on_kvstore", "aborts at the first push"),
        (DIST | {"kvstore__compression": "2bit", "precision__dtype": "float64"}, "kvstore.compression.type", "float32"),
        ({"kvstore__type": "local", "kvstore__compression": "2bit"}, "kvstore.compression.type", "cannot compress"),
        (
            DIST | {"kvstore__compression": "2bit", "precision__wire_dtype": "float16"},
            "kvstore.compression.type",
            "precision.wire_dtype is float16",
        ),
        (GPU | {"kvstore__compression": "2bit", "precision__dtype": "float16"}, "kvstore.compression.type", "float16"),
        ({"precision__dtype": "float16"}, "precision.dtype", "FP16 gemm on cpu not implemented"),
        ({"precision__dtype": "amp_float16"}, "precision.dtype", "FP16 gemm on cpu not implemented"),
        (GPU | {"precision__dtype": "amp_bfloat16"}, "precision.dtype", "bfloat16 on CPUs alone"),
        (DIST | DYNAMIC | {"kvstore__update_on_kvstore": True}, "precision.loss_scale", "update_on_kvstore is true"),
        (ASYNC | DYNAMIC, "precision.loss_scale", "each worker's push is an update of its own"),
        (ASYNC | DYNAMIC | {"kvstore__update_on_kvstore": True}, "precision.loss_scale", "in dist_async each worker's"),
        ({"training__optimizer": {"name": "dcasgd", "momentum": 0.9}}, "training.optimizer.momentum", "fails in MXNet"),
        ({"training__optimizer": {"name": "groupadagrad", "wd": 0.1}}, "training.optimizer.wd", "no weight decay"),
        (DIST | {"training__optimizer": "groupadagrad"}, "training.optimizer.name", "servers hold flat arrays"),
        *(
            (
                store | {"training__optimizer": name, "precision__dtype": "float64"},
                "training.optimizer.name",
                "always float32",
            )
            for name in ("adagrad", "adadelta", "rmsprop", "ftrl", "groupadagrad")
            for store in ({}, DIST | {"kvstore__update_on_kvstore": False})
        ),
        ({"resources__workers": 4, "training__global_batch_size": 3}, "training.global_batch_size", "4 workers"),
        (
            {"resources__gpus_per_worker": 1, "resources__cpu_devices_per_worker": 2},
            "resources.cpu_devices_per_worker",
            "gpus_per_worker is 1",
        ),
        (
            DIST | {"training__optimizer": "lamb", "kvstore__servers": 2},
            "training.optimizer.name",
            "norm of a whole layer",
        ),
        (DIST | {"training__optimizer": "lars", "kvstore__servers": 2}, "training.optimizer.name", "number of servers"),
        (
            DIST | {"training__optimizer": {"name": "lbsgd", "warmup_strategy": "lars"}, "kvstore__servers": 2},
            "training.optimizer.name",
            "norm of a whole layer",
        ),
        (
            ELASTIC | {"kvstore__type": "local"},
            "kvstore.type",
            "8 workers would train 8 separate nets, and a run of 2 to 8 workers may grow to that",
        ),
        ({"kvstore__type": "device", "resources__workers": {"min": 1, "max": 2}}, "kvstore.type", "inside one process"),
        (ELASTIC | {"training__global_batch_size": 7}, "training.global_batch_size", "shared by 8 workers"),
        (GROWING | {"training__global_batch_size": 1}, "training.global_batch_size", "shared by 2 workers"),
        ({"data__mean": 0.485, "data__std": 0.229}, "data.std", "pixels are 0 to 255, and this is of pixels of 0 to 1"),
        (
            {"data__image_shape": [3, 8, 8], "data__mean": [0.4, 0.4, 0.4], "data__std": [0.2, 0.2, 0.2]},
            "data.std",
            "numbers in the hundreds",
        ),
        ({"training__decay": "step"}, "training.decay.epochs", "step decay needs the epochs"),
        ({"training__decay": {"type": "cosine", "final_lr": 1.0}}, "training.decay.final_lr", "above training.base_lr"),
        ({"data__transform": "a:b", "data__augment": {"rand_mirror": True}}, "data.augment", "takes the place of all"),
        ({"data__transform": "a:b", "data__resize": 256}, "data.resize", "images of their stored size"),
        ({"data__label_width": 4, "model__metric": "a:b"}, "model.loss", "it takes one label, the number of the class"),
        ({"data__label_width": 4, "model__loss": "a:b"}, "model.metric", "it takes one label, the number of the class"),
        ({"model__loss": "a:b", "model__metric": "mse"}, "model.metric", "model.classes is 10 where data.label_width"),
        ({"model__loss": "l2", "model__metric": "a:b"}, "model.loss", "it takes a label an output"),
    ],
)
def test_refused(overrides: dict[str, Any], key: str, reason: str) -> None:
    (problem,) = rules.problems(make_experiment(**overrides))
    assert problem.key == key
    assert reason in problem.reason
    assert problem.fix
    with pytest.raises(ExperimentError, match=f"^{key} is "):
        rules.check(make_experiment(**overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        DIST,
        ASYNC,
        ELASTIC,
        GROWING,
        GROWING | {"training__global_batch_size": 2},
        ELASTIC | {"kvstore__type": "dist_async", "training__global_batch_size": 8},
        {"kvstore__type": "device", "kvstore__compression": "2bit"},
        DIST | {"kvstore__compression": "2bit", "kvstore__update_on_kvstore": False},
        DIST | {"training__optimizer": "lamb", "kvstore__servers": 2, "kvstore__update_on_kvstore": False},
        {"training__optimizer": "lamb", "kvstore__servers": 2},
        {"precision__dtype": "float16", "resources__gpus_per_worker": 1},
        {"precision__dtype": "float16", "resources__gpus_per_worker": "auto"},
        GPU | {"precision__dtype": "amp_float16", "kvstore__compression": "2bit"},
        {"precision__dtype": "amp_bfloat16"},
        {"precision__dtype": "amp_bfloat16", "resources__gpus_per_worker": "auto"},
        {"precision__wire_dtype": "float16", "kvstore__compression": "2bit"},  # one worker sends nothing
        DIST | DYNAMIC,
        DYNAMIC,
        DIST | DYNAMIC | {"kvstore__update_on_kvstore": False, "precision__wire_dtype": "float16"},
        ASYNC | {"precision__loss_scale": 64, "precision__wire_dtype": "float16"},
        DIST | {"training__optimizer": "rmsprop", "precision__dtype": "float64"},  # the servers have float32
        {"training__optimizer": "dcasgd"},
        {"data__mean": 0, "data__std": 1},
        {"data__mean": 20, "data__std": 0.5},
        {"data__mean": 0.5, "data__std": 0.5, "data__transform": "a:b"},
        {"training__optimizer": "groupadagrad"},
        DIST | {"training__optimizer": "groupadagrad", "kvstore__update_on_kvstore": False},
        {"resources__cpu_devices_per_worker": 2},
        {"data__transform": "a:b", "data__resize": 256, "data__validation": "c"},
        {"data__label_width": 10, "model__loss": "l2", "model__metric": "mse"},
        {"data__label_width": 4, "model__loss": "sigmoid_bce", "model__metric": "mse", "model__net": "a:net"},
        {"data__label_width": 4, "training__loop": "a:loop"},
        {"data__label_width": "auto"},  # known once the records are opened
    ],
)
def test_allowed(overrides: dict[str, Any]) -> None:
    rules.check(make_experiment(**overrides))


def test_float16_with_auto_gpus_needs_a_gpu_in_the_cluster() -> None:
    auto = make_experiment(precision__dtype="float16", resources__gpus_per_worker="auto")
    assert [p.key for p in rules.problems(auto, gpus_available=0)] == ["precision.dtype"]
    assert rules.problems(auto, gpus_available=1) == []


def test_bfloat16_with_auto_gpus_needs_a_cluster_without() -> None:
    auto = make_experiment(precision__dtype="amp_bfloat16", resources__gpus_per_worker="auto")
    assert [p.key for p in rules.problems(auto, gpus_available=1)] == ["precision.dtype"]
    assert rules.problems(auto, gpus_available=0) == []


@pytest.mark.parametrize(
    ("overrides", "scale"),
    [
        ({}, None),
        ({"precision__dtype": "float64"}, None),
        ({"precision__dtype": "amp_bfloat16"}, None),
        (DIST | {"precision__wire_dtype": "float16"}, None),
        ({"precision__dtype": "float16"}, 128),
        ({"precision__dtype": "amp_float16"}, 128),
        *(
            ({"precision__dtype": dtype, "kvstore__update_on_kvstore": False}, "dynamic")
            for dtype in ("float16", "amp_float16")
        ),
        (ASYNC | {"precision__dtype": "amp_float16"}, 128),
        ({"precision__dtype": "float16", "precision__loss_scale": "none"}, None),
        ({"precision__loss_scale": 64}, 64),
        (DYNAMIC, "dynamic"),
    ],
)
def test_auto_loss_scale(overrides: dict[str, Any], scale: float | str | None) -> None:
    assert rules.loss_scale(make_experiment(**overrides)) == scale


@pytest.mark.parametrize(
    ("overrides", "half"),
    [
        (DIST, False),
        (DIST | {"precision__wire_dtype": "float16"}, True),
        ({"precision__wire_dtype": "float16"}, False),
        (DIST | {"precision__wire_dtype": "float16", "precision__dtype": "float16"}, False),
        (DIST | {"precision__wire_dtype": "float16", "precision__dtype": "amp_bfloat16"}, True),
    ],
)
def test_what_travels_in_float16(overrides: dict[str, Any], half: bool) -> None:
    assert rules.is_half_on_wire(make_experiment(**overrides)) is half


def test_all_problems_are_listed() -> None:
    with pytest.raises(ExperimentError) as error:
        rules.check(make_experiment(**ASYNC, kvstore__update_on_kvstore=False, precision__dtype="float16"))
    assert len(str(error.value).splitlines()) == 2


def test_auto_store_and_optimizer_place() -> None:
    assert rules.resolved_store_type(make_experiment()) == "device"
    assert rules.resolved_store_type(make_experiment(resources__workers=2)) == "dist_sync"
    assert rules.resolved_store_type(make_experiment(kvstore__type="local")) == "local"
    assert rules.resolved_store_type(make_experiment(resources__workers={"min": 1, "max": 2})) == "dist_sync"
    assert rules.update_on_kvstore(make_experiment())
    assert rules.update_on_kvstore(make_experiment(kvstore__update_on_kvstore=True))
    assert not rules.update_on_kvstore(make_experiment(kvstore__update_on_kvstore=False))
    assert not rules.update_on_kvstore(make_experiment(**DYNAMIC))
    assert rules.update_on_kvstore(make_experiment(**DYNAMIC, kvstore__update_on_kvstore=True))
    assert rules.is_async(make_experiment(kvstore__type="dist_async_device"))
    assert not rules.is_async(make_experiment(**DIST))


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ({"kvstore__servers": 2}, "device has no servers"),
        (DIST | {"precision__dtype": "float64"}, "update weights in float32"),
        ({"precision__wire_dtype": "float16"}, "a store of type device sends nothing: it changes nothing"),
        (DIST | GPU | {"precision__wire_dtype": "float16", "precision__dtype": "float16"}, "is that already"),
        ({"training__warmup_epochs": 1}, "Warmup lasts 1 epochs and training 1"),
        (ASYNC | {"training__warmup_epochs": 1, "training__epochs": 2}, "Warmup lasts 2 epochs"),
        ({"training__decay": {"type": "step", "epochs": [5]}}, "has 5, but training ends after epoch 1"),
        ({"training__global_batch_size": 2, "resources__cpu_devices_per_worker": 3}, "2 rows of the global batch of 2"),
        ({"data__augment": {"pad": 4}}, "only rand_crop can reach into it"),
        (DIST | {"resources__on_resize": "keep_per_worker"}, "resources.workers is always 2: it changes nothing"),
        (ELASTIC | {"training__global_batch_size": 16, "resources__cpu_devices_per_worker": 3}, "2 rows of the global"),
        ({"training__optimizer": {"name": "lbsgd", "batch_scale": 4}}, "the gradients of 4 updates (batch_scale)"),
    ],
)
def test_notes(overrides: dict[str, Any], part: str) -> None:
    (note,) = rules.notes(make_experiment(**overrides))
    assert part in note


def test_nothing_to_note_by_default() -> None:
    for overrides in ({}, DIST, ELASTIC, GROWING):
        assert rules.notes(make_experiment(**overrides)) == []


NOT_SAVED = {"checkpoint__every_steps": None, "checkpoint__every_s": None}


@pytest.mark.parametrize(
    ("overrides", "noted"),
    [
        (DIST, True),
        (DIST | NOT_SAVED, False),
        (ELASTIC | NOT_SAVED, True),
        (DIST | NOT_SAVED | {"checkpoint__every_s": 5}, True),
    ],
)
def test_what_2bit_compression_has_not_sent_is_in_no_checkpoint(overrides: dict[str, Any], noted: bool) -> None:
    found = rules.notes(make_experiment(**overrides, kvstore__compression="2bit"))
    assert [("each restart or resize drops it once" in note) for note in found] == [True] * noted


def test_an_elastic_async_experiment_counts_with_the_workers_that_it_starts_with() -> None:
    overrides = {"kvstore__type": "dist_async", "training__global_batch_size": 64}
    assert rules.batch_factor(make_experiment(**overrides, **ELASTIC)) == 1 / 2
    assert rules.batch_factor(make_experiment(**overrides, resources__workers=8)) == 1 / 8
    assert rules.batch_factor(make_experiment(training__global_batch_size=64, **ELASTIC)) == 1
