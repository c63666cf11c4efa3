"""Where runs lie, their summary, and the lines that a run prints. No Ray."""

from __future__ import annotations

import functools
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pyarrow.fs
import pytest
from factories import make_experiment

from raymx.cluster import placement
from raymx.driver.display import Display, live_line, row_line
from raymx.driver.run import Driver
from raymx.errors import ExperimentError, OutOfMemory, TrainingError
from raymx.experiment.loading import parse_experiment
from raymx.results import rows, run_folder, summary
from raymx.sweep.plan import RunPlan
from raymx.text.out_of_memory import lack_of_memory

experiment = functools.partial(make_experiment, file="fashion_mnist")


def make_run(storage: Path, folder: str, **overrides: Any) -> str:
    run_folder.record(str(storage), folder, experiment(**overrides))
    return str(storage / folder)


def test_a_run_reads_back_as_what_it_was(tmp_path: Path) -> None:
    path = make_run(tmp_path, "fashion_mnist_2026-01-02_03-04-05", training__base_lr=0.3)
    assert run_folder.experiment_of(path) == experiment(training__base_lr=0.3)
    run_folder.check_same(experiment(training__base_lr=0.3), path)
    with pytest.raises(ExperimentError, match=r"training.base_lr was 0.3 and is 0.05"):
        run_folder.check_same(experiment(), path)


def test_a_resume_is_refused_where_the_experiments_folder_has_gone(tmp_path: Path) -> None:
    moved = tmp_path / "before"
    moved.mkdir()
    path = str(tmp_path / "run")
    run_folder.record(str(tmp_path), "run", make_experiment(directory=str(moved)))
    assert run_folder.experiment_to_resume(path).directory == str(moved)
    moved.rename(tmp_path / "now")
    with pytest.raises(ExperimentError, match=rf"--resume {path}: its experiment was in {moved}, which is not there"):
        run_folder.experiment_to_resume(path)


def test_the_newest_run_is_of_the_same_experiment(tmp_path: Path) -> None:
    for folder in (
        "fashion_mnist_2026-01-02_03-04-05",
        "fashion_mnist_2026-01-02_03-04-06",
        "fashion_mnist_async_2027-01-01_00-00-00",
    ):
        make_run(tmp_path, folder)
    (tmp_path / "fashion_mnist_2028-01-01_00-00-00").mkdir()  # not a run
    assert run_folder.newest_run(str(tmp_path), "fashion_mnist").endswith("03-04-06")
    with pytest.raises(ExperimentError, match="no run of other is in"):
        run_folder.newest_run(str(tmp_path), "other")


def test_two_runs_in_one_second_have_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: "2026-01-02_03-04-05")
    first = run_folder.new_folder(str(tmp_path), experiment())
    make_run(tmp_path, first)
    second = run_folder.new_folder(str(tmp_path), experiment())
    assert first != second
    make_run(tmp_path, second)
    assert run_folder.newest_run(str(tmp_path), "fashion_mnist") == str(tmp_path / second)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, ("validation_accuracy", "max")),
        ({"data__validation": None}, ("train_loss", "min")),
        ({"model__metric": "mse"}, ("validation_mse", "min")),
        ({"checkpoint__metric": "train_loss"}, ("train_loss", "min")),
        ({"checkpoint__metric": "train_loss", "checkpoint__mode": "max"}, ("train_loss", "max")),
    ],
)
def test_the_metric_that_checkpoints_are_kept_by(overrides: dict[str, Any], expected: tuple[str, str]) -> None:
    assert run_folder.best_metric(experiment(**overrides)) == expected


def test_the_root_of_a_wrapped_error() -> None:
    class Wrapped(TrainingError):  # as Ray makes them: of the cause's class, with the cause inside
        def __init__(self, cause: Exception) -> None:
            super().__init__("a long traceback")
            self.cause = cause

    assert str(run_folder.root_cause(Wrapped(TrainingError("short")))) == "short"
    assert run_folder.root_cause(None) is None
    assert "boom" in str(run_folder.root_cause(RuntimeError("boom")))
    failures = "Failure # 1 (occurred at x)\nfirst\nFailure # 2 (occurred at y)\nsecond\n"  # Tune's text of an error
    assert str(run_folder.root_cause(failures)) == "the trial ended: second"


OUT_OF_MEMORY = """Task was killed due to the node running low on memory.
Memory on the node (IP: 10.0.0.1, ID: 6f2e) was 27.71GB used / 28.80GB limit (0.962273)
OOM kill reason: above the threshold
Top 10 memory users:
PID\tMEM(GB)\tCOMMAND
410728\t8.47\tray::Worker.run_loop
510953\t7.19\tray::Server.serve
"""
OLDER = OUT_OF_MEMORY.replace("was 27.71GB used / 28.80GB limit", "where the task was running was 27.71GB / 28.80GB")


@pytest.mark.parametrize("text", [OUT_OF_MEMORY, OLDER])
def test_a_lack_of_memory_in_a_few_words(text: str) -> None:
    short = (
        "ended for lack of memory: 27.7 of 28.8 GB on 10.0.0.1, most by process 410728 (ray::Worker.run_loop, 8.5 GB)"
    )
    assert lack_of_memory(text) == short
    error = run_folder.root_cause(f"Failure # 1 (occurred at x)\n{text}")
    assert isinstance(error, OutOfMemory)
    assert str(error) == f"the trial's process was {short}"


def test_words_about_memory_are_fewer_where_less_is_told() -> None:
    assert (
        lack_of_memory("1 worker(s) were killed due to the node running low on memory. ") == "ended for lack of memory"
    )
    assert lack_of_memory("process 7 was killed or crashed") is None


def test_json_has_no_nan() -> None:
    assert json.loads(run_folder.as_json({"a": math.nan, "b": [1.5, math.inf], "c": object})) | {"c": 0} == {
        "a": None,
        "b": [1.5, None],
        "c": 0,
    }


ROW = {
    "epoch": 2,
    "train_loss": 0.5,
    "train_accuracy": 0.8,
    "validation_accuracy": 0.75,
    "samples_per_sec": 1234.5,
    "train_s": 3.0,
    "validation_loss": math.nan,
}


def test_a_rows_line() -> None:
    assert row_line(ROW, 3) == (
        "epoch 2/3  train_loss 0.5000  train_accuracy 0.8000  validation_accuracy 0.7500  validation_loss nan"
        "  1,234 samples/s"
    )


def test_the_live_line() -> None:
    progress = {"phase": "training", "epoch": 0, "step": 12, "steps": 48, "samples_per_sec": 1500.0, "loss": 0.25}
    assert live_line(progress, 3) == ("epoch 1/3 [######..................] 12/48 steps  1,500 samples/s  loss 0.250")
    assert live_line({"phase": "forming"}, 3) == "forming the KVStore ..."
    assert live_line({"phase": "training"}, 3) == "waiting for the first batch ..."


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_only_a_terminal_is_redrawn(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    display = Display(stream)
    wanted = experiment()
    display.head(RunPlan(wanted, 0, (), placement.plan(wanted, 0), 1, 0.0), "started Ray")
    display.progress("a", {"phase": "training", "epoch": 0, "step": 12, "steps": 48})
    display.row(ROW)
    display.warnings(["once", "once"])
    display.say("long " * 40 + "[b]text[/b]\tend")
    display.close()
    text = stream.getvalue()
    assert ("epoch 1/" in text) == stream.isatty()
    assert "long " * 40 + "[b]text[/b]" in text
    if not stream.isatty():
        assert "\x1b" not in text
        assert "[b]text[/b]\tend\n" in text
    assert ("\r" in text) == stream.isatty()
    assert text.count("warning: once") == 1
    assert "2 workers and 1 server, dist_sync, float32" in text


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed"])
def test_the_end_without_a_metric(state: str) -> None:
    stream = io.StringIO()
    Display(stream).end({"state": state, "wall_s": 3.0, "best": {}, "final": {}, "parameters": None}, "/runs/a")
    assert f"{state} after 3 s" in stream.getvalue()
    assert ("--resume /runs/a" in stream.getvalue()) == (state != "finished")


def test_a_summary_without_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "_hardware", list)
    nothing = SimpleNamespace(metrics_dataframe=None, metrics=None, checkpoint=None, error=None, path="/t")
    found = summary.summary(experiment(), nothing, "failed", None, 0.0)
    assert (found["best"], found["parameters"], found["final"]) == ({}, None, {})


@pytest.mark.parametrize("begin", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_record_that_an_editor_has_written_anew_is_read(tmp_path: Path, begin: str, end: str) -> None:
    run_folder.record(str(tmp_path), "r", experiment())
    file = tmp_path / "r" / "run.yaml"
    file.write_bytes((begin + file.read_text().replace("\n", end)).encode())
    assert run_folder.experiment_of(str(tmp_path / "r")) == experiment()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no experiment: it must have the keys directory and experiment"),
        (b"- a\n", "holds no experiment"),
        (b"directory: 3\nexperiment: {name: x}\n", "holds no experiment"),
        (b"directory: /x\ndirectory: /y\n", "line 2: not valid YAML: the key directory is given twice"),
        ("directory: /x\n".encode("utf-16"), "is not text in UTF-8"),
        (b"directory: /x\nexperiment: {name: x}\n", "model is missing"),
    ],
)
def test_a_record_that_is_damaged_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "run.yaml").write_bytes(content)
    with pytest.raises(ExperimentError) as error:
        run_folder.experiment_of(str(tmp_path))
    assert str(error.value).startswith(f"{tmp_path}/run.yaml")
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_small_files_may_begin_as_some_editors_write_them() -> None:
    assert run_folder.mapping('\ufeff{"a": 1}') == {"a": 1}


# ---- a loss that is no number ----

LOST = {"train_loss": math.nan, "validation_accuracy": 0.9, "epoch": 2.0}
FINE = {"train_loss": 0.5, "validation_accuracy": 0.6, "epoch": 1.0}


@pytest.mark.parametrize(
    ("row", "lost", "said"),
    [
        (FINE, False, ""),
        (LOST, True, "train_loss is nan in epoch 2, and no later epoch mends that; lower training.base_lr"),
        ({"epoch": 1, "loss": math.inf}, True, "loss is inf in epoch 1"),
        (
            {"epoch": 1, "train_loss": 2.9e16},
            False,
            "train_loss is 2.9e+16 in epoch 1: training has most likely diverged",
        ),
        ({"epoch": 1, "validation_loss": math.inf, "loss_scale": math.inf, "samples_per_sec": math.nan}, False, ""),
    ],
)
def test_which_losses_say_that_it_is_over(row: dict[str, float], lost: bool, said: str) -> None:
    assert rows.diverged(row) == lost
    assert rows.divergence(row).startswith(said)
    assert bool(rows.divergence(row)) == bool(said)


def result_of(*found: dict[str, float]) -> Any:
    kept = [(SimpleNamespace(path=f"/run/{number}"), row) for number, row in enumerate(found)]
    return SimpleNamespace(
        metrics=found[-1],
        metrics_dataframe=pandas.DataFrame(found),
        best_checkpoints=kept,
        checkpoint=kept[-1][0],
        path="/run",
        error=None,
    )


@pytest.fixture
def validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(summary, "_hardware", list)
    raw = {
        "name": "a",
        "model": {"net": "resnet18_v1", "classes": 10},
        "data": {"train": "train.rec", "validation": "validation.rec", "image_shape": [1, 28, 28]},
    }
    return lambda **failures: parse_experiment({**raw, "failures": failures}, str(tmp_path))


def test_the_traces_of_trials_are_named_where_there_are_some(validated: Any, tmp_path: Path) -> None:
    made, none = tmp_path / "t_1", tmp_path / "t_2"
    for folder in (made, none):
        folder.mkdir()
    (made / "trace.json.gz").write_bytes(b"")
    results = [result_of(FINE), result_of(FINE)]
    for result, folder in zip(results, (none, made), strict=True):
        result.path, result.filesystem = str(folder), pyarrow.fs.LocalFileSystem()
    raw = validated().to_dict()
    traced = parse_experiment({**raw, "profile": {"steps": [1, 2]}}, str(tmp_path))
    assert summary.sweep_summary(traced, results, "finished", None, 0.0)["traces"] == [f"{made}/trace.json.gz"]
    assert summary.summary(traced, results[0], "finished", None, 0.0)["traces"] == []
    assert summary.summary(validated(), results[1], "finished", None, 0.0)["traces"] == []


def test_an_epoch_whose_loss_is_nan_is_never_the_best(validated: Any) -> None:
    made = summary.summary(validated(), result_of(FINE, LOST), "failed", None, 0.0)
    assert (made["best"]["value"], made["best"]["epoch"], made["parameters"]) == (0.6, 1.0, "/run/0/net.params")
    made = summary.summary(validated(), result_of(LOST), "failed", None, 0.0)
    assert (made["best"], made["parameters"]) == ({}, None)
    made = summary.sweep_summary(validated(), [result_of(LOST), result_of(FINE, LOST)], "finished", None, 0.0)
    assert (made["best"]["value"], made["parameters"]) == (0.6, "/run/0/net.params")


def test_a_run_that_ends_with_a_loss_that_is_nan_has_failed(validated: Any, tmp_path: Path) -> None:
    interrupt: Any = SimpleNamespace(requested=False)
    (tmp_path / "run").mkdir()
    with pytest.raises(TrainingError, match=r"train_loss is nan in epoch 2, .*failures\.nan: go_on"):
        Driver(validated(), storage_path=str(tmp_path))._close(result_of(FINE, LOST), "run", 0.0, interrupt)
    assert json.loads((tmp_path / "run/summary.json").read_text())["state"] == "failed"
    assert (
        Driver(validated(nan="go_on"), storage_path=str(tmp_path))._close(result_of(LOST), "run", 0.0, interrupt) == 0
    )
