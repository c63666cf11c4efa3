"""Whether smaller gradients pay where the link is slow: 2-bit compression, and float16 on the wire.

    python benchmarks/links.py [--json PATH] [--check] [--repeats 3] [--delays 0 5 20] [--rate 100]

Three hosts made of Linux namespaces (tests/hosts/hosts.py; it needs root) on links of so many Mbit/s: two have a worker
each, the third the only server and the trial. So every byte of gradients and weights crosses the server's link, those
of both workers one after the other. A sweep as a user would start it trains a net of two large dense layers (5.3 MB)
with dist_sync: plain, with 2-bit compression (whose pushes are 16 times smaller, and whose pulls are not), and with
float16 on the wire. Its trials come in random order, in the same warm processes. So for each delay of the links. Run it
on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from common import Figure, arguments, finish, spread
from sweep import EXPERIMENTS, HERE, trials_of

sys.path.insert(0, str(HERE.parent / "tests" / "hosts"))
from hosts import Host, lan, why_not
from ray_hosts import start

COMPRESSION, WIRE = "kvstore.compression", "precision.wire_dtype"
VARIANTS = {"2bit": "2-bit compression", "float16": "float16 on the wire"}
BATCH, EPOCHS = 200, 2  # of 1000 records: 5 steps an epoch. The last one is timed: its records are in memory
SWEEP_TIMEOUT_S = 900.0


def experiment(repeats: int) -> dict[str, Any]:
    """The sweep: no validation and few checkpoints, so that gradients and weights have the links for themselves."""
    given: dict[str, Any] = yaml.safe_load((EXPERIMENTS / "fashion_mnist.yaml").read_text())
    return given | {
        "name": "links",
        "model": {"net": "nets:mlp", "classes": 10, "options": {"hidden": [1024, 512]}},
        "data": given["data"]
        | {"train": str(EXPERIMENTS / given["data"]["validation"]), "validation": None, "cpus": 1},
        "training": given["training"] | {"epochs": EPOCHS, "global_batch_size": BATCH, "base_batch_size": BATCH},
        "kvstore": {"type": "dist_sync", "servers": 1, "server_placement": "dedicated"},
        "resources": {"workers": 2, "standby": False},
        "checkpoint": {"every_steps": None, "every_s": None},
        "sweep": {
            "space": {COMPRESSION: {"grid": ["none", "2bit"]}, WIRE: {"grid": ["same", "float16"]}},
            "repeats": repeats,
            "max_concurrent_trials": 1,
        },
    }


def measure(head: Host, folder: Path, repeats: int) -> dict[str, list[float]]:
    """samples/s of each variant, "none" among them, once a trial."""
    (folder / "links.yaml").write_text(yaml.safe_dump(experiment(repeats)))
    shutil.copy(EXPERIMENTS / "nets.py", folder)
    head.run(
        [
            sys.executable,
            "-m",
            "raymx.run",
            folder / "links.yaml",
            "--address",
            "auto",
            "--storage-path",
            folder / "runs",
        ],
        SWEEP_TIMEOUT_S,
    )
    (run,) = (folder / "runs").iterdir()
    found: dict[str, list[float]] = {}
    for trial in trials_of(run):
        row = trial["row"]
        if len(row["nodes"].split(",")) != 3:
            raise RuntimeError(f"the roles are not on three hosts but on {row['nodes']}")
        found.setdefault(variant(row["config"]["point"]["axes"]), []).append(row["samples_per_sec"])
    return found


def variant(axes: Mapping[str, Any]) -> str:
    compression, wire = str(axes[COMPRESSION]), str(axes[WIRE])
    return next((name for name in VARIANTS if name in (wire, compression) or name in compression), "none")


def compare(args: argparse.Namespace, hosts: Sequence[Host], shared: Path) -> int:
    """Measure, print, and give the exit code."""
    figures, notes = [], []
    start(hosts, [2] * len(hosts))  # a worker and its data fill a host; the trial and the server another
    for host in hosts:
        host.limit(args.rate)
    for ms in args.delays:
        for host in hosts:
            host.delay(ms / 2)  # a way crosses two links
        (folder := shared / f"{ms:g}ms").mkdir()
        speeds = measure(hosts[0], folder, args.repeats)
        plain = median(speeds["none"])
        for name, words in VARIANTS.items():
            ratio, goal = median(speeds[name]) / plain, "> 1" if ms == 0 else None
            figures.append(
                Figure(
                    f"{words}, +{ms:g} ms, samples/s",
                    median(speeds[name]),
                    plain,
                    ratio,
                    goal,
                    ratio > 1 if goal else None,
                )
            )
        notes += [f"+{ms:g} ms each way, {name}: {spread(values)}" for name, values in sorted(speeds.items())]
    return finish(args, figures, [f"- links of {args.rate:g} Mbit/s", *(f"- {note}" for note in notes)])


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--delays", type=float, nargs="+", default=[0, 5, 20], metavar="MS", help="added each way")
    parser.add_argument("--rate", type=float, default=100, metavar="MBIT", help="of each host's link, each way")
    args = parser.parse_args()
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        (shared := Path(folder) / "shared").mkdir()
        with lan(Path(folder), 3, shared=shared) as hosts:
            return compare(args, hosts, shared)


if __name__ == "__main__":
    sys.exit(main())
