"""Reading photographs: raymx's stream beside ImageRecordIter, Gluon's DataLoader and bare decoding, on the same file.

    python benchmarks/data.py [--photos FOLDER] [--rounds 3] [--epochs 3] [--cpus 2] [--json PATH] [--check]

The systems take turns, ``--rounds`` times, each in processes of its own on otherwise idle cores. The ratio to bare
decoding is taken in each round, since machines change their speed, and the median of them counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
from common import Figure, arguments, finish, spread

from raymx.data.recordio.record import RecordIOWriter, pack

HERE = Path(__file__).resolve().parent
PHOTOS = HERE.parents[1] / "shared" / "data" / "photos"
RECORDS, SMALL_RECORDS = 4000, 60_000
# Sizes (height, width) of the photographs that are made up when there are none.
SIZES = [(707, 1280), (480, 640), (600, 800), (416, 416), (1110, 1282), (333, 500), (450, 450)]


def photographs(folder: Path | None) -> list[bytes]:
    """JPEG files of a folder; without one, pictures with as much detail as a photograph."""
    if folder:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
        if not files:
            raise SystemExit(f"--photos {folder}: there is no .jpg file in it")
        return [path.read_bytes() for path in files]
    random = np.random.default_rng(0)
    return [_made_up(random, *SIZES[number % len(SIZES)]) for number in range(100)]


def _made_up(random: np.random.Generator, height: int, width: int) -> bytes:
    """Noise on several scales."""
    picture = sum(
        cv2.resize(random.normal(0, 30, (-(-height // step), -(-width // step), 3)), (width, height))
        for step in (64, 16, 4)
    )
    return bytes(cv2.imencode(".jpg", np.clip(128 + picture, 0, 255).astype(np.uint8))[1].tobytes())


def write_file(path: Path, images: list[bytes], count: int) -> str:
    with RecordIOWriter(path, path.with_suffix(".idx")) as writer:
        for number in range(count):
            writer.write(pack(float(number % 10), images[number % len(images)], id=number))
    return str(path)


def measure(mode: str, file: str, args: argparse.Namespace, epochs: int) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "readers.py"), mode, file, "--cpus", str(args.cpus), "--epochs", str(epochs)]
    print(f"  {mode}", file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{mode} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def all_rounds(file: str, small: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """Every figure's values, by its name."""
    found: dict[str, list[float]] = defaultdict(list)
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        bare = measure("bare_decode", file, args, args.epochs)["images_per_sec"]
        ours = measure("raymx_stream", file, args, args.epochs)
        found["bare decode images/s"] += bare
        found["ratio to bare decode"].append(median(ours["images_per_sec"]) / median(bare))
        for name, values in ours.items():
            found[f"raymx {name}"] += values if isinstance(values, list) else [values]
        # Its first epoch is by far the fastest; the second shows that.
        found["ImageRecordIter images/s"] += measure("image_record_iter", file, args, 2)["images_per_sec"]
        if number == 0:
            found["DataLoader images/s"] += measure("data_loader", file, args, 2)["images_per_sec"]
    for name, path in (("large", file), ("small", small)):
        rates = measure("raw_records", path, args, args.epochs)
        found[f"raw {name} raymx"], found[f"raw {name} mxnet"] = rates["raymx"], rates["mxnet"]
    return found


def figures(found: dict[str, list[float]]) -> list[Figure]:
    ours, first = median(found["raymx images_per_sec"]), median(found["raymx first_batch_s"])
    iterator, loader = max(found["ImageRecordIter images/s"]), max(found["DataLoader images/s"])
    limit, to_limit = median(found["bare decode images/s"]), median(found["ratio to bare decode"])
    table = [
        Figure(
            "images/s; peer: ImageRecordIter's best epoch",
            ours,
            iterator,
            ours / iterator,
            ">= 2",
            ours >= 2 * iterator,
        ),
        Figure("images/s; peer: bare decode limit", ours, limit, to_limit, ">= 0.95", to_limit >= 0.95),
        Figure("images/s; peer: DataLoader's best epoch", ours, loader, ours / loader),
        Figure("first batch of a warm epoch, s", first, None, None, "<= 0.2", first <= 0.2),
        Figure("peak memory, worker and tasks, MiB", max(found["raymx peak_mib"]), None, None),
    ]
    for name in ("large", "small"):
        raw, theirs = median(found[f"raw {name} raymx"]), median(found[f"raw {name} mxnet"])
        table.append(
            Figure(
                f"raw records/s, {name} ones; peer: MXRecordIO", raw, theirs, raw / theirs, ">= 5", raw >= 5 * theirs
            )
        )
    return table


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--photos",
        type=Path,
        default=PHOTOS if PHOTOS.is_dir() else None,
        help="a folder of .jpg files (without one, pictures are made up)",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each system in a round")
    parser.add_argument("--cpus", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = photographs(args.photos)
        file = write_file(Path(folder, "photos.rec"), images, RECORDS)
        small = write_file(Path(folder, "small.rec"), [bytes(400)], SMALL_RECORDS)
        found = all_rounds(file, small, args)
    source = f"{len(images)} photographs" if args.photos else f"{len(images)} made-up pictures"
    notes = [
        f"- {RECORDS} records of {source}, mean {sum(map(len, images)) / len(images) / 1e3:.0f} KB",
        *(f"- {name}: {spread(values)}" for name, values in sorted(found.items())),
    ]
    return finish(args, figures(found), notes)


if __name__ == "__main__":
    sys.exit(main())
