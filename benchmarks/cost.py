"""What raymx's own doing costs a run: measuring where a step's time goes, and standbys that wait in reserve.

    python benchmarks/cost.py [--json PATH] [--check] [--pairs 15] [--standby-pairs 5]

The default experiment (two workers and a server on one machine). *Measuring*: one run whose every other epoch is not
measured (cost_loop.py); an epoch and the one before it are a pair. *Standbys*: whole runs as a user starts them, with
``standby: auto`` and ``false`` in turns. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from common import Figure, arguments, finish, spread

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from factories import make_experiment, make_trial

from raymx.report.intervals import Interval, ratio_interval

HERE = Path(__file__).resolve().parent
EXPERIMENT = HERE.parent / "experiments" / "fashion_mnist.yaml"
EPOCH_LEAST, WALL_MOST, COST_MOST = 0.98, 1.03, 1.01  # samples/s of an epoch, time in all, samples/s without measuring


def measuring(pairs: int) -> list[float]:
    """samples/s of epochs that are not measured, as times those that are; the first pair warms up and is left out."""
    import ray

    there = make_experiment(file="fashion_mnist").to_dict()
    there["model"]["net"] = "cost_loop:lenet"
    there["training"].update(loop="cost_loop:train", epochs=2 * pairs + 2)
    for name in ("train", "validation"):
        there["data"][name] = str(EXPERIMENT.parent / there["data"][name])
    there["resources"]["standby"] = False
    ray.init("local", num_cpus=8, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    trial = make_trial(1, 3, 3)
    try:
        rows = trial.begin(_in_this_folder(there)).run()
    finally:
        trial.close()
        ray.shutdown()
    speeds = [row["samples_per_sec"] for row in rows]
    assert all(("compute_fraction" in row) == bool(number % 2) for number, row in enumerate(rows)), rows[1]
    return [off / on for off, on in zip(speeds[2::2], speeds[3::2], strict=True)]


def _in_this_folder(raw: dict[str, Any]) -> Any:
    """The experiment, with the modules of this folder and of experiments/."""
    from raymx.experiment.loading import parse_experiment

    return parse_experiment(raw, str(HERE), {})


def run(standby: str) -> tuple[float, list[float]]:
    """Seconds in all, and samples/s of each epoch, of a run from the command line."""
    with tempfile.TemporaryDirectory() as storage:
        command = [sys.executable, "-m", "raymx.run", str(EXPERIMENT), "--storage-path", storage]
        began = time.monotonic()
        subprocess.run(
            [*command, "--set", f"resources.standby={standby}"], check=True, timeout=600, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - began
        (path,) = Path(storage).glob("*/*/result.json")
        return seconds, [json.loads(line)["samples_per_sec"] for line in path.read_text().splitlines()]


def standbys(pairs: int) -> tuple[list[float], list[list[float]]]:
    """With standbys as times without: seconds in all, and samples/s of each epoch."""
    seconds, epochs = list[float](), list[list[float]]()
    for number in range(pairs):
        order = ("auto", "false") if number % 2 else ("false", "auto")
        found = {standby: run(standby) for standby in order}
        seconds.append(found["auto"][0] / found["false"][0])
        epochs.append([one / other for one, other in zip(found["auto"][1], found["false"][1], strict=True)])
    return seconds, epochs


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="pairs of epochs")
    parser.add_argument("--standby-pairs", type=int, default=5, help="pairs of runs")
    args = parser.parse_args()
    figures, notes = list[Figure](), list[str]()
    if args.pairs:
        costs = measuring(args.pairs)
        found = ratio_interval(costs)
        assert found is not None
        figures.append(
            Figure("samples/s without measuring, as times with", found.mean, None, None,
                   f"<= {COST_MOST:g}, interval {_between(found)}", (found.high or found.mean) <= COST_MOST)
        )  # fmt: skip
        notes.append(f"- without measuring, as times with: {spread(costs)}")
    if args.standby_pairs:
        seconds, epochs = standbys(args.standby_pairs)
        of_epochs = [median(ratios) for ratios in zip(*epochs, strict=True)]
        figures += [
            Figure("standby auto beside false: the slowest epoch's samples/s", min(of_epochs), None, None,
                   f">= {EPOCH_LEAST:g}", min(of_epochs) >= EPOCH_LEAST),
            Figure("standby auto beside false: time in all", median(seconds), None, None,
                   f"<= {WALL_MOST:g}", median(seconds) <= WALL_MOST),
        ]  # fmt: skip
        notes += [f"- time in all: {spread(seconds)}", f"- epochs, medians: {', '.join(f'{x:.3f}' for x in of_epochs)}"]
    return finish(args, figures, notes)


def _between(found: Interval) -> str:
    return "unknown" if found.low is None else f"{found.low:.3f} to {found.high:.3f}"


if __name__ == "__main__":
    sys.exit(main())
