"""RecordIO files as Ray Datasets and back: what is read, what is written, and what an error leaves behind."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import raymx
from raymx.data.recordio.framing import MAGIC_BYTES
from raymx.data.recordio.index import index_of
from raymx.data.recordio.record import RecordIOWriter, iter_payloads, pack, unpack
from raymx.data.tools import dataset as module
from raymx.data.tools.dataset import read_recordio, write_recordio
from raymx.errors import DataError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]
OTHERS_FILES = Path(__file__).parents[3] / "shared" / "data" / "recordio"
COLUMNS = {
    "key": pa.int64(),
    "label": pa.list_(pa.float32()),
    "id": pa.uint64(),
    "image": pa.large_binary(),
    "file": pa.string(),
    "offset": pa.int64(),
}
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def dataset_ray(data_ray: None) -> None:
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few records a read task."""
    monkeypatch.setattr(module, "TASK_BYTES", 256)


def image_of(number: int) -> bytes:
    return bytes([number % 251]) * (1 + number % 7) + b"\0"


def label_of(number: int) -> float | list[float]:
    return float(number)


def write(
    path: Path,
    numbers: Sequence[int],
    *,
    keys: Sequence[int] | None = None,
    label: Callable[[int], float | list[float]] = label_of,
) -> list[int]:
    """Records named by their numbers, with an .idx when there are ``keys``; returns their offsets."""
    with RecordIOWriter(path, path.with_suffix(".idx") if keys else None) as writer:
        return [
            writer.write(pack(label(n), image_of(n), id=n), keys[at] if keys else None) for at, n in enumerate(numbers)
        ]


def ids(rows: Sequence[Row]) -> list[int]:
    return [row["id"] for row in rows]


def read(path: object, **options: Any) -> list[Row]:
    return list(read_recordio(path, **options).take_all())  # type: ignore[arg-type]


def content(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """What must survive being written and read."""
    return [(row["id"], list(row["label"]), row["image"]) for row in rows]


def leftovers(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


# ---- the package


def test_importing_raymx_imports_nothing_large() -> None:
    code = (
        "import sys, raymx; assert 'read_recordio' in dir(raymx)\n"
        "print([name for name in ('ray', 'mxnet', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_names_of_the_package() -> None:
    assert raymx.read_recordio is read_recordio
    assert raymx.write_recordio is write_recordio
    assert set(raymx.__all__) <= set(dir(raymx))
    with pytest.raises(AttributeError, match="no attribute 'read_records'"):
        raymx.read_records  # noqa: B018


# ---- reading


def test_columns_and_rows(tmp_path: Path) -> None:
    offsets = write(tmp_path / "a.rec", range(5))
    dataset = read_recordio(tmp_path / "a.rec")
    schema = dataset.schema()
    assert dict(zip(schema.names, schema.types, strict=True)) == COLUMNS
    assert dataset.count() == 5
    assert dataset.take_all() == [
        {"key": n, "label": [n], "id": n, "image": image_of(n), "file": str(tmp_path / "a.rec"), "offset": offsets[n]}
        for n in range(5)
    ]


def test_rows_are_those_of_mxnet() -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    paths = sorted(OTHERS_FILES.rglob("*.rec"))
    if not paths:
        pytest.skip("no files by other writers here")
    rows = iter(read(paths))
    for path in paths:
        reader = recordio.MXRecordIO(str(path), "r")
        while (payload := reader.read()) is not None:
            header, image = recordio.unpack(payload)
            row = next(rows)
            assert (row["file"], row["id"], row["image"]) == (str(path), header.id, image)
            np.testing.assert_array_equal(np.array(row["label"], np.float32), np.ravel(header.label))
    assert next(rows, None) is None


@pytest.mark.parametrize(
    ("paths", "numbers"),
    [
        ("a.rec", range(30)),
        (["b.rec", "a.rec"], [*range(30, 50), *range(30)]),
        ("*.rec", range(50)),
        ("", range(50)),
        ("file://a.rec", range(30)),
        ("file://", range(50)),
        (["file://b.rec", "a.rec"], [*range(30, 50), *range(30)]),
    ],
)
def test_what_paths_stand_for(
    tmp_path: Path, small_tasks: None, paths: str | list[str], numbers: Sequence[int]
) -> None:
    write(tmp_path / "a.rec", range(30))
    write(tmp_path / "b.rec", range(30, 50))

    def whole(path: str) -> str:
        name = path.removeprefix("file://")
        return f"file://{tmp_path}/{name}" if path.startswith("file://") else str(tmp_path / name)

    rows = read([whole(path) for path in paths] if isinstance(paths, list) else whole(paths))
    assert ids(rows) == list(numbers)
    assert [row["key"] for row in rows] == [n % 30 for n in numbers]  # in their own file


def test_many_tasks_keep_the_order(tmp_path: Path, small_tasks: None) -> None:
    write(tmp_path / "a.rec", range(60))
    dataset = read_recordio(tmp_path / "a.rec")

    def late(row: Row) -> Row:
        time.sleep(1.5 if row["id"] == 0 else 0)  # long enough for Ray to give the other tasks to other processes
        return row

    assert dataset.materialize().num_blocks() > 5
    assert ids(dataset.map(late).take_all()) == list(range(60))
    assert ids(dataset.limit(7).take_all()) == list(range(7))
    assert not ray.data.DataContext.get_current().execution_options.preserve_order  # other datasets keep theirs


def test_a_task_gives_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 20)
    write(tmp_path / "a.rec", range(20))
    (task,) = read_recordio(tmp_path / "a.rec")._logical_plan.dag.datasource.get_read_tasks(1)
    tables = list(task())
    assert len(tables) > 3
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(20))


def test_keys_of_the_index(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", range(3), keys=[70, 5, 9])
    write(tmp_path / "b.rec", range(3))
    assert [row["key"] for row in read(tmp_path / "a.rec")] == [70, 5, 9]
    assert [row["key"] for row in read([tmp_path / "a.rec", tmp_path / "b.rec"])] == [0, 1, 2] * 2  # not all have keys


def test_wide_labels_and_single_ones(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", range(4), label=lambda n: [n, 0.5, -n][:n] if n else 7)
    assert [row["label"] for row in read(tmp_path / "a.rec")] == [[7], [1], [2, 0.5], [3, 0.5, -3]]


def test_records_of_several_parts(tmp_path: Path) -> None:
    image = b"ab" + MAGIC_BYTES * 3 + b"c"
    with RecordIOWriter(tmp_path / "a.rec") as writer:
        for pad in range(4):
            writer.write(pack(0, bytes(pad) + image))
    assert [row["image"] for row in read(tmp_path / "a.rec")] == [bytes(pad) + image for pad in range(4)]


def test_large_ids(tmp_path: Path, small_tasks: None) -> None:
    numbers = [0, 2**63 + 3, 2**64 - 1, 5]
    write(tmp_path / "a.rec", numbers)
    dataset = read_recordio(tmp_path / "a.rec")
    assert ids(dataset.take_all()) == numbers
    write_recordio(dataset, tmp_path / "b.rec")
    write_recordio(dataset.map(lambda row: row), tmp_path / "c.rec")  # Ray makes Python objects of such a column
    assert ids(read(tmp_path / "b.rec")) == ids(read(tmp_path / "c.rec")) == numbers


@pytest.mark.parametrize("value", ["ignore", None])
def test_wrong_on_bad_record(tmp_path: Path, value: Any) -> None:
    with pytest.raises(DataError, match=r"on_bad_record is .*; allowed: 'fail', 'skip'"):
        read_recordio(tmp_path, on_bad_record=value)


def test_missing_file(tmp_path: Path) -> None:
    write(tmp_path / "train.rec", range(2))
    with pytest.raises(DataError, match=r"trian\.rec does not exist; .* has train\.rec"):
        read_recordio(tmp_path / "trian.rec")


def damage(path: Path, how: str) -> int:
    """20 records, of which number 12 has no magic, or is too short to be one of an image; returns its offset."""
    with RecordIOWriter(path, path.with_suffix(".idx")) as writer:
        offsets = [
            writer.write(b"short" if (n, how) == (12, "short") else pack(float(n), image_of(n), id=n))
            for n in range(20)
        ]
    if how == "magic":
        data = path.read_bytes()
        path.write_bytes(data[: offsets[12]] + b"junk" + data[offsets[12] + 4 :])
    return offsets[12]


def test_damage_is_met_when_the_files_are_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offset = damage(tmp_path / "a.rec", "magic")
    with pytest.raises(DataError, match=rf"a\.rec, record at byte {offset}: "):
        read_recordio(tmp_path / "a.rec")
    with caplog.at_level(logging.WARNING):
        rows = read(tmp_path / "a.rec", on_bad_record="skip")
    assert ids(rows) == [n for n in range(20) if n != 12]
    assert f"a.rec, record at byte {offset}: " in caplog.text


@pytest.mark.parametrize("consume", ["take_all", "materialize", "iter_batches", "filter", "write_parquet"])
def test_damage_is_met_when_a_record_is_read(tmp_path: Path, small_tasks: None, consume: str) -> None:
    """Ray's own methods raise something that is a DataError too, and has its text."""
    offset = damage(tmp_path / "a.rec", "short")
    dataset = read_recordio(tmp_path / "a.rec")
    use: dict[str, Callable[[], object]] = {
        "take_all": dataset.take_all,
        "materialize": dataset.materialize,
        "iter_batches": lambda: list(dataset.iter_batches()),
        "filter": lambda: dataset.filter(lambda row: row["id"] > 3).take_all(),
        "write_parquet": lambda: dataset.write_parquet(str(tmp_path / "parquet")),
    }
    with pytest.raises(DataError, match=rf"a\.rec, record at byte {offset}: 5 bytes, but the record header") as caught:
        use[consume]()
    assert "UserCodeException" in str(type(caught.value).__mro__)  # Ray does not ask for a report to its developers


def test_bad_records_are_skipped_when_they_are_read(tmp_path: Path, small_tasks: None) -> None:
    damage(tmp_path / "a.rec", "short")
    dataset = read_recordio(tmp_path / "a.rec", on_bad_record="skip")
    assert ids(dataset.take_all()) == [n for n in range(20) if n != 12]
    assert dataset.count() == 19


def test_a_task_may_have_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", range(3))
    with RecordIOWriter(tmp_path / "b.rec") as writer:
        writer.write(b"short")
    assert ids(read([tmp_path / "b.rec", tmp_path / "a.rec"], on_bad_record="skip")) == [0, 1, 2]
    dataset = read_recordio(tmp_path / "b.rec", on_bad_record="skip")
    assert (dataset.count(), dataset.take_all()) == (0, [])


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", range(3))
    dataset = read_recordio(tmp_path / "a.rec", on_bad_record="skip")
    (tmp_path / "a.rec").unlink()
    with pytest.raises(DataError, match=r"a\.rec: cannot be read on this node \(No such file"):
        dataset.take_all()


# ---- writing one file


@pytest.mark.parametrize(("scheme", "options"), [("", ""), ("file://", ""), ("file://", "?use_mmap=false")])
def test_one_file(tmp_path: Path, small_tasks: None, scheme: str, options: str) -> None:
    write(tmp_path / "a.rec", range(60), keys=[1000 - n for n in range(60)])
    path = f"{scheme}{tmp_path}/new/b.rec{options}"
    assert write_recordio(read_recordio(tmp_path / "a.rec"), path) == [path]
    assert leftovers(tmp_path / "new") == ["b.idx", "b.rec"]
    rows = read(path)
    assert content(rows) == content(read(tmp_path / "a.rec"))
    assert [row["key"] for row in rows] == [1000 - n for n in range(60)]
    # A single label stands in the header as before, so that the files are the same bytes.
    assert (tmp_path / "new/b.rec").read_bytes() == (tmp_path / "a.rec").read_bytes()


def test_order_of_a_dataset_from_elsewhere(tmp_path: Path) -> None:
    def late(row: Row) -> Row:
        time.sleep(0.3 if row["id"] == 0 else 0)
        return {"id": row["id"], "label": row["id"], "image": image_of(row["id"])}

    dataset = ray.data.range(40, override_num_blocks=8).rename_columns({"id": "id"}).map(late)
    write_recordio(dataset, tmp_path / "a.rec")
    write_recordio(dataset, tmp_path / "parts")
    assert not dataset.context.execution_options.preserve_order
    rows = read(tmp_path / "a.rec")
    assert ids(rows) == [row["key"] for row in rows] == list(range(40))
    assert ids(read(tmp_path / "parts")) == list(range(40))


def test_read_filter_write_read(tmp_path: Path, small_tasks: None) -> None:
    write(tmp_path / "a.rec", range(40), label=lambda n: [n, 0.1] if n % 2 else n)
    dataset = read_recordio(tmp_path / "a.rec").filter(lambda row: row["label"][0] % 3 == 0)
    wanted = [row for row in read(tmp_path / "a.rec") if row["id"] % 3 == 0]
    for path in (tmp_path / "one.rec", tmp_path / "parts"):
        write_recordio(dataset, path)
        assert content(read(path)) == content(wanted)


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_batches_of_any_format(tmp_path: Path, batch_format: str) -> None:
    write(tmp_path / "a.rec", range(10), label=lambda n: [n, -n, n])
    dataset = read_recordio(tmp_path / "a.rec").map_batches(lambda batch: batch, batch_format=batch_format)
    write_recordio(dataset, tmp_path / "b.rec")
    assert content(read(tmp_path / "b.rec")) == content(read(tmp_path / "a.rec"))


def test_mxnet_reads_what_is_written(tmp_path: Path) -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    rows = [
        {"image": MAGIC_BYTES + bytes([n]), "label": [n, 0.5] if n % 2 else [n], "id": n, "key": 2 * n}
        for n in range(10)
    ]
    write_recordio(ray.data.from_items(rows), tmp_path / "a.rec")
    reader = recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "r")
    assert reader.keys == [2 * n for n in range(10)]
    for row in rows:
        header, image = recordio.unpack(reader.read_idx(row["key"]))
        assert (header.id, image) == (row["id"], row["image"])
        assert np.ndim(header.label) == (len(row["label"]) > 1)
        np.testing.assert_array_equal(np.ravel(header.label), row["label"])


def test_existing_files_are_refused(tmp_path: Path) -> None:
    dataset = ray.data.from_items([{"image": b"x", "label": 1}])
    write(tmp_path / "a.rec", range(3))
    (tmp_path / "b.idx").write_text("mine")
    before = (tmp_path / "a.rec").read_bytes()
    for path in (tmp_path / "a.rec", f"file://{tmp_path}/a.rec", tmp_path / "b.rec"):
        with pytest.raises(DataError, match=r"(a\.rec|b\.idx) exists: .* overwrite=True"):
            write_recordio(dataset, path)
    with pytest.raises(DataError, match=r"has \.rec files already: .* overwrite=True"):
        write_recordio(dataset, tmp_path)
    assert (tmp_path / "a.rec").read_bytes() == before
    assert leftovers(tmp_path) == ["a.rec", "b.idx"]
    for path in (tmp_path / "a.rec", f"file://{tmp_path}/a.rec", tmp_path / "b.rec"):
        write_recordio(dataset, path, overwrite=True)
    assert [row["image"] for row in read([tmp_path / "a.rec", tmp_path / "b.rec"])] == [b"x"] * 2


def test_a_file_is_replaced_by_what_is_read_from_it(tmp_path: Path, small_tasks: None) -> None:
    write(tmp_path / "a.rec", range(40))
    write_recordio(
        read_recordio(tmp_path / "a.rec").filter(lambda row: row["id"] > 9), tmp_path / "a.rec", overwrite=True
    )
    assert ids(read(tmp_path / "a.rec")) == list(range(10, 40))


BAD_ROWS: list[tuple[Row, str]] = [
    ({"image": b"x"}, "the dataset has no column label; it has image, and write_recordio needs"),
    ({"label": 1, "photo": b"x"}, "no column image; it has label, photo"),
    ({"image": "x", "label": 1}, "image is str 'x'; .* bytes"),
    ({"image": 5, "label": 1}, "image is int '5'"),
    ({"image": np.zeros((2, 2)), "label": 1}, "image is ndarray"),
    ({"image": b"x", "label": "cat"}, "label is str 'cat'; .* a number or a list"),
    ({"image": b"x", "label": []}, r"label is list '\[\]'"),
    ({"image": b"x", "label": None}, "label is NoneType"),
    ({"image": b"x", "label": 1, "id": -1}, "id is int '-1'; .* 0 to 18446744073709551615"),
    ({"image": b"x", "label": 1, "id": 1.5}, "id is float '1.5'; .* an integer"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_rows_that_are_no_records(tmp_path: Path, row: Row, message: str) -> None:
    dataset = ray.data.from_items([row])
    for path in (tmp_path / "a.rec", tmp_path / "parts"):
        with pytest.raises(DataError, match=message) as caught:
            write_recordio(dataset, path)
        assert type(caught.value) is DataError
        assert "\n" not in str(caught.value)
    assert leftovers(tmp_path) == ["parts"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([3, 4, 3], r"a\.rec: two rows have the key 3, .*drop_columns"),
        ([2**63, 1], "key is int '9223372036854775808'"),
    ],
)
def test_keys_that_cannot_be(tmp_path: Path, keys: list[int], message: str) -> None:
    dataset = ray.data.from_items([{"image": b"x", "label": 1, "key": key} for key in keys])
    with pytest.raises(DataError, match=message):
        write_recordio(dataset, tmp_path / "a.rec")
    assert leftovers(tmp_path) == []
    write_recordio(dataset.drop_columns(["key"]), tmp_path / "a.rec")
    assert index_of(str(tmp_path / "a.rec")).keys.tolist() == list(range(len(keys)))  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["a.rec", "parts"])
def test_no_rows_no_file(tmp_path: Path, name: str) -> None:
    write(tmp_path / "source.rec", range(3))
    dataset = read_recordio(tmp_path / "source.rec").filter(lambda row: False)
    for path in (tmp_path / "new" / name, f"file://{tmp_path}/new/{name}"):
        with pytest.raises(DataError, match=rf"new/{name}: the dataset has no rows"):
            write_recordio(dataset, path)
    assert not list((tmp_path / "new").rglob("*.*"))


# ---- writing a folder


@pytest.mark.parametrize(("scheme", "options"), [("", ""), ("file://", ""), ("file://", "?use_mmap=false")])
def test_folder(tmp_path: Path, small_tasks: None, scheme: str, options: str) -> None:
    write(tmp_path / "a.rec", range(60), keys=[1000 - n for n in range(60)])
    folder = f"{scheme}{tmp_path}/new/parts"
    # A block without any row makes no file, which could not be read.
    dataset = read_recordio(tmp_path / "a.rec").filter(lambda row: not 10 < row["id"] < 40)
    paths = write_recordio(dataset, f"{folder}/{options}")
    names = [path.rpartition("/")[2].removesuffix(options) for path in paths]
    assert paths == [f"{folder}/{name}{options}" for name in names]
    assert len(names) > 3
    assert leftovers(tmp_path / "new/parts") == sorted(names + [name.replace(".rec", ".idx") for name in names])
    rows = read(folder + options)
    assert content(rows) == [(n, [n], image_of(n)) for n in (*range(11), *range(40, 60))]
    for path in paths:
        keys = index_of(path).keys
        assert keys is not None
        assert keys.tolist() == list(range(len(keys)))


def test_a_folder_is_replaced_by_what_is_read_from_it(tmp_path: Path, small_tasks: None) -> None:
    write(tmp_path / "a.rec", range(60))
    folder = tmp_path / "parts"
    many = write_recordio(read_recordio(tmp_path / "a.rec"), folder)
    write(folder / "mine.rec", [7])
    with pytest.raises(DataError, match=r"has \.rec files already"):
        write_recordio(read_recordio(folder / "part-*.rec"), folder)
    few = write_recordio(read_recordio(folder / "part-*.rec").limit(12), folder, overwrite=True)
    assert 0 < len(few) < len(many)
    assert ids(read(folder / "part-*.rec")) == list(range(12))
    assert sorted(path.name for path in folder.glob("*.rec")) == ["mine.rec", *(Path(path).name for path in few)]
    assert len(list(folder.glob("part-*.idx"))) == len(few)


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("where", ["a row", "a record", "the user's code"])
def test_an_error_leaves_a_folder_as_it_was(tmp_path: Path, small_tasks: None, scheme: str, where: str) -> None:
    """Some tasks have written their parts when another one fails."""
    folder = tmp_path / "parts"
    write(tmp_path / "good.rec", range(60))
    write_recordio(read_recordio(tmp_path / "good.rec"), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if where == "a record":
        offset = damage(tmp_path / "a.rec", "short")
        dataset, message = read_recordio(tmp_path / "a.rec"), rf"^\S+a\.rec, record at byte {offset}: 5 bytes, but"
    else:

        def spoil(row: Row) -> Row:
            if where == "a row":
                return {**row, "image": None if row["id"] == 50 else row["image"]}
            return {**row, "label": 1 / (row["id"] - 50)}

        dataset, message = read_recordio(tmp_path / "good.rec").map(spoil), "image is NoneType|ZeroDivisionError"
    with pytest.raises(Exception, match=message) as caught:
        write_recordio(dataset, f"{scheme}{folder}", overwrite=True)
    if where != "the user's code":
        assert type(caught.value) is DataError
        assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("where", ["a row", "a record"])
def test_an_error_leaves_a_file_as_it_was(tmp_path: Path, small_tasks: None, where: str) -> None:
    write(tmp_path / "a.rec", range(60), keys=range(60))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if where == "a record":
        (tmp_path / "source").mkdir()
        damage(tmp_path / "source/b.rec", "short")
        dataset = read_recordio(tmp_path / "source/b.rec")
    else:
        dataset = read_recordio(tmp_path / "a.rec").map(
            lambda row: {**row, "label": None if row["id"] == 50 else row["label"]}
        )
    for path in (tmp_path / "a.rec", tmp_path / "new.rec", f"file://{tmp_path}/new.rec"):
        with pytest.raises(DataError, match=r"b\.rec, record at byte|label is NoneType"):
            write_recordio(dataset, path, overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_places_that_cannot_be_written(tmp_path: Path, scheme: str) -> None:
    dataset = ray.data.from_items([{"image": b"x", "label": 1}])
    (tmp_path / "file").touch()
    for name in ("file/a.rec", "file/parts"):
        with pytest.raises(DataError, match=f"{name}: cannot be written on this node"):
            write_recordio(dataset, f"{scheme}{tmp_path}/{name}")
    assert leftovers(tmp_path) == ["file"]


def test_errors_of_tasks_name_the_final_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder for unfinished parts is not there on the node of the task, as without a shared disk."""
    monkeypatch.setattr(module, "_make_folder", lambda place: None)
    dataset = ray.data.from_items([{"image": b"x", "label": 1}])
    with pytest.raises(DataError, match=rf"^{tmp_path}/parts/part-00000\.idx: cannot be written on this node \(No su"):
        write_recordio(dataset, tmp_path / "parts")


def test_numbers_as_labels_and_no_id(tmp_path: Path) -> None:
    labels = [3, 2.5, True, [1], np.float32(7)]
    rows = [{"image": b"x", "label": float(np.ravel(label)[0])} for label in labels]
    write_recordio(ray.data.from_items(rows), tmp_path / "a.rec")
    records = [unpack(payload) for payload in iter_payloads(str(tmp_path / "a.rec"))]
    assert [(record.flag, record.label.tolist(), record.id) for record in records] == [
        (0, [label], 0) for label in (3, 2.5, 1, 1, 7)
    ]
