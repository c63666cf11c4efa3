"""The tables that the documentation's reference is made of: complete, and true of what is really written."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from raymx.experiment import keys
from raymx.experiment.loading import load_experiment
from raymx.results import columns, file_table, rows, server_columns

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs" / "_ext"))

import reference  # noqa: E402

GROUPS = keys.groups()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name or "file")
def test_every_key_and_section_has_a_meaning(group: keys.Group) -> None:
    assert group.meaning
    assert [key.name for key in group.keys if not key.meaning.endswith(".")] == []


def test_keys_are_those_of_an_experiment() -> None:
    def leaves(tree: dict[str, object], prefix: str = "") -> set[str]:
        found = set()
        for name, value in tree.items():
            inner = isinstance(value, dict) and f"{prefix}{name}" in sections
            found |= leaves(value, f"{prefix}{name}.") if inner else {prefix + name}  # type: ignore[arg-type]
        return found

    sections = {group.name for group in GROUPS}
    listed = {f"{key.section}.{key.name}".lstrip(".") for group in GROUPS for key in group.keys}
    changes = {
        "resources.workers": {"min": 1, "max": 2},
        "training.optimizer": "sgd",
    }  # whose arguments are no keys
    experiment = load_experiment(ROOT / "experiments" / "fashion_mnist.yaml", changes)
    of_names = {key for key in listed if ".NAME." in key}  # of arrays, of which this experiment has none
    assert leaves(experiment.to_dict()) == listed - of_names - {"resources.workers"}


def test_a_key_that_may_be_left_out_lists_null() -> None:
    modes = [key.allowed for group in GROUPS for key in group.keys if key.name == "mode"]
    assert modes == ["one of max, min, null"] * 2


def test_every_part_of_the_reference_is_a_table_or_a_list() -> None:
    for name, part in reference.PARTS.items():
        assert len(part()) > 100, name
        assert "None" not in part(), name


def test_a_cell_with_a_bar_stays_one_cell() -> None:
    assert reference.table(["a"], [["x | y"]]).splitlines()[-1] == r"| x \| y |"


def test_pages_name_parts_that_there_are() -> None:
    named = [mark for page in (ROOT / "docs").rglob("*.md") for mark in reference.MARK.findall(page.read_text())]
    assert set(named) == set(reference.PARTS)


def parsers() -> list[argparse.ArgumentParser]:
    found: list[argparse.ArgumentParser] = []
    before = reference._command
    reference._command = lambda parser: found.append(parser) or before(parser)  # type: ignore[func-returns-value]
    try:
        reference.commands_part()
    finally:
        reference._command = before
    return found


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: parser.prog)
def test_every_flag_has_a_help_text(parser: argparse.ArgumentParser) -> None:
    assert parser.description
    assert [action.dest for action in parser._actions if reference.is_listed(action) and not action.help] == []


def report(scaling: dict[str, float]) -> dict[str, object]:
    """What one worker's loop reports."""
    meter = {"steps": 4, "samples": 8, "train_s": 2.0, "first_step_s": 1.0, "first_batch_s": 0.5}
    parts = {
        "steps": 2,
        "seconds": {"compute": 1.0, "communication": 0.5},
        "own": {step: {"data": 0.1, "compute": 0.2, "loop": 0.0} for step in (1, 2)},
        "host_bound": 0.0,
        "queueing": 0.9,
        "alone_s": 0.1,
        "backward": {1: 5.0, 2: 6.0},
    }
    gpus = {"gpu_memory_peak_mib": 900.0, "gpu_memory_fraction": 0.1, "gpu_utilization": 0.5}
    return {
        "epoch": 1,
        "meter": meter,
        "parts": parts,
        "usage": {"cpus": 1.0, "rss_peak_mib": 200.0, "node_memory": 0.5, **gpus},
        "host_waits": [],
        "held_s": 0.1,
        "sync_s": 0.2,
        "input": {
            "batches": {"tasks": 3, "here": 1},
            "spent": {"tasks": {"read": 1.0, "decode": 2.0}},
            "transfer_s": 0.5,
        },
        "store": ("node", 64.0),
        "bytes": (3, 4),
        "bad_records": 0,
        "scaling": scaling,
    }


def test_the_table_has_every_column_of_a_row() -> None:
    metrics = {f"{kind}_{name}": 0.5 for kind in ("train", "validation") for name in ("loss", "accuracy", "samples")}
    row = rows.row([report({"loss_scale": 128.0, "skipped_steps": 0})] * 2, metrics, in_step=True)
    server = {"cpus": 0.5, "rss_peak_mib": 100.0, "updates": 10, "rounds": 5, "update_s": 0.5}
    row |= server_columns.columns_of([server], row, in_step=True, where=(1.0, 0), largest=("weight", 7))
    assert [name for name in row if columns.find(name) is None] == []
    assert columns.find("train_top5", metric="top5") is not None
    assert columns.find("a_metric_of_my_own") is None


def test_columns_are_named_once() -> None:
    names = [column.name for column in (*columns.OWN, *columns.TUNE)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "path",
    [
        "run.yaml",
        "Trial_7b100_00000/result.json",
        "Trial_7b100_00000/checkpoint_000003/net.params",
        "Trial_7b100_00000/in_epoch/epoch00002_step00000150/state.json",
        "Trial_7b100_00000/stacks_10-11-12.txt",
        "report/report.html",
        "tuner.pkl",
        "basic-variant-state-2026-11-30_20-18-05.json",
    ],
)
def test_the_table_has_the_files_of_a_run(path: str) -> None:
    assert file_table.what_is(path)


def test_a_file_of_somebody_elses_is_not_in_the_table() -> None:
    assert file_table.what_is("notes.txt") == file_table.what_is("Trial_7b100_00000/notes.txt") == ""


def test_the_reference_needs_neither_ray_nor_mxnet() -> None:
    code = (
        "import sys, reference; [part() for part in reference.PARTS.values()]; print({'ray', 'mxnet'} & {*sys.modules})"
    )
    path = [str(ROOT / "docs" / "_ext"), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{code}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
