"""Decoding: formats, channels, sizes, and images that must fail."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from raymx.data.image import decode
from raymx.errors import DataError

JPEGS = Path(__file__).parents[2] / "shared" / "data" / "jpeg"


def pixels(height: int, width: int, channels: int) -> np.ndarray:
    """A smooth picture, so that JPEG changes it little."""
    y, x = np.mgrid[:height, :width]
    planes = [y * 255 / (height - 1), x * 255 / (width - 1), (x + y) * 255 / (height + width - 2)]
    return np.stack(planes[:channels], -1).astype(np.uint8)


def encode(image: np.ndarray, extension: str) -> bytes:
    stored = image[..., ::-1] if image.shape[-1] == 3 else image  # OpenCV takes BGR
    return cv2.imencode(extension, stored)[1].tobytes()


def jpeg(name: str) -> bytes:
    if not (JPEGS / name).exists():
        pytest.skip("the odd JPEG files are not here")
    return (JPEGS / name).read_bytes()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("extension", "tolerance"), [(".png", 0), (".bmp", 0), (".jpg", 12)])
def test_formats_and_channels(extension: str, tolerance: int, channels: int) -> None:
    image = pixels(20, 30, channels)
    decoded = decode(encode(image, extension), (channels, 20, 30), "here")
    assert decoded.dtype == np.uint8
    assert decoded.shape == (20, 30, channels)
    assert np.abs(decoded.astype(int) - image).max() <= tolerance


@pytest.mark.parametrize("extension", [".png", ".jpg"])
def test_gray_and_colour_become_what_the_shape_says(extension: str) -> None:
    gray = decode(encode(pixels(20, 30, 1), extension), (3, 20, 30), "here")
    assert gray.shape == (20, 30, 3)
    assert np.ptp(gray.astype(int), axis=-1).max() == 0
    assert decode(encode(pixels(20, 30, 3), extension), (1, 20, 30), "here").shape == (20, 30, 1)


@pytest.mark.parametrize(("height", "width"), [(40, 60), (60, 40), (10, 15), (41, 33), (20, 90)])
def test_other_sizes_are_resized_and_cropped_at_the_centre(height: int, width: int) -> None:
    decoded = decode(encode(pixels(height, width, 3), ".png"), (3, 20, 20), "here")
    assert decoded.shape == (20, 20, 3)
    # The middle of a symmetric ramp stays the middle: nothing was taken from one side alone.
    assert np.abs(decoded[..., :2].mean((0, 1)) - 127.5).max() < 10


def test_exif_orientation_is_not_applied() -> None:
    upright = cv2.imdecode(
        np.frombuffer(jpeg("hopper_orientation_6.jpg"), np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    )
    decoded = decode(jpeg("hopper_orientation_6.jpg"), (3, 128, 128), "here")
    assert np.abs(decoded.astype(int) - upright[..., ::-1]).mean() < 2


@pytest.mark.parametrize(
    "name", ["pil_sample_cmyk.jpg", "junk_jpeg_header.jpg", "app13-multiple.jpg", "jfif_unit_cm.jpg"]
)
def test_odd_jpeg_files_decode(name: str) -> None:
    for channels in (1, 3):
        assert decode(jpeg(name), (channels, 32, 32), "here").shape == (32, 32, channels)


def test_truncated_jpeg_is_refused_with_the_decoders_words() -> None:
    with pytest.raises(DataError, match=r"a\.rec, record at byte 8: .*Premature end of JPEG file"):
        decode(jpeg("truncated_jpeg.jpg"), (3, 100, 100), "a.rec, record at byte 8")


@pytest.mark.parametrize("extension", [".png", ".jpg", ".bmp"])
@pytest.mark.parametrize("keep", [0.0, 0.02, 0.5, 0.95])
def test_cut_images_are_refused(extension: str, keep: float) -> None:
    whole = encode(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8), extension)
    with pytest.raises(DataError, match="here: the image cannot be decoded"):
        decode(whole[: int(len(whole) * keep)], (3, 64, 64), "here")


def test_two_channels_are_refused() -> None:
    with pytest.raises(DataError, match="2 channels; allowed: 1"):
        decode(encode(pixels(8, 8, 3), ".png"), (2, 8, 8), "here")
