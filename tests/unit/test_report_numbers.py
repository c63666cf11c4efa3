"""Every number of findings.json, reckoned again from results.parquet alone; and the statistics against known values."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from test_report import COMPRESSION, DTYPE, built, found_in

from raymx.report.cell_summaries import pareto
from raymx.report.intervals import interval, margin, pooled_sd, quantile, ratio_interval
from raymx.report.measures import elapsed, measure
from raymx.report.model import ObjectiveColumn, TrialResult

T_975 = {1: 12.706205, 2: 4.302653, 4: 2.776445, 6: 2.446912, 10: 2.228139, 30: 2.042272, 100: 1.983972}
"""Student's t for 95 %, by degrees of freedom, from a printed table."""


def close(one: Any, other: Any) -> bool:
    """Equal, floats nearly so, in any depth."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return one == other


def uneven(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    """Some of everything: a repeated epoch, an interrupted one, a failed trial, one of an early end."""
    number = int(facts["trial_id"][-2:])
    if number == 1:
        reports.insert(2, {**reports[1], "validation_accuracy": 0.99, "samples_per_sec": 1.0, "restarts": 1})
        reports[2], reports[1] = reports[1], reports[2]  # the replaced row of epoch 2 is the odd one
    if number == 2:
        reports.append({**reports[-1], "epoch": 4.5, "validation_accuracy": 0.99})
    if number == 4:
        facts.update(state="failed", error="boom")
    if number == 7:
        facts["state"] = "stopped"
        del reports[2:]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("sweep") / "tuned", repeats=3, change=uneven)


@pytest.fixture(scope="module")
def findings(files: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files / "findings.json").read_text())
    return found


@pytest.fixture(scope="module")
def table(files: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(files / "results.parquet").to_pylist()
    return found


@pytest.fixture(scope="module")
def about(files: Path) -> dict[str, Any]:
    metadata = pyarrow.parquet.read_schema(files / "results.parquet").metadata
    found: dict[str, Any] = json.loads(metadata[b"raymx"])
    return found


def kept(trial: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A trial's reports of whole epochs, the last of each."""
    whole = {row["epoch"]: row for row in trial["rows"] if row["epoch"] == int(row["epoch"])}
    return [whole[epoch] for epoch in sorted(whole)]


def best_of(trial: Mapping[str, Any]) -> float:
    return max(row["validation_accuracy"] for row in kept(trial))


def speed_of(trial: Mapping[str, Any]) -> float:
    return statistics.median(row["samples_per_sec"] for row in kept(trial)[1:])


def cells_of(
    table: Sequence[Mapping[str, Any]], state: Sequence[str]
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Trials in one of the states, by their settings."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for trial in table:
        if trial["state"] in state:
            found.setdefault((trial[DTYPE], trial[COMPRESSION]), []).append(trial)
    return found


def test_trials_from_the_parquet_file(table: list[dict[str, Any]], findings: dict[str, Any]) -> None:
    target = max(best_of(trial) for trial in table if trial["state"] != "failed") - 0.01
    assert math.isclose(findings["target"], target)
    assert len(table) == len(findings["trials"]) == 12
    for trial, found in zip(table, findings["trials"], strict=True):
        reports, seconds = kept(trial), trial["wall_s"]
        at_best = max(reports, key=lambda row: row["validation_accuracy"])
        expected = {
            "trial_id": trial["trial_id"],
            "best": best_of(trial),
            "best_epoch": float(at_best["epoch"]),
            "final": reports[-1]["validation_accuracy"],
            "samples_per_sec": speed_of(trial),
            "time_to_best_s": since_start(trial, at_best),
            "time_to_target_s": trial_time(trial, target),
            "bytes_pushed": 3e6,
            "bytes_pulled": 3e6,
            "step_s": 0.05,
            "first_step_s": 1.0,
            "data_wait_fraction": 0.02,
            "bytes_pushed_total": sum(row["bytes_pushed"] * row["steps"] for row in trial["rows"]),
            "time_s": seconds,
            "cpu_s": 4 * seconds,
            "gpu_s": seconds,
            "cost": (4 * 0.04 + 2.5) * seconds / 3600,
            "peak_rate": 0.05,
            "restarts": 1 if trial["trial_id"] == "t_00001" else 0,
            "settled": trial["state"] == "finished",
            "comparable": trial["state"] != "failed",
            "shared": False,
        }
        assert close(expected, {name: found[name] for name in expected}), trial["trial_id"]


def test_the_report_that_was_replaced_does_not_count(table: list[dict[str, Any]]) -> None:
    assert [row["counts"] for row in table[1]["rows"]] == [True, False, True, True, True]
    assert [row["counts"] for row in table[2]["rows"]] == [True] * 4 + [False]


def test_cells_noise_and_front_from_the_parquet_file(table: list[dict[str, Any]], findings: dict[str, Any]) -> None:
    settled, fast = cells_of(table, ["finished"]), cells_of(table, ["finished", "stopped"])
    groups = [[best_of(trial) for trial in trials] for trials in settled.values()]
    df = sum(len(group) - 1 for group in groups)
    sd = math.sqrt(sum((len(group) - 1) * statistics.variance(group) for group in groups) / df)
    assert close([sd, df], [findings["noise"]["objective_sd"], findings["noise"]["df"]])
    points = {
        key: (statistics.fmean(map(speed_of, fast[key])), statistics.fmean(map(best_of, settled[key])))
        for key in settled
    }
    for cell in findings["cells"]:
        key = (cell["axes"][DTYPE], cell["axes"][COMPRESSION])
        assert close(list(points[key]), [cell["samples_per_sec"], cell["objective"]])
        beaten = any(s >= points[key][0] and o >= points[key][1] and (s, o) != points[key] for s, o in points.values())
        assert cell["on_front"] is not beaten
        times = [trial_time(trial, findings["target"]) for trial in fast[key]]
        reached = [seconds for seconds in times if seconds is not None]
        assert (cell["reached"], cell["timed"]) == (len(reached), len(times))
        assert close(statistics.fmean(reached) if None not in times else None, cell["time_to_target_s"])
    best = max(points, key=lambda key: points[key][1])
    assert findings["answer"]["best"] == f"dtype {best[0]}, compression {best[1]}"
    near = [
        key
        for key in points
        if points[best][1] - points[key][1]
        <= T_975[df] * sd * math.sqrt(1 / len(settled[best]) + 1 / len(settled[key]))
    ]
    fastest = max(near, key=lambda key: points[key][0])
    assert findings["answer"]["fastest"] == f"dtype {fastest[0]}, compression {fastest[1]}"


def trial_time(trial: Mapping[str, Any], target: float) -> float | None:
    return next((since_start(trial, row) for row in kept(trial) if row["validation_accuracy"] >= target), None)


def since_start(trial: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Timestamps are cut to whole seconds; in these sweeps a trial does nothing but its steps."""
    return max(row["timestamp"] - trial["started"], row["time_total_s"])


def test_effects_from_the_parquet_file(
    table: list[dict[str, Any]], findings: dict[str, Any], about: dict[str, Any]
) -> None:
    settled, fast = cells_of(table, ["finished"]), cells_of(table, ["finished", "stopped"])
    assert [axis["key"] for axis in about["axes"]] == [DTYPE, COMPRESSION]
    assert len(findings["effects"]) == 2
    for number, (axis, effect) in enumerate(zip(about["axes"], findings["effects"], strict=True)):
        first, label = axis["labels"]
        assert (effect["axis"], effect["against"], effect["label"]) == (axis["key"], first, label)
        pairs = [
            (key, tuple(first if at == number else value for at, value in enumerate(key)))
            for key in settled
            if key[number] == label
        ]
        differences = [
            statistics.fmean(map(best_of, settled[one])) - statistics.fmean(map(best_of, settled[other]))
            for one, other in pairs
        ]
        logs = [
            math.log(statistics.fmean(map(speed_of, fast[one])) / statistics.fmean(map(speed_of, fast[other])))
            for one, other in pairs
        ]
        half = T_975[1] * statistics.stdev(differences) / math.sqrt(2)
        mean = statistics.fmean(differences)
        assert close({"mean": mean, "low": mean - half, "high": mean + half, "n": 2}, effect["objective"])
        half = T_975[1] * statistics.stdev(logs) / math.sqrt(2)
        mean = statistics.fmean(logs)
        assert close(
            {"mean": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "n": 2},
            effect["speed"],
        )
        counts = [sum(len(settled[pair[side]]) for pair in pairs) for side in (0, 1)]
        margin = T_975[findings["noise"]["df"]] * findings["noise"]["objective_sd"]
        margin *= math.sqrt(1 / counts[0] + 1 / counts[1])
        assert close(margin, effect["margin"])
        assert effect["within_noise"] is (abs(effect["objective"]["mean"]) <= margin)


def test_the_csv_file_has_the_same_table(files: Path, table: list[dict[str, Any]]) -> None:
    with (files / "results.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["trial_id"] for row in found] == [trial["trial_id"] for trial in table]
    assert set(found[0]) == set(table[0]) - {"rows"}
    assert float(found[3]["samples_per_sec"]) == table[3]["samples_per_sec"]


# ---- statistics against known values ----


@pytest.mark.parametrize(("df", "t"), T_975.items())
def test_quantiles_of_student(df: int, t: float) -> None:
    assert quantile(df) == pytest.approx(t, abs=1e-5)


def test_intervals() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert found.high == pytest.approx(2 + T_975[2] / math.sqrt(3), abs=1e-5)
    assert interval([5.0]) == type(found)(5.0, None, None, 1)
    assert interval([]) is None
    ratio = ratio_interval([2.0, 0.5])
    assert ratio is not None
    assert ratio.mean == pytest.approx(1.0)
    assert pooled_sd([[1.0, 3.0], [4.0, 6.0], [9.0]]) == (pytest.approx(math.sqrt(2)), 2)
    assert pooled_sd([[1.0], []]) == (None, 0)
    assert margin(1.0, 2, 2, 2) == pytest.approx(T_975[2], abs=1e-5)


@pytest.mark.parametrize(
    ("stamp", "spent", "expected"),
    [(110, 9.0, 9.75), (110, 10.5, 10.5), (110, 50.0, 9.75), (100, None, 0.0), (None, 7.0, 7.0)],
)
def test_seconds_since_the_start(stamp: float | None, spent: float | None, expected: float) -> None:
    trial = TrialResult("tuned", "t", "finished", {}, started=100.25)
    assert elapsed(trial, {"timestamp": stamp, "time_total_s": spent}) == expected


def test_the_pareto_front() -> None:
    points = [(1.0, 0.9), (2.0, 0.8), (1.5, 0.8), (2.0, 0.8), (3.0, 0.1), (0.5, 0.89), (None, 0.99), (9.0, None)]
    assert pareto(points, ObjectiveColumn("accuracy", "max")) == {0, 1, 3, 4}
    assert pareto(points, ObjectiveColumn("loss", "min")) == {4}


def test_one_pair_of_cells_is_compared_by_repeat() -> None:
    found = found_in(axes={DTYPE: ("float32", "float64")}, repeats=3)
    (effect,) = found.effects
    bests = [entry.measures.best for entry in found.study.entries]
    assert effect.pairs == "repeats"
    assert effect.objective is not None
    assert effect.objective.n == 3
    assert effect.objective.mean == pytest.approx(sum(bests[3:]) / 3 - sum(bests[:3]) / 3)


def test_without_repeats_the_noise_is_not_known() -> None:
    found = found_in(repeats=1)
    assert found.noise.objective_sd is None
    assert [effect.within_noise for effect in found.effects] == [None, None]
    assert "No settings were repeated" in found.answer_sentences[-1]
    assert "within 1 point of the best" in " ".join(found.answer_sentences)


def test_the_sentence_of_an_effect() -> None:
    sentence = next(text for text in found_in(repeats=3).effect_sentences if text.startswith("compression 2bit 0.5"))
    assert "x samples/s (" in sentence
    assert "points, more than noise (against none, 2 pairs of cells)." in sentence


def test_a_score_beside_a_loss_that_is_nan_is_not_the_best() -> None:
    rows = ({"epoch": 1, "train_loss": 0.5, "score": 0.4}, {"epoch": 2, "train_loss": math.nan, "score": 0.9})
    rows = tuple(row | {"counts": True} for row in rows)
    trial: Any = TrialResult("sweep", "t", "stopped", {}, rows=rows)
    found = measure(trial, ObjectiveColumn("score", "max"), None, {})
    assert (found.best, found.best_epoch, found.final) == (0.4, 1.0, 0.9)
