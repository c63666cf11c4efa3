"""The payloads of array records: NumPy's npy format, arrays one after the other, or their bare bytes.

    payload = npy_bytes(tokens) + npy_bytes(mask)
    tokens, mask = read_npy(payload, where)

No Ray, no mxnet.
"""

from __future__ import annotations

import ast
import io
import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raymx.errors import DataError

MAGIC = b"\x93NUMPY"
_LENGTH_AT = len(MAGIC) + 2  # behind the version's two bytes


def npy_bytes(array: NDArray[Any]) -> bytes:
    """An array in the npy format. Raises DataError for one of Python objects."""
    if array.dtype.hasobject:
        raise DataError(f"an array of {array.dtype} cannot be packed: give one of numbers")
    file = io.BytesIO()
    np.save(file, np.asarray(array, order="C"), allow_pickle=False)
    return file.getvalue()


def is_npy(payload: bytes | memoryview) -> bool:
    return bytes(payload[: len(MAGIC)]) == MAGIC


def read_npy(payload: bytes | memoryview, where: str) -> list[NDArray[Any]]:
    """The arrays of a payload, views of it. Raises DataError that names ``where`` for one that is damaged or cut."""
    arrays, at, view = [], 0, memoryview(payload)
    while at < len(view):
        dtype, order, shape, start = _header_at(view, at, where)
        count = math.prod(shape)
        if len(view) - start < count * dtype.itemsize:
            raise DataError(f"{where}: an array of {dtype} {shape} is cut: {len(view) - start} bytes are left of it")
        values = np.frombuffer(view, dtype, count, start)
        arrays.append(values.reshape(shape, order=order))
        at = start + count * dtype.itemsize
    return arrays


def _header_at(view: memoryview, at: int, where: str) -> tuple[np.dtype[Any], Any, tuple[int, ...], int]:
    """dtype, order (C or F), shape, and where the numbers begin."""
    head = view[at : at + _LENGTH_AT + 4]
    if bytes(head[: len(MAGIC)]) != MAGIC or len(head) < _LENGTH_AT + 2:
        raise DataError(f"{where}: behind {at} bytes no array in the npy format begins")
    width = 2 if head[len(MAGIC)] == 1 else 4
    length = int.from_bytes(head[_LENGTH_AT : _LENGTH_AT + width], "little")
    start = at + _LENGTH_AT + width
    found = _parsed(bytes(view[start : start + length]))
    if found is None:
        raise DataError(f"{where}: the header of an array in the npy format is damaged, or of Python objects")
    return *found, start + length


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> tuple[np.dtype[Any], str, tuple[int, ...]] | None:
    """What a header says; None where it cannot be read. Most records of a file have the same, which is read once."""
    try:
        header = ast.literal_eval(text.decode("latin1"))
        dtype, shape = np.dtype(header["descr"]), tuple(int(size) for size in header["shape"])
        order = "F" if header["fortran_order"] else "C"
    except (ValueError, SyntaxError, KeyError, TypeError):
        return None
    return None if dtype.hasobject or min(shape, default=0) < 0 else (dtype, order, shape)
