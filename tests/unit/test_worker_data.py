"""A worker's data as its loop sees them, decoded in this process: exact for any numbers."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymx.data.pipeline import warmup, worker_streams
from raymx.data.pipeline.batch import Batch, Stream
from raymx.data.pipeline.decoding import Decoding
from raymx.data.pipeline.order import Rows
from raymx.data.pipeline.planning import Share
from raymx.data.pipeline.warmup import decode_here as stream  # what pipeline.stream gives, without Ray
from raymx.data.pipeline.worker_data import WorkerData
from raymx.data.pipeline.worker_streams import OpenStream
from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError
from raymx.experiment.loading import parse_experiment

PNG = cv2.imencode(".png", np.zeros((2, 2, 1), np.uint8))[1].tobytes()


def write(folder: Path, counts: Sequence[int], bad: Sequence[int] = (), prefix: str = "part") -> None:
    """Files of so many records; a record's label is its number, and those of ``bad`` hold no image."""
    number = 0
    for file, count in enumerate(counts):
        with RecordIOWriter(folder / f"{prefix}{file}.rec") as writer:
            for _ in range(count):
                writer.write(pack(float(number), b"junk" if number in bad else PNG, id=number))
                number += 1


def open_data(
    folder: Path,
    share: Share,
    batch: int = 8,
    epochs: int = 3,
    open_stream: OpenStream = stream,
    loop: str = "default",
    **data: Any,
) -> WorkerData:
    experiment = parse_experiment(
        {
            "name": "x",
            "model": {"net": "alexnet", "classes": 1000},
            "training": {"epochs": epochs, "global_batch_size": batch, "loop": loop},
            "data": {"train": "part*.rec", "image_shape": [1, 2, 2], "cache": "none", "max_bad": 0.5, **data},
        },
        str(folder),
    )
    return WorkerData(experiment, share, open_stream)


@pytest.fixture(scope="module", autouse=True)
def all_is_streamed() -> Iterator[None]:
    """But for the warmup, whose length tests choose: these data are small, so none of them would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmup, "QUICK_S", 0.0)
        patch.setattr(worker_streams, "HERE_S", 0.0)
        yield


@pytest.fixture
def warmup_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the very first batch are streamed."""
    monkeypatch.setattr(warmup, "warmup_batches", lambda first_s: 1)


def real(batches: Iterator[Batch]) -> list[list[int]]:
    return [batch.labels[batch.weights == 1].astype(int).tolist() for batch in batches]


def joined(parts: list[list[list[int]]]) -> list[list[int]]:
    """Global batches out of the workers' parts of them."""
    return [[record for part in step for record in part] for step in zip(*parts, strict=True)]


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    workers=st.integers(1, 5),
    batch=st.integers(1, 20),
    epoch=st.integers(0, 2),
    resume=st.floats(0, 1),
    decoded_here=st.integers(1, 9),
    order=st.sampled_from(["global", "chunk", "none"]),
    cache=st.sampled_from(["none", "auto"]),
    here_s=st.sampled_from([0.0, 0.001, 3.0]),
)
def test_each_record_once_in_the_same_steps_from_any_point(
    counts: list[int],
    workers: int,
    batch: int,
    epoch: int,
    resume: float,
    decoded_here: int,
    order: str,
    cache: str,
    here_s: float,
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmup, "warmup_batches", lambda first_s: decoded_here)
        patch.setattr(worker_streams, "HERE_S", here_s)
        folder = Path(name)
        write(folder, counts)
        options: dict[str, Any] = {"order": order, "cache": cache, "chunk_records": 3, "window_records": 10}
        one = real(open_data(folder, Share(0, 1, 1), batch, **options).train(epoch, 0))
        assert sorted(record for step in one for record in step) == list(range(sum(counts)))
        first = int(resume * len(one))  # len(one): stopped after the last step, before the epoch's end
        shares = [open_data(folder, Share(rank, workers, 1), batch, **options) for rank in range(workers)]
        parts = [real(data.train(epoch, first)) for data in shares]
        assert {len(part) for part in parts} == {len(one) - first}
        assert joined(parts) == one[first:]
        # The next epoch, whether it is kept in memory or not, is exact too.
        following = [real(data.train(epoch + 1, 0)) for data in shares]
        alone = real(open_data(folder, Share(0, 1, 1), batch, **options).train(epoch + 1, 0))
        assert joined(following) == alone
        for data in shares:
            data.close()


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(1, 60),
    cache=st.sampled_from(["none", "auto"]),
    decoded_here=st.integers(1, 5),
    sizes=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4)), min_size=1, max_size=4),
    data=st.data(),
)
def test_each_record_once_when_the_batch_changes_within_an_epoch(
    count: int, cache: str, decoded_here: int, sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Generations with other batch sizes and workers, each left after some of its steps, go on from the records done.
    The next epoch is whole again."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmup, "warmup_batches", lambda first_s: decoded_here)
        folder = Path(name)
        write(folder, [count])
        seen: list[int] = []
        step = record = 0
        for number, (batch, workers) in enumerate(sizes):
            shares = [open_data(folder, Share(rank, workers, 1), batch, cache=cache) for rank in range(workers)]
            left = shares[0].plan.steps_from(step, record) - step
            kept = left if number + 1 == len(sizes) else data.draw(st.integers(0, left), label="steps")
            epochs = [one.train(1, step, record) for one in shares]
            for _ in range(kept):
                parts = [next(batches) for batches in epochs]
                seen += [one for part in real(iter(parts)) for one in part]
                (record,) = {part.records_done for part in parts}
                step += 1
            assert len(seen) == record
        assert [next(batches, None) for batches in epochs] == [None] * workers
        one = open_data(folder, Share(0, 1, 1), batch=sizes[-1][0])
        assert seen == [record for part in real(one.train(1, 0)) for record in part]
        assert joined([real(one.train(2, 0)) for one in shares]) == real(one.train(2, 0))
        for each in (*shares, one):
            each.close()


def test_a_stream_goes_on_behind_an_epoch_that_was_begun_in_its_middle(tmp_path: Path, warmup_of_one: None) -> None:
    write(tmp_path, [64])
    opener = Counted()
    data = open_data(tmp_path, Share(0, 1, 1), batch=16, open_stream=opener)
    assert [batch.records_done for batch in data.train(0, 3, 24)] == [40, 56, 64]
    assert [batch.records_done for batch in data.train(1, 0)] == [16, 32, 48, 64]
    data.close()
    assert opener.opened == [(0, 2, 2 + 4 + 4)]


@pytest.mark.parametrize("cache", ["none", "auto"])
def test_validation_counts_each_record_once_every_time(tmp_path: Path, cache: str) -> None:
    write(tmp_path, [23])
    for workers in (1, 3):
        shares = [
            open_data(tmp_path, Share(rank, workers, 1), cache=cache, validation="part*.rec") for rank in range(workers)
        ]
        for _ in range(2):
            seen = [record for data in shares for step in real(data.validation()) for record in step]
            assert seen == list(range(23))


class Counted:
    """Opens streams and remembers (epoch of the first batch, epoch of the last, batches) of each."""

    def __init__(self) -> None:
        self.opened: list[tuple[int, int, int]] = []

    def __call__(self, records: RecordSet, rows: Sequence[Rows], decoding: Decoding) -> Stream:
        self.opened.append((rows[0].epoch, rows[-1].epoch, len(rows)))
        yield from stream(records, rows, decoding)


def train_and_validate(data: WorkerData, epochs: int, steps: int, validates: bool = True) -> None:
    for epoch in range(epochs):
        assert len(list(data.train(epoch, 0))) == steps
        if validates:
            list(data.validation())
    data.close()


def test_a_loop_like_ours_opens_each_stream_once(tmp_path: Path, warmup_of_one: None) -> None:
    """train, validation, train, ...: each is the one that was started ahead."""
    write(tmp_path, [64])
    opener = Counted()
    train_and_validate(open_data(tmp_path, Share(0, 1, 1), validation="part*.rec", open_stream=opener), 3, 8)
    assert opener.opened == [(0, 0, 7), (0, 0, 8), (1, 1, 8), (0, 0, 8), (2, 2, 8), (0, 0, 8)]


@pytest.mark.parametrize("validation", [None, "few0.rec"])
def test_a_stream_goes_on_over_the_epochs(tmp_path: Path, validation: str | None, warmup_of_one: None) -> None:
    """Without validation records, and once they are kept."""
    write(tmp_path, [64])
    write(tmp_path, [8], prefix="few")
    opener = Counted()
    data = open_data(tmp_path, Share(0, 1, 1), epochs=5, validation=validation, cache="0.0001MiB", open_stream=opener)
    train_and_validate(data, 5, 8, validates=validation is not None)
    assert opener.opened == ([(0, 0, 7), (0, 0, 1), (1, 4, 32)] if validation else [(0, 4, 39)])


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_kept_is_streamed_once_and_nothing_stays_started(
    tmp_path: Path, workers: int, warmup_of_one: None
) -> None:
    write(tmp_path, [64])
    opener = Counted()
    data = open_data(tmp_path, Share(0, workers, 1), epochs=4, validation="part*.rec", cache="auto", open_stream=opener)
    for epoch in range(4):
        list(data.train(epoch, 0))
        list(data.validation())
    assert [count for *_, count in opener.opened] == [7 if workers == 1 else 15, 8]
    assert data._streams._prefetcher._ahead is None


def test_padding_alone_does_not_keep_a_set_from_being_complete(tmp_path: Path) -> None:
    write(tmp_path, [9])
    opener = Counted()
    data = open_data(tmp_path, Share(3, 4, 1), cache="auto", order="none", open_stream=opener)
    for epoch in range(3):
        list(data.train(epoch, 0))
    assert len(opener.opened) == 1


def test_a_loop_that_never_validates_starts_no_validation_stream_after_the_first_epoch(
    tmp_path: Path, warmup_of_one: None
) -> None:
    write(tmp_path, [64])
    opener = Counted()
    data = open_data(tmp_path, Share(0, 1, 1), epochs=4, validation="part*.rec", open_stream=opener)
    for epoch in range(4):
        list(data.train(epoch, 0))
    data.close()
    assert opener.opened == [(0, 0, 7), (0, 0, 8), (1, 3, 24)]


def test_closing_opens_nothing(tmp_path: Path) -> None:
    open_data(tmp_path, Share(0, 1, 1)).close()  # there are no files at all


def test_a_generator_that_is_closed_late_leaves_the_new_one_alone(tmp_path: Path) -> None:
    write(tmp_path, [64])
    data = open_data(tmp_path, Share(0, 1, 1))
    old = data.train(0, 0)
    next(old)
    new = data.train(1, 0)
    next(new)
    old.close()  # type: ignore[attr-defined]
    assert len(list(new)) == 7
    data.close()


def test_what_a_loop_does_to_kept_batches_stays_its_own(tmp_path: Path) -> None:
    write(tmp_path, [8])
    data = open_data(tmp_path, Share(0, 1, 1), validation="part*.rec", cache="auto")
    list(data.train(0, 0))
    for _ in range(3):
        (batch,) = data.validation()
        assert batch.labels.tolist() == list(range(8))
        if batch.labels.flags.writeable:
            batch.labels[:] = 0


def test_damage_that_every_worker_finds_counts_once(tmp_path: Path) -> None:
    write(tmp_path, [10])
    path = tmp_path / "part0.rec"
    path.write_bytes(path.read_bytes()[:-20])  # the last record is cut
    shares = [open_data(tmp_path, Share(rank, 3, 1), on_bad_record="skip") for rank in range(3)]
    for data in shares:
        list(data.train(0, 0))
    assert sum(data.take_skipped() for data in shares) == 1


def test_a_stream_is_cut_where_planning_more_would_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warmup_of_one: None
) -> None:
    write(tmp_path, [64])
    monkeypatch.setattr(worker_streams, "STREAM_TASKS", 5)
    monkeypatch.setattr(worker_streams, "task_batches", lambda *_: 1)
    opener = Counted()
    train_and_validate(open_data(tmp_path, Share(0, 1, 1), epochs=2, open_stream=opener), 2, 8, validates=False)
    assert opener.opened == [(0, 0, 5), (0, 1, 5), (1, 1, 5)]


def test_an_epoch_that_is_left_early_can_be_begun_again(tmp_path: Path) -> None:
    write(tmp_path, [64])
    data = open_data(tmp_path, Share(0, 1, 1))
    whole = real(data.train(0, 0))
    batches = data.train(1, 0)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert real(data.train(0, 3)) == whole[3:]
    assert sorted(record for step in real(data.train(1, 0)) for record in step) == list(range(64))
    data.close()


@pytest.mark.parametrize("cache", ["none", "auto"])
def test_bad_records_weigh_nothing_and_are_counted_by_file(
    tmp_path: Path, cache: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, [10, 13], bad=[4, 17])
    shares = [open_data(tmp_path, Share(rank, 2, 1), cache=cache, on_bad_record="skip") for rank in range(2)]
    for epoch in range(2):
        parts = [real(data.train(epoch, 0)) for data in shares]
        assert {len(part) for part in parts} == {3}
        seen = [record for part in parts for step in part for record in step]
        assert sorted(seen) == [n for n in range(23) if n not in (4, 17)]
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert sum(data.take_skipped() for data in shares) == 2
        assert sorted(message.partition(":")[0] for message in caplog.messages) == [
            str(tmp_path / "part0.rec"),
            str(tmp_path / "part1.rec"),
        ]
        assert "1 bad record skipped, the first at byte" in caplog.messages[0]


def test_a_bad_record_fails_by_default_and_is_named(tmp_path: Path) -> None:
    write(tmp_path, [10], bad=[4])
    with pytest.raises(DataError, match=r"part0\.rec, record at byte \d+: the image cannot be decoded"):
        list(open_data(tmp_path, Share(0, 1, 1)).train(0, 0))


def test_labels_of_different_widths_are_filled_up(tmp_path: Path) -> None:
    with RecordIOWriter(tmp_path / "part0.rec") as writer:
        for labels in ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0]):
            writer.write(pack(labels, PNG))
    data = open_data(tmp_path, Share(0, 1, 1), label_width="auto", order="none", loop="a:loop")
    assert data.label_width == 3
    (batch,) = data.train(0, 0)
    assert batch.labels[:3].tolist() == [[1, 2, -1], [3, -1, -1], [4, 5, 6]]
    with pytest.raises(DataError, match=r"it has 1 labels; data\.label_width is 2"):
        list(open_data(tmp_path, Share(0, 1, 1), label_width=2, order="none", loop="a:loop").train(0, 0))


def test_fingerprints_agree_on_equal_files_in_other_folders(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, bad in zip(folders, ([], [], [0]), strict=True):
        folder.mkdir()
        write(folder, [5], bad=bad)
    first, second, other = (open_data(folder, Share(0, 2, 1)).fingerprint() for folder in folders)
    assert first == second != other


# ---- the first batches, which the worker decodes itself ----


class Late:
    """Opens streams when it may."""

    def __init__(self) -> None:
        self.may_open, self.opened = threading.Event(), threading.Event()

    def __call__(self, records: RecordSet, rows: Sequence[Rows], decoding: Decoding) -> Stream:
        assert self.may_open.wait(20)
        self.opened.set()
        return stream(records, rows, decoding)


@pytest.mark.parametrize("cache", ["none", "auto"])
def test_the_first_batches_do_not_wait_for_a_stream(
    tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "warmup_batches", lambda first_s: 3)
    write(tmp_path, [64])
    opener = Late()
    data = open_data(tmp_path, Share(0, 1, 1), cache=cache, open_stream=opener)
    epoch = data.train(0, 2)
    seen = [next(epoch) for _ in range(3)]
    assert not opener.opened.is_set()
    opener.may_open.set()
    whole = real(open_data(tmp_path, Share(0, 1, 1)).train(0, 0))
    assert real(iter([*seen, *epoch])) == whole[2:]
    data.close()


@pytest.mark.parametrize("decoded_here", [1, 2, 9])
@pytest.mark.parametrize("cache", ["none", "auto"])
def test_a_head_changes_nothing(tmp_path: Path, cache: str, decoded_here: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels, draws, labels, weights, bad records and what is said of them: as when all of it is streamed."""
    write(tmp_path, [10, 13], bad=[4, 17])
    found = []
    for count in (0, decoded_here):
        monkeypatch.setattr(
            worker_streams, "warm_up", lambda *what, count=count: (count, islice(stream(*what), count), 1.0)
        )
        data = open_data(tmp_path, Share(1, 2, 1), cache=cache, on_bad_record="skip", augment={"rand_mirror": True})
        found.append([[*data.train(0, 0)], [*data.train(1, 0)], data.take_skipped()])
        data.close()
    (*streamed, skipped), (*ours, also_skipped) = found
    assert skipped == also_skipped > 0
    for theirs, mine in zip(streamed, ours, strict=True):
        for one, other in zip(theirs, mine, strict=True):
            assert_same(one, other)


def assert_same(one: Batch, other: Batch) -> None:
    """But for where and when they were decoded, and how long that took."""
    for field in (one for one in fields(Batch) if one.compare):
        a, b = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_array_equal(a, b)
        assert type(a) is type(b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


def test_batches_say_how_they_were_made(tmp_path: Path) -> None:
    """Where each was decoded, and the seconds of each stage; what is kept took none."""
    write(tmp_path, [40])
    data = open_data(tmp_path, Share(0, 1, 1), cache="auto")
    first, second = (list(data.train(epoch, 0)) for epoch in (0, 1))
    assert {batch.source for batch in first} == {"here"}
    assert all(set(batch.spent) == {"read", "decode"} and min(batch.spent.values()) > 0 for batch in first)
    assert {(batch.source, len(batch.spent)) for batch in second} == {("memory", 0)}


def test_only_the_first_epoch_of_a_worker_is_warmed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    warm_up = warmup.warm_up
    monkeypatch.setattr(worker_streams, "warm_up", lambda *what: calls.append(1) or warm_up(*what))
    write(tmp_path, [64])
    data = open_data(tmp_path, Share(0, 1, 1))
    for epoch, first in ((1, 5), (0, 0), (2, 0)):
        list(data.train(epoch, first))
    data.close()
    assert calls == [1]


def test_a_loop_that_validates_first_has_its_stream_started_ahead(tmp_path: Path) -> None:
    write(tmp_path, [64])
    opener = Counted()
    data = open_data(tmp_path, Share(0, 1, 1), validation="part*.rec", open_stream=opener)
    list(data.validation())
    list(data.train(0, 0))
    data.close()
    assert opener.opened == [(0, 0, 8), (0, 0, 8), (0, 0, 8)]


@pytest.mark.parametrize("cache", ["none", "auto"])
def test_what_takes_a_moment_only_needs_no_stream(
    tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch, warmup_of_one: None
) -> None:
    """And comes to the same, as far as the time for it reaches."""
    write(tmp_path, [64, 16])
    found, opened = [], []
    for here_s in (0.0, 3.0):
        monkeypatch.setattr(worker_streams, "HERE_S", here_s)
        opener = Counted()
        data = open_data(
            tmp_path,
            Share(1, 2, 1),
            validation="part*.rec",
            cache=cache,
            open_stream=opener,
            augment={"rand_mirror": True},
        )
        found.append(
            [batch for epoch in range(2) for part in (data.train(epoch, 0), data.validation()) for batch in part]
        )
        opened.append(len(opener.opened))
        data.close()
    assert opened[0] > 0
    assert opened[1] == 0
    for one, other in zip(*found, strict=True):
        assert_same(one, other)


def test_what_takes_longer_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warmup_of_one: None) -> None:
    monkeypatch.setattr(worker_streams, "HERE_S", 1e-9)
    write(tmp_path, [64])
    opener = Counted()
    data = open_data(tmp_path, Share(0, 1, 1), open_stream=opener)
    list(data.train(0, 0))
    data.close()
    assert len(opener.opened) == 1


def test_the_head_is_as_long_as_a_stream_takes_to_start() -> None:
    assert [warmup.warmup_batches(first_s) for first_s in (0.004, 0.2, 0.3, 0.5, 5.0)] == [200, 4, 2, 1, 1]
    assert warmup.warmup_batches(0.0) >= 1


def test_the_head_leaves_opencv_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [16], bad=[3])
    before = (cv2.getNumThreads(), cv2.getLogLevel())
    list(open_data(tmp_path, Share(0, 1, 1), on_bad_record="skip").train(0, 0))
    assert (cv2.getNumThreads(), cv2.getLogLevel()) == before
    assert capfd.readouterr().err == ""


def test_nothing_slow_is_imported_before_the_first_batch(tmp_path: Path) -> None:
    write(tmp_path, [16])
    program = f"""
import sys, threading
from raymx.experiment.loading import parse_experiment
from raymx.data.pipeline.planning import Share
from raymx.data.pipeline.worker_data import WorkerData
experiment = parse_experiment({{
    "name": "x", "model": {{"net": "alexnet", "classes": 1000}}, "training": {{"epochs": 1, "global_batch_size": 8}},
    "data": {{"train": "part*.rec", "image_shape": [1, 2, 2]}}}}, {str(tmp_path)!r})
next(WorkerData(experiment, Share(0, 1, 1), lambda *_: threading.Event().wait()).train(0, 0))
print([name for name in ("ray", "mxnet", "pandas", "pyarrow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


# ---- transforms of the user's own ----

TRANSFORMS = """
import numpy as np
from mxnet.gluon.data.vision import transforms

def double(image, label, rng):
    assert image.dtype == np.uint8 and image.shape == (2, 2, 1)
    return image, label * 2

def noisy(image, label, rng):
    return rng.integers(0, 256, image.shape).astype("uint8")

def plain(image, label, rng):
    assert rng is not None
    return image

def floats(image, label, rng):
    return image.transpose(2, 0, 1).astype("float32") / 255

def broken(image, label, rng):
    return helper(label)

def helper(label):
    raise KeyError("no such thing")

def too_large(image, label, rng):
    return np.zeros((3, 3, 1), "uint8")

def three(image, label, rng):
    return image, label, 3

class Class:
    pass

def pair(data, label):
    return data, label

gluon = transforms.Compose([transforms.RandomBrightness(0.5), transforms.ToTensor()])
"""


@pytest.fixture
def with_transforms(tmp_path: Path) -> Path:
    write(tmp_path, [6])
    (tmp_path / f"{tmp_path.name}.py").write_text(TRANSFORMS)  # a module of its own a test: imports are kept
    return tmp_path


def transformed(folder: Path, name: str, **options: Any) -> list[Batch]:
    return list(
        open_data(
            folder, Share(0, 1, 1), transform=f"{folder.name.replace('-', '_')}:{name}", order="none", **options
        ).train(0, 0)
    )


def test_a_transform_changes_images_and_labels(with_transforms: Path) -> None:
    (batch,) = transformed(with_transforms, "double")
    assert batch.labels[:6].tolist() == [0, 2, 4, 6, 8, 10]


def test_a_transforms_randomness_is_the_records_own(with_transforms: Path) -> None:
    (first,), (again,) = (transformed(with_transforms, "noisy") for _ in range(2))
    np.testing.assert_array_equal(first.images, again.images)
    small = transformed(with_transforms, "noisy", cache="auto")
    np.testing.assert_array_equal(first.images, small[0].images)


def test_float_images_are_for_the_net_as_they_are(with_transforms: Path) -> None:
    (batch,) = transformed(with_transforms, "floats")
    assert (batch.images.dtype, batch.images.shape) == (np.float32, (8, 1, 2, 2))
    with pytest.raises(DataError, match=r"data\.transform and data\.validation_transform must agree"):
        transformed(with_transforms, "floats", validation="part*.rec")


def test_gluon_transforms_are_taken(with_transforms: Path) -> None:
    pytest.importorskip("mxnet")
    (first,), (again,) = (transformed(with_transforms, "gluon") for _ in range(2))
    assert (first.images.dtype, first.images.shape) == (np.float32, (8, 1, 2, 2))
    np.testing.assert_array_equal(first.images, again.images)


@pytest.mark.parametrize("skip", [False, True])
def test_a_failing_transform_shows_its_own_traceback_and_the_record(with_transforms: Path, skip: bool) -> None:
    with pytest.raises(DataError) as caught:
        transformed(with_transforms, "broken", on_bad_record="skip" if skip else "fail")
    text = str(caught.value)
    assert "part0.rec, record at byte 0: the transform" in text
    assert "KeyError: 'no such thing'" in text
    assert "in broken" in text
    assert "in helper" in text
    assert "raymx/data" not in text


def test_a_transform_is_tried_on_a_record_that_can_be_used(tmp_path: Path) -> None:
    write(tmp_path, [6], bad=[0])
    (tmp_path / f"{tmp_path.name}.py").write_text(TRANSFORMS)
    (batch,) = transformed(tmp_path, "floats", on_bad_record="skip")
    assert batch.real_local == 5


def test_odd_results_of_a_transform_name_the_record(with_transforms: Path) -> None:
    with pytest.raises(DataError, match=r"part0\.rec, record at byte 0: the transform .* must return the image, or"):
        transformed(with_transforms, "three")
    for on_bad_record in ("fail", "skip"):  # no record is to blame
        with pytest.raises(DataError, match=r"Class is a class; name a function: def transform\(image, label, rng\)"):
            transformed(with_transforms, "Class", on_bad_record=on_bad_record)
    with pytest.raises(DataError, match=r"pair\(data, label\)"):
        transformed(with_transforms, "pair")


def test_a_wrong_result_of_a_transform_says_what_is_due(with_transforms: Path) -> None:
    with pytest.raises(DataError, match=r"returned an image of uint8 \(3, 3, 1\).*data\.image_shape"):
        transformed(with_transforms, "too_large")
