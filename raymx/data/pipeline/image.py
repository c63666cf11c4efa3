"""Encoded image -> uint8 array of a fixed shape, augmented.

The order: decode, turn as EXIF says (if asked), resize, rotate, pad, crop, colours. Most images need no rotation and no
padding. Then the crop is chosen first, in the coordinates of the resized picture; what it covers of the stored picture
is all that is resized, and a JPEG file that is much larger than needed is decoded at 1/2, 1/4 or 1/8 of its size. The
crop's sides are rounded to whole pixels of the decoded picture: where that is resized, the crop lies up to half such a
pixel from its exact place, always the same; where it is not, there is nothing to round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import cv2
import numpy as np
import simplejpeg
from numpy.random import Generator
from numpy.typing import NDArray

from raymx.data.pipeline.augment import CENTRE, STILL, Draw, draw, offset, region
from raymx.data.pipeline.augmentations import changes_colour, colour_matrix, shifted, shifts_picture
from raymx.errors import DataError
from raymx.experiment.schema import Augment

Image = bytes | memoryview
Exif = Literal["ignore", "apply"]

_JPEG_START = b"\xff\xd8\xff"
_TIFF_STARTS = (b"II*\0", b"MM\0*")
_KINDS = (
    (_JPEG_START, "jpeg"),
    (b"\x89PNG", "png"),
    (b"BM", "bmp"),
    (b"GIF8", "gif"),
    (b"RIFF", "webp"),
    *((start, "tiff") for start in _TIFF_STARTS),
)
_LONGEST = 32766  # pixels of a side that OpenCV can rotate


@dataclass(frozen=True)
class Pixels:
    """What every image becomes.

    ``shape`` is (C, H, W) with C = 1 (gray) or 3 (RGB). ``resize`` is the wanted short side in pixels, proportions
    kept; without it, and where it leaves less than H x W, an image is scaled until it just covers H x W. ``augment`` is
    None for validation. Raises DataError for another C.
    """

    shape: tuple[int, int, int]
    resize: int | None = None
    exif: Exif = "ignore"
    augment: Augment | None = None

    def __post_init__(self) -> None:
        if self.shape[0] not in (1, 3):
            raise DataError(f"image_shape has {self.shape[0]} channels; allowed: 1 (gray), 3 (colour)")

    @cached_property
    def random(self) -> bool:
        """Whether ``decode_into`` needs a generator."""
        return self.augment is not None and self.augment != Augment()

    @cached_property
    def shifts(self) -> bool:
        """Whether something comes between the resize and the crop."""
        return self.augment is not None and shifts_picture(self.augment)

    @cached_property
    def plain(self) -> bool:
        """Whether an image of H x W is neither resized nor moved."""
        resized = self.augment is not None and self.augment.random_resized_crop
        return self.resize in (None, min(self.shape[1:])) and not self.shifts and not resized

    @cached_property
    def recolours(self) -> bool:
        return self.augment is not None and changes_colour(self.augment, self.shape[0])


class Stored(NamedTuple):
    """An image as it is stored, without EXIF orientation and alpha."""

    kind: str  # jpeg, png, bmp, gif, webp, tiff or other
    height: int
    width: int
    channels: int  # 1 gray, 3 colour


class _View(NamedTuple):
    """The part of the stored picture that is needed, in fractions of its sides, and the pixels that it becomes."""

    top: float
    bottom: float
    left: float
    right: float
    height: int
    width: int


def decode_into(out: NDArray[np.uint8], image: Image, pixels: Pixels, where: str, rng: Generator | None = None) -> bool:
    """Write ``image`` into ``out``, uint8 (H, W, C) and contiguous, and return whether it is to be mirrored.

    Gray becomes colour and colour gray as C asks; alpha is dropped; 16 bits become 8. Mirroring is left to the net's
    graph. ``rng`` is needed where ``pixels.random``. Raises DataError that names ``where`` (the file and offset) and
    the reason for an image that is cut short or of no known format, and ValueError for arguments that do not fit.
    """
    channels, height, width = pixels.shape
    if out.shape != (height, width, channels) or not out.flags.c_contiguous:
        raise ValueError(f"out is {out.shape}; it must be contiguous and {(height, width, channels)}")
    drawn = STILL
    if pixels.augment is not None and pixels.random:
        if rng is None:
            raise ValueError("these pixels are random: give a generator")
        drawn = draw(pixels.augment, rng)
    _write(out, image, pixels, drawn, where)
    if pixels.augment is not None and rng is not None and pixels.recolours:
        mean = cv2.mean(out)[:channels] if pixels.augment.contrast else (0.0,) * channels
        cv2.transform(out, colour_matrix(pixels.augment, rng, mean), dst=out)
    return drawn.mirror


def _write(out: NDArray[np.uint8], image: Image, pixels: Pixels, drawn: Draw, where: str) -> None:
    """All but the colours."""
    found = None if _oriented(image, pixels.exif) else _decode_jpeg(image, pixels, drawn, out)
    if found is not None:
        _place(out, *found, pixels, drawn, where)
        return
    picture = _decode_any(image, pixels.shape[0], where, pixels.exif)
    if pixels.plain and picture.shape[:2] == out.shape[:2]:  # saves a quarter of the time at 28 x 28
        np.copyto(out, picture.reshape(out.shape))
    else:
        _place(out, picture, _view(pixels, drawn, *picture.shape[:2]), pixels, drawn, where)


def decode(image: Image, shape: tuple[int, int, int], where: str) -> NDArray[np.uint8]:
    """``decode_into`` a new array (H, W, C) with nothing random: scaled to cover H x W, and cropped at the centre."""
    pixels = Pixels(shape)
    out = np.empty((shape[1], shape[2], shape[0]), np.uint8)
    decode_into(out, image, pixels, where)
    return out


def decode_full(image: Image, channels: int, where: str, exif: Exif = "ignore") -> NDArray[np.uint8]:
    """The picture in its own size: uint8 (h, w, C). Raises DataError as ``decode_into``."""
    picture = None
    if image[:3] == _JPEG_START and not _oriented(image, exif):
        try:
            picture = simplejpeg.decode_jpeg(image, "GRAY" if channels == 1 else "RGB")
        except (ValueError, MemoryError):
            picture = None
    if picture is None:
        picture = _decode_any(image, channels, where, exif)
    return np.asarray(picture).reshape(*picture.shape[:2], channels)


def probe(image: Image, where: str) -> Stored:
    """What is stored, found by decoding all of it. Raises DataError as ``decode_into``."""
    start = bytes(image[:8])
    kind = next((kind for magic, kind in _KINDS if start.startswith(magic)), "other")
    kind += " of 16 bits" * is_deep(image)
    picture = _imdecode(image, cv2.IMREAD_ANYCOLOR | cv2.IMREAD_IGNORE_ORIENTATION, where)
    return Stored(kind, picture.shape[0], picture.shape[1], 1 if picture.ndim == 2 else 3)


# ---- where pixels come from ----


def _view(pixels: Pixels, drawn: Draw, height: int, width: int) -> _View:
    """What is needed of a stored picture of ``height`` x ``width`` pixels."""
    _, to_h, to_w = pixels.shape
    if pixels.augment is not None and pixels.augment.random_resized_crop:
        top, left, h, w = region(pixels.augment, drawn, (height, width), (to_h, to_w))
        return _View(top / height, (top + h) / height, left / width, (left + w) / width, to_h, to_w)
    full_h, full_w = _resized(pixels, height, width)
    if pixels.shifts:
        return _View(0.0, 1.0, 0.0, 1.0, full_h, full_w)
    top, left = offset(drawn.y, full_h - to_h), offset(drawn.x, full_w - to_w)
    return _View(top / full_h, (top + to_h) / full_h, left / full_w, (left + to_w) / full_w, to_h, to_w)


def _resized(pixels: Pixels, height: int, width: int) -> tuple[int, int]:
    """Size after the resize, at least H x W."""
    _, to_h, to_w = pixels.shape
    scale = max(to_h / height, to_w / width)
    if pixels.resize is not None:
        scale = max(scale, pixels.resize / min(height, width))
    return max(to_h, round(height * scale)), max(to_w, round(width * scale))


def _slice(start: float, stop: float, count: int) -> slice:
    """The pixels of a row or column of ``count`` that [start, stop) covers, to the nearest whole one, at least one."""
    first = min(count - 1, round(start * count))
    return slice(first, max(first + 1, round(stop * count)))


def _factor(view: _View, height: int, width: int) -> int:
    """How much smaller a JPEG may be decoded with no need to enlarge the view afterwards.

    libjpeg-turbo has vector code for these three only; others take longer than the full size.
    """
    for factor in (8, 4, 2):
        rows = (view.bottom - view.top) * -(-height // factor)
        columns = (view.right - view.left) * -(-width // factor)
        if rows > view.height - 1e-6 and columns > view.width - 1e-6:  # fractions of sides are not exact
            return factor
    return 1


def _decode_jpeg(
    image: Image, pixels: Pixels, drawn: Draw, out: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], _View] | None:
    """libjpeg-turbo's picture, perhaps reduced, and what is needed of it; None for what libjpeg-turbo refuses.

    Its warnings count, so a cut file never passes here. Where ``out`` is just the picture, it is decoded there.
    """
    if image[:3] != _JPEG_START:
        return None
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(image)
        view = _view(pixels, drawn, height, width)
        factor = _factor(view, height, width)
        size = (-(-height // factor), -(-width // factor))
        whole = view[:4] == (0.0, 1.0, 0.0, 1.0) and size == out.shape[:2]
        picture = simplejpeg.decode_jpeg(
            image,
            "GRAY" if pixels.shape[0] == 1 else "RGB",
            min_height=size[0],
            min_width=size[1],
            min_factor=factor,
            buffer=out if whole else None,
        )
    except (ValueError, MemoryError):  # OpenCV has a limit for the size that a damaged header may claim
        return None
    return np.asarray(picture), view


def _decode_any(image: Image, channels: int, where: str, exif: Exif) -> NDArray[np.uint8]:
    """OpenCV's picture, (h, w) or (h, w, 3): PNG and other formats, and JPEG files with harmless junk in them."""
    flags = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR
    picture = _imdecode(image, flags if exif == "apply" else flags | cv2.IMREAD_IGNORE_ORIENTATION, where)
    return picture if channels == 1 else np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))


def is_deep(image: Image) -> bool:
    """Whether an image has 16 bits a channel, of which a run uses the upper 8."""
    if bytes(image[:4]) in _TIFF_STARTS:
        picture = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_UNCHANGED)
        return picture is not None and picture.dtype == np.uint16
    return bytes(image[:4]) == b"\x89PNG" and bytes(image[24:25]) == b"\x10"  # the bit depth in a PNG's header


def require_bits(image: Image, where: str) -> None:
    """Raise DataError for a TIFF file of other pixels than 8 or 16 bits a channel, of which OpenCV makes anything."""
    if bytes(image[:4]) not in _TIFF_STARTS:
        return
    picture = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_UNCHANGED)
    if picture is not None and picture.dtype not in (np.uint8, np.uint16):
        raise DataError(
            f"{where}: the image has {picture.dtype} pixels, and 8 or 16 bits a channel are allowed: scale them to "
            "0 to 255, and store them as PNG"
        )


def _imdecode(image: Image, flags: int, where: str) -> NDArray[np.uint8]:
    """OpenCV gives nothing for a file that is cut short (tried with JPEG, progressive JPEG and PNG)."""
    try:
        require_bits(image, where)
        picture = cv2.imdecode(np.frombuffer(image, np.uint8), flags)
    except cv2.error as error:
        raise DataError(f"{where}: the image cannot be decoded ({error.err})") from None
    if picture is None:
        start = f"{len(image)} bytes that begin {image[:8].hex()}"
        raise DataError(f"{where}: the image cannot be decoded ({start}; {_why(image)})")
    return np.asarray(picture)


def _why(image: Image) -> str:
    """The decoder's own words for a JPEG file; OpenCV has none for the other formats."""
    if image[:3] != _JPEG_START:
        return "damaged, or not an image format that OpenCV reads"
    try:
        simplejpeg.decode_jpeg(image)
    except ValueError as error:
        return str(error)
    return "damaged"


def _oriented(image: Image, exif: Exif) -> bool:
    """Whether OpenCV must decode a JPEG, since it may have to be turned. Elsewhere than in a header the marker's six
    bytes do no harm: OpenCV decodes that file too, only slower."""
    return exif == "apply" and b"Exif\0\0" in bytes(image)


# ---- what becomes of them ----


def _place(
    out: NDArray[np.uint8], picture: NDArray[np.uint8], view: _View, pixels: Pixels, drawn: Draw, where: str
) -> None:
    """Resize, rotate, pad and crop what ``view`` says of a picture."""
    rows, columns = picture.shape[:2]
    part = picture[_slice(view.top, view.bottom, rows), _slice(view.left, view.right, columns)]
    if pixels.augment is None or not pixels.shifts:
        _resize(part, view, out)
    elif max(view.height, view.width) > _LONGEST:
        raise DataError(
            f"{where}: the image, {rows} x {columns} pixels, would be {view.height} x {view.width} before "
            f"it is rotated, padded and cropped; allowed: {_LONGEST} a side. Leave the record out"
        )
    else:
        _shift(out, _resize(part, view), pixels.augment, drawn)


def _resize(part: NDArray[np.uint8], view: _View, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """To the view's size, into ``out`` if given; pixels of the right size are copied."""
    scale = min(view.height / part.shape[0], view.width / part.shape[1])
    # Below one half, bilinear interpolation skips pixels and detail turns into noise; above, it is 4 times as fast.
    how = cv2.INTER_AREA if scale < 0.5 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(part, (view.width, view.height), dst=out, interpolation=how))


def _shift(out: NDArray[np.uint8], picture: NDArray[np.uint8], augment: Augment, drawn: Draw) -> None:
    """Rotate about the centre, pad and crop."""
    picture = shifted(picture, augment, drawn)
    y, x = (CENTRE, CENTRE) if augment.random_resized_crop else (drawn.y, drawn.x)  # that one is a crop already
    top, left = offset(y, picture.shape[0] - out.shape[0]), offset(x, picture.shape[1] - out.shape[1])
    np.copyto(out, picture[top : top + out.shape[0], left : left + out.shape[1]].reshape(out.shape))
