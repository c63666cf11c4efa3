"""A table, and a contact sheet, of some records of a set of files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.image import decode_full, probe
from raymx.data.recordio.record import read_payload, require_image, unpack
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError
from raymx.storage import open_output, open_reader
from raymx.text.words import columns

TILE = 160  # pixels: side of the square that a picture is fitted into
CAPTION = 22  # pixels: height of the text below it
_SHOWN_LABELS = 6

COLUMNS = ("file", "key", "offset", "bytes", "labels", "id", "kind", "size")


@dataclass(frozen=True, eq=False)
class Row:
    """One record, in words."""

    cells: tuple[str, ...]  # by COLUMNS; after the bytes, what is wrong, when the record cannot be used
    caption: str
    picture: NDArray[np.uint8] | None  # uint8 (h, w, 3) RGB


def rows(records: RecordSet, ids: Sequence[int], pictures: bool) -> list[Row]:
    """What records hold, by number; with their pictures when asked for. Broken ones say so in their row."""
    return [_row(records, number, pictures) for number in ids]


def _row(records: RecordSet, number: int, pictures: bool) -> Row:
    (file,), (offset,), (size,) = (part.tolist() for part in records.locate(np.array([number])))
    path = records.paths[file]
    key = "-" if records.keys is None else str(records.keys[number])
    begin = (path.rsplit("/", 1)[-1], key, str(offset), str(size))
    where = f"{path}, record at byte {offset}"
    try:
        with open_reader(path) as reader:
            record = unpack(read_payload(reader, offset, path, size), where)
        require_image(record, where)
        stored = probe(record.image, where)
        picture = decode_full(record.image, 3, where) if pictures else None
    except DataError as error:
        return Row((*begin, str(error).removeprefix(f"{where}: ")), "broken", None)
    labels = _labels(record.label)
    shape = f"{stored.height}x{stored.width}x{stored.channels}"
    return Row((*begin, labels, str(record.id), stored.kind, shape), labels, picture)


def _labels(labels: NDArray[np.float32]) -> str:
    shown = " ".join(f"{label:g}" for label in labels[:_SHOWN_LABELS].tolist())
    return f"{shown} ... ({len(labels)})" if len(labels) > _SHOWN_LABELS else shown


def table(found: Sequence[Row]) -> str:
    """Lines of aligned columns under their names; what is wrong with a broken record makes none of them wider."""
    return "\n".join(columns([COLUMNS, *(row.cells for row in found)]))


def write_sheet(path: str, found: Sequence[Row]) -> None:
    """Write a contact sheet of the rows' pictures, each with its labels below; the format is by the path's ending.

    Raises DataError for an ending that OpenCV cannot write, and when the file cannot be written.
    """
    across = math.ceil(math.sqrt(len(found)))
    lines = math.ceil(len(found) / across)
    sheet = np.full((lines * (TILE + CAPTION), across * TILE, 3), 255, np.uint8)
    for at, row in enumerate(found):
        top, left = at // across * (TILE + CAPTION), at % across * TILE
        _tile(sheet[top : top + TILE + CAPTION, left : left + TILE], row)
    ending = "." + path.rsplit(".", 1)[-1]
    try:
        _, data = cv2.imencode(ending, cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))
    except cv2.error:
        raise DataError(f"{path}: no picture format has the ending {ending}; use .png or .jpg") from None
    with open_output(path) as file:
        file.write(data.tobytes())


def _tile(tile: NDArray[np.uint8], row: Row) -> None:
    """Draw one picture, in its proportions and in the middle, and its caption into a part of the sheet."""
    if row.picture is not None:
        height, width = row.picture.shape[:2]
        scale = min((TILE - 4) / height, (TILE - 4) / width)
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST  # small pictures keep their pixels
        small = cv2.resize(row.picture, size, interpolation=how)
        top, left = (TILE - size[1]) // 2, (TILE - size[0]) // 2
        tile[top : top + size[1], left : left + size[0]] = small
    text = np.ascontiguousarray(tile[TILE:])
    cv2.putText(text, row.caption[:24], (4, 15), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1, cv2.LINE_AA)
    tile[TILE:] = text
