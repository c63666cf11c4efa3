"""Arrays of any type into RecordIO files, for experiments of ``data.kind: array``.

    pack_samples({"tokens": tokens, "mask": mask}, labels, "data/train.rec")
    pack_rows(dataset.iter_rows(), "data/train.rec", inputs=["x"], labels=["y"])    # of a Ray Dataset, say

A record is its label in the header, then the inputs in NumPy's npy format, one after the other. Samples whose length
differs are a list of arrays. The files appear under their names when they are whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.npy import npy_bytes
from raymx.data.pipeline.sample import as_array
from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.errors import DataError
from raymx.experiment.label_rules import float32_problem

Row = Mapping[str, Any]


def pack_samples(
    inputs: Mapping[str, Any] | Any,
    labels: Any,
    path: str | Path,
    *,
    ids: Sequence[int] | None = None,
    overwrite: bool = False,
) -> int:
    """Write samples to ``path`` and, beside it, its .idx file; returns how many.

    ``inputs`` are arrays (n, ...) by name, in the order of ``data.inputs``, or one array; ``labels`` (n,) or (n, ...),
    which is flattened. Where lengths differ, either is a list of arrays. ``ids`` are whole numbers for the records'
    headers (default: 0 to n-1). Raises DataError for arrays of other lengths or of Python objects, for labels that are
    not finite, and when the file exists, unless ``overwrite``.
    """
    columns = dict(inputs) if isinstance(inputs, Mapping) else {"data": inputs}
    lengths = {name: len(column) for name, column in {**columns, "labels": labels}.items()}
    if len(set(lengths.values())) != 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(f"there must be as many of each array as of samples, and there are {shown}")
    rows = (
        {**{name: column[number] for name, column in columns.items()}, "labels": labels[number]}
        for number in range(len(labels))
    )
    return pack_rows(rows, path, inputs=list(columns), labels=["labels"], ids=ids, overwrite=overwrite)


def pack_rows(
    rows: Iterable[Row],
    path: str | Path,
    *,
    inputs: Sequence[str],
    labels: Sequence[str],
    ids: Sequence[int] | None = None,
    overwrite: bool = False,
) -> int:
    """Write rows, mappings of names to arrays or numbers, such as those of a Ray Dataset; returns how many.

    The record's inputs are those named by ``inputs``, its labels those of ``labels`` one after the other, flattened.
    Raises DataError as `pack_samples` does, and for a row without one of them.
    """
    path, index = Path(path), Path(path).with_suffix(".idx")
    if there := [str(file) for file in (path, index) if file.exists() and not overwrite]:
        raise DataError(f"{there[0]} exists; give overwrite=True to replace it, or another name")
    count = 0
    with RecordIOWriter(path, index) as writer:
        for number, (label, payload) in enumerate(_payloads(rows, inputs, labels)):
            writer.write(pack(label, payload, id=number if ids is None else int(ids[number])))
            count += 1
        if not count:
            raise DataError(f"{path}: there are no samples to pack")
    return count


def _payloads(
    rows: Iterable[Row], inputs: Sequence[str], labels: Sequence[str]
) -> Iterator[tuple[float | NDArray[np.float32], bytes]]:
    """(label, payload) of each row."""
    for number, row in enumerate(rows):
        where = f"sample {number}"
        if lacks := [name for name in (*inputs, *labels) if name not in row]:
            raise DataError(f"{where} has no {', '.join(lacks)}; it has {', '.join(row)}")
        flat = np.concatenate([as_array(row[name], where).ravel() for name in labels]) if labels else np.zeros(1)
        if problem := next(filter(None, map(float32_problem, flat.tolist())), None):
            raise DataError(f"{where}: {problem}")
        payload = b"".join(npy_bytes(as_array(row[name], where)) for name in inputs)
        yield (float(flat[0]) if flat.size == 1 else flat.astype(np.float32)), payload
