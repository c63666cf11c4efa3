"""The experiment file: what it accepts, and the message of everything it does not."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import EXPERIMENTS
from factories import make_experiment

from raymx.errors import ExperimentError
from raymx.experiment import names, references
from raymx.experiment.loading import ExperimentConfig, check_files, load_experiment, parse_experiment, to_yaml
from raymx.experiment.schema import WorkerRange
from raymx.storage import RECORDS_BEGIN

MINIMAL = """
name: tiny
model: {net: "nets:lenet", classes: 10}
data: {train: a.rec, image_shape: [1, 28, 28]}
"""


def experiment(overrides: dict[str, Any] | None = None, directory: str = "/somewhere") -> ExperimentConfig:
    return make_experiment(
        overrides,
        directory=directory,
        model={"net": "nets:lenet"},
        data={"train": "a.rec", "image_shape": [1, 28, 28]},
    )


def message(overrides: dict[str, Any]) -> str:
    with pytest.raises(ExperimentError) as error:
        experiment(overrides)
    text = str(error.value)
    assert "pydantic" not in text
    assert "Input should" not in text
    return text


def load(tmp_path: Path, text: str, overrides: dict[str, Any] | None = None) -> ExperimentConfig:
    (tmp_path / "tiny.yaml").write_text(text)
    return load_experiment(tmp_path / "tiny.yaml", overrides)


def load_message(tmp_path: Path, text: str) -> str:
    with pytest.raises(ExperimentError) as error:
        load(tmp_path, text)
    return str(error.value)


def test_minimal_file_has_the_documented_defaults(tmp_path: Path) -> None:
    tiny = load(tmp_path, MINIMAL)
    assert tiny.directory == str(tmp_path)
    assert (tiny.data.mean, tiny.data.std, tiny.data.order) == (0.0, 255.0, "global")
    assert (tiny.training.epochs, tiny.training.global_batch_size, tiny.training.base_batch_size) == (1, 128, None)
    assert (tiny.training.optimizer.name, tiny.training.optimizer.arguments) == ("sgd", {})
    assert (tiny.kvstore.type, tiny.kvstore.servers, tiny.kvstore.update_on_kvstore) == ("auto", 1, "auto")
    assert (tiny.resources.workers, tiny.resources.gpus_per_worker, tiny.checkpoint.keep_best) == (1, 0, 2)
    assert (tiny.resources.standby, tiny.resources.on_resize, tiny.resources.resize_cooldown_s) == (
        "auto",
        "keep_global",
        30,
    )
    assert (tiny.failures.max, tiny.failures.stall_timeout_s) == (3, 600)
    assert (tiny.checkpoint.every_steps, tiny.checkpoint.every_s) == (200, 300)


def test_every_problem_is_listed_in_one_message(tmp_path: Path) -> None:
    text = load_message(tmp_path, MINIMAL + "training: {epochs: 0, base_lr: -1}\nkvstor: {}\n")
    assert text.startswith(f"{tmp_path}/tiny.yaml: 3 problems\n")
    assert "  training.epochs is 0: it must be a whole number, at least 1\n" in text
    assert "  training.base_lr is -1: it must be a number above 0\n" in text
    assert "  kvstor is not a key; did you mean kvstore? An experiment has the keys name, model, data" in text


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("training.epochs", "3", 'training.epochs is "3" (text): it must be a whole number, at least 1'),
        ("training.epochs", True, "training.epochs is true: it must be a whole number"),
        ("training.epochs", 1.5, "training.epochs is 1.5: it must be a whole number"),
        ("training.epochs", None, "training.epochs is null: it must be a whole number"),
        ("training.base_lr", float("nan"), "training.base_lr is nan: it must be a number above 0"),
        ("training.base_lr", float("inf"), "training.base_lr is inf"),
        ("training.warmup_lengthen", 1, "training.warmup_lengthen is 1: it must be true or false"),
        ("training.async_warmup_factor", 0.5, "it must be a number, at least 1"),
        ("training", 5, "training is 5: it must be a section with the keys epochs, global_batch_size"),
        ("training.epochs", {"x": 1}, "training.epochs is {'x': 1}: it must be a whole number"),
        ("name", "a b", 'name is "a b": it must be letters, digits'),
        ("name", "../x", 'name is "../x"'),
        ("model.initializer", "xaver", "one of xavier, msra, normal, uniform, none; did you mean xavier?"),
        ("model.hybridize", "maybe", "it must be auto, true or false"),
        ("model.options", {"classes": 3}, "model.options is {'classes': 3}: the net gets classes from model.classes"),
        ("model.net", "resnet18_v3", "Gluon's model zoo has no such name; did you mean resnet18_v"),
        ("model.loss", "cross_entropy", "did you mean softmax_cross_entropy? Use module:name for one of your own"),
        ("data.image_shape", [2, 28, 28], "[channels, height, width] with 1 or 3 channels"),
        ("data.image_shape", [28, 28], "[channels, height, width]"),
        ("data.std", 0, "data.std is 0: pixels are divided by it"),
        ("data.mean", [1, 2], "data.mean is [1, 2]: give one number, or one for each of the channels"),
        ("data.train", [], "data.train is []: it must be a path, or a list of paths"),
        ("kvstore.type", "dist-async", "dist_async, dist_sync_device, dist_async_device; did you mean dist_async?"),
        ("kvstore.compression", "1bit", "MXNet 1.9.1 has no 1bit compression; use 2bit or none"),
        ("kvstore.compression.threshold", 0, "kvstore.compression.threshold is 0: it must be a number above 0"),
        ("kvstore.env.worker", {"DMLC_ROLE": "x"}, "DMLC_ROLE is not yours to set: raymx gives every role its own"),
        ("kvstore.env.worker", {"DMLC_NUM_SERVER": 2}, "DMLC_NUM_SERVER is not yours to set: set kvstore.servers"),
        ("kvstore.env.all", {"LD_PRELOAD": "x"}, "names begin with DMLC_, PS_, MXNET_, OMP_"),
        ("kvstore.env.all", {"MXNET_KVSTORE_BIGARRAY_BOUND": "1k"}, "must be a whole number of elements"),
        (
            "resources.gpus_per_worker",
            "all",
            "it must be a whole number, at least 0, a part of one such as 0.5, or auto",
        ),
        ("resources.gpus_per_worker", 1.5, "it must be a whole number, at least 0, a part of one such as 0.5, or auto"),
        ("resources.workers", 0, "resources.workers is 0: it must be a whole number, at least 1, or {min: 2, max: 8}"),
        ("resources.workers", "2:8", 'resources.workers is "2:8" (text): it must be a whole number'),
        ("resources.workers", True, "resources.workers is true: it must be a whole number"),
        ("resources.workers", [2, 8], "resources.workers is [2, 8]: it must be a whole number, at least 1, or {min: 2"),
        (
            "resources.workers",
            {"min": 4, "max": 2},
            "resources.workers is {'min': 4, 'max': 2}: max must be at least min",
        ),
        ("resources.workers", {"min": 2}, "resources.workers.max is missing: it must be a whole number, at least 1"),
        (
            "resources.workers",
            {"min": 0, "max": 2},
            "resources.workers.min is 0: it must be a whole number, at least 1",
        ),
        ("resources.workers", {"min": 1, "max": True}, "resources.workers.max is true: it must be a whole number"),
        (
            "resources.workers",
            {"min": 1, "max": 2, "mx": 3},
            "resources.workers.mx is not a key; did you mean resources."
            "workers.max? resources.workers has the keys min, max",
        ),
        ("resources.standby", "yes", "it must be auto, true or false"),
        ("resources.on_resize", "keep", "it must be one of keep_global, keep_per_worker"),
        ("resources.resize_cooldown_s", -1, "it must be a number, at least 0"),
        ("failures.max", -1, "it must be a whole number, at least 0"),
        ("failures.stall_timeout_s", 0, "it must be a number above 0"),
        ("checkpoint.every_steps", 0, "it must be a whole number, at least 1, or null"),
        ("checkpoint.every_s", 0, "it must be a number above 0, or null"),
        ("directory", "/x", "directory is not a key"),
    ],
)
def test_wrong_value(key: str, value: object, expected: str) -> None:
    text = message({key: value})
    assert expected in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("training.epcohs", "training.epcohs is not a key; did you mean training.epochs? training has the keys epochs"),
        ("epochs", "epochs is not a key; did you mean training.epochs?"),
        ("training.servers", "did you mean kvstore.servers?"),
        ("resources.min", "did you mean resources.workers.min?"),
        ("kvstore.env.sever.X", "did you mean kvstore.env.server? kvstore.env has the keys all, scheduler"),
        ("data.order.x", "data.order is {'x': 1}: it must be one of global, chunk, none"),
        ("zzz", "zzz is not a key. An experiment has the keys name"),
    ],
)
def test_unknown_key(key: str, expected: str) -> None:
    assert expected in message({key: 1})


def test_a_wrong_override_names_its_flag() -> None:
    assert message({"kvstore.type": "x"}).endswith("(given by --set kvstore.type or --kv-store)")
    assert message({"data.std": -1}).endswith("(given by --set data.std)")


def test_missing_keys_say_what_they_take(tmp_path: Path) -> None:
    text = load_message(tmp_path, "name: tiny\nmodel: {net: 'nets:lenet'}")
    assert "model.classes is missing: it must be a whole number, at least 1" in text
    assert "data.train is missing: it must be a path, or a list of paths" in text
    assert "data.image_shape is missing: it must be [channels, height, width]" in text


@pytest.mark.parametrize(
    ("name", "argument", "value", "allowed"),
    [
        ("sgd", "momentum", 1, "a number from 0 to below 1"),
        ("nag", "momentum", None, "a number from 0 to below 1"),
        ("sgd", "momentum", True, "a number from 0 to below 1"),
        ("adam", "beta1", 1.0, "a number from 0 to below 1"),
        ("rmsprop", "gamma1", -0.1, "a number from 0 to below 1"),
        ("sgd", "wd", -0.0001, "a number, at least 0"),
        ("sgd", "wd", None, "a number, at least 0"),
        ("adam", "epsilon", float("nan"), "a number, at least 0"),
        ("adam", "clip_gradient", -1, "a number above 0, or null for none"),
        ("adam", "clip_gradient", 0, "a number above 0, or null for none"),
        ("adam", "multi_precision", 2, "true or false"),
        ("lamb", "lower_bound", -1, "a number, at least 0, or null for none"),
        ("lbsgd", "warmup_strategy", "lin", "one of linear, power2, sqrt, lars"),
    ],
)
def test_an_optimizers_argument_that_mxnet_would_take_and_train_wrong_with(
    name: str, argument: str, value: object, allowed: str
) -> None:
    text = message({"training.optimizer": {"name": name, argument: value}})
    assert text.startswith(f"training.optimizer.{argument} is ")
    assert f": it must be {allowed}" in text
    assert "\n" not in text


def test_what_optimizers_have_by_themselves_is_allowed() -> None:
    for values in (
        {"name": "lamb", "lower_bound": None, "upper_bound": 10, "bias_correction": False, "clip_gradient": None},
        {"name": "lars", "eps": 0, "momentum": 0, "eta": 0.001, "clip_gradient": 5},
        {"name": "lbsgd", "warmup_strategy": "power2", "batch_scale": 1, "begin_epoch": 0},
        {"name": "rmsprop", "centered": True, "clip_weights": 1, "gamma2": 0.9},
    ):
        assert experiment({"training.optimizer": values}).training.optimizer.name == values["name"]


def test_optimizer_takes_the_arguments_of_its_own_optimizer() -> None:
    optimizer = experiment({"training.optimizer": {"name": "sgd", "momentum": 0.9, "wd": 0}}).training.optimizer
    assert optimizer.arguments == {"momentum": 0.9, "wd": 0}
    text = message({"training.optimizer": {"name": "adam", "momentum": 0.9, "learning_rate": 1, "beta1": "high"}})
    assert "training.optimizer.momentum is not an argument of adam; it takes beta1, beta2" in text
    assert "training.optimizer.learning_rate cannot be set: use training.base_lr" in text
    assert 'training.optimizer.beta1 is "high": it must be a number' in text
    own = experiment({"training.optimizer": {"name": "mine:Sgd", "anything": "goes", "momentum": 2}}).training.optimizer
    assert (own.name, own.arguments) == ("mine:Sgd", {"anything": "goes", "momentum": 2})


def test_short_forms_and_other_spellings() -> None:
    assert experiment({"kvstore.compression": "2bit"}).kvstore.compression.type == "2bit"
    both = experiment({"kvstore.compression": "2bit", "kvstore.compression.threshold": 0.25}).kvstore.compression
    assert (both.type, both.threshold) == ("2bit", 0.25)
    assert experiment({"training.optimizer": "adam"}).training.optimizer.name == "adam"
    assert experiment({"training.decay": "cosine"}).training.decay.type == "cosine"
    assert experiment({"kvstore.type": "DIST_DEVICE_SYNC"}).kvstore.type == "dist_sync_device"
    assert experiment({"data.image_shape": [3, 32, 32], "data.mean": [1, 2, 3]}).data.mean == (1.0, 2.0, 3.0)


def test_env_values_become_text_that_each_reader_understands() -> None:
    given = {"PS_VERBOSE": 1, "MXNET_CUDNN_AUTOTUNE_DEFAULT": False, "OMP_PROC_BIND": True, "MXNET_X": 1e6}
    assert experiment({"kvstore.env.all": given}).kvstore.env.all == {
        "PS_VERBOSE": "1",
        "MXNET_CUDNN_AUTOTUNE_DEFAULT": "0",
        "OMP_PROC_BIND": "true",
        "MXNET_X": "1000000",
    }


@pytest.mark.parametrize(
    ("workers", "ends", "words"),
    [(1, (1, 1), "1 worker"), (3, (3, 3), "3 workers"), ({"min": 2, "max": 8}, (2, 8), "2 to 8 workers")],
)
def test_workers_are_a_number_or_a_range(workers: object, ends: tuple[int, int], words: str) -> None:
    found = experiment({"resources.workers": workers})
    resources = found.resources
    assert (resources.min_workers, resources.max_workers, resources.workers_in_words) == (*ends, words)
    assert resources.elastic == (ends[0] < ends[1])
    assert found.to_dict()["resources"]["workers"] == workers
    assert parse_experiment(found.to_dict(), found.directory) == pickle.loads(pickle.dumps(found)) == found


def test_a_range_of_one_number_is_that_number() -> None:
    assert experiment({"resources.workers": {"min": 3, "max": 3}}).resources.workers == 3
    changed = {"resources.workers": {"min": 3, "max": 3}, "resources.workers.max": 4}
    assert experiment(changed).resources.workers == WorkerRange(min=3, max=4)


def test_each_mistake_in_a_range_has_its_line() -> None:
    assert len(message({"resources.workers": {"min": 0, "mx": 3}}).splitlines()) == 3


def test_checkpoints_within_epochs_can_be_turned_off() -> None:
    off = experiment({"checkpoint.every_steps": None, "checkpoint.every_s": None}).checkpoint
    assert (off.every_steps, off.every_s) == (None, None)
    assert experiment({"failures.max": 0}).failures.max == 0


def test_round_trips(tmp_path: Path) -> None:
    full = experiment(
        {
            "training.optimizer": {"name": "sgd", "wd": 1e-5},
            "kvstore.env.worker": {"PS_VERBOSE": 2},
            "model.options": {"version": "1e3", "date": "2024-01-01"},
            "training.decay.epochs": [1, 2.5],
        },
        str(tmp_path),
    )
    assert parse_experiment(json.loads(json.dumps(full.to_dict())), str(tmp_path)) == full
    assert load(tmp_path, to_yaml(full)) == full
    assert pickle.loads(pickle.dumps(full)) == full
    assert "directory" not in full.to_dict()


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, (512, 128, "linear")),
        ({"global_batch_size": 64}, (512, 64, "linear")),
        ({"global_batch_size": 64, "base_batch_size": 256, "lr_rule": "sqrt"}, (512, 256, "sqrt")),
        ({"lr_rule": "none"}, (512, 128, "linear")),
    ],
)
def test_the_batch_with_its_rate_counts_from_the_files(training: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """As ``--batch-size`` and a sweep's axis ``batch_lr`` have it."""
    found = make_experiment({"batch_lr": 512}, training=training).training
    assert (found.global_batch_size, found.base_batch_size, found.lr_rule) == expected


def test_overrides_leave_the_given_data_alone() -> None:
    raw: dict[str, Any] = {
        "name": "tiny",
        "model": {"net": "alexnet", "classes": 2},
        "data": {"train": ["a", "b"], "image_shape": [3, 8, 8]},
    }
    changed = parse_experiment(raw, ".", {"model.classes": 3, "model.options.layers": 4})
    assert (changed.model.classes, changed.model.options) == (3, {"layers": 4})
    assert raw["model"] == {"net": "alexnet", "classes": 2}
    assert Path(changed.directory).is_absolute()


def test_resolve_leaves_absolute_paths_and_uris() -> None:
    tiny = experiment(directory="/a/b")
    assert (tiny.resolve("x.rec"), tiny.resolve("../x")) == ("/a/b/x.rec", "/a/x")
    assert (tiny.resolve("/y"), tiny.resolve("s3://k/z")) == ("/y", "s3://k/z")


@pytest.mark.parametrize(
    ("cache", "size"), [("auto", 512 << 20), ("none", 0), ("64MiB", 64 << 20), ("1.5 GiB", 1536 << 20)]
)
def test_cache_is_a_size_in_words(cache: str, size: int) -> None:
    raw = {
        "name": "tiny",
        "model": {"net": "alexnet", "classes": 10},
        "data": {"train": "a", "image_shape": [3, 8, 8], "cache": cache},
    }
    assert parse_experiment(raw, "/").data.cache_bytes == size


def test_augmentation_that_contradicts_itself_is_refused() -> None:
    raw = {
        "name": "tiny",
        "model": {"net": "alexnet", "classes": 10},
        "data": {
            "train": "a",
            "image_shape": [3, 8, 8],
            "augment": {"rand_crop": True, "random_resized_crop": True, "min_random_area": 0.5, "max_random_area": 0.2},
        },
    }
    with pytest.raises(ExperimentError) as error:
        parse_experiment(raw, "/")
    assert str(error.value).splitlines() == [
        "data.augment.min_random_area is 0.5, above max_random_area, which is 0.2",
        "data.augment.rand_crop is true beside random_resized_crop: choose one of them",
    ]


def test_numbers_in_exponent_form_are_numbers(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL + "training: {base_lr: 1e-3, optimizer: {wd: 1E-4}}").training.base_lr == 0.001


@pytest.mark.parametrize("begin", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_files_of_other_editors_are_read(tmp_path: Path, begin: str, end: str) -> None:
    (tmp_path / "tiny.yaml").write_bytes((begin + MINIMAL.replace("\n", end)).encode())
    assert load_experiment(tmp_path / "tiny.yaml").name == "tiny"


def test_the_record_of_a_run_is_no_experiment_file(tmp_path: Path) -> None:
    found = load_message(tmp_path, "directory: /x\nexperiment: {name: tiny}\n")
    assert len(found.splitlines()) == 1
    assert f"is the record of a run, not an experiment file: to go on with it give --resume {tmp_path}" in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty: an experiment has the keys name, model"),
        ("# only a comment\n", "is empty"),
        ("- a\n- b\n", "an experiment is a mapping with the keys name"),
        (
            "a: [1,\nb: 2\n",
            "line 3: not valid YAML: expected ',' or ']', but got '<stream end>' while parsing a flow "
            "sequence that began on line 1",
        ),
        ("a: 1\nb: {c: 1, c: 2}\n", "line 2: not valid YAML: the key c is given twice in one section, first on line 2"),
        ("name: x\nmodel: {}\nname: y\n", "the key name is given twice in one section, first on line 1"),
        ("a: !!python/object:os.system x\n", "not valid YAML"),
        ("1: 2\n", "1 is not a key"),
    ],
)
def test_files_that_are_no_experiment(tmp_path: Path, text: str, expected: str) -> None:
    found = load_message(tmp_path, text)
    assert found.startswith(f"{tmp_path}/tiny.yaml")
    assert expected in found


def test_a_file_that_is_not_there_lists_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "fashion_mnist.yaml").write_text(MINIMAL)
    (tmp_path / "another.yaml").write_text(MINIMAL)
    with pytest.raises(ExperimentError, match=r"does not exist; .* has fashion_mnist.yaml, another.yaml"):
        load_experiment(tmp_path / "fashion-mnist.yaml")
    with pytest.raises(ExperimentError, match="is a folder, not an experiment file"):
        load_experiment(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExperimentError, match="not text in UTF-8"):
        load_experiment(tmp_path / "binary.yaml")


def files_message(tmp_path: Path, **overrides: Any) -> str:
    changed = experiment({key.replace("__", "."): value for key, value in overrides.items()}, str(tmp_path))
    with pytest.raises(ExperimentError) as error:
        check_files(changed)
    return str(error.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.rec").write_bytes(RECORDS_BEGIN)
    (tmp_path / "nets.py").write_text(
        "import os\nraise_me = 1 / 1\ndef lenet(classes): ...\nclass Other: ...\n"
        "if True:\n    def inner(): ...\n"
        "try:\n    from x import y as z\nexcept ImportError:\n    w = None\n"
    )
    return tmp_path


def test_files_that_are_there_pass(folder: Path) -> None:
    for name in ("lenet", "Other", "inner", "z", "w", "raise_me"):
        check_files(experiment({"model.net": f"nets:{name}"}, str(folder)))
    check_files(experiment({"data.train": ["*.rec", "a.rec"]}, str(folder)))
    check_files(experiment({"model.loss": "json:dumps"}, str(folder)))
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("from os import *\n")
    check_files(experiment({"model.loss": "package:whatever"}, str(folder)))


def test_missing_and_empty_data_are_named(folder: Path) -> None:
    (folder / "empty.rec").touch()
    text = files_message(folder, data__train=["b.rec", "no/such/x.rec"], data__validation=["empty.rec", "*.lst"])
    assert f'data.train is "b.rec": {folder}/b.rec does not exist; {folder} has a.rec' in text
    assert f"of that path, {folder} exists" in text
    assert f'data.validation is "empty.rec": {folder}/empty.rec is empty' in text
    assert f"no file matches {folder}/*.lst" in text


def test_missing_modules_and_names_are_named(folder: Path) -> None:
    assert "does not define lennet; it defines lenet, " in files_message(folder, model__net="nets:lennet")
    text = files_message(folder, model__net="net:lenet")
    assert f"no module net in {folder} (its modules: nets), and none is installed; did you mean nets?" in text
    (folder / "broken.py").write_text("x = 1\ndef f(:\n")
    assert "broken.py, line 2: " in files_message(folder, training__loop="broken:f")


@pytest.mark.parametrize(
    ("key", "source", "said"),
    [
        ("model.net", "def f(): ...", "it is f(), and raymx calls f(classes, ...), which returns a Gluon block"),
        ("model.loss", "def f(outputs): ...", "it is f(outputs), and raymx calls f(outputs, labels)"),
        ("model.metric", "def f(a, b, c): ...", "it is f(a, b, c), and raymx calls f(outputs, labels)"),
        ("training.loop", "def f(args, ctx): ...", "it is f(args, ctx), and raymx calls f(ctx)"),
        ("data.transform", "def f(data, label): ...", "it is f(data, label), and raymx calls f(image, label, rng)"),
    ],
)
def test_a_function_of_other_arguments_is_shown_what_is_called(folder: Path, key: str, source: str, said: str) -> None:
    (folder / "own.py").write_text(source)
    text = files_message(folder, **{key.replace(".", "__"): "own:f"})
    assert text.startswith(f'{key} is "own:f": {said}')


@pytest.mark.parametrize(
    ("key", "source"),
    [
        ("model.net", "def f(**options): ..."),
        ("model.net", "def f(classes=10, width=3): ..."),
        ("model.loss", "def f(*given): ..."),
        ("model.loss", "def f(a, b, scale=2, *, more=1): ..."),
        ("training.loop", "class f: ..."),
        ("data.transform", "import functools\n@functools.cache\ndef f(data): ..."),
    ],
)
def test_one_that_can_be_called_or_is_not_known_passes(folder: Path, key: str, source: str) -> None:
    (folder / "own.py").write_text(source)
    check_files(experiment({key: "own:f"}, str(folder)))


@pytest.mark.parametrize("name", ["train.py", "train.ipynb"])
def test_a_python_file_is_no_experiment_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("import mxnet as mx\n")
    with pytest.raises(ExperimentError) as error:
        load_experiment(tmp_path / name)
    assert f"{name} is Python, not an experiment file" in str(error.value)
    assert 'model: {net: "train:net"}' in str(error.value)


def test_the_names_are_those_of_mxnet() -> None:
    pytest.importorskip("mxnet")
    # In a process of its own, so that this one stays without mxnet.
    script = """
import inspect, json, re, mxnet as mx
from mxnet.gluon.model_zoo import vision
own = {name: [p for p in inspect.signature(c.__init__).parameters if p not in ("self", "args", "kwargs")]
       for name, c in mx.optimizer.Optimizer.opt_registry.items()}
print(json.dumps([re.findall(r"'([\\w.]+)': ", inspect.getsource(vision.get_model)), own]))
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    zoo, optimizers = json.loads(output.splitlines()[-1])
    assert set(zoo) == set(names.MODEL_ZOO)
    # "test" is MXNet's own test optimizer, "ccsgd" an old name of sgd.
    assert set(optimizers) - {"test", "ccsgd"} == set(names.OPTIMIZERS)
    for name, arguments in names.OPTIMIZERS.items():
        assert set(arguments) == set(optimizers[name]) - {"learning_rate", "multi_precision"}


def test_importing_the_pure_modules_imports_neither_mxnet_nor_ray() -> None:
    script = (
        "import sys, raymx.cli.options, raymx.experiment.rules, raymx.experiment.sizing, raymx.cluster.placement, "
        "raymx.kvstore.schedule; "
        "sys.exit(' '.join({'mxnet', 'ray', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_module_where_the_command_is_given_is_not_an_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers do not have that folder, unless PYTHONPATH names it."""
    (tmp_path / "mine_alone.py").write_text("def net(classes): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    told = references.reference_problem("mine_alone:net", str(EXPERIMENTS))
    assert told is not None
    assert "no module mine_alone" in told
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert references.reference_problem("mine_alone:net", str(EXPERIMENTS)) is None
