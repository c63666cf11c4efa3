"""What a trial of a sweep costs beside its training.

    python benchmarks/sweep.py [--json PATH] [--check] [--trials 8]

A sweep of so many learning rates of the default experiment (real data, one epoch each, two workers and a server) is
run as a user would. Of each trial but the first, what is not training is the time since the end of the trial before
it, without the epoch itself: Tune's work, ending one generation and forming the next. The peer,
../shared/peers/ray_train_v2.py where that is, starts the same KVStore roles through Ray Train, as many times. Run it on
an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from common import Figure, arguments, finish, spread

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parent / "experiments"
PEER = HERE.parents[1] / "shared" / "peers" / "ray_train_v2.py"
GOAL_S = 0.5


def sweep(folder: Path, trials: int) -> Path:
    """Run it; its folder."""
    experiment = yaml.safe_load((EXPERIMENTS / "fashion_mnist.yaml").read_text())
    experiment["data"] |= {key: str(EXPERIMENTS / experiment["data"][key]) for key in ("train", "validation")}
    experiment["training"]["epochs"] = 1
    experiment["sweep"] = {"space": {"training.base_lr": {"grid": [0.01 * (i + 1) for i in range(trials)]}}}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(experiment))
    shutil.copy(EXPERIMENTS / "nets.py", folder)
    subprocess.run(
        [sys.executable, "-m", "raymx.run", str(folder / "sweep.yaml"), "--storage-path", str(folder / "runs")],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=600,
    )
    (run,) = (folder / "runs").iterdir()
    return run


def trials_of(run: Path) -> list[dict[str, Any]]:
    """Each trial's record with its last row, in the order in which they ran."""
    found = []
    for path in run.glob("*/trial.json"):
        row = json.loads((path.parent / "result.json").read_text().splitlines()[-1])
        found.append(json.loads(path.read_text()) | {"row": row})
    return sorted(found, key=lambda trial: trial["ended"])


def training_s(trial: dict[str, Any]) -> float:
    """Seconds of the epoch: first batch, steps, validation."""
    return float(trial["row"]["time_total_s"] - trial["row"]["form_s"])


def overheads_s(trials: list[dict[str, Any]]) -> list[float]:
    """Of each trial but the first."""
    return [after["ended"] - before["ended"] - training_s(after) for before, after in itertools.pairwise(trials)]


def peer(trials: int) -> list[tuple[float, float]]:
    """(seconds to the first step, seconds of the whole trial) of each of the peer's trials; [] where it is not."""
    if not PEER.exists():
        return []
    run = subprocess.run(
        [sys.executable, str(PEER), "--trials", str(trials)], capture_output=True, text=True, check=True, timeout=1200
    )
    return [
        (float(first), float(whole))
        for first, whole in re.findall(r"first_step_s=([\d.]+) trial_s=([\d.]+)", run.stdout)
    ]


def compare(args: argparse.Namespace) -> int:
    """Measure, print, and give the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        run = sweep(Path(folder), args.trials)
        wall_s = json.loads((run / "summary.json").read_text())["wall_s"]
        trials = trials_of(run)
    training, overheads = sum(map(training_s, trials)), overheads_s(trials)
    others = peer(args.trials)
    first = [trial["row"]["first_step_s"] + trial["row"]["form_s"] for trial in trials[1:]]
    peer_first = median(step for step, _ in others) if others else None
    peer_all = sum(whole for _, whole in others) if others else None
    return finish(
        args,
        [
            Figure(
                "beside its training, s a trial after the first",
                median(overheads),
                None,
                None,
                f"<= {GOAL_S}",
                median(overheads) <= GOAL_S,
            ),
            Figure("wall time / training time of all trials", wall_s / training, None, None),
            _beside("to a trial's first step, s", median(first), peer_first),
            _beside("all trials, s (the peer's: one step each)", wall_s, peer_all),
        ],
        [f"beside training: {spread(overheads)} s", f"epochs: {spread([training_s(trial) for trial in trials])} s"],
    )


def _beside(name: str, mine: float, theirs: float | None) -> Figure:
    return Figure(name, mine, theirs, None if theirs is None else mine / theirs)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--trials", type=int, default=8)
    return compare(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
