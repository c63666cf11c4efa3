"""raymx beside MXNet's own launcher: time to the first step, a warm re-form, samples a second.

    python benchmarks/launch.py [--json PATH] [--check] [--pairs 5] [--cold 3]

The peer is ../shared/peers/native_ps.py where that is, else benchmarks/native.py: the same net, batch and store in
plain processes. Speed is measured in interleaved pairs, and the median of the pairs' ratios counts, so that a machine
whose speed drifts does not decide it. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from common import Figure, arguments, finish, spread

HERE = Path(__file__).resolve().parent
SHARED_PEER = HERE.parents[1] / "shared" / "peers" / "native_ps.py"
PEER = SHARED_PEER if SHARED_PEER.exists() else HERE / "native.py"
STEPS, BATCH, LAYERS = 30, 32, [2048, 2048, 1024]
RAY_START = """
import time, ray
class Empty:
    def answer(self): pass
ray.init("local", num_cpus=6, include_dashboard=False, logging_level=40)
print(time.time())
ray.get(ray.remote(Empty).remote().answer.remote())
print(time.time())
"""


def experiment(store: str, **options: Any) -> dict[str, Any]:
    return {
        "name": "launch",
        "model": {
            "net": "bench_loop:unused",
            "classes": 10,
            "options": {"layers": LAYERS, "batch_size": BATCH, "steps": STEPS, **options},
        },
        "data": {
            "train": str(HERE.parent / "experiments" / "data" / "fashion_mnist_val.rec"),
            "image_shape": [1, 28, 28],
        },
        "training": {
            "global_batch_size": 2 * BATCH,
            "base_lr": 0.001,
            "loop": "bench_loop:synthetic",
            "optimizer": {"name": "sgd", "momentum": 0.9},
        },
        "kvstore": {"type": store},
        "resources": {"workers": 2},
    }


def peer(store: str) -> dict[str, float]:
    """One run of the peer: first_step_s, step_ms, samples_per_s."""
    run = subprocess.run(
        [
            sys.executable,
            str(PEER),
            "--kv-store",
            store,
            "--steps",
            str(STEPS),
            "--batch-size",
            str(BATCH),
            "--layers",
            ",".join(map(str, LAYERS)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", run.stdout)}


def ray_start_s() -> tuple[float, float]:
    """Ray's own start: until a process has imported and started it here, and until its first empty actor answers."""
    begun = time.time()
    run = subprocess.run(
        [sys.executable, "-c", RAY_START],
        text=True,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    started, answered = map(float, run.stdout.split())
    return started - begun, answered - begun


def cold_first_step_s(folder: Path) -> float:
    """From the command to the first finished step; every process is fresh, Ray's too."""
    path, mark = folder / "launch.yaml", folder / "first_step_at"
    path.write_text(yaml.safe_dump(experiment("dist_sync", rounds=0, mark=str(mark))))
    begun = time.time()
    subprocess.run(
        [sys.executable, "-m", "raymx.run", str(path), "--storage-path", str(folder / "runs")],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=300,
    )
    return float(mark.read_text()) - begun


class Warm:
    """A trial that stays warm: `begin` re-forms it, `step` gives a row."""

    def __init__(self, folder: Path) -> None:
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        from raymx.cluster import placement
        from raymx.experiment.loading import parse_experiment
        from raymx.trial.trainable import Trial

        self._get, self._parse, self._folder, self._runs = ray.get, parse_experiment, str(folder), 0
        ray.init("local", num_cpus=6, include_dashboard=False, logging_level=40, log_to_driver=False)
        plan = placement.plan(self._parse(experiment("dist_sync"), self._folder), 0)
        group = placement_group([dict(bundle) for bundle in plan.bundles])
        ray.get(group.ready())
        actor = ray.remote(Trial).options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0))
        self._trial = actor.remote(config=self._config("dist_sync"))
        self.step()

    def _config(self, store: str, **sections: Any) -> dict[str, Any]:
        from raymx.sweep.space import trial_config

        self._runs += 1
        made = self._parse(experiment(store) | sections, self._folder)
        return trial_config(made, made.to_dict(), str(self._runs))

    def begin(self, store: str, **sections: Any) -> float:
        """Re-form for a store type, with other ``sections`` of the experiment, and take the first step.

        Seconds to dissolve the old generation and form the new one.
        """
        self._get(self._trial.reset.remote(self._config(store, **sections)))
        return float(self.step()["form_s"])

    def step(self) -> dict[str, Any]:
        return dict(self._get(self._trial.train.remote(), timeout=300))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="interleaved pairs a store type")
    parser.add_argument("--cold", type=int, default=3, help="cold starts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(HERE / "bench_loop.py", folder)
        figures, notes = measure(folder, args.pairs, args.cold)
    return finish(args, figures, [f"peer: {PEER.name}", *notes])


def measure(folder: Path, pairs: int, cold: int) -> tuple[list[Figure], list[str]]:
    starts = [(cold_first_step_s(folder), peer("dist_sync")["first_step_s"], ray_start_s()) for _ in range(cold)]
    ours, native = (median(start[i] for start in starts) for i in (0, 1))
    ray_started, ray_start = (median(start[2][i] for start in starts) for i in (0, 1))
    figures = [
        Figure(
            "cold first step, s",
            ours,
            native,
            ours / native,
            f"<= 1.5 x peer + Ray {ray_start:.1f} s",
            ours <= 1.5 * native + ray_start,
        )
    ]
    notes = [
        f"Ray's own start, until its first empty actor answers: {spread([start[2][1] for start in starts])} s "
        f"(ray.init alone: median {ray_started:.1f} s)",
        f"cold first step: {spread([start[0] for start in starts])} s; peer {spread([start[1] for start in starts])} s",
    ]
    warm = Warm(folder)
    forms = [warm.begin("dist_sync") for _ in range(5)]
    figures.append(Figure("warm re-form, s", median(forms), None, None, "<= 0.3", median(forms) <= 0.3))
    notes.append(f"warm re-form: {spread(forms)} s")
    for store in ("dist_sync", "dist_async"):
        warm.begin(store)
        results = [(peer(store)["samples_per_s"], warm.step()["samples_a_second"]) for _ in range(pairs)]
        ratios = [ours / native for native, ours in results]
        figures.append(
            Figure(
                f"{store}, samples/s",
                median(r[1] for r in results),
                median(r[0] for r in results),
                median(ratios),
                ">= 0.95 (aim 1.05)",
                median(ratios) >= 0.95,
            )
        )
        notes.append(f"{store} ratios: {spread(ratios)}")
    return figures, notes


if __name__ == "__main__":
    sys.exit(main())
