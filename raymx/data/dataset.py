"""RecordIO files as a Ray Dataset, and a Dataset as RecordIO files: for notebooks and for preparing data.

    dataset = raymx.read_recordio("data/train.rec")         # key, label, id, image, file, offset
    raymx.write_recordio(dataset.filter(lambda row: row["label"][0] < 5), "data/few.rec")

Training does not come this way: a worker's own stream decodes its own records (`raymx.data.stream`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import ray.data
from ray.data import Datasink
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from raymx.data import files
from raymx.data.reading import read_payloads
from raymx.data.recordio import Record, RecordIOWriter, pack, unpack
from raymx.data.records import RecordSet
from raymx.errors import DataError

_log = logging.getLogger(__name__)

TASK_BYTES = 64 << 20  # of the files, a read task
BLOCK_BYTES = 16 << 20
_SCHEMA = pa.schema([
    ("key", pa.int64()), ("label", pa.list_(pa.float32())), ("id", pa.uint64()), ("image", pa.large_binary()),
    ("file", pa.string()), ("offset", pa.int64()),
])


def read_recordio(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    on_bad_record: Literal["fail", "skip"] = "fail",
) -> ray.data.Dataset:
    """The records of ``.rec`` files in file order: a file, several, a glob, a folder or a URI such as s3://bucket/x.rec.

    Columns: ``key`` (int64; the .idx file's, else the record's number in its file), ``label`` (list of float32),
    ``id`` (uint64), ``image`` (the encoded image's bytes), ``file``, ``offset`` (bytes). Raises DataError for
    files that cannot be had; a damaged record raises it when it is read, or is left out and logged with
    ``on_bad_record="skip"``.
    """
    if on_bad_record not in ("fail", "skip"):
        raise DataError(f"on_bad_record is {on_bad_record!r}; allowed: 'fail', 'skip'")
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    records = RecordSet.open(listed, on_bad_record)
    for path, problem in records.problems:
        _log.warning("%s, record at byte %d: %s; skipped", path, problem.offset, problem.reason)
    source = _RecordSource(records, on_bad_record == "skip")
    return ray.data.read_datasource(source, override_num_blocks=source.num_tasks)


def write_recordio(
    dataset: ray.data.Dataset, path: str | os.PathLike[str], *, overwrite: bool = False
) -> list[str]:
    """Write the rows of a Dataset as records with an .idx file beside each; the paths of the .rec files.

    It takes the columns ``image`` (bytes) and ``label`` (a number or a list), and ``id`` and ``key`` where they are. A
    ``path`` that ends in .rec is one file, written here in the order of the rows, and keys must differ. Any other is a
    folder (local, shared by all nodes, or a URI), where each block's task writes part-00000.rec and so on, with running
    keys. Raises DataError when there are such files already, unless ``overwrite``.
    """
    target = os.fspath(path)
    if not files.is_uri(target):
        target = os.path.abspath(target)
    if target.endswith(".rec"):
        if files.exists(target) and not overwrite:
            raise DataError(f"{target} exists: choose another path, or give overwrite=True")
        _write_file(dataset.iter_batches(batch_size=None, batch_format="pyarrow"), target)
        return [target]
    sink = _RecordSink(target, overwrite)
    dataset.write_datasink(sink)
    return sink.written


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
        return [self._task(start, stop, per_task_row_limit)
                for start, stop in zip(self._starts.tolist(), stops, strict=True)]

    def _task(self, start: int, stop: int, row_limit: int | None) -> ReadTask:
        ids = np.arange(start, stop, dtype=np.int64)
        places, paths, skip_bad = self._records.locate(ids), self._records.paths, self._skip_bad
        keys = ids - self._records.starts[places[0]] if self._records.keys is None else self._records.keys[ids]
        size = int(places[2].sum())
        metadata = BlockMetadata(num_rows=stop - start, size_bytes=size, exec_stats=None, input_files=None)
        return ReadTask(lambda: _read_rows(paths, keys, places, skip_bad), metadata, _SCHEMA, row_limit)


def _read_rows(paths: Sequence[str], keys: Any, places: Any, skip_bad: bool) -> Iterator[pa.Table]:
    """Tables of about BLOCK_BYTES."""
    held: list[tuple[int, Record, str, int]] = []
    size = 0
    for key, record, path, offset in _records_of(paths, keys, places, skip_bad):
        held.append((key, record, path, offset))
        size += len(record.image)
        if size >= BLOCK_BYTES:
            yield _table(held)
            held, size = [], 0
    yield _table(held)


def _records_of(
    paths: Sequence[str], keys: Any, places: Any, skip_bad: bool
) -> Iterator[tuple[int, Record, str, int]]:
    of_file, offsets, sizes = places
    for file in np.unique(of_file).tolist():
        mine = of_file == file
        with files.open_reader(paths[file]) as reader:
            payloads = read_payloads(reader, offsets[mine], sizes[mine], BLOCK_BYTES)
            for key, offset, payload in zip(keys[mine].tolist(), offsets[mine].tolist(), payloads, strict=True):
                try:
                    if isinstance(payload, DataError):
                        raise payload
                    yield key, unpack(payload, f"{paths[file]}, record at byte {offset}"), paths[file], offset
                except DataError as error:
                    if not skip_bad:
                        raise
                    _log.warning("%s; skipped", error)


def _table(rows: list[tuple[int, Record, str, int]]) -> pa.Table:
    keys, records, paths, offsets = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = [keys, [record.label for record in records], [record.id for record in records],
               [bytes(record.image) for record in records], paths, offsets]
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)],
                    schema=_SCHEMA)


class _RecordSink(Datasink):  # type: ignore[misc, type-arg]  # Ray is not typed
    """A file a write task."""

    def __init__(self, folder: str, overwrite: bool) -> None:
        self._folder, self.written = folder, list[str]()
        if not overwrite and _has_records(folder):
            raise DataError(f"{folder} has .rec files already: choose another folder, or give overwrite=True")

    def write(self, blocks: Iterable[Any], ctx: Any) -> str:
        path = f"{self._folder.rstrip('/')}/part-{ctx.task_idx:05d}.rec"
        _write_file((BlockAccessor.for_block(block).to_arrow() for block in blocks), path, with_keys=False)
        return path

    def on_write_complete(self, write_result: Any) -> None:
        self.written = sorted(write_result.write_returns)


def _has_records(folder: str) -> bool:
    try:
        return bool(files.expand([folder]))
    except DataError:
        return False


def _write_file(tables: Iterable[pa.Table], path: str, *, with_keys: bool = True) -> None:
    if not files.is_uri(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with RecordIOWriter(path, path.removesuffix(".rec") + ".idx") as writer:
        for table in tables:
            missing = [name for name in ("image", "label") if name not in table.column_names]
            if missing:
                raise DataError(f"the dataset has no column {missing[0]}; it has {', '.join(table.column_names)}, and "
                                "write_recordio needs image (bytes) and label (a number or a list)")
            for row in table.to_pylist():
                key = row.get("key") if with_keys else None
                writer.write(pack(row["label"], bytes(row["image"]), id=int(row.get("id") or 0)), key=key)
