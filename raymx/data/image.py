"""Encoded image -> uint8 array of a fixed shape.

One rule for training and validation: the image is taken as its pixels are stored, and an EXIF orientation is *not*
applied (MXNet's ImageRecordIter applies it, ``mx.image.imdecode`` does not).
"""

from __future__ import annotations

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from raymx.errors import DataError

_JPEG_START = b"\xff\xd8\xff"


def decode(image: bytes, shape: tuple[int, int, int], where: str) -> NDArray[np.uint8]:
    """Decode to uint8 (H, W, C), ``shape`` being (C, H, W) with C = 1 (gray) or 3 (RGB).

    An image of another size is resized, keeping its proportions, until it just covers H x W, and cropped at its centre.
    Gray becomes colour and colour gray as C asks; alpha is dropped. Raises DataError that names ``where`` (the file
    and offset) and the reason for an image that is cut short, of no known format, or for an impossible ``shape``.
    """
    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"{where}: image_shape has {channels} channels; allowed: 1 (gray), 3 (colour)")
    pixels = _decode_jpeg(image, channels) if image.startswith(_JPEG_START) else None
    if pixels is None:
        pixels = _decode_any(image, channels, where)
    if pixels.shape[:2] != (height, width):
        pixels = _cover_and_crop(pixels, height, width)
    return pixels.reshape(height, width, channels)


def _decode_jpeg(image: bytes, channels: int) -> NDArray[np.uint8] | None:
    """libjpeg-turbo's (H, W, C), or None for what it refuses: warnings count, so a cut file never passes here."""
    try:
        return np.asarray(simplejpeg.decode_jpeg(image, "GRAY" if channels == 1 else "RGB"))
    except ValueError:
        return None


def _decode_any(image: bytes, channels: int, where: str) -> NDArray[np.uint8]:
    """OpenCV's decoder: PNG and other formats, and JPEG files with harmless junk between their markers.

    It gives nothing for a file that is cut short (tried with JPEG, progressive JPEG and PNG).
    """
    flags = cv2.IMREAD_IGNORE_ORIENTATION | (cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR)
    try:
        pixels = cv2.imdecode(np.frombuffer(image, np.uint8), flags)
    except cv2.error as error:
        raise DataError(f"{where}: the image cannot be decoded ({error.err})") from None
    if pixels is None:
        start = f"{len(image)} bytes that begin {image[:8].hex()}"
        raise DataError(f"{where}: the image cannot be decoded ({start}; {_why(image)})")
    return np.asarray(pixels if channels == 1 else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))


def _why(image: bytes) -> str:
    """The decoder's own words for a JPEG file; OpenCV has none for the other formats."""
    if not image.startswith(_JPEG_START):
        return "damaged, or not an image format that OpenCV reads"
    try:
        simplejpeg.decode_jpeg(image)
    except ValueError as error:
        return str(error)
    return "damaged"


def _cover_and_crop(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Resize so that the image just covers (height, width), then take the centre."""
    have_h, have_w = pixels.shape[:2]
    scale = max(height / have_h, width / have_w)
    size = (max(width, round(have_w * scale)), max(height, round(have_h * scale)))
    # Below one half, bilinear interpolation skips pixels and detail turns into noise; above, it is 4 times as fast.
    how = cv2.INTER_AREA if scale < 0.5 else cv2.INTER_LINEAR
    resized = np.asarray(cv2.resize(pixels, size, interpolation=how))
    top, left = (resized.shape[0] - height) // 2, (resized.shape[1] - width) // 2
    return resized[top : top + height, left : left + width]
