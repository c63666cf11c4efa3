"""Ray Data: records -> decoded batches for one worker.

    records = RecordSet.open(["data/train.rec"])
    rows = [plan.worker_rows(order, start, rank) for start in plan.starts(first_record)]
    with contextlib.closing(batches(records, rows, Decoding(Pixels((1, 28, 28))))) as stream:
        for batch in stream:
            ...

A stream is one Ray Data execution over the worker's own list of records. Its read tasks decode; one row of its blocks
is one whole batch, so no batch is ever cut or joined on its way, and the worker maps it from the object store without
a copy. Weights and counts of real rows do not travel: arithmetic knows them, and the row counts are compared.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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

from raymx._ray import ask_for_no_nodes, execution_callback, let_tasks_run_ahead, object_store_bytes
from raymx.data.pipeline import store_use
from raymx.data.pipeline.batch import TASKS, Batch
from raymx.data.pipeline.decoding import (
    BadRecord,
    Decoded,
    Decoding,
    RecordLocations,
    TransformFailed,
    decode_batches,
    task_batches,
    tasks_in_flight,
)
from raymx.data.pipeline.order import Rows
from raymx.data.pipeline.source import Source
from raymx.errors import DataError

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

_log = logging.getLogger(__name__)

# A block is sent on when it is larger than this: small images travel a few batches at a time, photographs one.
BLOCK_BYTES = 1 << 20
# How far reading may run ahead of a slow consumer, in bytes of the object store for each CPU that reads: Ray Data's own
# limit is a part of the whole store, for every worker of a node.
AHEAD_BYTES = 64 << 20

# The most of a core that Ray Data's loop may take while it has nothing to do but look, and its longest rest.
LOOP_SHARE = 0.05
LONGEST_REST_S = 0.1

_context_lock = threading.Lock()  # Ray Data's current context is one for all threads


def batches(
    records: Source,
    rows: Iterable[Rows],
    decoding: Decoding,
    *,
    placement_group: PlacementGroup | None = None,
    bundle_index: int = -1,
    num_cpus: float = 1,
) -> Generator[Batch, None, None]:
    """Decoded batches, one for each of ``rows`` and in that order.

    With a placement group the read tasks run in its bundle ``bundle_index`` only and use up to ``num_cpus`` CPUs of it,
    which must be free beside the worker's own; they never wait for the rest of the cluster. Without one they use
    free CPUs of the cluster.

    The result is a generator: ``close()`` ends the execution and its tasks. Raises DataError that names the file and
    the offset for a record that cannot be read or decoded or whose labels are not ``label_width`` wide.
    """
    plan = list(rows)
    if not plan:
        return
    source = RecordDatasource(records, plan, decoding)
    strategy = _own_bundle(placement_group, bundle_index)
    with _own_errors(), _quiet_context(num_cpus, strategy):
        dataset = _read(source, num_cpus, strategy)
        # Blocks are on this node already. To prefetch two would hold the first batch back until the third is there.
        blocks = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
    rows_read = _rows_of(blocks)
    try:
        for planned in plan:
            with _own_errors():
                row = next(rows_read, None)
            yield _batch(row, planned, decoding)
    finally:
        blocks.close()


def _rows_of(blocks: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Each row, a whole batch of images, by itself."""
    for block in blocks:
        for piece in block.to_batches():
            yield from (piece.slice(row, 1) for row in range(piece.num_rows))


def _batch(row: pa.RecordBatch | None, planned: Rows, decoding: Decoding) -> Batch:
    """Give a row of the stream back its shape and what arithmetic knows of it."""
    count = len(planned.ids)
    if row is None or row["rows"][0].as_py() != count:
        got = "the end" if row is None else f"{row['rows'][0].as_py()} rows"
        raise DataError(f"the data stream gave {got} where a batch of {count} rows was due; please report this")
    images, labels, mirror, usable = (
        np.frombuffer(_bytes_of(row[name]), dtype) for name, dtype in _arrays(decoding).items()
    )
    bad = [BadRecord(**record) for record in json.loads(row["bad"][0].as_py())]
    spent, began = json.loads(row["spent"][0].as_py())
    decoded = Decoded(
        images.reshape(count, *decoding.image_shape), labels.reshape(count, -1), mirror, usable, bad, spent, began
    )
    return Batch.of(decoded, planned, TASKS)


def _arrays(decoding: Decoding) -> dict[str, Any]:
    """The columns that hold arrays, with their types."""
    return {"images": decoding.image_dtype, "labels": np.float32, "mirror": np.uint8, "usable": np.uint8}


def _bytes_of(cell: pa.Array) -> pa.Buffer:
    """The bytes of a column of one row where they are; ``cell[0].as_buffer()`` would copy them."""
    _, ends, data = cell.buffers()
    start, stop = np.frombuffer(ends, np.int64)[cell.offset : cell.offset + 2].tolist()
    return data.slice(start, stop - start)


# ---- the read tasks ----


class _ReadFailed(Exception):
    """Carries a DataError out of a read task: Ray appends advice of its own to the text of what it carries."""


class RecordDatasource(Datasource):  # type: ignore[misc]  # Ray is not typed
    """Read tasks over runs of whole batches."""

    def __init__(self, records: Source, plan: list[Rows], decoding: Decoding) -> None:
        super().__init__()
        self._records, self._plan, self._decoding = records, plan, decoding
        run = task_batches(len(plan[0].ids), decoding.row_bytes)  # every batch has the same rows
        self._runs = [plan[at : at + run] for at in range(0, len(plan), run)]

    @property
    def num_tasks(self) -> int:
        return len(self._runs)

    def get_name(self) -> str:
        return "RecordIO"

    def estimate_inmemory_data_size(self) -> int:
        return sum(len(rows.ids) for rows in self._plan) * self._decoding.row_bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        return [self._read_task(run, per_task_row_limit) for run in self._runs]

    def _read_task(self, run: list[Rows], row_limit: int | None) -> ReadTask:
        # Only what this task needs travels: its own offsets, not the index.
        locations = [RecordLocations(rows.ids, *self._records.locate(rows.ids), rows.epoch) for rows in run]
        paths, decoding = self._records.paths, self._decoding
        size = sum(len(rows.ids) for rows in run) * decoding.row_bytes
        metadata = BlockMetadata(num_rows=len(run), size_bytes=size, exec_stats=None, input_files=None)
        return ReadTask(lambda: _decode_run(paths, locations, decoding), metadata, None, row_limit)


def _decode_run(paths: tuple[str, ...], locations: list[RecordLocations], decoding: Decoding) -> Iterator[pa.Table]:
    """One single-row block a batch: its rows, the bytes of its arrays, its bad records and seconds as JSON."""
    cv2.setNumThreads(1)  # this task has been given CPUs by Ray; OpenCV would take all of the machine's
    cv2.setLogLevel(0)  # what fails is raised
    try:
        for batch in decode_batches(paths, locations, decoding):
            arrays = {name: getattr(batch, name) for name in _arrays(decoding)}
            yield pa.table(
                {
                    "rows": [len(batch.images)],
                    **{name: _cell(array) for name, array in arrays.items()},
                    "bad": [json.dumps([asdict(record) for record in batch.bad])],
                    "spent": [json.dumps([batch.spent, batch.began])],
                }
            )
    except DataError as error:
        raise _ReadFailed(isinstance(error, TransformFailed), str(error)) from None


def _cell(array: NDArray[Any]) -> pa.Array:
    """A column of one row that holds the array's bytes, without a copy."""
    ends = np.array([0, array.nbytes], np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(array)])


# ---- Ray Data's settings ----


def _own_bundle(placement_group: PlacementGroup | None, bundle_index: int) -> PlacementGroupSchedulingStrategy | None:
    """Where read tasks run: nothing else says it.

    In a cluster whose CPUs are all reserved, tasks outside the worker's own bundle would wait for ever. Ray announces
    that read_datasource() will not take this in 2.64; then the placement groups must leave CPUs free for tasks without.
    """
    if placement_group is None:
        return None
    return PlacementGroupSchedulingStrategy(placement_group, bundle_index, placement_group_capture_child_tasks=True)


def _read(
    source: RecordDatasource, num_cpus: float, strategy: PlacementGroupSchedulingStrategy | None
) -> ray.data.Dataset:
    options: dict[str, Any] = {"num_cpus": min(1.0, num_cpus)}
    if strategy is not None:
        options["scheduling_strategy"] = strategy
    elif ray.available_resources().get("CPU", 0) < options["num_cpus"]:
        _log.warning("no CPU of the cluster is free: reading waits until one is")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the announcement above
        return ray.data.read_datasource(
            source,
            override_num_blocks=source.num_tasks,
            concurrency=min(tasks_in_flight(num_cpus), source.num_tasks),
            ray_remote_args=options,
        )


class _Pause(execution_callback()):  # type: ignore[misc]  # Ray is not typed
    """Lets Ray Data's loop rest: where batches are ready and wait for training, it would look for more without a pause,
    and so take half of Python's time from the training loop, which runs in the same process."""

    def __init__(self) -> None:
        self._woke_at, self._used_s = time.monotonic(), 0.0

    def on_execution_step(self, executor: object) -> None:
        store_use.note(object_store_bytes(executor))
        used_s = time.thread_time() - self._used_s
        due = self._woke_at + used_s / LOOP_SHARE
        time.sleep(min(LONGEST_REST_S, max(0.0, due - time.monotonic())))
        self._woke_at, self._used_s = time.monotonic(), time.thread_time()


@contextmanager
def _quiet_context(num_cpus: float, strategy: PlacementGroupSchedulingStrategy | None) -> Iterator[None]:
    """Ray Data's settings for the Datasets made inside; other Datasets of this process keep their own."""
    for handler in logging.getLogger("ray.data").handlers:
        if handler.name == "console":  # our errors say it; its log file in the session folder keeps everything
            handler.setLevel(logging.CRITICAL)
    with _context_lock:
        context = DataContext.get_current().copy()
        context.target_max_block_size = BLOCK_BYTES
        # A task that waits for its reader would keep its CPU from a stream that is needed first: tasks always run to
        # their end, and the limit below keeps new ones from starting.
        let_tasks_run_ahead(context)
        ask_for_no_nodes()
        context.execution_options.preserve_order = True
        cpus = max(1.0, num_cpus)
        context.execution_options.resource_limits = ExecutionResources(
            cpu=tasks_in_flight(num_cpus), object_store_memory=AHEAD_BYTES * cpus
        )
        if strategy is not None:
            # With both, Ray Data counts on the group's resources. Else it shares the cluster's out among all streams,
            # and lets a second one start a single task as long as the first is there.
            context.scheduling_strategy = context.scheduling_strategy_large_args = strategy
        context.custom_execution_callback_classes = [*context.custom_execution_callback_classes, _Pause]
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
        data_error = _data_error(error)
        if data_error is None:
            raise
        raise data_error from None


def _data_error(error: BaseException | None) -> DataError | None:
    """The DataError that a read task sent. Ray keeps a task's exception as ``cause``, Python as ``__cause__``."""
    while error is not None:
        cause = getattr(error, "cause", None)
        if isinstance(error, _ReadFailed) and cause is None:
            of_transform, text = error.args[:2]
            return TransformFailed(text) if of_transform else DataError(text)
        error = cause or error.__cause__
    return None
