"""One image file of any kind -> the image file to pack: decoded, cropped, resized, encoded again, or as it is."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from raymx.data.pipeline.image import is_deep, probe, require_bits
from raymx.errors import DataError, ExperimentError

QUALITY = {".jpg": (1, 100, 95), ".png": (0, 9, 3)}  # lowest, highest, default; for PNG it is the compression
COLORS = {"rgb": cv2.IMREAD_COLOR, "gray": cv2.IMREAD_GRAYSCALE, "unchanged": cv2.IMREAD_ANYCOLOR}
# By the factor that the image gets smaller by, largest first.
_REDUCED = {
    "rgb": {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2},
    "gray": {8: cv2.IMREAD_REDUCED_GRAYSCALE_8, 4: cv2.IMREAD_REDUCED_GRAYSCALE_4, 2: cv2.IMREAD_REDUCED_GRAYSCALE_2},
}
_JPEG_START = b"\xff\xd8\xff"

Pixels = NDArray[Any]  # (H, W), (H, W, 3) BGR or (H, W, 4) BGRA, as OpenCV has them


class Encoded(NamedTuple):
    """An image file to pack; ``deep``: it was made of one with 16 bits a channel, or is one."""

    data: bytes
    deep: bool


Result: TypeAlias = Encoded | str  # or why there is none


@dataclass(frozen=True)
class Images:
    """What is done to each image. Raises ExperimentError for values that are not allowed or contradict each other."""

    encoding: str = ".jpg"
    quality: int | None = None  # None: 95 for .jpg, 3 for .png
    color: str = "rgb"
    resize: int = 0  # pixels of the shorter side; 0: as it is
    center_crop: bool = False  # to a square, before the resize
    pass_through: bool = False  # the file's own bytes

    def __post_init__(self) -> None:
        for key, value, allowed in (("encoding", self.encoding, QUALITY), ("color", self.color, COLORS)):
            if value not in allowed:
                raise ExperimentError(f"{key} {value}: allowed are {', '.join(allowed)}")
        low, high, _ = QUALITY[self.encoding]
        if self.quality is not None and not low <= self.quality <= high:
            raise ExperimentError(f"quality {self.quality}: for {self.encoding} it is {low} to {high}")
        if not 0 <= self.resize <= 65535:
            raise ExperimentError(f"resize {self.resize}: it is the shorter side, 1 to 65535 pixels, or 0 for none")
        if self.pass_through and (self.encoding, self.quality, self.color, self.resize, self.center_crop) != (
            ".jpg",
            None,
            "rgb",
            0,
            False,
        ):
            raise ExperimentError(
                "pass-through packs each file as it is; leave out resize, center_crop, quality, "
                "encoding and color, or pass_through"
            )


def encode_file(path: str, options: Images) -> Result:
    """The image file to pack for the one at ``path``, or the reason why there is none."""
    try:
        data = _read(path)
        if options.pass_through:
            probe(data, "the image")  # as a run decodes it: what is cut short shows only then
            return Encoded(data, is_deep(data))
        return Encoded(encoded(_fit(_decode(data, options), options), options), is_deep(data))
    except OSError as error:
        windows = "; its folders are to be divided by / and not by \\" if "\\" in path else ""
        return f"cannot be read ({error.strerror or error}{windows})"
    except MemoryError:
        return "too large for the memory"
    except cv2.error as error:
        return f"cannot be decoded or encoded ({error.err})"
    except (ValueError, DataError) as error:
        return str(error)


def _read(path: str) -> bytes:
    if not stat.S_ISREG(os.stat(path).st_mode):  # a folder, or a pipe, which would wait for ever
        raise ValueError("not a file")
    with open(path, "rb") as file:
        data = file.read()
    if not data:
        raise ValueError("empty file")
    return data


def _decode(data: bytes, options: Images) -> Pixels:
    """Pixels, turned upright as EXIF says. "unchanged" keeps gray gray, and alpha where the new file can hold it."""
    require_bits(data, "the file")
    buffer = np.frombuffer(data, np.uint8)
    pixels = None
    if options.color == "unchanged" and options.encoding == ".png":
        pixels = cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint8 or pixels.shape[2:] != (4,):
        pixels = cv2.imdecode(buffer, _flag(data, options))
    if pixels is None:
        raise ValueError("damaged, cut short, or of a format that OpenCV does not read")
    return np.asarray(pixels)


def _flag(data: bytes, options: Images) -> int:
    """OpenCV's way to decode. A JPEG of far too many pixels gets smaller while it is decoded, which is faster."""
    if options.resize and options.color in _REDUCED and data.startswith(_JPEG_START):
        with suppress(ValueError):  # odd files that OpenCV may still read
            shorter = min(simplejpeg.decode_jpeg_header(data)[:2])
            for factor, flag in _REDUCED[options.color].items():
                if shorter >= 2 * factor * options.resize:
                    return flag
    return COLORS[options.color]


def _fit(pixels: Pixels, options: Images) -> Pixels:
    """Crop to the centre square and resize, as asked."""
    height, width = pixels.shape[:2]
    if options.center_crop:
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        pixels = pixels[top : top + side, left : left + side]
        height = width = side
    if options.resize in (0, min(height, width)):
        return pixels
    scale = options.resize / min(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR))


def encoded(pixels: Pixels, options: Images) -> bytes:
    quality = QUALITY[options.encoding][2] if options.quality is None else options.quality
    key = cv2.IMWRITE_JPEG_QUALITY if options.encoding == ".jpg" else cv2.IMWRITE_PNG_COMPRESSION
    return bytes(cv2.imencode(options.encoding, pixels, [key, quality])[1])
