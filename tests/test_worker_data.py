"""A worker's data as its loop sees them, decoded in this process: exact for any numbers."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymx.config import parse_experiment
from raymx.data import worker
from raymx.data.batch import Batch
from raymx.data.decoding import Decoding, Places, decode_batches
from raymx.data.feed import Stream
from raymx.data.order import Rows
from raymx.data.recordio import RecordIOWriter, pack
from raymx.data.records import RecordSet
from raymx.data.worker import OpenStream, Share, WorkerData
from raymx.errors import DataError

PNG = cv2.imencode(".png", np.zeros((2, 2, 1), np.uint8))[1].tobytes()


def stream(records: RecordSet, rows: Sequence[Rows], decoding: Decoding) -> Stream:
    """What raymx.data.stream does, without Ray."""
    places = [Places(part.ids, *records.locate(part.ids), part.epoch) for part in rows]
    for part, batch in zip(rows, decode_batches(records.paths, places, decoding), strict=True):
        yield Batch.of(batch, part)


def write(folder: Path, counts: Sequence[int], bad: Sequence[int] = (), prefix: str = "part") -> None:
    """Files of so many records; a record's label is its number, and those of ``bad`` hold no image."""
    number = 0
    for file, count in enumerate(counts):
        with RecordIOWriter(folder / f"{prefix}{file}.rec") as writer:
            for _ in range(count):
                writer.write(pack(float(number), b"junk" if number in bad else PNG, id=number))
                number += 1


def open_data(
    folder: Path, share: Share, batch: int = 8, epochs: int = 3, open_stream: OpenStream = stream, **data: Any
) -> WorkerData:
    experiment = parse_experiment(
        {"name": "x", "model": {"net": "alexnet", "classes": 2},
         "training": {"epochs": epochs, "global_batch_size": batch},
         "data": {"train": "part*.rec", "image_shape": [1, 2, 2], "cache": "none", **data}}, str(folder))
    return WorkerData(experiment, share, open_stream)


def real(batches: Iterator[Batch]) -> list[list[int]]:
    return [batch.labels[batch.weights == 1].astype(int).tolist() for batch in batches]


def joined(parts: list[list[list[int]]]) -> list[list[int]]:
    """Global batches out of the workers' parts of them."""
    return [[record for part in step for record in part] for step in zip(*parts, strict=True)]


@settings(max_examples=40, deadline=None)
@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=3), workers=st.integers(1, 5),
       batch=st.integers(1, 20), epoch=st.integers(0, 2), resume=st.floats(0, 1),
       order=st.sampled_from(["global", "chunk", "none"]), cache=st.sampled_from(["none", "auto"]))
def test_each_record_once_in_the_same_steps_from_any_point(
    counts: list[int], workers: int, batch: int, epoch: int, resume: float, order: str, cache: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, counts)
        options: dict[str, Any] = {"order": order, "cache": cache, "chunk_records": 3, "window_records": 10}
        one = real(open_data(folder, Share(0, 1, 1), batch, **options).train(epoch, 0))
        assert sorted(record for step in one for record in step) == list(range(sum(counts)))
        first = int(resume * len(one))      # len(one): stopped after the last step, before the epoch's end
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


@pytest.mark.parametrize("cache", ["none", "auto"])
def test_validation_counts_each_record_once_every_time(tmp_path: Path, cache: str) -> None:
    write(tmp_path, [23])
    for workers in (1, 3):
        shares = [open_data(tmp_path, Share(rank, workers, 1), cache=cache, validation="part*.rec")
                  for rank in range(workers)]
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


def train_and_validate(data: WorkerData, epochs: int, steps: int) -> None:
    for epoch in range(epochs):
        assert len(list(data.train(epoch, 0))) == steps
        if "validation" in data.sets:
            list(data.validation())
    data.close()


def test_a_loop_like_ours_opens_each_stream_once(tmp_path: Path) -> None:
    """train, validation, train, ...: each is the one that was started ahead."""
    write(tmp_path, [64])
    opener = Counted()
    train_and_validate(open_data(tmp_path, Share(0, 1, 1), validation="part*.rec", open_stream=opener), 3, 8)
    assert opener.opened == [(0, 0, 8), (0, 0, 8), (1, 1, 8), (0, 0, 8), (2, 2, 8), (0, 0, 8)]


@pytest.mark.parametrize("validation", [None, "few0.rec"])
def test_a_stream_goes_on_over_the_epochs(tmp_path: Path, validation: str | None) -> None:
    """Without validation records, and once they are kept."""
    write(tmp_path, [64])
    write(tmp_path, [8], prefix="few")
    opener = Counted()
    data = open_data(tmp_path, Share(0, 1, 1), epochs=5, validation=validation, cache="0.0001MiB", open_stream=opener)
    train_and_validate(data, 5, 8)
    assert opener.opened == ([(0, 0, 8), (0, 0, 1), (1, 4, 32)] if validation else [(0, 4, 40)])


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_kept_is_streamed_once_and_nothing_stays_started(tmp_path: Path, workers: int) -> None:
    write(tmp_path, [64])
    opener = Counted()
    data = open_data(tmp_path, Share(0, workers, 1), epochs=4, validation="part*.rec", cache="auto", open_stream=opener)
    for epoch in range(4):
        list(data.train(epoch, 0))
        list(data.validation())
    assert [count for *_, count in opener.opened] == [8 if workers == 1 else 16, 8]
    assert data._feed._ahead is None


def test_padding_alone_does_not_keep_a_set_from_being_complete(tmp_path: Path) -> None:
    write(tmp_path, [9])
    opener = Counted()
    data = open_data(tmp_path, Share(3, 4, 1), cache="auto", order="none", open_stream=opener)
    for epoch in range(3):
        list(data.train(epoch, 0))
    assert len(opener.opened) == 1


def test_a_loop_that_never_validates_starts_no_validation_stream_after_the_first_epoch(tmp_path: Path) -> None:
    write(tmp_path, [64])
    opener = Counted()
    data = open_data(tmp_path, Share(0, 1, 1), epochs=4, validation="part*.rec", open_stream=opener)
    for epoch in range(4):
        list(data.train(epoch, 0))
    data.close()
    assert opener.opened == [(0, 0, 8), (0, 0, 8), (1, 3, 24)]


def test_closing_opens_nothing(tmp_path: Path) -> None:
    open_data(tmp_path, Share(0, 1, 1)).close()     # there are no files at all


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
    path.write_bytes(path.read_bytes()[:-20])     # the last record is cut
    shares = [open_data(tmp_path, Share(rank, 3, 1), on_bad_record="skip") for rank in range(3)]
    for data in shares:
        list(data.train(0, 0))
    assert sum(data.take_skipped() for data in shares) == 1


def test_a_stream_is_cut_where_planning_more_would_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [64])
    monkeypatch.setattr(worker, "STREAM_TASKS", 5)
    monkeypatch.setattr(worker, "task_batches", lambda *_: 1)
    opener = Counted()
    train_and_validate(open_data(tmp_path, Share(0, 1, 1), epochs=2, open_stream=opener), 2, 8)
    assert opener.opened == [(0, 0, 5), (0, 1, 5), (1, 1, 5), (1, 1, 1)]


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
            str(tmp_path / "part0.rec"), str(tmp_path / "part1.rec")]
        assert "1 bad record skipped, the first at byte" in caplog.messages[0]


def test_a_bad_record_fails_by_default_and_is_named(tmp_path: Path) -> None:
    write(tmp_path, [10], bad=[4])
    with pytest.raises(DataError, match=r"part0\.rec, record at byte \d+: the image cannot be decoded"):
        list(open_data(tmp_path, Share(0, 1, 1)).train(0, 0))


def test_labels_of_different_widths_are_filled_up(tmp_path: Path) -> None:
    with RecordIOWriter(tmp_path / "part0.rec") as writer:
        for labels in ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0]):
            writer.write(pack(labels, PNG))
    data = open_data(tmp_path, Share(0, 1, 1), label_width="auto", order="none")
    assert data.label_width == 3
    (batch,) = data.train(0, 0)
    assert batch.labels[:3].tolist() == [[1, 2, -1], [3, -1, -1], [4, 5, 6]]
    with pytest.raises(DataError, match=r"it has 1 labels; data\.label_width is 2"):
        list(open_data(tmp_path, Share(0, 1, 1), label_width=2, order="none").train(0, 0))


def test_fingerprints_agree_on_equal_files_in_other_folders(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, bad in zip(folders, ([], [], [0]), strict=True):
        folder.mkdir()
        write(folder, [5], bad=bad)
    first, second, other = (open_data(folder, Share(0, 2, 1)).fingerprint() for folder in folders)
    assert first == second != other


# ---- transforms of the user's own ----

TRANSFORMS = '''
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

gluon = transforms.Compose([transforms.RandomBrightness(0.5), transforms.ToTensor()])
'''


@pytest.fixture
def with_transforms(tmp_path: Path) -> Path:
    write(tmp_path, [6])
    (tmp_path / f"{tmp_path.name}.py").write_text(TRANSFORMS)      # a module of its own a test: imports are kept
    return tmp_path


def transformed(folder: Path, name: str, **options: Any) -> list[Batch]:
    return list(open_data(folder, Share(0, 1, 1), transform=f"{folder.name.replace('-', '_')}:{name}", order="none",
                          **options).train(0, 0))


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
    with pytest.raises(DataError, match=r"is a class; a transform is a function"):
        transformed(with_transforms, "Class")


def test_a_wrong_result_of_a_transform_says_what_is_due(with_transforms: Path) -> None:
    with pytest.raises(DataError, match=r"returned an image of uint8 \(3, 3, 1\).*data\.image_shape"):
        transformed(with_transforms, "too_large")
