"""Ray Data streams: exact, in order, inside a full cluster, and closed without a trace."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raymx.data.pipeline import decoding as decoding_module
from raymx.data.pipeline import stream
from raymx.data.pipeline.batch import Batch
from raymx.data.pipeline.decoding import Decoding
from raymx.data.pipeline.image import Pixels
from raymx.data.pipeline.order import BatchPlan, Rows, Shuffle, epoch_order, validation_rows
from raymx.data.pipeline.stream import batches
from raymx.data.pipeline.warmup import decode_here
from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError
from raymx.experiment.schema import Augment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]
PIXELS = Pixels((1, 8, 8))
PLAIN = Decoding(PIXELS)
NUM_RECORDS = 101


@pytest.fixture
def stream_ray(data_ray: None) -> None:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many read tasks and blocks even for small images."""
    monkeypatch.setattr(decoding_module, "TASK_RECORDS", 8)
    monkeypatch.setattr(decoding_module, "TASK_BYTES", 0)
    monkeypatch.setattr(stream, "BLOCK_BYTES", 1)


def image_of(number: int) -> np.ndarray:
    """Each record's pixels name it."""
    return np.full((8, 8, 1), number % 251, np.uint8)


def write_records(path: Path, numbers: range, label: Callable[[int], object] = float) -> list[int]:
    """Records whose label and pixels are their number; returns their offsets."""
    with RecordIOWriter(path) as writer:
        return [
            writer.write(pack(label(n), cv2.imencode(".png", image_of(n))[1].tobytes(), n))  # type: ignore[arg-type]
            for n in numbers
        ]


@pytest.fixture
def records(tmp_path: Path) -> RecordSet:
    write_records(tmp_path / "a.rec", range(60))
    write_records(tmp_path / "b.rec", range(60, NUM_RECORDS))
    return RecordSet.open([str(tmp_path / "*.rec")])


def plan_rows(num_workers: int, rank: int, first_step: int = 0) -> list[Rows]:
    plan = BatchPlan(NUM_RECORDS, 10, num_workers)
    order = epoch_order(NUM_RECORDS, Shuffle("global", seed=1), epoch=0)
    return [plan.worker_rows(order, start, rank) for start in plan.starts()[first_step:]]


def read(records: RecordSet, rows: list[Rows], decoding: Decoding = PLAIN, **options: Any) -> list[Batch]:
    return list(batches(records, rows, decoding, **options))


def global_batches(records: RecordSet, num_workers: int, first_step: int = 0) -> list[list[int]]:
    """The real labels of each global batch, the workers' parts in the order of their ranks."""
    parts = [read(records, plan_rows(num_workers, rank, first_step)) for rank in range(num_workers)]
    return [[int(x) for batch in step for x in batch.labels[batch.weights == 1]] for step in zip(*parts, strict=True)]


def cpus_return(seconds: float = 10) -> bool:
    """Whether all CPUs come back: no task is left running."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"]:
            return True
        time.sleep(0.05)
    return False


def test_batches_hold_what_was_asked(stream_ray: None, small_tasks: None, records: RecordSet) -> None:
    rows = plan_rows(num_workers=3, rank=2)
    got = read(records, rows)
    assert len(got) == len(rows) == 11
    for batch, part in zip(got, rows, strict=True):
        assert batch.images.dtype == np.uint8
        assert batch.labels.dtype == np.float32
        np.testing.assert_array_equal(batch.labels, part.ids)
        np.testing.assert_array_equal(batch.images, np.stack([image_of(n) for n in part.ids]))
        np.testing.assert_array_equal(batch.weights, part.weights)
        assert (batch.real_local, batch.real_global) == (part.real_local, part.real_global)


def test_same_global_batches_for_1_and_3_workers_each_record_once(stream_ray: None, records: RecordSet) -> None:
    one, three = global_batches(records, 1), global_batches(records, 3)
    assert one == three
    assert sorted(itertools.chain(*one)) == list(range(NUM_RECORDS))


def test_resume_at_a_step_gives_the_same_batches(stream_ray: None, records: RecordSet) -> None:
    assert global_batches(records, 2, first_step=4) == global_batches(records, 1)[4:]


def test_validation_counts_each_record_once(stream_ray: None, records: RecordSet) -> None:
    seen: list[int] = []
    for rank in range(3):
        for batch in read(records, list(validation_rows(NUM_RECORDS, rows=16, num_workers=3, rank=rank))):
            seen += batch.labels[batch.weights == 1].astype(int).tolist()
    assert seen == list(range(NUM_RECORDS))


def test_no_rows_no_batches(records: RecordSet) -> None:
    assert read(records, []) == []


def test_wide_labels(stream_ray: None, tmp_path: Path) -> None:
    write_records(tmp_path / "wide.rec", range(10), label=lambda n: [n, -n])
    records = RecordSet.open([tmp_path / "wide.rec"])
    (batch,) = read(records, list(validation_rows(10, rows=10, num_workers=1, rank=0)), Decoding(PIXELS, label_width=2))
    np.testing.assert_array_equal(batch.labels, [[n, -n] for n in range(10)])


@pytest.mark.parametrize(("stored", "asked"), [(1, 2), (2, 1), (2, 3)])
def test_wrong_label_width_is_named(stream_ray: None, tmp_path: Path, stored: int, asked: int) -> None:
    offsets = write_records(tmp_path / "a.rec", range(4), label=lambda n: n if stored == 1 else [n] * stored)
    records = RecordSet.open([tmp_path / "a.rec"])
    last = Rows(np.array([3]), np.ones(1, np.float32), 1, 1)
    message = rf"a\.rec, record at byte {offsets[3]}: .*{stored} labels.*label_width is {asked}"
    with pytest.raises(DataError, match=message):
        read(records, [last], Decoding(PIXELS, label_width=asked))


@pytest.mark.parametrize("how", ["cut", "not an image", "gone"])
def test_a_record_that_fails_is_named(stream_ray: None, tmp_path: Path, how: str) -> None:
    """Files that change after they were indexed: the read task's own error arrives, with file and offset."""
    path = tmp_path / "a.rec"
    offsets = write_records(path, range(20))
    records = RecordSet.open([path])
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: offsets[15] + 40])
    elif how == "not an image":
        path.write_bytes(data[: offsets[15] + 32] + b"junk" + data[offsets[15] + 36 :])
    else:
        path.unlink()
    message = r"a\.rec: cannot be read" if how == "gone" else rf"a\.rec, record at byte {offsets[15]}: "
    with pytest.raises(DataError, match=message) as caught:
        read(records, list(validation_rows(20, rows=5, num_workers=1, rank=0)))
    assert type(caught.value) is DataError
    assert "\n" not in str(caught.value)  # nothing of Ray's own was added
    assert cpus_return()
    with pytest.raises(DataError) as here:
        list(decode_here(records, list(validation_rows(20, rows=5, num_workers=1, rank=0)), PLAIN))
    assert str(here.value) == str(caught.value)


TRANSFORM = """
import numpy as np

def noisy(image, label, rng):
    return (image.transpose(2, 0, 1) + rng.normal(size=(1, 8, 8))).astype("float32"), label + 1
"""


@pytest.mark.parametrize("transform", [False, True])
def test_what_a_worker_decodes_itself_is_bitwise_what_a_stream_gives(
    stream_ray: None, tmp_path: Path, transform: bool
) -> None:
    """Everything random, labels that are filled up, padding, and bad records that are skipped."""
    offsets = write_records(tmp_path / "a.rec", range(40), label=lambda n: [n] * (1 + n % 2))
    records = RecordSet.open([tmp_path / "a.rec"])
    data = bytearray((tmp_path / "a.rec").read_bytes())
    for record in (3, 17):
        data[offsets[record] + 40 : offsets[record] + 44] = b"junk"
    (tmp_path / "a.rec").write_bytes(data)
    (tmp_path / "stream_transform.py").write_text(TRANSFORM)
    augment = Augment(rand_crop=True, rand_mirror=True, max_rotate_angle=20, pad=2, brightness=0.3, contrast=0.3)
    decoding = Decoding(Pixels((1, 8, 8), augment=augment), 2, True, seed=7, skip_bad=True)
    if transform:
        decoding = replace(decoding, transform="stream_transform:noisy", directory=str(tmp_path), floats=True)
    plan, order = BatchPlan(40, 14, 3), epoch_order(40, Shuffle("global", seed=1), epoch=3)
    rows = [replace(plan.worker_rows(order, start, 0), epoch=3) for start in plan.starts()]
    ours = list(decode_here(records, rows, decoding))
    assert sum(len(batch.bad) for batch in ours) > 0
    for mine, theirs in zip(ours, read(records, rows, decoding), strict=True):
        for field in (one for one in fields(Batch) if one.compare):
            np.testing.assert_array_equal(getattr(mine, field.name), getattr(theirs, field.name))
        assert (mine.images.dtype, mine.labels.shape) == (theirs.images.dtype, theirs.labels.shape)


def test_early_close_leaves_no_running_task(stream_ray: None, small_tasks: None, records: RecordSet) -> None:
    rows = plan_rows(1, 0) * 50
    iterator = batches(records, rows, PLAIN)
    next(iterator)
    start = time.monotonic()
    iterator.close()
    assert time.monotonic() - start < 5
    assert cpus_return()


def test_a_full_cluster_does_not_stop_a_stream_in_its_own_bundle(stream_ray: None, records: RecordSet) -> None:
    """Two workers in one group that reserves every CPU, each with one CPU for itself and one for its data."""
    group = placement_group([{"CPU": 2}] * 2, strategy="PACK")
    ray.get(group.ready(), timeout=30)
    try:
        workers = [
            ray.remote(Worker)
            .options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank))
            .remote(records, group, rank)
            for rank in range(2)
        ]
        assert ray.available_resources().get("CPU", 0) == 0
        labels = [worker.labels.remote() for worker in workers]  # type: ignore[attr-defined]
        parts = ray.get(labels, timeout=60)
    finally:
        remove_placement_group(group)
    assert sorted(parts[0] + parts[1]) == list(range(NUM_RECORDS))
    assert cpus_return()


class Worker:
    """An actor that reads two epochs of its own part through its own bundle."""

    def __init__(self, records: RecordSet, group: object, rank: int) -> None:
        self.options = {"placement_group": group, "bundle_index": rank}
        self.records, self.rank = records, rank

    def labels(self) -> list[int]:
        for _ in range(2):
            got = read(self.records, plan_rows(2, self.rank), **self.options)
        return [int(x) for batch in got for x in batch.labels[batch.weights == 1]]
