"""The systems that benchmarks/data.py compares, each in a process of its own: prints one JSON object.

    python benchmarks/readers.py MODE FILE.rec --cpus 2 --epochs 3

All read the same records in shuffled order, resize the short side to 256, crop 224 x 224 at random, mirror at random,
and make batches of 64.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESIZE, SIZE, BATCH = 256, 224, 64
RAW_SECONDS = 1.0


def image_record_iter(args: argparse.Namespace) -> dict[str, Any]:
    """MXNet's C++ pipeline. OMP_NUM_THREADS bounds its decode threads, and ctx="gpu" would halve them."""
    os.environ["OMP_NUM_THREADS"] = str(args.cpus)
    import mxnet as mx

    reader = mx.io.ImageRecordIter(
        path_imgrec=args.file,
        path_imgidx=args.file.replace(".rec", ".idx"),
        data_shape=(3, SIZE, SIZE),
        batch_size=BATCH,
        ctx="cpu",
        resize=RESIZE,
        rand_crop=True,
        rand_mirror=True,
        shuffle=True,
        preprocess_threads=args.cpus,
        verbose=False,
        mean_r=123.68,
        mean_g=116.78,
        mean_b=103.94,
        std_r=58.4,
        std_g=57.1,
        std_b=57.4,
    )

    def epoch() -> int:
        images = 0
        for batch in reader:
            batch.data[0].wait_to_read()
            images += BATCH - batch.pad
        return images

    rates = []
    for _ in range(args.epochs):
        reader.reset()
        rates.append(_rate(epoch))
    return {"images_per_sec": rates}


def data_loader(args: argparse.Namespace) -> dict[str, Any]:
    """Gluon's DataLoader over ImageRecordDataset, as many worker processes as CPUs."""
    import mxnet as mx
    from mxnet.gluon.data import DataLoader
    from mxnet.gluon.data.vision import ImageRecordDataset

    def change(image: Any, label: Any) -> Any:
        image = mx.image.random_crop(mx.image.resize_short(image, RESIZE), (SIZE, SIZE))[0]
        return mx.nd.image.random_flip_left_right(image), label

    loader = DataLoader(ImageRecordDataset(args.file).transform(change), BATCH, shuffle=True, num_workers=args.cpus)

    def epoch() -> int:
        images = 0
        for batch, _ in loader:
            batch.wait_to_read()
            images += len(batch)
        return images

    return {"images_per_sec": [_rate(epoch) for _ in range(args.epochs)]}


def bare_decode(args: argparse.Namespace) -> dict[str, Any]:
    """The limit that has no pipeline: full decode, resize, crop, mirror, in processes that share nothing."""
    with multiprocessing.get_context("spawn").Pool(args.cpus) as pool:
        tasks = [(args.file, part, args.cpus) for part in range(args.cpus)]
        return {"images_per_sec": [sum(pool.map(_decode_part, tasks, chunksize=1)) for _ in range(args.epochs)]}


def _decode_part(task: tuple[str, int, int]) -> float:
    import cv2
    import numpy as np
    import simplejpeg

    from raymx.data.recordio.reading import iter_payloads
    from raymx.data.recordio.record import unpack

    cv2.setNumThreads(1)
    path, part, parts = task
    mine = [bytes(unpack(payload).image) for payload in itertools.islice(iter_payloads(path), part, None, parts)]
    random = np.random.RandomState(part)

    def epoch() -> int:
        for image in mine:
            pixels = simplejpeg.decode_jpeg(image, "RGB")
            height, width = pixels.shape[:2]
            scale = RESIZE / min(height, width)
            pixels = cv2.resize(pixels, (max(RESIZE, round(width * scale)), max(RESIZE, round(height * scale))))
            y, x = random.randint(pixels.shape[0] - SIZE + 1), random.randint(pixels.shape[1] - SIZE + 1)
            np.ascontiguousarray(pixels[y : y + SIZE, x : x + SIZE][:, :: random.choice((-1, 1))])
        return len(mine)

    return _rate(epoch)


def raymx_stream(args: argparse.Namespace) -> dict[str, Any]:
    """A worker's epochs, in an actor and a placement group like those of a trial: WorkerData over Ray Data.

    The first epoch starts cold and is kept apart. The next epoch's stream is always started ahead, as in a run, so
    what one epoch saves at its beginning it has paid for at the end of the one before.
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    os.environ.setdefault("RAY_num_workers_soft_limit", str(4 * args.cpus))
    ray.init("local", num_cpus=args.cpus + 2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    group = placement_group([{"CPU": 1}, {"CPU": args.cpus + 1}])
    ray.get(group.ready())
    worker = ray.remote(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, 1))(Worker)
    result = ray.get(worker.remote(args, group).epochs.remote())
    ray.shutdown()
    return result


class Worker:
    """Reads as a KVStore worker does, and trains nothing."""

    def __init__(self, args: argparse.Namespace, group: Any) -> None:
        self._data, self._count = _worker_data(args, group), args.epochs

    def epochs(self) -> dict[str, Any]:
        cold, _ = self._epoch(0)
        epochs = [self._epoch(number) for number in range(1, self._count + 1)]
        with _peak_memory(os.getpid()) as peak:  # looking takes time: in an epoch that does not count
            self._epoch(self._count + 1)
        self._data.close()
        return {
            "images_per_sec": [rate for rate, _ in epochs],
            "first_batch_s": [first for _, first in epochs],
            "cold_images_per_sec": cold,
            "peak_mib": peak[0] / (1 << 20),
        }

    def _epoch(self, number: int) -> tuple[float, float]:
        """(images/s, seconds to the first batch)"""
        began, first, images = time.perf_counter(), 0.0, 0
        for batch in self._data.train(number, 0):
            first = first or time.perf_counter() - began
            images += batch.real_local
        return images / (time.perf_counter() - began), first


def _worker_data(args: argparse.Namespace, group: Any) -> Any:
    from raymx.data.pipeline.planning import Share
    from raymx.data.pipeline.stream import batches
    from raymx.data.pipeline.worker_data import WorkerData
    from raymx.experiment.loading import parse_experiment

    experiment = parse_experiment(
        {
            "name": "reading",
            "model": {"net": "resnet18_v1", "classes": 10},
            "training": {"global_batch_size": BATCH, "epochs": args.epochs + 3},
            "data": {
                "train": args.file,
                "image_shape": [3, SIZE, SIZE],
                "resize": RESIZE,
                "cpus": args.cpus,
                "augment": {"rand_crop": True, "rand_mirror": True},
            },
        },
        os.getcwd(),
    )
    return WorkerData(
        experiment,
        Share(0, 1, 1),
        lambda *what: batches(*what, placement_group=group, bundle_index=1, num_cpus=args.cpus),
    )


@contextlib.contextmanager
def _peak_memory(root: int) -> Iterator[list[int]]:
    """The most memory, in bytes, of the worker and of Ray's processes that run data tasks; shared pages count once."""
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            peak[0] = max(peak[0], sum(_proportional_bytes(pid) for pid in _reading_processes(root)))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield peak
    stop.set()
    thread.join()


def _reading_processes(root: int) -> list[int]:
    """The worker itself and this Ray's processes that ran a task; other Rays' tasks are idle or not there."""
    found = [root]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            title = (folder / "cmdline").read_bytes().decode(errors="replace")
            if title.startswith("ray::") and "Agent" not in title:
                found.append(int(folder.name))
    return found


def _proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def raw_records(args: argparse.Namespace) -> dict[str, Any]:
    """Payloads a second, no decode: raymx and MXRecordIO in turns."""
    from mxnet.recordio import MXRecordIO

    from raymx.data.recordio.reading import iter_payloads

    def theirs() -> int:
        reader, count = MXRecordIO(args.file, "r"), 0
        while reader.read() is not None:
            count += 1
        reader.close()
        return count

    def ours() -> int:
        return sum(1 for _ in iter_payloads(args.file))

    rates: dict[str, list[float]] = {"raymx": [], "mxnet": []}
    for _ in range(args.epochs):
        rates["raymx"].append(_rate(ours, RAW_SECONDS))
        rates["mxnet"].append(_rate(theirs, RAW_SECONDS))
    return rates


def _rate(epoch: Callable[[], int], seconds: float = 0.0) -> float:
    """Images a second of one epoch, or of as many as begin within ``seconds``."""
    began, count = time.perf_counter(), 0
    while True:
        count += epoch()
        took = time.perf_counter() - began
        if took >= seconds:
            return count / took


MODES = {
    "image_record_iter": image_record_iter,
    "data_loader": data_loader,
    "bare_decode": bare_decode,
    "raymx_stream": raymx_stream,
    "raw_records": raw_records,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("file")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    print(json.dumps(MODES[args.mode](args)))


if __name__ == "__main__":
    main()
