"""``python -m raymx.launch`` as a user gives it: what scripts print, how they end, and what they leave."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import Command, rows, the_run, wait_until
from conftest import TESTS

from raymx import report
from raymx.results import file_table

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(240)]

ENDS_WITHIN_S = 10.0


def launched(folder: Path, *words: object, script: str) -> Command:
    """A command in a folder of its own, with the script in it."""
    shutil.copy(TESTS / "scripts" / script, folder)
    return Command(*words, cwd=folder, module="raymx.launch")


def output(command: Command, role: str) -> list[str]:
    return [line.partition(" | ")[2] for line in command.out.splitlines() if line.split(" | ")[0].strip() == role]


def test_checks_of_a_kvstore_pass_and_a_killed_worker_ends_all(tmp_path: Path) -> None:
    storage = tmp_path / "runs"
    words = ("-n", 3, "-s", 2, "--storage-path", storage, "python", "kvstore_checks.py")
    command = launched(tmp_path, *words, script="kvstore_checks.py")
    assert command.wait() == 0, command.out + command.err
    assert command.err == ""
    assert command.left() == []
    ends = sorted(line for worker in range(3) for line in output(command, f"worker {worker}"))
    assert ends == [f"rank {rank} of 3: all checks passed" for rank in range(3)]
    run = the_run(storage)
    assert (run / "Trial_00000" / "logs" / "worker_2.log").read_text().endswith("all checks passed\n")
    assert json.loads((run / "summary.json").read_text())["state"] == "finished"
    left = [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()]
    assert [path for path in left if not file_table.what_is(path)] == []

    shutil.rmtree(storage)
    command = launched(tmp_path, *words, "--forever", script="kvstore_checks.py")
    log = storage / "*" / "Trial_00000" / "logs" / "worker_1.log"

    def pid() -> int:
        found = [
            re.search(r"forever as (\d+)", path.read_text()) for path in tmp_path.glob(str(log.relative_to(tmp_path)))
        ]
        return int(found[0][1]) if found and found[0] else 0

    os.kill(wait_until(lambda: pid() or command.process.poll(), 120, "the workers' start"), signal.SIGKILL)
    assert command.wait(ENDS_WITHIN_S) == 128 + signal.SIGKILL
    assert "worker 1 was ended by signal 9" in command.out
    assert command.left() == []
    summary = json.loads((the_run(storage) / "summary.json").read_text())
    assert (summary["state"], summary["error"]) == ("failed", "worker 1 was ended by signal 9")


# ---- longer forms ----


@pytest.mark.long
def test_a_gluon_script_that_sets_where_its_kvstore_is(tmp_path: Path) -> None:
    words = ("-n", 2, "-s", 1, "--storage-path", tmp_path / "runs", "gluon_script.py")
    command = launched(tmp_path, *words, script="gluon_script.py")
    assert command.wait() == 0, command.out
    assert "the script sets DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT, DMLC_NUM_WORKER" in command.out
    weights = [line for worker in (0, 1) for line in output(command, f"worker {worker}") if line.startswith("weights")]
    assert len(weights) == 2
    assert len(set(weights)) == 1
    found = trial_rows(tmp_path / "runs")
    assert [row["epoch"] for row in found] == [1, 2]
    assert all(len(row["worker_samples_per_sec"]) == 2 and row["train_accuracy"] > 0.5 for row in found)


def trial_rows(storage: Path) -> list[dict[str, Any]]:
    return rows(the_run(storage))


@pytest.mark.long
def test_a_module_script_is_started_again_from_its_parameters(tmp_path: Path) -> None:
    own = ("--restarts", 1, "--resume-prefix", "m", "--resume-flag", "--load-epoch {epoch}")
    words = ("-n", 2, "-s", 1, "--storage-path", tmp_path / "runs", *own, "module_script.py")
    command = launched(tmp_path, *words, "--model-prefix", "m", "--fail-in", 1, script="module_script.py")
    assert command.wait() == 0, command.out
    assert "was ended by signal 9; all roles start again, restart 1 of 1" in command.out
    assert "note: it goes on from m-0002.params" in command.out
    assert command.out.count("trained 1 epochs") == 2
    assert command.left() == []
    found = trial_rows(tmp_path / "runs")
    assert [(row["epoch"], row["restarts"]) for row in found] == [(1, 0), (2, 1), (3, 1)]
    assert "validation_accuracy" in found[-1]


@pytest.mark.long
def test_a_sweep_of_a_scripts_own_flags(tmp_path: Path) -> None:
    sweep = ("--sweep", "lr=0.1,0.5", "--repeats", 2, "--concurrent", 2)
    words = ("-n", 1, "-s", 1, "--storage-path", tmp_path / "runs", *sweep, "module_script.py", "--num-epochs", 2)
    command = launched(tmp_path, *words, script="module_script.py")
    assert command.wait() == 0, command.out
    heads, *cells = command.out.splitlines()[-5:-2]
    assert heads.split() == ["lr", "samples/s", "validation_accuracy", "trials"]
    assert [cell.split()[0] for cell in cells] == ["0.1", "0.5"]
    run = the_run(tmp_path / "runs")
    found = report.summary([str(run)])
    assert Path(str(found["report"])).exists()
    page = Path(str(found["report"])).read_text()
    assert "To run it alone: python -m raymx.launch -n 1 -s 1 python module_script.py --num-epochs 2 --lr" in page


@pytest.mark.long
@pytest.mark.parametrize("compress", [False, True])
def test_what_a_stock_dist_store_cannot(tmp_path: Path, compress: bool) -> None:
    words = ("-n", 2, "-s", 2, "--guard", "--storage-path", tmp_path / "runs", "guarded_script.py")
    command = launched(tmp_path, *words, *["--compress"] * compress, script="guarded_script.py")
    assert command.wait() == 0, command.out
    assert command.out.count("| guarded: [") == 2


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_client_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    words = ("-n", 2, "-s", 1, "--storage-path", tmp_path / "runs", "python", "kvstore_checks.py", "--forever")
    command = launched(tmp_path, *words, script="kvstore_checks.py")
    logs = tmp_path / "runs"
    wait_until(
        lambda: sum("forever as" in path.read_text() for path in logs.glob("*/*/logs/worker_*.log")) == 2,
        120,
        "the workers' start",
    )
    command.process.send_signal(number)
    assert command.wait(ENDS_WITHIN_S) == (-number if number == signal.SIGKILL else 130)
    own = ("ray::Role", "supervisor.py", "kvstore_checks", "import mxnet", "serve_as_scheduler")
    wait_until(
        lambda: not [title for title in command.left() if any(name in title for name in own)],  # Ray's agents may stay
        ENDS_WITHIN_S,
        "the end of all roles",
    )
