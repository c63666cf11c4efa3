"""Sweeps as a user runs them: what is tried, skipped, stopped, resumed, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import yaml
from commands import ROLES, Command, epochs_of, records, the_run, wait_until
from conftest import EXPERIMENTS, MARK, marked

from raymx.data.tools.packing import pack_arrays

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

STUDENT_975 = {1: 12.706205, 2: 4.302653, 4: 2.776445, 49: 2.009575}  # from a printed table
NETS = """
import os
import time

import numpy as np
from mxnet.gluon import nn


def mlp(classes, broken=False, broken_for_seed=0, pause_s=0.0):
    first = np.random.rand()        # raymx has seeded it
    if (broken and not os.path.exists(broken)) or first == np.random.RandomState(broken_for_seed).rand():
        raise ValueError("this net is broken")
    time.sleep(pause_s)
    net = nn.HybridSequential()
    net.add(nn.Flatten(), nn.Dense(16, activation="tanh"), nn.Dense(classes))
    return net
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a net and four classes that are easily learned."""
    made = tmp_path_factory.mktemp("tiny")
    numbers = np.random.default_rng(0)
    labels = numbers.integers(0, 4, 256)
    images = (numbers.random((256, 8, 8, 1)) * 60).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 2] += 150
    pack_arrays(images[:192], labels[:192], made / "train.rec")
    pack_arrays(images[192:], labels[192:], made / "val.rec")
    (made / "nets.py").write_text(NETS)
    return made


@pytest.fixture(scope="module", autouse=True)
def cluster(three_cpus: dict[str, str]) -> None:
    """One node with room for one trial, for all sweeps but the example."""
    ADDRESS.update(three_cpus)


ADDRESS: dict[str, str] = {}
"""In the environment of commands: where the cluster is, which wants a token."""


def resume(run: Path, *arguments: object) -> Command:
    return Command("--resume", run, *arguments, cwd=run.parent, **ADDRESS)


def nothing_is_left() -> bool:
    """Whether the cluster, which stays, has no role any more, a moment after a sweep."""
    return bool(wait_until(lambda: not marked(MARK, *ROLES), 20, "the end of all roles"))


def command(
    folder: Path,
    tmp_path: Path,
    space: dict[str, Any],
    *arguments: object,
    epochs: int = 2,
    options: dict[str, Any] | None = None,
    **sweep: Any,
) -> Command:
    """A sweep that has started; its runs are in ``tmp_path/runs``."""
    experiment = {
        "name": "tiny",
        "model": {"net": "nets:mlp", "classes": 4, "options": options or {}},
        "data": {
            "train": "train.rec",
            "validation": "val.rec",
            "image_shape": [1, 8, 8],
            "mean": 60,
            "std": 60,
            "cpus": 1,
        },
        "training": {"epochs": epochs, "global_batch_size": 64, "base_lr": 0.3},
        "resources": {"standby": False},
        "sweep": {"space": space, **sweep},
    }
    path = folder / f"{tmp_path.name}.yaml"
    path.write_text(yaml.safe_dump(experiment, sort_keys=False))
    return Command(path, "--storage-path", tmp_path / "runs", *arguments, cwd=tmp_path, **ADDRESS)


def grid(*values: object) -> dict[str, list[object]]:
    return {"grid": list(values)}


def table_of(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(run / "report" / "results.parquet").to_pylist()
    return found


@pytest.mark.long
def test_the_example_and_its_report(tmp_path: Path) -> None:
    """A smaller form of the example sweep."""
    made = Command(
        EXPERIMENTS / "sweep_fashion_mnist.yaml",
        "--storage-path",
        tmp_path / "runs",
        "--num-epochs",
        2,
        "--set",
        "model.net=nets:mlp",
        "--set",
        "sweep.space.batch_lr={grid: [256]}",
        "--set",
        "data.train=data/fashion_mnist_val.rec",
        cwd=tmp_path,
    )
    assert made.wait(280) == 0, made.err
    assert "skipped 2 cells: precision.dtype is float16: MXNet cannot compute in float16 without a GPU" in made.out
    check_findings(
        the_run(tmp_path / "runs"),
        12,
        cpus=6,
        effects={
            ("kvstore.type", "dist_async"),
            ("kvstore.compression", "2bit 0.5"),
            ("kvstore.compression", "2bit 0.05"),
        },
    )


@pytest.mark.parametrize("many", [8, pytest.param(200, marks=pytest.mark.long)])
def test_many_trials_and_their_report(folder: Path, tmp_path: Path, many: int) -> None:
    """The driver's memory does not grow with the trials, and what the report says follows from results.parquet."""
    rates = [round(0.01 * (i + 1), 4) for i in range(many // 4)]
    space = {"training.base_lr": grid(*rates), "training.optimizer.momentum": grid(0.0, 0.9)}
    made = command(folder, tmp_path, space, epochs=2, repeats=2)
    memory = []
    while made.process.poll() is None:
        ended = len(list((tmp_path / "runs").glob("*/Trial_*/progress.csv")))
        memory.append((ended, _resident_mb(made.process.pid)))
        time.sleep(0.2)
    assert made.wait() == 0, made.err
    run = the_run(tmp_path / "runs")
    assert [one["state"] for one in records(run)] == ["finished"] * many
    early, late = ([mb for ended, mb in memory if low <= ended / many < high] for low, high in ((0.25, 0.5), (0.75, 1)))
    # Tune keeps six figures and two windows of each column of each trial, and there are some 80 columns.
    assert min(late) - min(early) < 5 + 0.2 * many, memory
    others = {("training.base_lr", str(rate)) for rate in rates[1:]} | {("training.optimizer.momentum", "0.9")}
    check_findings(run, many, cpus=3, effects=others)


def check_findings(run: Path, trials: int, cpus: int, effects: set[tuple[str, str]]) -> None:
    """Compute what the report says of trials, cells, noise and ``effects`` again, from results.parquet."""
    table, findings = table_of(run), json.loads((run / "report" / "findings.json").read_text())
    assert len(table) == trials
    for trial, found in zip(table, findings["trials"], strict=True):
        assert found["trial_id"] == trial["trial_id"]
        best = max(row["validation_accuracy"] for row in trial["rows"])
        np.testing.assert_allclose(
            [found["best"], found["samples_per_sec"], found["cpu_s"], found["bytes_pushed"], found["peak_rate"]],
            [
                best,
                trial["rows"][1]["samples_per_sec"],
                cpus * trial["wall_s"],
                trial["rows"][1]["bytes_pushed"],
                trial["peak_lr"],
            ],
        )
    keys = sorted({axis for axis, _ in effects}, key=list(findings["cells"][0]["axes"]).index)
    cells: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for found, trial in zip(findings["trials"], table, strict=True):
        cells.setdefault(tuple(trial[key] for key in keys), []).append((found["best"], found["samples_per_sec"]))
    means = {key: np.mean(values, axis=0) for key, values in cells.items()}
    for cell in findings["cells"]:
        np.testing.assert_allclose(
            [cell["objective"], cell["samples_per_sec"]], means[tuple(cell["axes"][key] for key in keys)]
        )
    deviation = np.sqrt(np.mean([np.var([one for one, _ in values], ddof=1) for values in cells.values()]))
    assert findings["noise"]["objective_sd"] == pytest.approx(deviation)
    assert {(one["axis"], one["label"]) for one in findings["effects"]} == effects
    for effect in findings["effects"]:
        axis, label = effect["axis"], effect["label"]
        at = keys.index(axis)
        pairs = [
            (mean, means[(*key[:at], effect["against"], *key[at + 1 :])])
            for key, mean in means.items()
            if key[at] == label
        ]
        for name, values in (
            ("objective", [one[0] - other[0] for one, other in pairs]),
            ("speed", [np.log(one[1] / other[1]) for one, other in pairs]),
        ):
            half = STUDENT_975[len(pairs) - 1] * np.std(values, ddof=1) / np.sqrt(len(pairs))
            expected = np.mean(values) + np.array([0, -half, half])
            np.testing.assert_allclose(
                [effect[name][end] for end in ("mean", "low", "high")],
                expected if name == "objective" else np.exp(expected),
                rtol=1e-6,
            )


def test_a_grid_with_cells_that_cannot_run_and_trials_that_fail(folder: Path, tmp_path: Path) -> None:
    space = {
        "precision.dtype": grid("float32", "float16"),
        "model.options.broken": grid(False, str(tmp_path / "mended")),
    }
    made = command(folder, tmp_path, space, repeats=2, price_per_hour={"cpu": 0.05})
    assert made.wait() == 1
    assert nothing_is_left()
    assert "a sweep of 4 trials over precision.dtype, model.options.broken" in made.out
    assert "skipped 2 cells: precision.dtype is float16" in made.out
    assert "[4/4] " in made.out
    assert "2 of 4 trials failed" in made.err
    assert "this net is broken" in made.err
    run = the_run(tmp_path / "runs")
    sweep = json.loads((run / "sweep.json").read_text())
    assert [cell["verdict"] for cell in sweep["cells"]] == ["planned", "planned", "skipped", "skipped"]
    found = records(run)
    assert {(one["cell"], one["repeat"], one["seed"]) for one in found} == {(0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 1, 2)}
    assert {(one["cell"], one["state"]) for one in found} == {(0, "finished"), (1, "failed")}
    assert ["this net is broken" in (one["error"] or "") for one in found].count(True) == 2
    assert all(one["cpus"] == 3 and one["wall_s"] > 0 for one in found)


@pytest.mark.long
def test_what_failed_is_run_again_when_that_is_asked_for(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mended"
    space = {"model.options.broken": grid(False, str(mark))}
    made = command(folder, tmp_path, space, repeats=2, price_per_hour={"cpu": 0.05})
    assert made.wait() == 1
    run = the_run(tmp_path / "runs")
    mark.write_text("")
    assert resume(run).wait() == 1  # not asked to run them again
    retried = resume(run, "--retry-failed")
    assert retried.wait() == 0, retried.err
    assert [one["state"] for one in records(run)] == ["finished"] * 4
    assert [epochs_of(one) for one in records(run)] == [[1, 2]] * 4
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["trials"], summary["failed"]) == ("finished", 4, 0)
    assert summary["best"]["value"] == 1.0
    assert Path(summary["parameters"]).exists()
    assert f"report      {run / 'report' / 'report.html'}" in retried.out
    assert "Best validation_accuracy: 1.0000" in retried.out
    assert all(trial["cost"] > 0 for trial in table_of(run))


@pytest.mark.long
def test_asha_stops_bad_trials_and_a_loss_that_is_nan_and_is_resumed(folder: Path, tmp_path: Path) -> None:
    space = {"training.base_lr": grid(0.3, 1e-4, 1e38)}
    made = command(folder, tmp_path, space, epochs=4, scheduler="asha", seed=3, options={"pause_s": 1.0})
    wait_until(lambda: len(list((tmp_path / "runs").glob("*/Trial_*/trial.json"))) == 2, 90, "a second trial")
    made.process.send_signal(signal.SIGINT)
    assert made.wait() == 130, made.err
    assert nothing_is_left()
    run = the_run(tmp_path / "runs")
    first = records(run)
    assert first[0]["state"] == "finished"
    again = resume(run)
    assert again.wait() == 0, again.err
    assert nothing_is_left()
    found = records(run)
    states = {one["axes"]["training.base_lr"]: one["state"] for one in found}
    assert states["1e+38"] == "stopped"
    assert states["0.3"] == "finished"
    assert states["0.0001"] in ("stopped", "finished")  # the first one of a rung is never stopped
    assert found[0]["ended"] == first[0]["ended"]  # it was not run again
    assert [epoch for epoch in epochs_of(found[0]) if epoch == int(epoch)] == [1, 2, 3, 4]
    assert "loss is NaN" in again.out


@pytest.mark.long
def test_pbt_clones_the_best_and_is_resumed(folder: Path, tmp_path: Path) -> None:
    """Interrupted in the middle, when some of its trials are paused."""
    run = interrupted(folder, tmp_path, grid(1e-4, 2e-4, 0.3), epochs=3, scheduler="pbt")
    again = resume(run)
    assert again.wait(120) == 0, again.err
    found = records(run)
    assert [one["state"] for one in found] == ["finished"] * 3
    assert [sorted({epoch for epoch in epochs_of(one) if epoch == int(epoch)}) for one in found] == [[1, 2, 3]] * 3
    configs = [
        {
            json.loads(line)["config"]["point"]["axes"]["training.base_lr"]
            for line in (one["folder"] / "result.json").read_text().splitlines()
        }
        for one in found
    ]
    assert any(len(rates) > 1 for rates in configs)  # one was cloned


def interrupted(folder: Path, tmp_path: Path, rates: dict[str, list[object]], **options: Any) -> Path:
    """The folder of a sweep over learning rates that has been interrupted after some epochs."""
    made = command(folder, tmp_path, {"training.base_lr": rates}, options={"pause_s": 0.5}, **options)
    wait_until(lambda: len(list((tmp_path / "runs").glob("*/Trial_*/checkpoint_*"))) >= 4, 120, "some epochs")
    made.process.send_signal(signal.SIGINT)
    assert made.wait() == 130, made.err
    return the_run(tmp_path / "runs")


@pytest.mark.long
def test_pbt_goes_on_without_a_trial_that_fails(folder: Path, tmp_path: Path) -> None:
    made = command(
        folder,
        tmp_path,
        {"training.base_lr": grid(0.1, 0.2)},
        epochs=3,
        scheduler="pbt",
        repeats=2,
        options={"broken_for_seed": 2},
    )
    assert made.wait() == 1
    assert "2 of 4 trials failed" in made.err
    assert {(one["seed"], one["state"]) for one in records(the_run(tmp_path / "runs"))} == {
        (1, "finished"),
        (2, "failed"),
    }


@pytest.mark.long
def test_hyperband_is_resumed(folder: Path, tmp_path: Path) -> None:
    run = interrupted(folder, tmp_path, grid(0.1, 0.2, 0.3), epochs=3, scheduler="hyperband")
    again = resume(run)
    assert again.wait(120) == 0, again.err
    assert all(one["state"] in ("finished", "stopped") for one in records(run))
    assert len(records(run)) == 3


@pytest.mark.long
def test_a_search_library(folder: Path, tmp_path: Path) -> None:
    """More of them: tests/ray/test_tune.py."""
    pytest.importorskip("optuna")
    space = {"precision.dtype": grid("float32", "float16"), "training.base_lr": {"loguniform": [1e-4, 0.5]}}
    made = command(folder, tmp_path, space, search="optuna", samples=4)
    assert made.wait() == 0, made.err
    run = the_run(tmp_path / "runs")
    found, cells = records(run), json.loads((run / "sweep.json").read_text())["cells"]
    assert len(found) == 4
    assert {one["axes"]["precision.dtype"] for one in found} == {"float32"}
    assert {one["cell"] for one in found} == {cell["cell"] for cell in cells if cell["verdict"] == "planned"}
    assert len({one["axes"]["training.base_lr"] for one in found}) == 4


@pytest.mark.long
def test_two_sweeps_on_one_cluster(folder: Path, tmp_path: Path) -> None:
    """The second one gets its turn before the first one ends, although there is room for one trial only."""
    space, both = {"training.base_lr": grid(0.1, 0.2)}, []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        both.append(
            command(
                folder,
                tmp_path / name,
                space,
                epochs=1,
                options={"pause_s": 2.0},
                yield_after_s=1,
            )
        )
    for one in both:
        assert one.wait(240) == 0, one.err
    first, second = (records(the_run(tmp_path / name / "runs")) for name in ("one", "two"))
    assert len(first) == len(second) == 2
    assert min(one["started"] for one in second) < max(one["ended"] for one in first)
    assert min(one["started"] for one in first) < max(one["ended"] for one in second)


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
