"""Experiments for tests, and trials that a test steps: each from the little that matters to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from by_hand import TrialByHand
from conftest import EXPERIMENTS, TESTS

from raymx.data.recordio.record import RecordIOWriter, read_payload, scan
from raymx.experiment.loading import ExperimentConfig, load_experiment, parse_experiment

TINY: dict[str, Any] = {  # names files that are not there: nothing is trained with it
    "name": "tiny",
    "model": {"net": "alexnet", "classes": 10},
    "data": {"train": "a", "image_shape": [3, 8, 8]},
}
IMAGES: dict[str, Any] = {  # the 1,000 records of validation, normalised
    "train": str(EXPERIMENTS / "data" / "fashion_mnist_val.rec"),
    "image_shape": [1, 28, 28],
    "mean": 73,
    "std": 90,
    "cpus": 1,
}


def make_experiment(
    overrides: Mapping[str, Any] | None = None, *, file: str = "", directory: str | Path = "/", **given: Any
) -> ExperimentConfig:
    """The tiny experiment, or that of experiments/``file``.yaml, with what is given in addition.

    ``training={"epochs": 2}`` adds keys to a section, ``kvstore__type="local"`` sets the key kvstore.type, and
    ``overrides`` has keys with dots. Raises ExperimentError.
    """
    flat = {key.replace("__", "."): value for key, value in given.items() if "__" in key} | dict(overrides or {})
    sections = {name: keys for name, keys in given.items() if "__" not in name}
    if file:
        flat = {f"{name}.{key}": value for name, keys in sections.items() for key, value in keys.items()} | flat
        return load_experiment(EXPERIMENTS / f"{file}.yaml", flat)
    raw = dict(TINY)
    for name, keys in sections.items():
        raw[name] = {**raw.get(name, {}), **keys} if isinstance(keys, Mapping) else keys
    return parse_experiment(raw, str(directory), flat)


def make_loop(loop: str, workers: int = 2, store: str = "dist_sync", **given: Any) -> ExperimentConfig:
    """An experiment around ``loop``, a module:function of tests/ or "default", with nets of tests/ and real records."""
    sections = {
        "model": {"net": "resnet18_v1"},
        "data": IMAGES,
        "training": {"global_batch_size": workers, "base_lr": 0.1, "loop": loop},
        "kvstore": {"type": store},
        "resources": {"workers": workers, "standby": False},
    }
    for name, keys in given.items():
        sections[name] = {**sections.get(name, {}), **keys}
    return make_experiment(directory=TESTS, **sections)


def make_default(overrides: Mapping[str, Any] | None = None, net: str = "lenet") -> ExperimentConfig:
    """The experiment of experiments/fashion_mnist.yaml, in the folder tests/ as those of `make_loop`; no standbys."""
    there = load_experiment(EXPERIMENTS / "fashion_mnist.yaml", {"model.net": f"nets:{net}"}).to_dict()
    there["model"]["net"] = f"own_nets:{net}"
    for name in ("train", "validation"):
        there["data"][name] = str(EXPERIMENTS / there["data"][name])
    return parse_experiment(there, str(TESTS), {"resources.standby": False, **(overrides or {})})


def make_trial(*cpus: float | Mapping[str, float]) -> TrialByHand:
    """A trial in bundles of so many CPUs: the first is the trial's own, with the KVStore scheduler."""
    bundles: Sequence[dict[str, float]] = [dict(one) if isinstance(one, Mapping) else {"CPU": one} for one in cpus]
    return TrialByHand(bundles)


def part_of_the_images(path: Path, count: int) -> Path:
    """Write so many of the real training images, from all over their file."""
    source = EXPERIMENTS / "data" / "fashion_mnist_train.rec"
    offsets = scan(source).offsets
    with open(source, "rb") as file, RecordIOWriter(path) as out:
        for offset in offsets[:: len(offsets) // count][:count]:
            out.write(read_payload(file, int(offset)))
    return path
