"""RecordIO files as a Ray Dataset, and a Dataset as RecordIO files: for notebooks and for preparing data.

    dataset = raymx.read_recordio("data/train.rec")         # key, label, id, image, file, offset
    raymx.write_recordio(dataset.filter(lambda row: row["label"][0] < 5), "data/few.rec")

Training does not come this way: a worker's own stream decodes its own records (`raymx.data.pipeline.stream`).
"""

from __future__ import annotations

import logging
import operator
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import ray.data
from numpy.typing import NDArray
from ray.data import Datasink
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.exceptions import UserCodeException

from raymx import storage
from raymx.data.recordio.reading import read_payloads
from raymx.data.recordio.record import RecordIOWriter, pack, unpack
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError
from raymx.storage import Location

_log = logging.getLogger(__name__)

TASK_BYTES = 64 << 20  # of the files, a read task
BLOCK_BYTES = 16 << 20  # of the images, a block
_SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("label", pa.list_(pa.float32())),
        ("id", pa.uint64()),
        ("image", pa.large_binary()),
        ("file", pa.string()),
        ("offset", pa.int64()),
    ]
)
_PART = re.compile(r"part-\d{5,}\.(rec|idx)")  # what is written in a folder
_Locations = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # as RecordSet.locate gives them


def read_recordio(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    on_bad_record: Literal["fail", "skip"] = "fail",
) -> ray.data.Dataset:
    """The records of ``.rec`` files in file order: a file, several, a glob, a folder or a URI such as s3://bucket/x.rec.

    Columns: ``key`` (int64; from the .idx files when every file has a right one, else the record's number in its file),
    ``label`` (list of float32), ``id`` (uint64), ``image`` (the encoded image's bytes), ``file``, ``offset`` (bytes).
    Raises DataError for files that cannot be had. With ``"fail"`` a damaged record is a DataError here or, from the
    Dataset's own methods, when it is read; with ``"skip"`` it is left out and logged.
    """
    if on_bad_record not in ("fail", "skip"):
        raise DataError(f"on_bad_record is {on_bad_record!r}; allowed: 'fail', 'skip'")
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    records = RecordSet.open(listed, on_bad_record)
    for path, problem in records.problems:
        _log.warning("%s, record at byte %d: %s; skipped", path, problem.offset, problem.reason)
    source = _RecordSource(records, on_bad_record == "skip")
    dataset = ray.data.read_datasource(source, override_num_blocks=source.num_tasks)
    dataset.context.execution_options.preserve_order = True  # its own; else blocks come as they are ready
    return dataset


def write_recordio(dataset: ray.data.Dataset, path: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
    """Write the rows of a Dataset, in order, as records with an .idx file beside each; the paths of the .rec files.

    Columns: ``image`` (bytes) and ``label`` (a number or a list; a single one stands in the record's header), and
    ``id`` (0 to 2**64 - 1) and ``key`` (int64) where they are. A ``path`` that ends in .rec is one file, written by
    this process; keys must differ, and without them the .idx has the rows' numbers. Any other is a folder (local and
    shared by all nodes, or a URI), where tasks write part-00000.rec and so on, each with keys from 0.

    Raises DataError for rows that are no records, for no rows, and for files that are there already. ``overwrite``
    replaces them; of a folder, all its part-*.rec and part-*.idx and nothing else. Files appear when they are whole, a
    folder's all at the end; after an error those before are still there, but for a single file at a URI: it is lost,
    and must not be one that the dataset reads.
    """
    target = os.fspath(path)
    if not storage.is_uri(target):
        target = os.path.abspath(target)
    with _order_kept(dataset):
        return (_write_one if _cut(target)[0].endswith(".rec") else _write_folder)(dataset, target, overwrite)


# ---- reading ----


class _TaskFailed(DataError, UserCodeException):  # type: ignore[misc]  # Ray is not typed
    """A DataError that leaves a task. Ray takes any but a UserCodeException for an error of its own, to be reported."""


class _RecordSource(Datasource):  # type: ignore[misc]  # Ray is not typed
    """Read tasks over runs of neighbouring records."""

    def __init__(self, records: RecordSet, skip_bad: bool) -> None:
        super().__init__()
        self._records, self._skip_bad = records, skip_bad
        ends = np.cumsum(records.sizes)
        self._starts = np.flatnonzero(np.diff(ends // TASK_BYTES, prepend=-1))

    @property
    def num_tasks(self) -> int:
        return len(self._starts)

    def get_name(self) -> str:
        return "RecordIO"

    def estimate_inmemory_data_size(self) -> int:
        return int(self._records.sizes.sum())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        stops = [*self._starts[1:].tolist(), self._records.num_records]
        return [
            self._task(start, stop, per_task_row_limit)
            for start, stop in zip(self._starts.tolist(), stops, strict=True)
        ]

    def _task(self, start: int, stop: int, row_limit: int | None) -> ReadTask:
        # Only what this task needs travels: its own records, not the index.
        numbers = np.arange(start, stop, dtype=np.int64)
        locations, paths, skip_bad = self._records.locate(numbers), self._records.paths, self._skip_bad
        own = self._records.keys
        keys = numbers - self._records.starts[locations[0]] if own is None else own[numbers]
        # Ray answers count() with this number, without a look at the records.
        rows = None if skip_bad else stop - start
        metadata = BlockMetadata(num_rows=rows, size_bytes=int(locations[2].sum()), exec_stats=None, input_files=None)
        return ReadTask(lambda: _read_blocks(paths, keys, locations, skip_bad), metadata, _SCHEMA, row_limit)


def _read_blocks(
    paths: Sequence[str], keys: NDArray[np.int64], locations: _Locations, skip_bad: bool
) -> Iterator[pa.Table]:
    """Tables of about BLOCK_BYTES; the last one may have no rows."""
    held: list[dict[str, Any]] = []
    size = 0
    try:
        for row in _read_rows(paths, keys, locations, skip_bad):
            held.append(row)
            size += len(row["image"])
            if size >= BLOCK_BYTES:
                yield pa.Table.from_pylist(held, _SCHEMA)
                held, size = [], 0
    except DataError as error:
        raise _TaskFailed(str(error)) from None
    yield pa.Table.from_pylist(held, _SCHEMA)


def _read_rows(
    paths: Sequence[str], keys: NDArray[np.int64], locations: _Locations, skip_bad: bool
) -> Iterator[dict[str, Any]]:
    of_file, offsets, sizes = locations
    for file in np.unique(of_file).tolist():
        mine, path = of_file == file, paths[file]
        with storage.open_reader(path) as reader:
            payloads = read_payloads(reader, offsets[mine], sizes[mine])
            for key, offset, payload in zip(keys[mine].tolist(), offsets[mine].tolist(), payloads, strict=True):
                try:
                    row = _row(payload, path, offset)
                except DataError as error:
                    if not skip_bad:
                        raise
                    _log.warning("%s; skipped", error)
                else:
                    yield {"key": key, **row, "file": path, "offset": offset}


def _row(payload: bytes | memoryview | DataError, path: str, offset: int) -> dict[str, Any]:
    """What a payload holds. Raises DataError for one that stands for a damaged record, or is too short."""
    if isinstance(payload, DataError):
        raise payload
    record = unpack(payload, f"{path}, record at byte {offset}")
    # The image is copied: a view would keep a whole read in memory.
    return {"label": record.label, "id": record.id, "image": bytes(record.image)}


# ---- writing ----


def _write_one(dataset: ray.data.Dataset, path: str, overwrite: bool) -> list[str]:
    there = [file for file in (path, storage.with_suffix(path, ".idx")) if storage.exists(file)]
    if there and not overwrite:
        raise DataError(f"{there[0]} exists: choose another path, or give overwrite=True")
    with storage.errors_name(path, "written"):
        target = _target(path)
        _make_folder(Location(target.system, os.path.dirname(target.path)))
    with _task_errors():
        tables = dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        if not _write_file(tables, path, with_keys=True):
            raise _no_rows(path)
    return [path]


def _write_folder(dataset: ray.data.Dataset, folder: str, overwrite: bool) -> list[str]:
    """Tasks write in a hidden folder inside; what is whole is moved from there at the end."""
    if not overwrite and _has_records(folder):
        raise DataError(f"{folder} has .rec files already: choose another folder, or give overwrite=True")
    hidden = f".writing-{uuid.uuid4().hex[:8]}"
    with storage.errors_name(folder, "written"):
        target = _target(folder)
        _make_folder(target / hidden)
    try:
        sink = _RecordSink(_inside(folder, hidden))
        with _task_errors(hidden):
            dataset.write_datasink(sink)
        if not sink.written:
            raise _no_rows(folder)
        with storage.errors_name(folder, "written"):
            _replace_parts(target, hidden, sink.written)
    finally:
        with suppress(OSError):  # the error before is the one to tell
            (target / hidden).remove_folder()
    return [_inside(folder, name) for name in sink.written]


class _RecordSink(Datasink):  # type: ignore[misc, type-arg]  # Ray is not typed
    """A file a write task, named by the task's number; none for a task without rows."""

    def __init__(self, folder: str) -> None:
        self._folder, self.written = folder, list[str]()

    def write(self, blocks: Iterable[Any], ctx: Any) -> str:
        name = f"part-{ctx.task_idx:05d}.rec"
        tables = (BlockAccessor.for_block(block).to_arrow() for block in blocks)
        try:
            return name if _write_file(tables, _inside(self._folder, name), with_keys=False) else ""
        except DataError as error:
            raise error if isinstance(error, _TaskFailed) else _TaskFailed(str(error)) from None

    def on_write_complete(self, write_result: Any) -> None:
        self.written = sorted(filter(None, write_result.write_returns))


def _write_file(tables: Iterable[pa.Table], path: str, *, with_keys: bool) -> bool:
    """Write a .rec and its .idx, or nothing when there are no rows; whether there were any."""
    rows = _needed_rows(tables)
    first = next(rows, None)
    if first is None:
        return False
    seen = set[int]()
    with RecordIOWriter(path, storage.with_suffix(path, ".idx")) as writer:
        for number, row in enumerate(chain([first], rows)):
            key = _whole_number(row, "key", np.int64) if with_keys else None
            key = number if key is None else key
            if key in seen:
                raise DataError(
                    f"{path}: two rows have the key {key}, and in one file keys must differ; without the "
                    'column (dataset.drop_columns(["key"])) rows are numbered'
                )
            seen.add(key)
            writer.write(_payload(row), key)
    return True


def _needed_rows(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        if not table.num_rows:  # it may not even have columns
            continue
        there = table.column_names
        for name in ("image", "label"):
            if name not in there:
                raise DataError(
                    f"the dataset has no column {name}; it has {', '.join(there)}, and write_recordio "
                    "needs image (bytes) and label (a number or a list)"
                )
        yield from table.select([name for name in ("image", "label", "id", "key") if name in there]).to_pylist()


def _payload(row: dict[str, Any]) -> bytes:
    """The record of a row. Raises DataError for a row that cannot be one."""
    image, label = row["image"], row["label"]
    if not isinstance(image, bytes):
        raise DataError(f"a row's image is {_short(image)}; write_recordio needs the encoded image's bytes")
    try:
        labels = np.asarray([] if label is None else label, np.float32).ravel()
    except (TypeError, ValueError):
        labels = np.empty(0, np.float32)
    if not labels.size:
        raise DataError(f"a row's label is {_short(label)}; write_recordio needs a number or a list of them")
    single = float(labels[0]) if labels.size == 1 else labels
    return pack(single, image, id=_whole_number(row, "id", np.uint64) or 0)


def _whole_number(row: dict[str, Any], name: str, dtype: type[np.integer[Any]]) -> int | None:
    """An integer of a row that may have none. Raises DataError for other values, and for those beyond ``dtype``."""
    value, limits = row.get(name), np.iinfo(dtype)
    if value is None:
        return None
    with suppress(TypeError):
        number = operator.index(value)
        if limits.min <= number <= limits.max:
            return number
    raise DataError(f"a row's {name} is {_short(value)}; write_recordio needs an integer, {limits.min} to {limits.max}")


def _short(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"


def _no_rows(path: str) -> DataError:
    return DataError(f"{path}: the dataset has no rows, and a file needs one record or more")


# ---- folders ----


def _cut(path: str) -> tuple[str, str]:
    """(the path, without a last /; the options behind a URI, with their ?)."""
    base, mark, options = path.partition("?") if storage.is_uri(path) else (path, "", "")
    return base.rstrip("/"), mark + options


def _inside(folder: str, name: str) -> str:
    base, options = _cut(folder)
    return f"{base}/{name}{options}"


def _target(path: str) -> Location:
    target = storage.location(path)
    return Location(target.system, target.path.rstrip("/"))


def _make_folder(folder: Location) -> None:
    if folder.is_on_disk:  # others make folders with their files, or have none
        folder.make_folder()


def _has_records(folder: str) -> bool:
    try:
        return bool(storage.expand([folder]))
    except DataError:
        return False


def _replace_parts(folder: Location, hidden: str, names: Sequence[str]) -> None:
    """Move the parts of the hidden folder to ``folder``, and delete the older ones there that are left."""
    moved = {file for name in names for file in (storage.with_suffix(name, ".idx"), name)}
    for file in sorted(moved):
        (folder / hidden / file).move(folder / file)
    for name in folder.names()[1]:
        if _PART.fullmatch(name) and name not in moved:
            (folder / name).remove_file()


# ---- Ray Data's settings and errors ----


@contextmanager
def _order_kept(dataset: ray.data.Dataset) -> Iterator[None]:
    """Blocks arrive in the order of the rows, not as they are ready; afterwards the dataset is as the user made it."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before


@contextmanager
def _task_errors(hidden: str = "") -> Iterator[None]:
    """Raise a task's DataError itself, without the lines that Ray adds; paths are those that files were to get."""
    try:
        yield
    except DataError as error:
        text = str(getattr(error, "cause", None) or error).partition("\n")[0]
        raise DataError(text.replace(f"/{hidden}/", "/") if hidden else text) from None
