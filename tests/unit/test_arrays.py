"""Samples that are arrays, from files and from functions: exact for any numbers; what is wrong is named."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymx.data.pipeline import samples, warmup, worker_streams
from raymx.data.pipeline.batch import Batch
from raymx.data.pipeline.decoding import Header, load_decode
from raymx.data.pipeline.npy import npy_bytes, read_npy
from raymx.data.pipeline.planning import Share
from raymx.data.pipeline.sample import Sample
from raymx.data.pipeline.warmup import decode_here as stream
from raymx.data.pipeline.worker_data import WorkerData
from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.data.tools.arrays import pack_rows, pack_samples
from raymx.errors import DataError, ExperimentError, TooManyBadRecords
from raymx.experiment.loading import ExperimentConfig, check_files, parse_experiment
from raymx.experiment.rules import check, problems

TOKENS = {"tokens": {"dtype": "int32", "shape": [3]}, "value": {"shape": []}}
TEXT = {"tokens": {"dtype": "int32", "shape": [None]}}
MODULE = """
import random
import numpy as np

COUNT = {count}


def decode(header, payload, rng):
    number = int(np.frombuffer(payload, "<i4")[0])
    drawn = 0.0 if rng is None else rng.random()
    return {{"tokens": [number] * 3, "value": drawn}}


class Numbers:
    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return (np.full(3, number, "int64"), random.random() + np.random.rand()), number


def dataset():
    return [(np.full(3, number, "int32"), float(number), number) for number in range(COUNT)]


class Drawn:
    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return {{"tokens": np.full(3, number), "value": random.random() + np.random.rand(), "label": number}}


def drawn():
    return Drawn()


def columns(folder):
    assert folder
    numbers = np.arange(COUNT)
    return {{"tokens": np.repeat(numbers[:, None], 3, 1), "value": numbers / 2, "label": numbers}}


def in_order():
    numbers = np.arange(COUNT)
    return np.repeat(numbers[:, None], 3, 1), numbers / 2, numbers
"""


FAILING = """
def wrong(header, payload, rng):
    return {}["no"]


def few(header, payload, rng):
    return ()


class Bad:
    def __len__(self):
        return 4

    def __getitem__(self, number):
        return 1 / 0


def bad():
    return Bad()
"""


@pytest.fixture(scope="module", autouse=True)
def all_is_streamed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmup, "QUICK_S", 0.0)
        patch.setattr(worker_streams, "HERE_S", 0.0)
        yield


def experiment(folder: Path, batch: int = 8, **data: Any) -> ExperimentConfig:
    return parse_experiment(
        {
            "name": "x",
            "model": {"net": "nets:mlp", "classes": 1000},
            "training": {"epochs": 3, "global_batch_size": batch},
            "data": {"kind": "array", "train": "a.rec", "inputs": TOKENS, "cache": "none", "max_bad": 0.5, **data},
        },
        str(folder),
    )


def open_data(folder: Path, share: Share | None = None, batch: int = 8, **data: Any) -> WorkerData:
    return WorkerData(experiment(folder, batch, **data), share or Share(0, 1, 1), stream)


def write_npy(folder: Path, count: int) -> dict[str, Any]:
    numbers = np.arange(count)
    inputs = {"tokens": np.repeat(numbers[:, None], 3, 1).astype(np.int32), "value": numbers.astype(np.float32) / 2}
    pack_samples(inputs, numbers, folder / "a.rec")
    return {"train": "a.rec"}


def write_bare(folder: Path, count: int) -> dict[str, Any]:
    with RecordIOWriter(folder / "a.rec") as writer:
        for number in range(count):
            payload = np.full(3, number, "<i4").tobytes() + np.array([number / 2], "<f4").tobytes()
            writer.write(pack(float(number), payload))
    return {"train": "a.rec"}


def write_custom(folder: Path, count: int) -> dict[str, Any]:
    write_bare(folder, count)
    return {"train": "a.rec", "kind": "custom", "decode": f"{module(folder, count)}:decode"}


def function(name: str) -> Callable[[Path, int], dict[str, Any]]:
    def write(folder: Path, count: int) -> dict[str, Any]:
        return {"train": f"{module(folder, count)}:{name}"}

    return write


_numbers = iter(range(10**6))


def module(folder: Path, count: int) -> str:
    """A module of a name of its own, since Python keeps those that it has imported."""
    name = f"made_samples_{next(_numbers)}"
    (folder / f"{name}.py").write_text(MODULE.format(count=count))
    return name


SOURCES = {
    "npy": write_npy,
    "bare": write_bare,
    "custom": write_custom,
    **{name: function(name) for name in ("dataset", "drawn", "columns", "in_order")},
}


def real(batches: Iterator[Batch]) -> list[list[tuple[int, float]]]:
    """By step, (number, value) of each real sample."""
    steps = []
    for batch in batches:
        rows = batch.images[batch.weights == 1]
        assert (rows["tokens"] == batch.labels[batch.weights == 1].astype(int)[:, None]).all()
        steps.append([(int(tokens[0]), float(value)) for tokens, value in rows])
    return steps


def joined(parts: list[list[list[Any]]]) -> list[list[Any]]:
    return [[one for part in step for one in part] for step in zip(*parts, strict=True)]


@settings(max_examples=40, deadline=None)
@given(
    source=st.sampled_from(sorted(SOURCES)),
    count=st.integers(1, 50),
    workers=st.integers(1, 4),
    batch=st.integers(1, 20),
    epoch=st.integers(0, 2),
    resume=st.floats(0, 1),
    order=st.sampled_from(["global", "chunk", "none"]),
    cache=st.sampled_from(["none", "auto"]),
)
def test_every_source_gives_each_sample_once_in_the_same_steps_from_any_point(
    source: str, count: int, workers: int, batch: int, epoch: int, resume: float, order: str, cache: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = SOURCES[source](folder, count)
        options: dict[str, Any] = {"order": order, "cache": cache, "chunk_records": 3, "window_records": 10, **data}
        one = real(open_data(folder, batch=batch, **options).train(epoch, 0))
        assert sorted(number for step in one for number, _ in step) == list(range(count))
        first = int(resume * len(one))
        shares = [open_data(folder, Share(rank, workers, 1), batch, **options) for rank in range(workers)]
        assert joined([real(share.train(epoch, first)) for share in shares]) == one[first:]
        alone = real(open_data(folder, batch=batch, **options).train(epoch + 1, 0))
        assert joined([real(share.train(epoch + 1, 0)) for share in shares]) == alone
        assert len({tuple(share.fingerprint()) for share in shares}) == 1
        for share in shares:
            share.close()


def test_validation_counts_each_sample_once(tmp_path: Path) -> None:
    data = function("columns")(tmp_path, 23)
    data["validation"] = data["train"]
    shares = [open_data(tmp_path, Share(rank, 3, 1), **data) for rank in range(3)]
    seen = [number for share in shares for step in real(share.validation()) for number, _ in step]
    assert seen == list(range(23))


def test_a_decode_function_gets_the_header_and_random_numbers_in_training_alone(tmp_path: Path) -> None:
    data = write_custom(tmp_path, 5) | {"validation": "a.rec"}
    there = open_data(tmp_path, **data)
    first, second = (real(there.train(epoch, 0)) for epoch in (0, 1))
    assert {value for step in first for _, value in step}.isdisjoint(value for step in second for _, value in step)
    assert [value for step in real(there.validation()) for _, value in step] == [0.0] * 5
    assert Header(np.ones(1, np.float32), 3, 4)._fields == ("label", "id", "id2")


# ---- lengths


def write_text(folder: Path, lengths: list[int], **data: Any) -> WorkerData:
    tokens = [np.full(length, number + 1, np.int32) for number, length in enumerate(lengths)]
    pack_samples({"tokens": tokens}, list(range(len(lengths))), folder / "text.rec", overwrite=True)
    return open_data(folder, train="text.rec", inputs=TEXT, order="none", **data)


def columns_of(data: WorkerData, settings: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    sample = Sample.of(experiment(folder, inputs=TEXT, **settings).data)
    assert sample is not None
    return [sample.columns(batch.images) for batch in data.train(0, 0)]


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40), batch=st.integers(1, 9), to_batch=st.booleans())
def test_a_batch_is_filled_up_to_its_longest_or_to_a_bucket(lengths: list[int], batch: int, to_batch: bool) -> None:
    pad = {"longest": 30, "value": 7} if to_batch else {"to": [4, 16, 30], "value": 7}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = columns_of(write_text(folder, lengths, batch=batch, pad=pad), {"pad": pad}, folder)
    seen = []
    for columns in found:
        longest = max(columns["lengths"])
        width = columns["tokens"].shape[1]
        assert width == (longest if to_batch else next(bucket for bucket in (4, 16, 30) if bucket >= longest))
        for row, length in zip(columns["tokens"], columns["lengths"].tolist(), strict=True):
            assert (row[:length] == row[0]).all()
            assert (row[length:] == 7).all()
            seen.append((int(row[0]) - 1, length))
    assert set(seen) == set(enumerate(lengths))  # a last batch repeats samples at weight 0


def test_longer_samples_are_bad_or_cut(tmp_path: Path) -> None:
    pad = {"longest": 4}
    with pytest.raises(DataError, match=r"text.rec, record at byte \d+: its length is 5, and data.pad allows 4"):
        list(write_text(tmp_path, [3, 5, 4], pad=pad).train(0, 0))
    skipped = write_text(tmp_path, [3, 5, 4], pad=pad, on_bad_record="skip")
    (batch,) = skipped.train(0, 0)
    assert [each.reason for each in batch.bad] == [
        "its length is 5, and data.pad allows 4: allow more, or cut such samples (data.pad.longer: cut)"
    ]
    assert batch.weights.sum() == 2
    cut = pad | {"longer": "cut"}
    (columns,) = columns_of(write_text(tmp_path, [3, 5, 4], pad=cut), {"pad": cut}, tmp_path)
    assert columns["lengths"][:3].tolist() == [3, 4, 4]


def test_lengths_of_bad_records_do_not_divide_by_zero(tmp_path: Path) -> None:
    pad = {"longest": 4}
    data = write_text(tmp_path, [9, 2], pad=pad, on_bad_record="skip")
    (columns,) = columns_of(data, {"pad": pad}, tmp_path)
    assert columns["lengths"].min() == 1


# ---- labels


def test_labels_have_names_shapes_and_the_length_of_their_inputs(tmp_path: Path) -> None:
    rows = [{"tokens": np.arange(n, dtype=np.int32), "tag": np.arange(n) % 2, "kind": n} for n in (2, 3, 1)]
    pack_rows(rows, tmp_path / "tags.rec", inputs=["tokens"], labels=["tag", "kind"])
    labels = {"tag": {"shape": [None]}, "kind": {}}
    given: dict[str, Any] = {"train": "tags.rec", "inputs": TEXT, "labels": labels, "pad": {"longest": 5}}
    given |= {"order": "none", "label_width": 1}
    raw = experiment(tmp_path, 3, **given)
    sample = Sample.of(raw.data)
    assert sample is not None
    (batch,) = open_data(tmp_path, batch=3, **given).train(0, 0)
    tag, kind = sample.label_columns(batch.labels, sample.common_length(batch.images))
    assert tag.tolist() == [[0, 1, -1], [0, 1, 0], [0, -1, -1]]
    assert kind.tolist() == [2, 3, 1]


def test_a_label_that_is_no_class_is_refused_with_its_place(tmp_path: Path) -> None:
    name = module(tmp_path, 1500)
    with pytest.raises(
        DataError, match=rf"{name}:in_order, sample \d+: its label is 1\d\d\d, but softmax_cross_entropy"
    ):
        list(open_data(tmp_path, train=f"{name}:in_order").train(0, 0))


def test_a_sequence_of_labels_is_looked_at_whole(tmp_path: Path) -> None:
    rows = [{"tokens": np.zeros(2, np.int32), "tag": tag} for tag in ([1, 2], [3, 1000])]
    pack_rows(rows, tmp_path / "tags.rec", inputs=["tokens"], labels=["tag"])
    given: dict[str, Any] = {"train": "tags.rec", "inputs": TEXT, "pad": {"longest": 5}}
    given["labels"] = {"tag": {"shape": [None]}}
    with pytest.raises(DataError, match=r"tags.rec, record at byte \d+: its label is 1000"):
        list(open_data(tmp_path, **given).train(0, 0))


def test_boxes_of_pictures_are_labels(tmp_path: Path) -> None:
    import cv2

    png = cv2.imencode(".png", np.zeros((2, 2, 1), np.uint8))[1].tobytes()
    with RecordIOWriter(tmp_path / "boxes.rec") as writer:
        writer.write(pack([1, 0, 0, 1, 1, 2, 0, 0, 1, 1], png))
        writer.write(pack([3, 0, 0, 1, 1], png))
    given: dict[str, Any] = {"kind": "image", "train": "boxes.rec", "inputs": {}, "image_shape": [1, 2, 2]}
    given |= {"labels": {"boxes": {"shape": [None, 5]}}, "pad": {"longest": 3}, "order": "none"}
    raw = parse_experiment(
        {
            "name": "x",
            "model": {"net": "nets:ssd", "classes": 4, "loss": "nets:loss", "metric": "nets:score"},
            "training": {"global_batch_size": 2},
            "data": given,
        },
        str(tmp_path),
    )
    check(raw)
    (batch,) = WorkerData(raw, Share(0, 1, 1), stream).train(0, 0)
    sample = Sample.of(raw.data)
    assert sample is not None
    (boxes,) = sample.label_columns(batch.labels, sample.common_length(batch.images))
    assert boxes.shape == (2, 3, 5)
    assert boxes[:, :, 0].tolist() == [[1, 2, -1], [3, -1, -1]]


# ---- what is wrong


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "its payload has 0 bytes; bare arrays of data.inputs have 16"),
        (
            npy_bytes(np.zeros(3, np.int32)),
            "it has 1 arrays, where 2 are due (tokens, value), or 3 with labels (label)",
        ),
        (npy_bytes(np.zeros(4, np.int32)) + npy_bytes(np.float32(0)), "tokens is int32 [4], where int32 [3] is due"),
        (npy_bytes(np.zeros(3)) + npy_bytes(np.float32(0)), "tokens is float64 [3], where int32 [3] is due"),
        (npy_bytes(np.array([0, 0, 2**40])) + npy_bytes(np.float32(0)), "tokens has the value 1099511627776"),
        (npy_bytes(np.zeros(3, np.int32))[:-4], "an array of int32 (3,) is cut: 8 bytes are left of it"),
        (npy_bytes(np.zeros(3, np.int32)) + b"junk", "behind 140 bytes no array in the npy format begins"),
        (npy_bytes(np.zeros(3, np.int32)).replace(b"descr", b"desc\0"), "the header of an array in the npy format"),
    ],
)
def test_what_is_wrong_with_a_record_is_said_with_its_place(tmp_path: Path, payload: bytes, message: str) -> None:
    with RecordIOWriter(tmp_path / "a.rec") as writer:
        writer.write(pack(0.0, payload))
    with pytest.raises(DataError) as failed:
        list(open_data(tmp_path).train(0, 0))
    assert str(failed.value).startswith(f"{tmp_path}/a.rec, record at byte 0: ")
    assert message in str(failed.value)


def test_bad_records_are_skipped_and_too_many_end_the_run(tmp_path: Path) -> None:
    good = npy_bytes(np.zeros(3, np.int32)) + npy_bytes(np.float32(0))
    with RecordIOWriter(tmp_path / "a.rec") as writer:
        for number in range(10):
            writer.write(pack(0.0, good if number else good[:-1]))
    (batch,) = open_data(tmp_path, batch=10, on_bad_record="skip").train(0, 0)
    assert (batch.weights.sum(), len(batch.bad)) == (9, 1)
    with pytest.raises(TooManyBadRecords, match=r"record at byte 0: an array of float32 \(\) is cut"):
        list(open_data(tmp_path, batch=10, on_bad_record="skip", max_bad=0.01).train(0, 0))


def test_an_error_of_the_users_code_is_no_bad_record(tmp_path: Path) -> None:
    write_bare(tmp_path, 4)
    (tmp_path / "failing_decode.py").write_text(FAILING)
    for name, message in {
        "wrong": r"record at byte 0: data.decode failing_decode:wrong failed: KeyError: 'no'",
        "few": r"it has 0 arrays, where 2 are due .* \(data.decode failing_decode:few\)",
    }.items():
        data = {"kind": "custom", "decode": f"failing_decode:{name}", "on_bad_record": "skip", "order": "none"}
        with pytest.raises(DataError, match=message):
            list(open_data(tmp_path, **data).train(0, 0))
    with pytest.raises(DataError, match="the dataset of failing_decode:bad failed: ZeroDivisionError"):
        list(open_data(tmp_path, train="failing_decode:bad", on_bad_record="skip").train(0, 0))
    assert callable(load_decode("failing_decode:few", str(tmp_path)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "gives a int; name a function: def samples(folder)"),
        ("return np.zeros(3), np.zeros(4)", "gives arrays of different lengths (0: 3, 1: 4)"),
        ("return []", "has no samples"),
    ],
)
def test_what_a_function_gives_is_looked_at(tmp_path: Path, body: str, message: str) -> None:
    name = f"odd_samples_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(f"import numpy as np\n\n\ndef train():\n    {body}\n")
    with pytest.raises((DataError, ExperimentError)) as failed:
        samples.SampleSource.open("data.train", f"{name}:train", str(tmp_path), str(tmp_path))
    assert message in str(failed.value)


def test_random_numbers_of_the_process_go_on_as_before() -> None:
    import random

    from raymx.data.pipeline.augment import generator

    random.seed(1)
    np.random.seed(1)
    with samples.drawn_from(generator(1, 2, 3)):
        inside = random.random(), np.random.rand()
    outside = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    assert outside == (random.random(), np.random.rand())
    with samples.drawn_from(generator(1, 2, 3)):
        assert inside == (random.random(), np.random.rand())


# ---- the experiment file


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "image", "image_shape": [1, 2, 2]}, "data.inputs is ['tokens', 'value']: data.kind is image"),
        ({"inputs": {}}, "data.kind is array: the net's inputs are not known; name them, such as data.inputs"),
        ({"mean": 3}, "data.mean is 3.0: data.kind is array, which has no use for it"),
        ({"kind": "custom"}, "data.kind is custom: nothing says how a record becomes arrays; set data.decode"),
        ({"decode": "a:b"}, "data.decode is a:b: data.kind is array; set data.kind custom"),
        ({"inputs": TEXT}, "data.pad.longest is null: a shape of data.inputs or data.labels begins with null"),
        ({"pad": {"longest": 3}}, "data.pad is batch: no input and no label has a length that differs"),
        ({"labels": {"tokens": {}}}, "data.labels is tokens: data.inputs has that name too"),
        (
            {"labels": {"y": {}, "z": {}}},
            "softmax_cross_entropy: it takes one label, and data.labels has y, z",
        ),
        ({"labels": {"y": {}}, "label_width": 2}, "data.label_width is 2: data.labels is given too"),
        (
            {"kind": "custom", "decode": "a:b", "train": "a:b"},
            "data.train is a:b: a function of your own gives arrays, and data.kind is custom",
        ),
    ],
)
def test_what_does_not_go_with_the_kind_of_data_is_said(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as failed:
        check(experiment(tmp_path, **data))
    assert message in str(failed.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"inputs": {"x": {}}}, "data.inputs.x.shape is missing: it must be a list of sizes such as [32]"),
        ({"inputs": {"x": {"shape": [3], "type": "int"}}}, "data.inputs.x.type is not a key"),
        ({"inputs": {"x": {"shape": [3, None]}}}, "null, a length that differs from sample to sample, can only be"),
        ({"inputs": {"x": {"shape": [3], "dtype": "int16"}}}, 'data.inputs.x.dtype is "int16"'),
        ({"inputs": {"lengths": {"shape": []}}}, "lengths is the input that raymx makes of samples' lengths"),
        ({"pad": {"to": [8, 4]}}, "data.pad.to is [8, 4]: give lengths, each larger than the one before"),
        ({"pad": {"to": [8], "longest": 9}}, "data.pad.longest is 9: data.pad.to ends with the longest"),
    ],
)
def test_wrong_values_are_named_by_their_keys(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as failed:
        experiment(tmp_path, **data)
    assert message in str(failed.value)


def test_a_loop_of_ones_own_needs_no_data() -> None:
    raw = {"name": "x", "model": {"net": "a:b", "classes": 2}, "training": {"loop": "a:train"}}
    parsed = parse_experiment(raw, "/")
    assert problems(parsed) == []
    data = WorkerData(parsed, Share(0, 1, 1), stream)
    assert (data.plan.steps, data.fingerprint(), data.num_records) == (1, [], 0)
    with pytest.raises(DataError, match=r"data.train is not set"):
        next(data.train(0, 0))
    warm = parse_experiment({**raw, "training": {"loop": "a:train", "warmup_epochs": 1}}, "/")
    assert "without data.train the steps of an epoch are not known" in str(problems(warm)[0])


def test_functions_are_looked_for_before_a_run(tmp_path: Path) -> None:
    name = module(tmp_path, 3)
    (tmp_path / "nets.py").write_text("def mlp(classes): ...\n")
    write_npy(tmp_path, 3)
    check_files(experiment(tmp_path, train=f"{name}:columns", validation=f"{name}:in_order"))
    check_files(experiment(tmp_path, kind="custom", decode=f"{name}:decode"))
    for data in ({"train": f"{name}:nothing"}, {"kind": "custom", "decode": f"{name}:drawn"}):
        with pytest.raises(ExperimentError, match=r"does not define nothing|and raymx calls f\(header, payload, rng\)"):
            check_files(experiment(tmp_path, **data))


# ---- packing


def test_packed_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    arrays = [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(3, np.uint8), np.zeros((0, 2), np.float16)]
    back = read_npy(b"".join(map(npy_bytes, arrays)), "here")
    assert all((one == two).all() and one.dtype == two.dtype for one, two in zip(arrays, back, strict=True))
    assert [one.shape for one in back] == [(2, 3), (), (0, 2)]


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        ({"x": np.zeros((2, 3))}, [1.0], "there are x 2, labels 1"),
        ({"x": [object(), object()]}, [1, 2], "sample 0: it has a object (object), where an array of numbers is due"),
        ({"x": np.zeros(2)}, [1.0, np.nan], "sample 1: the label nan is not a finite float32 number"),
        ({"x": []}, [], "there are no samples to pack"),
    ],
)
def test_what_cannot_be_packed_is_said_and_leaves_nothing(
    tmp_path: Path, inputs: dict[str, Any], labels: Any, message: str
) -> None:
    with pytest.raises(DataError) as failed:
        pack_samples(inputs, labels, tmp_path / "a.rec")
    assert message in str(failed.value)
    assert not list(tmp_path.iterdir())


def test_files_are_written_over_when_asked_alone(tmp_path: Path) -> None:
    assert pack_samples(np.zeros((2, 3)), [0, 1], tmp_path / "a.rec") == 2
    with pytest.raises(DataError, match="exists; give overwrite=True"):
        pack_samples(np.zeros((2, 3)), [0, 1], tmp_path / "a.rec")
    assert pack_samples(np.zeros((3, 3)), [0, 1, 2], tmp_path / "a.rec", overwrite=True) == 3
    with pytest.raises(DataError, match="sample 0 has no y; it has x"):
        pack_rows([{"x": 1}], tmp_path / "b.rec", inputs=["x"], labels=["y"])
