"""What a file is that is not what its name says, by its first bytes. Pure."""

from __future__ import annotations

import re

RECORDS_BEGIN = bytes.fromhex("0a23d7ce")
"""The first bytes of every RecordIO file: dmlc-core's magic."""

HEAD_BYTES = 256
"""How much of a file's beginning tells its kind."""

NO_RECORDS = "no RecordIO file, but "
"""How a message begins that names what a file is instead."""

_GET_IMAGES = "python -m raymx.pack makes record files of images"


def _table(*rows: tuple[bytes, str]) -> list[tuple[re.Pattern[bytes], str]]:
    return [(re.compile(pattern, re.DOTALL | re.IGNORECASE), kind) for pattern, kind in rows]


_NOT_FETCHED = _table(
    (rb"version https://git-lfs\.github\.com/spec/", "a Git LFS pointer: git lfs pull"),
    (rb"(\.\./)*(\.git|/?annex/objects)/\S+\s*$|/annex/objects/", "a git-annex pointer: git annex get"),
    (rb"\s*<(!doctype|html|\?xml)", "a web page or an error message of a server: download it again"),
    (rb"\0{64}", "a file of zeros, as an interrupted download leaves it: download it again"),
)
_OTHERS = _table(
    (rb"\d+\t\d+\r?\n", "an index (.idx): name the .rec file beside it"),
    (rb"\d+\t-?[\d.]+\t", f"a list of images (.lst): {_GET_IMAGES}"),
    (rb"\x1f\x8b|PK\x03\x04|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd", "a compressed file: unpack it"),
    (rb"\xff\xd8\xff|\x89PNG", f"an image: {_GET_IMAGES}"),
    (rb"\x89HDF", f"an HDF5 file: {_GET_IMAGES}"),
    (rb"\x93NUMPY", "a NumPy array: raymx.data.tools.packing.pack_arrays makes record files of arrays"),
)


def kind_of(head: bytes) -> str | None:
    """What a file is that begins with ``head``, and what to do; None for records, and for what is not known."""
    return next((kind for pattern, kind in _NOT_FETCHED + _OTHERS if pattern.match(head)), None)


def placeholder_of(head: bytes) -> str | None:
    """What a file of any kind is that was not fetched, and what to do; None when it is none."""
    return next((kind for pattern, kind in _NOT_FETCHED if pattern.match(head)), None)
