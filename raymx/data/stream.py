"""Ray Data: records -> decoded batches for one worker.

    records = RecordSet.open(["data/train.rec"])
    rows = [plan.worker_rows(order, step, rank) for step in range(first_step, plan.steps)]
    with contextlib.closing(batches(records, rows, image_shape=(1, 28, 28))) as stream:
        for batch in stream:
            ...

A stream is one Ray Data execution over the worker's own list of records. Its read tasks decode; one row of its blocks
is one whole batch, so no batch is ever cut or joined on its way, and the worker maps it from the object store without
a copy. Weights and counts of real rows do not travel: arithmetic knows them, and the row counts are compared.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import cv2
import numpy as np
import pyarrow as pa
import ray
import ray.data
from numpy.typing import NDArray
from ray.data import DataContext, ExecutionResources
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raymx.data.image import decode
from raymx.data.order import Rows
from raymx.data.recordio import damaged, read_payload, unpack
from raymx.data.records import RecordSet
from raymx.errors import DataError

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

_log = logging.getLogger(__name__)

# A read task covers whole batches of at least this many records and at least this many decoded bytes: starting a task
# costs about as much as decoding a hundred photographs or some thousands of 28x28 images.
TASK_RECORDS = 256
TASK_BYTES = 4 << 20
# A block is sent on when it is larger than this: small images travel a few batches at a time, photographs one.
BLOCK_BYTES = 1 << 20
# How far reading may run ahead of a slow consumer, in bytes of the object store for each CPU that reads: Ray Data's own
# limit is a part of the whole store, for every worker of a node.
AHEAD_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Batch:
    """One worker's part of one global batch, decoded. Arrays may be read-only views of the object store."""

    images: NDArray[np.uint8]  # uint8 (rows, H, W, C)
    labels: NDArray[np.float32]  # float32 (rows,), or (rows, label_width) when label_width > 1
    weights: NDArray[np.float32]  # float32 (rows,): 1 for a real row, 0 for padding
    real_local: int  # rows of this worker with weight 1
    real_global: int  # the same over all workers


def batches(
    records: RecordSet,
    rows: Iterable[Rows],
    *,
    image_shape: tuple[int, int, int],
    label_width: int = 1,
    placement_group: PlacementGroup | None = None,
    bundle_index: int = -1,
    num_cpus: float = 1,
    prefetch_batches: int = 2,
) -> Iterator[Batch]:
    """Decoded batches, one for each of ``rows`` and in that order; ``image_shape`` is (C, H, W).

    With a placement group the read tasks run in its bundle ``bundle_index`` only and use up to ``num_cpus`` CPUs of it,
    which must be free beside the worker's own; they never wait for the rest of the cluster. Without one they use
    free CPUs of the cluster.

    The result is a generator: ``close()`` ends the execution and its tasks. Raises DataError that names the file and
    the offset for a record that cannot be read or decoded or whose labels are not ``label_width`` wide.
    """
    plan = list(rows)
    if not plan:
        return
    source = _RecordDatasource(records, [part.ids for part in plan], image_shape, label_width, num_cpus)
    with _own_errors(), _quiet_context(num_cpus):
        dataset = _read(source, num_cpus, placement_group, bundle_index)
        stream = iter(dataset.iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=prefetch_batches))
    try:
        for part in plan:
            with _own_errors():
                table = next(stream, None)
            yield _batch(table, part, image_shape, label_width)
    finally:
        stream.close()


def _batch(table: pa.Table | None, part: Rows, image_shape: tuple[int, int, int], label_width: int) -> Batch:
    """Give a row of the stream back its shape and what arithmetic knows of it."""
    channels, height, width = image_shape
    count = len(part.ids)
    if table is None or table["rows"][0].as_py() != count:
        got = "the end" if table is None else f"{table['rows'][0].as_py()} rows"
        raise DataError(f"the data stream gave {got} where a batch of {count} rows was due; please report this")
    images = np.frombuffer(table["images"][0].as_buffer(), np.uint8).reshape(count, height, width, channels)
    labels = np.frombuffer(table["labels"][0].as_buffer(), np.float32)
    return Batch(
        images,
        labels if label_width == 1 else labels.reshape(count, label_width),
        part.weights,
        part.real_local,
        part.real_global,
    )


# ---- the read tasks ----


class _ReadFailed(Exception):
    """Carries a DataError out of a read task: Ray appends advice of its own to the text of what it carries."""


class _RecordDatasource(Datasource):  # type: ignore[misc]  # Ray is not typed
    """Read tasks over runs of whole batches."""

    def __init__(
        self,
        records: RecordSet,
        batch_ids: list[NDArray[np.int64]],
        image_shape: tuple[int, int, int],
        label_width: int,
        num_cpus: float,
    ) -> None:
        super().__init__()
        self._records, self._batch_ids = records, batch_ids
        self._image_shape, self._label_width = image_shape, label_width
        image_bytes = int(np.prod(image_shape))
        task_records = max(TASK_RECORDS, TASK_BYTES // image_bytes)
        run = max(1, task_records // len(batch_ids[0]))  # every batch has the same rows
        self._runs = [batch_ids[at : at + run] for at in range(0, len(batch_ids), run)]
        self._row_bytes = image_bytes + 4 * label_width

    @property
    def num_tasks(self) -> int:
        return len(self._runs)

    def get_name(self) -> str:
        return "RecordIO"

    def estimate_inmemory_data_size(self) -> int:
        return sum(len(ids) for ids in self._batch_ids) * self._row_bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        return [self._read_task(run, per_task_row_limit) for run in self._runs]

    def _read_task(self, run: list[NDArray[np.int64]], row_limit: int | None) -> ReadTask:
        # Only what this task needs travels: its own offsets, not the index.
        located = [self._records.locate(ids) for ids in run]
        paths, shape, label_width = self._records.paths, self._image_shape, self._label_width
        size = sum(len(ids) for ids in run) * self._row_bytes
        metadata = BlockMetadata(num_rows=len(run), size_bytes=size, exec_stats=None, input_files=None)
        return ReadTask(lambda: _decode_run(paths, located, shape, label_width), metadata, None, row_limit)


def _decode_run(
    paths: tuple[str, ...],
    located: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    shape: tuple[int, int, int],
    label_width: int,
) -> Iterator[pa.Table]:
    """One single-row block a batch: rows, images (uint8 bytes of (rows, H, W, C)), labels (float32 bytes)."""
    cv2.setNumThreads(1)  # this task has been given CPUs by Ray; OpenCV would take all of the machine's
    cv2.setLogLevel(0)  # what fails is raised
    with ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        for file_indexes, offsets in located:
            places = list(zip(file_indexes.tolist(), offsets.tolist(), strict=True))
            try:
                for index in set(file_indexes.tolist()) - files.keys():
                    files[index] = stack.enter_context(_open(paths[index]))
                images, labels = _decode_batch(files, places, shape, label_width)
            except DataError as error:
                raise _ReadFailed(error) from None
            yield pa.table({"rows": [len(places)], "images": _cell(images), "labels": _cell(labels)})


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read on this node ({error.strerror or error})") from error


def _decode_batch(
    files: dict[int, BinaryIO], places: list[tuple[int, int]], shape: tuple[int, int, int], label_width: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    channels, height, width = shape
    images = np.empty((len(places), height, width, channels), np.uint8)
    labels = np.empty((len(places), label_width), np.float32)
    first: dict[tuple[int, int], int] = {}  # padding repeats records: decode each once
    for row, (index, offset) in enumerate(places):
        earlier = first.setdefault((index, offset), row)
        if earlier < row:
            images[row], labels[row] = images[earlier], labels[earlier]
        else:
            images[row], labels[row] = _decode_record(files[index], offset, shape, label_width)
    return images, labels


def _decode_record(
    file: BinaryIO, offset: int, shape: tuple[int, int, int], label_width: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    where = f"{file.name}, record at byte {offset}"
    try:
        record = unpack(read_payload(file, offset), where)
    except OSError as error:
        raise damaged(file.name, offset, f"cannot be read ({error.strerror or error})") from error
    if len(record.label) != label_width:
        raise damaged(
            file.name, offset, f"it has {len(record.label)} labels; label_width is {label_width}, and both must agree"
        )
    return decode(record.image, shape, where), record.label


def _cell(array: NDArray[Any]) -> pa.Array:
    """A column of one row that holds the array's bytes, without a copy."""
    ends = np.array([0, array.nbytes], np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(array)])


# ---- Ray Data's settings ----


def _read(
    source: _RecordDatasource, num_cpus: float, placement_group: PlacementGroup | None, bundle_index: int
) -> ray.data.Dataset:
    """The only place that says where read tasks run.

    In a cluster whose CPUs are all reserved, tasks outside the worker's own bundle would wait for ever. Ray announces
    that it will drop this argument in 2.64; then the placement groups must leave CPUs free for the other branch.
    """
    options: dict[str, Any] = {"num_cpus": min(1.0, num_cpus)}
    if placement_group is None:
        if ray.available_resources().get("CPU", 0) < options["num_cpus"]:
            _log.warning("no CPU of the cluster is free: reading waits until one is")
    else:
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            placement_group, bundle_index, placement_group_capture_child_tasks=True
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the announcement above
        return ray.data.read_datasource(
            source,
            override_num_blocks=source.num_tasks,
            concurrency=max(1, int(num_cpus)),
            ray_remote_args=options,
        )


@contextmanager
def _quiet_context(num_cpus: float) -> Iterator[None]:
    """Ray Data's settings for the data sets made inside; other data sets of this process keep their own."""
    for handler in logging.getLogger("ray.data").handlers:
        if handler.name == "console":  # our errors say it; its log file in the session folder keeps everything
            handler.setLevel(logging.CRITICAL)
    context = DataContext.get_current().copy()
    context.target_max_block_size = BLOCK_BYTES
    context.execution_options.preserve_order = True
    cpus = max(1.0, num_cpus)
    context.execution_options.resource_limits = ExecutionResources(cpu=cpus, object_store_memory=AHEAD_BYTES * cpus)
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with DataContext.current(context):
        yield


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise the DataError of a read task itself, not the exceptions that Ray wraps around it."""
    try:
        yield
    except Exception as error:
        found = _data_error(error)
        if found is None:
            raise
        raise found from None


def _data_error(error: BaseException | None) -> DataError | None:
    """The DataError that a read task sent. Ray keeps a task's exception as ``cause``, Python as ``__cause__``."""
    while error is not None:
        cause = getattr(error, "cause", None)
        if isinstance(error, _ReadFailed) and cause is None:
            return DataError(*error.args[0].args)
        error = cause or error.__cause__
    return None
