"""What ``--dry-run`` tries: one step of the experiment's code and data, in a process of its own."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from conftest import EXPERIMENTS, ROOT

from raymx.driver import first_step
from raymx.driver.dry_run import dry_run
from raymx.errors import ExperimentError
from raymx.experiment.loading import ExperimentConfig, load_experiment
from raymx.training.first_step import try_step

CODE = """
import mxnet as mx
from mxnet import gluon


def net(classes):
    return gluon.nn.Dense(classes)


def broken(classes):
    raise ValueError("no such layer")


def two(classes):
    class Two(gluon.Block):
        def __init__(self):
            super().__init__()
            self.dense = gluon.nn.Dense(classes)

        def forward(self, images):
            return self.dense(images), self.dense(images)

    return Two()


def makes_a_store(ctx):
    mx.kv.create("dist_sync")


def has_a_trainer_of_gluons(ctx):
    net = ctx.build_net()
    gluon.Trainer(net.collect_params(), "sgd")
    ctx.report({"train_loss": 1.0})


def ends_at_once(ctx):
    pass


def fails_behind_the_engine(ctx):
    net = ctx.build_net()
    trainer = ctx.trainer(net)
    for batch in ctx.train_batches(0):
        mx.nd.dot(mx.nd.ones((2, 3)), mx.nd.ones((2, 3)))
        trainer.step()


def never_reports(ctx):
    net = ctx.build_net()
    trainer = ctx.trainer(net)
    while True:
        for batch in ctx.train_batches(0):
            part = batch.parts[0]
            with mx.autograd.record():
                losses = net(part.images.astype("float32")).sum(axis=1)
            losses.backward(part.scale)
            trainer.step()


def ends_the_process(classes):
    import os

    print("a last word", file=__import__("sys").stderr)
    os._exit(3)
"""
PARSES = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", required=True)
parser.parse_args()
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A module of a user's, whose name no other test has."""
    name = f"own_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(CODE)
    return name


def experiment(folder: Path, **overrides: Any) -> ExperimentConfig:
    shutil.copy(EXPERIMENTS / "nets.py", folder)
    text = (EXPERIMENTS / "fashion_mnist.yaml").read_text().replace("data/", f"{EXPERIMENTS}/data/")
    (folder / "experiment.yaml").write_text(text)
    return load_experiment(folder / "experiment.yaml", {"model.net": "nets:mlp", **overrides})


def tried(folder: Path, **overrides: Any) -> dict[str, Any]:
    return try_step(first_step.small(experiment(folder, **overrides)), str(folder))


def test_a_step_of_the_default_loop(tmp_path: Path) -> None:
    answer = tried(tmp_path, **{"kvstore.type": "dist_async", "resources.workers": 16, "training.epochs": 9})
    assert 2 < answer["loss"] < 3
    assert answer["notes"] == []


def test_a_loop_of_ones_own_that_does_not_report(tmp_path: Path, own: str) -> None:
    assert tried(tmp_path, **{"model.net": f"{own}:net", "training.loop": f"{own}:never_reports"}) == {
        "loss": None,
        "notes": [],
    }


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("model.net", "broken", "ValueError: no such layer"),
        ("model.net", "two", "returns a tuple of 2"),
        ("training.loop", "makes_a_store", 'mx.kv.create("dist_sync") in '),
        ("training.loop", "has_a_trainer_of_gluons", "report() came before ctx.trainer(net)"),
        ("training.loop", "ends_at_once", "the loop ended without ctx.report"),
        ("training.loop", "fails_behind_the_engine", "fails_behind_the_engine"),
    ],
)
def test_what_would_fail_in_a_worker_fails_here(tmp_path: Path, own: str, key: str, name: str, said: str) -> None:
    answer = tried(tmp_path, **{key: f"{own}:{name}"})
    assert said in answer["error"]
    assert "raymx/" not in answer["error"]


def test_a_module_that_parses_arguments(tmp_path: Path) -> None:
    name = f"own_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(PARSES)
    assert (
        f"importing {name} ended the process (exit code 2)" in tried(tmp_path, **{"model.net": f"{name}:net"})["error"]
    )


def test_a_record_that_cannot_be_read_fails_here(tmp_path: Path) -> None:
    answer = tried(tmp_path, **{"model.classes": 5})
    assert "model.classes" in answer["error"]
    assert ".rec" in answer["error"]


class TestDryRun:
    def test_it_says_what_was_tried(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(ROOT)
        found = experiment(
            tmp_path,
            **{
                "sweep.space.kvstore.type": {"grid": ["dist_sync", "dist_async"]},
                "sweep.space.model.net": {"grid": ["nets:mlp", "nets:lenet"]},
            },
        )
        said = list(dry_run(found, None))[-1]
        assert said.startswith(
            "One step of at most 8 records was tried here for each of 2 of the 2 kinds of cells: loss "
        )

    def test_a_process_that_ends(self, tmp_path: Path, own: str) -> None:
        with pytest.raises(ExperimentError, match=r"ended with exit code 3\na last word\n\(--dry-run=fast"):
            list(dry_run(experiment(tmp_path, **{"model.net": f"{own}:ends_the_process"}), None))

    def test_one_that_does_not_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_step, "TIMEOUT_S", 0.2)
        with pytest.raises(ExperimentError, match=r"had not ended in 0.2 s"):
            list(dry_run(experiment(tmp_path), None))

    @pytest.mark.parametrize("elsewhere", [True, False])
    def test_without_mxnet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool) -> None:
        monkeypatch.setattr(first_step, "_in_a_process", lambda *_: [{"absent": "mxnet cannot be imported"}])
        found = first_step.try_first_steps([experiment(tmp_path)], elsewhere=elsewhere)
        if elsewhere:
            assert list(found) == ["note: no step was tried, since mxnet cannot be imported"]
        else:
            with pytest.raises(ExperimentError, match="mxnet cannot be imported"):
                list(found)

    def test_a_loop_that_wants_gpus_is_not_tried_without(self, tmp_path: Path, own: str) -> None:
        wants = {"training.loop": f"{own}:ends_at_once", "resources.gpus_per_worker": 1}
        assert json.loads(json.dumps(first_step.small(experiment(tmp_path, **wants))))["training"]["loop"] == "default"
