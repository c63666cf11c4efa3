"""Reports of synthetic sweeps, whole: the page, the command, odd inputs."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from raymx import report
from raymx.errors import ExperimentError
from raymx.report import operator_tables
from raymx.report.__main__ import main
from raymx.report.findings import Findings
from raymx.results.run_files import RunFiles, TrialFiles

EPOCHS, START = 4, 1_800_000_000.0
DTYPE, COMPRESSION = "precision.dtype", "kvstore.compression"
GRID = {DTYPE: ("float32", "float64"), COMPRESSION: ("none", "2bit 0.5")}

Change = Callable[[dict[str, Any], list[dict[str, Any]]], None]
"""Changes a trial's facts and its reports in place."""


def rows(rng: random.Random, began: float, accuracy: float, speed: float) -> list[dict[str, Any]]:
    """The reports of one trial: the first epoch is slow, and half of what is to be learned comes in each."""
    found, now = [], began + 5
    for epoch in range(1, EPOCHS + 1):
        now += 6000 / speed
        value = accuracy * (1 - 0.5 ** (epoch + 1)) + rng.gauss(0, 0.002)
        found.append(
            {
                "epoch": epoch,
                "train_loss": 2 * 0.5**epoch,
                "train_accuracy": value + 0.01,
                "validation_loss": 1.5 - value,
                "validation_accuracy": value,
                "num_workers": 2,
                "restarts": 0,
                "first_step_s": 1.0,
                "samples_per_sec": speed * (0.5 if epoch == 1 else rng.gauss(1, 0.01)),
                "data_wait_fraction": 0.02,
                "learning_rate": 0.05,
                "bytes_pushed": 3_000_000,
                "bytes_pulled": 3_000_000,
                "steps": 46,
                "train_s": 46 * 0.05,
                "training_iteration": epoch,
                "timestamp": int(now),
                "time_total_s": now - began,
                "done": epoch == EPOCHS,
                "nodes": "10.0.0.1",
                "config": {"experiment": {"name": "left out"}},
            }
        )
    return found


def run_files(
    axes: Mapping[str, Sequence[str] | None] = GRID,
    cells: Sequence[Mapping[str, Any]] | None = None,
    *,
    repeats: int = 2,
    change: Change | None = None,
    seed: int = 0,
    path: str = "/runs/tuned",
    skipped: Sequence[tuple[Mapping[str, Any], str]] = (),
    kind: str = "grid",
    objective: tuple[str, str] = ("validation_accuracy", "max"),
    accuracy: Callable[[Mapping[str, Any]], float] = lambda axes: 0.9,
) -> RunFiles:
    """The files of a sweep. 2bit is 1.4 times as fast and 0.02 worse; ``axes`` with no labels are drawn numbers."""
    rng, trials, now = random.Random(seed), [], START
    if cells is None:
        labels = [names or () for names in axes.values()]
        cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*labels)]
    for number, ((at, point), repeat) in enumerate(itertools.product(enumerate(cells), range(repeats))):
        compressed = point.get(COMPRESSION, "none") != "none"
        speed = 1000 * (1.4 if compressed else 1.0) * rng.gauss(1, 0.02)
        reports = rows(rng, now, accuracy(point) - 0.02 * compressed + rng.gauss(0, 0.003), speed)
        ended = reports[-1]["timestamp"] + 1.0
        facts = {
            "trial_id": f"t_{number:05d}",
            "cell": at,
            "repeat": repeat,
            "seed": repeat + 1,
            "axes": point,
            "state": "finished",
            "error": None,
            "started": now,
            "ended": ended,
            "wall_s": ended - now,
            "cpus": 4.0,
            "gpus": 1.0,
            "epochs": EPOCHS,
            "peak_lr": 0.05,
            "lr_factor": 1.0,
            "global_batch_size": 128,
            "num_workers": 2,
            "kvstore_type": "dist_sync",
            "dtype": point.get(DTYPE, "float32"),
            "compression": point.get(COMPRESSION, "none"),
            "notes": [],
        }
        if change:
            change(facts, reports)
        text = "".join(json.dumps(row) + "\n" for row in reports)
        trials.append(TrialFiles(f"Trial_{number:05d}", json.dumps(facts), text))
        now = ended + 3
    sweep = {
        "objective": {"metric": objective[0], "mode": objective[1]},
        "repeats": repeats,
        "started": START,
        "axes": [
            {"key": key, "kind": kind if names is None else "grid", "labels": names} for key, names in axes.items()
        ],
        "cells": [
            {"cell": at, "axes": point, "verdict": "planned", "reason": None, "notes": []}
            for at, point in enumerate(cells)
        ]
        + [
            {"cell": 90 + at, "axes": point, "verdict": "skipped", "reason": reason, "notes": []}
            for at, (point, reason) in enumerate(skipped)
        ],
        "trials_planned": len(cells) * repeats,
        "price_per_hour": {"CPU": 0.04, "GPU": 2.5},
    }
    experiment = {
        "name": "tuned",
        "model": {"net": "nets:lenet", "classes": 10},
        "training": {"epochs": EPOCHS},
        "precision": {"dtype": "float32"},
        "kvstore": {"type": "dist_sync", "compression": {"type": "none"}},
    }
    run = json.dumps({"directory": "/x", "experiment": experiment})
    return RunFiles(path, run, json.dumps(sweep), None, tuple(trials))


def found_in(**given: Any) -> Findings:
    return report.look([run_files(**given)])


def written(folder: Path, files: RunFiles) -> Path:
    """The files on disk."""
    folder.mkdir(parents=True)
    for name, text in (("run.yaml", files.run), ("sweep.json", files.sweep), ("summary.json", files.summary)):
        if text is not None:
            (folder / name).write_text(text)
    for trial in files.trials:
        (folder / trial.folder).mkdir()
        for name, text in (("trial.json", trial.trial), ("result.json", trial.rows)):
            if text is not None:
                (folder / trial.folder / name).write_text(text)
    return folder


def built(folder: Path, **given: Any) -> Path:
    """The folder of the report of a sweep made by ``given``."""
    return Path(report.build([str(written(folder, run_files(**given)))])).parent


# ---- the page ----


def test_the_page_stands_alone_and_is_complete(tmp_path: Path) -> None:
    def fail(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        if facts["trial_id"] == "t_00004":
            facts.update(state="failed", error="boom")

    skipped = [({DTYPE: "float16", COMPRESSION: label}, "2-bit compression takes <float32> only") for label in "ab"]
    files = built(tmp_path / "tuned", change=fail, skipped=skipped)
    findings = json.loads((files / "findings.json").read_text())
    page = (files / "report.html").read_text()
    targets = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'>\s]+)""", page)
    assert targets
    assert all(target.startswith("data:") for target in targets)
    assert "@import" not in page
    assert "url(" not in page
    pictures = {path.stem for path in files.glob("*.png")}
    assert pictures == {"tradeoff", "curves_epochs", "curves_time", "effects", "time_to_target", "bytes"}
    assert page.count("data:image/png;base64,") == len(pictures)
    for trial in findings["trials"]:
        assert page.count(f'data-value="{trial["trial_id"]}"') == 1
    assert "2-bit compression takes &lt;float32&gt; only" in page
    assert "2 cells" in page
    assert "<pre>boom</pre>" in page
    assert findings["sentences"][0].split(" with ")[0] in page


PARTS = {
    "compute_fraction": 0.6,
    "communication_fraction": 0.25,
    "data_wait_fraction": 0.15,
    "straggler_fraction": 0.0,
    "checkpoint_fraction": 0.0,
    "loop_fraction": 0.0,
}


def test_a_bar_in_each_trials_row_says_where_a_step_goes(tmp_path: Path) -> None:
    def measured(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        if facts["trial_id"] != "t_00004":  # one of an older version among them
            for row in reports:
                row.update(PARTS)

    page = (built(tmp_path / "tuned", change=measured) / "report.html").read_text()
    told = "computing 60 %, waiting for gradients and weights 25 %, waiting for data 15 %"
    (trials,) = {len(json.loads((tmp_path / "tuned" / "report" / "findings.json").read_text())["trials"])}
    assert page.count(f'aria-label="{told}"') == trials - 1
    assert page.count('<p class="quiet legend">') == 1
    assert "held for checkpoints</span>" in page


def test_without_measured_steps_there_is_no_bar(tmp_path: Path) -> None:
    page = (built(tmp_path / "tuned") / "report.html").read_text()
    assert 'legend">' not in page
    assert "<span class=step" not in page


def test_operators_of_one_trial_and_of_several_beside_the_first() -> None:
    def traced(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        half = facts["dtype"] == "float16"
        reports[0]["operators"] = [["Convolution", 4.0, 0.06 if half else 0.03], ["BatchNorm", 2.0, 0.01]]

    one = operator_tables.table(found_in(axes={DTYPE: ["float32"]}, repeats=1, change=traced))
    assert one is not None
    assert [column.head for column in one.columns][2:] == ["times a step", "ms each time", "of all operators"]
    assert [[cell.text for cell in row.cells] for row in one.rows] == [
        ["Convolution", "30", "4", "7.5", "75.0 %"],
        ["BatchNorm", "10", "2", "5", "25.0 %"],
    ]
    both = operator_tables.table(found_in(axes={DTYPE: ["float32", "float16"]}, repeats=1, change=traced))
    assert both is not None
    times = [cells[-1].text for cells in (row.cells for row in both.rows)]
    assert times in (["2.00x", "1.00x"], ["0.50x", "1.00x"])  # the faster trial is the first
    assert operator_tables.table(found_in()) is None


def test_names_are_escaped(tmp_path: Path) -> None:
    bad = "<script>alert('x')</script> \"&\" é 漢 $a_b$"
    axes = {DTYPE: ("float32", bad)}

    def fail(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        facts.update(notes=[bad], **({"state": "failed", "error": bad} if facts["repeat"] else {}))

    folder = built(tmp_path / "<b>&é", axes=axes, change=fail, skipped=[({DTYPE: bad}, bad)])
    page = (folder / "report.html").read_text()
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert" in page


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (
        written(tmp_path / name, run_files(seed=seed, axes={DTYPE: ("float32", "float64")}))
        for seed, name in enumerate(("one", "two"))
    )
    assert main([str(one), str(two), "--output", str(tmp_path / "both"), "--target", "0.5"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "both" / "report.html")
    found = json.loads((tmp_path / "both" / "findings.json").read_text())
    assert found["target"] == 0.5
    assert found["axes"][0] == {"key": "sweep", "kind": "grid", "labels": ["one", "two"]}
    assert [(effect["axis"], effect["label"]) for effect in found["effects"]] == [("sweep", "two"), (DTYPE, "float64")]
    assert main([f"file://{one}"]) == 0
    assert (one / "report" / "report.html").exists()


def test_a_path_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written(tmp_path / "runs" / "tuned", run_files(repeats=1))
    for path, said in (
        (tmp_path / "runs", r"it has no run.yaml\), but it holds tuned; name one of them"),
        (run / "Trial_00000", "it is the folder of one trial: give its run's"),
        (tmp_path / "none", "no such folder"),
    ):
        with pytest.raises(ExperimentError, match=said):
            report.build([str(path)])
    assert main([str(tmp_path / "none")]) == 1
    assert "raymx: error: " in capsys.readouterr().err


def test_neither_ray_nor_mxnet_is_imported(tmp_path: Path) -> None:
    run = written(tmp_path / "tuned", run_files(repeats=1))
    code = (
        "import sys; sys.modules['ray'] = sys.modules['mxnet'] = None; from raymx import report; "
        f"print(report.build([{str(run)!r}]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


# ---- odd inputs ----


def without_rows(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    reports.clear()


def all_failed(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    facts.update(state="failed", error="boom")


def no_validation(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    for row in reports:
        del row["validation_accuracy"], row["validation_loss"]


def running(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    facts.update(state="running", ended=None, wall_s=None)
    del reports[1:]


def not_a_number(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    if facts["cell"] == 0:
        for row in reports:
            row["validation_accuracy"] = math.nan


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_rows, "No trial has reported yet"),
        (all_failed, "All 8 trials failed"),
        (
            no_validation,
            "No trial that counts has a finite validation_accuracy, so there is no answer; the reports have "
            "train_accuracy, train_loss",
        ),
        (running, "No trial has finished yet: this is how things stand."),
        (not_a_number, "Best validation_accuracy: 0.8"),
    ],
)
def test_odd_trials(tmp_path: Path, change: Change, said: str) -> None:
    folder = built(tmp_path / "tuned", change=change)
    assert json.loads((folder / "findings.json").read_text())["sentences"][0].startswith(said)
    assert pyarrow.parquet.read_table(folder / "results.parquet").num_rows == 8


def test_no_trial_yet(tmp_path: Path) -> None:
    folder = built(tmp_path / "tuned", cells=[])
    assert "No trial has begun yet" in (folder / "report.html").read_text()
    assert not list(folder.glob("*.png"))


def test_the_smallest_loss_is_the_best(tmp_path: Path) -> None:
    found = found_in(objective=("validation_loss", "min"))
    losses = [min(row["validation_loss"] for row in entry.trial.rows) for entry in found.study.entries]
    assert found.study.target == pytest.approx(min(losses) + 0.01)
    assert [entry.measures.best for entry in found.study.entries] == losses
    assert found.answer is not None
    assert found.answer.best.objective == min(cell.objective for cell in found.cells if cell.objective is not None)


def test_a_line_that_is_cut_is_left_out_and_a_damaged_one_is_told() -> None:
    whole = run_files(repeats=1)
    first, second, *rest = whole.trials
    assert first.rows is not None
    assert second.rows is not None
    cut = TrialFiles(first.folder, first.trial, first.rows[:-20])
    broken = TrialFiles(second.folder, second.trial, "{nonsense\n" + second.rows)
    found = report.look([RunFiles(whole.path, whole.run, whole.sweep, None, (cut, broken, *rest))])
    assert [len(entry.trial.rows) for entry in found.study.entries] == [3, 4, 4, 4]
    assert found.sweeps[0].remarks == ("Trial_00001/result.json, line 1, is damaged: it is left out",)


def test_a_single_run_without_its_own_files(tmp_path: Path) -> None:
    sweep = run_files(repeats=1)
    trial = TrialFiles(sweep.trials[0].folder, None, sweep.trials[0].rows)
    run = json.dumps(
        {
            "directory": "/x",
            "experiment": {
                "name": "single",
                "model": {"net": "resnet18_v1", "classes": 10},
                "training": {"epochs": EPOCHS},
                "data": {"train": "a.rec", "validation": "b.rec", "image_shape": [1, 28, 28]},
            },
        }
    )
    summary = json.dumps(
        {
            "state": "finished",
            "error": None,
            "wall_s": 50.0,
            "versions": {"raymx": "0.1.0"},
            "hardware": [{"node": "10.0.0.1", "logical_cpus": 6, "gpus": 0, "memory_bytes": 4e9, "cores": 2}],
        }
    )
    folder = written(tmp_path / "single", RunFiles("", run, None, summary, (trial,)))
    page = Path(report.build([str(folder)])).read_text()
    assert "1 trial: 1 finished" in page
    assert "raymx 0.1.0" in page
    assert "node 10.0.0.1: 6 logical CPUs, 2 cores" in page
    assert "Recommended" not in page


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("run.yaml", "[1]", "run.yaml holds no experiment"),
        ("sweep.json", "{nonsense", "json: cannot be understood"),
        ("sweep.json", "[1]", "a mapping is needed"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = written(tmp_path / "tuned", run_files(repeats=1))
    (folder / name).write_text(text)
    with pytest.raises(ExperimentError, match=said):
        report.build([str(folder)])


def test_an_axis_with_one_label() -> None:
    found = found_in(axes={DTYPE: ("float32",)}, repeats=4)
    assert found.effects == ()
    assert found.noise.df == 3
    assert len(found.answer_sentences) == 2


def test_drawn_numbers(tmp_path: Path) -> None:
    cells = [{"training.base_lr": 10.0**-at, COMPRESSION: ("none", "2bit 0.5")[at % 2]} for at in range(6)]
    folder = built(
        tmp_path / "tuned",
        axes={"training.base_lr": None, COMPRESSION: ("none", "2bit 0.5")},
        cells=cells,
        kind="loguniform",
        repeats=1,
        accuracy=lambda axes: 0.9 - 0.1 * (math.log10(axes["training.base_lr"]) + 2) ** 2,
    )
    table = pyarrow.parquet.read_table(folder / "results.parquet")
    assert table["training.base_lr"].to_pylist() == [cell["training.base_lr"] for cell in cells]
    assert (folder / "values.png").exists()
    assert not (folder / "effects.png").exists()
    assert json.loads((folder / "findings.json").read_text())["answer"]["best"].startswith("base_lr 0.01")


def test_different_objectives_are_not_compared() -> None:
    other = run_files(objective=("train_loss", "min"), path="/runs/other")
    with pytest.raises(ExperimentError, match="different objectives cannot be compared"):
        report.look([run_files(), other])


@pytest.mark.slow
def test_a_report_of_200_trials_is_complete(tmp_path: Path) -> None:
    axes = {
        DTYPE: ("float32", "float64"),
        COMPRESSION: ("none", "2bit 0.5", "2bit 1", "2bit 2", "2bit 4"),
        "training.global_batch_size": tuple(str(64 * 2**power) for power in range(5)),
    }
    folder = built(tmp_path / "tuned", axes=axes, repeats=4)
    found = json.loads((folder / "findings.json").read_text())
    assert (len(found["trials"]), len(found["cells"]), len(found["effects"])) == (200, 50, 9)
    page = (folder / "report.html").read_text()
    assert sum(page.count(f'data-value="{trial["trial_id"]}"') for trial in found["trials"]) == 200
    assert len(list(folder.glob("*.png"))) == 6
    assert pyarrow.parquet.read_table(folder / "results.parquet").num_rows == 200
