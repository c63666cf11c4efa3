"""Float32 masters instead of what a net has of them, in the bytes of MXNet's parameter file. Pure: no mxnet.

Where weights travel in float16 (precision.wire_dtype), the workers' float32 weights are rounded, and the servers have
the real ones. The trial, which joins the servers' shards and has no mxnet, puts those into a checkpoint's net.params.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

_FILE, _ARRAY = 0x112, 0xF993FAC9  # the first numbers of a file and of a dense array, as ndarray.cc has them
_DENSE, _FLOAT32 = 0, 0


def with_masters(parameters: bytes, masters: Mapping[str, NDArray[Any]]) -> bytes:
    """The parameter file with every float32 array replaced for which ``masters`` has one (flat, by structural name).

    What is no parameter file of MXNet stays as it is. Raises ValueError when an array in it is not dense.
    """
    if not masters or not parameters.startswith(struct.pack("<Q", _FILE)):
        return parameters
    data = bytearray(parameters)
    arrays, end = _arrays(data)
    for name, (start, size, type_flag) in zip(_names(data, end), arrays, strict=True):
        if type_flag == _FLOAT32 and name in masters:
            data[start : start + 4 * size] = masters[name].astype("<f4").tobytes()
    return bytes(data)


def _arrays(data: bytearray) -> tuple[list[tuple[int, int, int]], int]:
    """(where the numbers begin, how many, of which type) of each array, and where the last one ends."""
    (count,) = struct.unpack_from("<Q", data, 16)  # behind the file's own number and a reserved one
    arrays, at = [], 24
    for _ in range(count):
        magic, storage, dimensions = struct.unpack_from("<IiI", data, at)
        if (magic, storage) != (_ARRAY, _DENSE):
            raise ValueError("an array of the parameter file is not dense")
        shape = struct.unpack_from(f"<{dimensions}q", data, at + 12)
        at += 12 + 8 * dimensions
        _, _, type_flag = struct.unpack_from("<iii", data, at)  # behind the device's type and number
        arrays.append((at + 12, math.prod(shape), type_flag))
        at += 12 + math.prod(shape) * _ITEM_BYTES[type_flag]
    return arrays, at


_ITEM_BYTES = {0: 4, 1: 8, 2: 2, 3: 1, 4: 4, 5: 1, 6: 8}  # float32, float64, float16, uint8, int32, int8, int64


def _names(data: bytearray, at: int) -> Iterator[str]:
    (count,) = struct.unpack_from("<Q", data, at)
    at += 8
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", data, at)
        yield data[at + 8 : at + 8 + length].decode()
        at += 8 + length
