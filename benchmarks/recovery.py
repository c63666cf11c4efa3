"""Seconds from SIGKILL of a role to the next finished step, with and without standbys; and what a checkpoint costs.

    python benchmarks/recovery.py [--json PATH] [--check] [--kills 5] [--pairs 5]

A run of the default experiment (real data) is started as a user would, and its first worker writes down when each step
is finished. The peer of a recovery is what somebody with a hand-made launcher does: start everything anew
(benchmarks/native.py, until its first step). Run it on an otherwise idle machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import yaml
from common import Figure, arguments, finish, spread
from launch import Warm, peer

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parent / "experiments"
ROLES = {
    "worker": "ray::Worker",
    "server": "ray::Server",
    "KVStore scheduler": "ray::KVScheduler",
    "trial process": "ray::Trial",
}
GOALS = {
    True: {"worker": 1.0, "server": 1.0, "KVStore scheduler": 1.0},
    False: {"worker": 10.0, "server": 10.0, "KVStore scheduler": 10.0, "trial process": 15.0},
}
WORKERS, SERVERS = 2, 1
EVERY_STEPS = 20  # steps between checkpoints, for what one costs


class Run:
    """A run of the command, its processes, and the steps that it has done."""

    def __init__(self, folder: Path, standby: bool) -> None:
        self._marks, self._mark = folder / "marks", f"RAYMX_BENCH={uuid.uuid4().hex}"
        experiment = yaml.safe_load((EXPERIMENTS / "fashion_mnist.yaml").read_text())
        experiment["data"] |= {key: str(EXPERIMENTS / experiment["data"][key]) for key in ("train", "validation")}
        experiment["training"] |= {"epochs": 100_000, "loop": "bench_loop:marked"}
        experiment |= {
            "resources": {"workers": WORKERS, "standby": standby},
            "report": {"disp_batches": 10_000},
            "checkpoint": {"every_steps": EVERY_STEPS},
            "kvstore": {"servers": SERVERS, "env": {"all": {"DMLC_BENCH_MARKS": str(self._marks)}}},
        }
        (folder / "recovery.yaml").write_text(yaml.safe_dump(experiment))
        for source in (EXPERIMENTS / "nets.py", HERE / "bench_loop.py"):
            shutil.copy(source, folder)
        name, value = self._mark.split("=")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "raymx.run", str(folder / "recovery.yaml"), "--storage-path", str(folder / "runs")],
            stdout=subprocess.DEVNULL,
            env=os.environ | {name: value},
        )
        self._standby = standby

    def pids(self, title: str) -> list[int]:
        """The processes of one kind that have started."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                mine = self._mark.encode() in (process / "environ").read_bytes()
                words = (process / "cmdline").read_bytes().decode(errors="replace")
                if mine and words.startswith(title) and "__init__" not in words:
                    found.append(int(process.name))
        return found

    def steps(self) -> list[tuple[float, int]]:
        """(time, process) of each finished step of the first worker."""
        lines = self._marks.read_text().splitlines() if self._marks.exists() else []
        return [(float(at), int(pid)) for at, pid in (line.split() for line in lines if line.count(" ") == 1)]

    def wait_until_steady(self) -> None:
        """Until some steps more are done, and every standby that is wanted waits."""
        wanted = {"ray::Worker": WORKERS, "ray::Server": SERVERS, "ray::KVScheduler": 1}
        copies, deadline = 1 + self._standby, time.monotonic() + 180
        enough = len(self.steps()) + 2 * EVERY_STEPS  # with a checkpoint among them
        while len(self.steps()) < enough or any(
            len(self.pids(title)) < copies * count for title, count in wanted.items()
        ):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the run does not come to train")
            time.sleep(0.5)

    def recovery_s(self, role: str) -> float:
        """Kill one process of a role; seconds until a step is finished that was begun after it."""
        self.wait_until_steady()
        pids, before = self.pids(ROLES[role]), {pid for _, pid in self.steps()}
        killed = time.time()
        os.kill(self._serving(pids, before), signal.SIGKILL)
        while True:
            time.sleep(0.02)
            after = [at for at, pid in self.steps() if pid not in before]
            if after:
                return after[0] - killed
            if time.time() - killed > 120:
                raise RuntimeError(f"no step within 120 s of the end of a {role}")

    @staticmethod
    def _serving(pids: list[int], trained: set[int]) -> int:
        """Of a role's process and its standby, the one that takes part: the older one, since standbys come later."""
        return next((pid for pid in pids if pid in trained), min(pids, key=_age))

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)


def _age(pid: int) -> int:
    """When a process began, in clock ticks since the machine did."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


@contextlib.contextmanager
def running(standby: bool) -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), standby)
        try:
            yield run
        finally:
            run.close()


def recoveries(standby: bool, kills: int) -> dict[str, list[float]]:
    """Seconds by role; the roles take turns, so that a machine whose speed drifts treats them alike."""
    found: dict[str, list[float]] = {role: [] for role in ROLES}
    with running(standby) as run:
        for _ in range(kills):
            for role, seconds in found.items():
                seconds.append(run.recovery_s(role))
                print(f"{'with' if standby else 'without'} standby, {role}: {seconds[-1]:.2f} s", flush=True)
    return found


def checkpoint_cost(pairs: int) -> tuple[list[float], list[float]]:
    """Seconds of a step without checkpoints, and milliseconds that one adds, of each pair of rounds."""
    plain, added = [], []
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(HERE / "bench_loop.py", name)
        warm = Warm(Path(name))
        for _ in range(pairs):
            warm.begin("dist_sync", checkpoint={"every_steps": None, "every_s": None})
            without = warm.step()["step_s"]
            warm.begin("dist_sync", checkpoint={"every_steps": EVERY_STEPS, "every_s": None})
            plain.append(without)
            added.append((warm.step()["step_s"] - without) * EVERY_STEPS * 1000)
    return plain, added


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=5, help="kills of each role, with and without standbys")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of rounds with and without checkpoints")
    args = parser.parse_args()
    native = median(peer("dist_sync")["first_step_s"] for _ in range(3))
    figures, notes = [], []
    for standby in (True, False):
        for role, seconds in recoveries(standby, args.kills).items():
            goal, found = GOALS[standby].get(role), median(seconds)
            name = f"{role}, {'with' if standby else 'without'} standby, s"
            figures.append(
                Figure(
                    name,
                    found,
                    native,
                    found / native,
                    goal and f"<= {goal:g}",
                    None if goal is None else found <= goal,
                )
            )
            notes.append(f"{name}: {spread(seconds)}")
    plain, added = checkpoint_cost(args.pairs)
    cost = median(added)
    part = 100 * cost / 1000 / (200 * median(plain))
    figures.append(Figure("a checkpoint of 67 MB, ms", cost, None, None))
    figures.append(Figure("checkpoints every 200 steps, % of step time", part, None, None, "<= 1", part <= 1))
    notes += [f"a step: {spread(plain)} s", f"a checkpoint adds: {spread(added)} ms"]
    return finish(args, figures, notes)


if __name__ == "__main__":
    sys.exit(main())
