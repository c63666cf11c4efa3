"""A look at a split before the first step: what would spoil the training, or end it later. No Ray, no mxnet.

    look(records, "train", data, decoding, say)

Of a small set all headers are read, of a large one some, from all over its files: a few bytes each. What decoding meets
later is counted by `BadCount`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.batch import Batch
from raymx.data.pipeline.decoding import Decoding, RecordLocations, decode_batches, read_record
from raymx.data.pipeline.source import Source
from raymx.data.recordio.framing import read_payload
from raymx.data.recordio.labels import Headers
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError, TooManyBadRecords
from raymx.experiment.label_rules import LabelRange
from raymx.experiment.schema import Data
from raymx.storage import is_uri, open_reader

ALL_BYTES = 256 << 20  # sets up to this size are looked at whole: a second or two of a slow disk
SAMPLE = 1024  # records of larger sets; of those far away fewer, since each may take a request
URI_SAMPLE = 64
ARRAYS = 32  # samples of arrays, which are made

Say = Callable[[str], None]


def look(records: Source, split: str, data: Data, decoding: Decoding, say: Say) -> None:
    """Raise DataError for records that cannot be used, the first one or, with ``skip_bad``, too many of them.

    ``say`` is told, in a sentence each, what can be used but is probably not meant.
    """
    if decoding.sample is not None or not isinstance(records, RecordSet):
        _look_at_samples(records, split, data, decoding)
        return
    ids = sample(records)
    headers = records.headers(ids)
    errors = _errors(records, ids[_suspects(headers, decoding)], decoding)
    count = BadCount(split, records, data.max_bad)
    looked_at_all = len(ids) == records.num_records
    # Of a sample only what leaves no doubt.
    allowed = count.allowed if looked_at_all else min(max(0.5, data.max_bad) * len(ids), len(ids) - 1)
    bad = records.damaged if looked_at_all else 0
    one = "".join(f"{path}, byte {problem.offset}: {problem.reason}" for path, problem in records.problems[:1])
    for error in errors:
        if not decoding.skip_bad:
            raise error
        bad, one = bad + 1, one or str(error)
        if bad > allowed:
            break
    if bad > allowed:
        raise count.too_many(bad, one)
    for sentence in notes(headers, split, data, decoding):
        say(sentence)


def _look_at_samples(records: Source, split: str, data: Data, decoding: Decoding) -> None:
    """Make some rows, from all over: headers do not tell whether arrays can be used."""
    count, total = BadCount(split, records, data.max_bad), records.num_records
    ids = np.unique(np.linspace(0, total - 1, min(total, ARRAYS)).astype(np.int64))
    rows = RecordLocations(ids, *records.locate(ids))
    (decoded,) = decode_batches(records.paths, [rows], replace(decoding, draws=False))
    allowed = count.allowed if len(ids) == total else min(max(0.5, data.max_bad) * len(ids), len(ids) - 1)
    bad = decoded.bad
    if len(bad) > allowed:
        raise count.too_many(len(bad), f"{bad[0].path}, {bad[0].place}: {bad[0].reason}")


def sample(records: RecordSet) -> NDArray[np.int64]:
    """Numbers of the records to look at, int64 ascending: all, or some from all over the files."""
    total, far = records.num_records, any(map(is_uri, records.paths))
    most = URI_SAMPLE if far else total if sum(records.file_bytes) <= ALL_BYTES else SAMPLE
    return np.unique(np.linspace(0, total - 1, min(total, most)).astype(np.int64))


def _suspects(headers: Headers, decoding: Decoding) -> NDArray[np.bool_]:
    """Which records must be read: their headers are odd, or do not say what they should."""
    found = headers.odd | (headers.widths > decoding.label_width)
    if not decoding.pad_labels:
        found |= headers.widths != decoding.label_width
    if decoding.label_range is not None and decoding.transform is None and decoding.label_width == 1:
        found |= ~_fits(headers.labels, decoding.label_range)
    return found


def _fits(labels: NDArray[np.float32], allowed: LabelRange) -> NDArray[np.bool_]:
    """Which of these labels may be, bool of their shape; NaN never."""
    inside = (labels >= allowed.low) & (labels <= allowed.high)
    return inside & (labels == np.floor(labels)) if allowed.whole else inside


def _errors(records: RecordSet, ids: NDArray[np.int64], decoding: Decoding) -> Iterator[DataError]:
    """Why records cannot be used, of those that cannot."""
    for file, offset, size in zip(*(column.tolist() for column in records.locate(ids)), strict=True):
        path = records.paths[file]
        with open_reader(path) as reader:
            try:
                read_record(read_payload(reader, offset, path, size), f"{path}, record at byte {offset}", decoding)
            except DataError as error:
                yield error


# ---- what is worth a sentence ----


def notes(headers: Headers, split: str, data: Data, decoding: Decoding) -> Iterator[str]:
    """About labels, one a record and in the order of the files, that are all the same, or sorted."""
    labels = headers.labels[~headers.odd]
    if split != "train" or decoding.label_width != 1 or decoding.transform is not None or len(labels) < 2:
        return
    runs, kinds = runs_of(labels), len(np.unique(labels))
    if kinds == 1:
        yield f"data.train: all {len(labels):,} records that were looked at have the label {labels[0]:g}"
    elif runs == kinds < len(labels) and data.order == "none":
        yield (
            f"data.train is sorted by label ({kinds:,} labels in {runs:,} runs), and data.order is none: each batch "
            "has few of them, so the net forgets the others; use data.order global"
        )


def runs_of(labels: NDArray[np.float32]) -> int:
    """How many runs of equal neighbours there are."""
    return 1 + int(np.count_nonzero(labels[1:] != labels[:-1])) if len(labels) else 0


# ---- too many bad records ----


class BadCount:
    """The bad records of one split, against ``data.max_bad``."""

    def __init__(self, split: str, records: Source, max_bad: float) -> None:
        self.total = records.num_records + records.damaged
        self.allowed = min(max_bad * self.total, self.total - 1)  # never all of them
        self._split, self._max_bad = split, max_bad

    def watch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """``batches`` of an epoch; TooManyBadRecords once this worker alone has met more bad records than allowed."""
        bad = 0
        for batch in batches:
            bad += len(batch.bad)
            if bad > self.allowed:
                record = batch.bad[-1]
                raise self.too_many(bad, f"{record.path}, {record.place}: {record.reason}")
            yield batch

    def too_many(self, bad: int, one: str) -> TooManyBadRecords:
        """The error for ``bad`` records, with what is wrong with ``one`` of them."""
        return TooManyBadRecords(
            f"data.{self._split}: {bad:,} bad records of {self.total:,} and perhaps more, where data.max_bad "
            f"{self._max_bad:g} allows {int(self.allowed):,}; one of them: {one}; correct the files (python -m "
            "raymx.data verify), or raise data.max_bad"
        )
