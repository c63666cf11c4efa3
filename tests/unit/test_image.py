"""Decoding: formats, channels, sizes, and images that must fail."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from raymx.data.pipeline import image as image_module
from raymx.data.pipeline.augment import Draw, draw, generator, offset
from raymx.data.pipeline.augmentations import colour_matrix
from raymx.data.pipeline.image import Pixels, decode, decode_full, decode_into, probe
from raymx.data.recordio.reading import iter_payloads
from raymx.data.recordio.record import unpack
from raymx.data.tools.encoding import Images, encode_file
from raymx.errors import DataError
from raymx.experiment.schema import Augment

SHARED = Path(__file__).parents[3] / "shared" / "data"
JPEGS = SHARED / "jpeg"


def pixels(height: int, width: int, channels: int) -> np.ndarray:
    """A smooth picture, so that JPEG changes it little."""
    y, x = np.mgrid[:height, :width]
    planes = [y * 255 / (height - 1), x * 255 / (width - 1), (x + y) * 255 / (height + width - 2)]
    return np.stack(planes[:channels], -1).astype(np.uint8)


def encode(image: np.ndarray, extension: str) -> bytes:
    stored = image[..., ::-1] if image.shape[-1] == 3 else image  # OpenCV takes BGR
    return cv2.imencode(extension, stored)[1].tobytes()


def into(image: bytes | memoryview, wanted: Pixels, record: int = 0) -> np.ndarray:
    """The second row of a batch, to see that only it is written."""
    channels, height, width = wanted.shape
    batch = np.full((3, height, width, channels), 77, np.uint8)
    decode_into(batch[1], image, wanted, "here", generator(1, 2, record) if wanted.random else None)
    assert (batch[[0, 2]] == 77).all()
    return batch[1]


def difference(one: np.ndarray, other: np.ndarray) -> float:
    assert one.shape == other.shape
    return float(np.abs(one.astype(int) - other).mean())


def noise(height: int, width: int, channels: int, seed: int = 0, blur: float = 0) -> np.ndarray:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return cv2.GaussianBlur(image, (0, 0), blur).reshape(image.shape) if blur else image


def photos(count: int) -> list[bytes]:
    paths = sorted((SHARED / "photos").glob("*.jpg"))
    if not paths:
        pytest.skip("the photographs are not here")
    return [path.read_bytes() for path in paths[:: len(paths) // count][:count]]


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


TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    6: lambda stored: np.rot90(stored, -1),
    8: lambda stored: np.rot90(stored),
}


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("channels", [1, 3])
def test_exif_orientation_is_applied_when_asked_only(orientation: int, channels: int) -> None:
    image = jpeg(f"hopper_orientation_{orientation}.jpg")
    stored = simplejpeg.decode_jpeg(image, "GRAY" if channels == 1 else "RGB")
    assert np.array_equal(decode(image, (channels, 128, 128), "here"), stored)
    turned = TURNS[orientation](stored)
    assert np.array_equal(into(image, Pixels((channels, 128, 128), exif="apply")), turned)
    assert np.array_equal(decode_full(image, channels, "here", "apply"), turned)
    assert np.array_equal(decode_full(image, channels, "here"), stored)


def test_exif_apply_leaves_images_without_a_marker_alone() -> None:
    for name in ("hopper.jpg", "hopper_gray.jpg"):
        assert np.array_equal(decode_full(jpeg(name), 3, "here", "apply"), decode_full(jpeg(name), 3, "here"))


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


# ---- what is stored ----


@pytest.mark.parametrize(
    "name",
    [
        "app13-multiple.jpg",
        "hopper.jpg",
        "hopper_gray.jpg",
        "hopper_orientation_6.jpg",
        "jfif_unit_cm.jpg",
        "junk_jpeg_header.jpg",
        "pil_sample_cmyk.jpg",
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_odd_jpeg_files_decode_as_mx_image_does(name: str, channels: int) -> None:
    mx = pytest.importorskip("mxnet")
    expected = mx.image.imdecode(jpeg(name), flag=int(channels == 3)).asnumpy()
    assert difference(decode_full(jpeg(name), channels, "here"), expected) < 0.5


def test_photographs_decode_as_mx_image_does() -> None:
    mx = pytest.importorskip("mxnet")
    for image in photos(10):
        assert difference(decode_full(image, 3, "here"), mx.image.imdecode(image).asnumpy()) < 0.5


def test_probe_says_what_is_stored() -> None:
    for extension, kind in ((".jpg", "jpeg"), (".png", "png"), (".bmp", "bmp"), (".webp", "webp"), (".tiff", "tiff")):
        assert probe(encode(pixels(20, 30, 3), extension), "here") == (kind, 20, 30, 3)
    for extension in (".jpg", ".png"):
        assert probe(encode(pixels(20, 30, 1), extension), "here")[1:] == (20, 30, 1)
    assert probe(encode(pixels(9, 8, 3), ".ppm"), "here") == ("other", 9, 8, 3)
    assert probe(encode(noise(9, 8, 4), ".png"), "here").channels == 3
    for name in ("truncated_jpeg.jpg",):
        with pytest.raises(DataError, match="here: the image cannot be decoded"):
            probe(jpeg(name), "here")


def test_alpha_is_dropped_and_16_bits_become_8() -> None:
    image = noise(9, 8, 4)
    stored = cv2.imencode(".png", image)[1].tobytes()
    assert np.array_equal(decode_full(stored, 3, "here"), image[..., 2::-1])
    deep = (noise(9, 8, 1).astype(np.uint16) << 8) + 200
    assert np.array_equal(decode_full(cv2.imencode(".png", deep)[1].tobytes(), 1, "here"), deep >> 8)


@pytest.mark.parametrize("extension", [".png", ".jpg"])
@pytest.mark.parametrize("size", [(1, 1), (1, 1000), (1000, 1), (3, 2), (1000, 30)])
def test_tiny_and_long_images(extension: str, size: tuple[int, int]) -> None:
    image = encode(np.full((*size, 3), 90, np.uint8), extension)
    for wanted in (
        Pixels((3, 224, 224)),
        Pixels((1, 224, 224), resize=256),
        Pixels((3, 40, 30), augment=Augment(random_resized_crop=True)),
        Pixels((3, 30, 30), augment=Augment(rand_crop=True, pad=2, fill_value=90)),
        Pixels((3, 20, 20), augment=Augment(rand_crop=True, max_rotate_angle=30, fill_value=90)),
    ):
        assert np.abs(into(image, wanted).astype(int) - 90).max() <= 2


def test_what_is_too_long_to_rotate_is_named() -> None:
    with pytest.raises(DataError, match=r"here: the image, 1 x 1000 pixels, would be 224 x 224000.*allowed: 32766"):
        into(encode(noise(1, 1000, 3), ".png"), Pixels((3, 224, 224), augment=Augment(max_rotate_angle=5)))


@pytest.mark.parametrize("extension", [".png", ".jpg"])
def test_a_memoryview_will_do(extension: str) -> None:
    image = encode(pixels(20, 30, 3), extension)
    view = memoryview(b"before" + image)[6:]
    wanted = Pixels((3, 16, 16), exif="apply")
    assert np.array_equal(into(view, wanted), into(image, wanted))
    assert np.array_equal(decode_full(view, 3, "here"), decode_full(image, 3, "here"))
    assert probe(view, "here") == probe(image, "here")
    with pytest.raises(DataError):
        into(view[:60], wanted)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([".png", ".jpg", ".bmp", ".webp"]), st.data())
def test_damaged_bytes_never_raise_anything_else(extension: str, data: st.DataObject) -> None:
    image = bytearray(encode(pixels(40, 30, 3), extension))
    for _ in range(data.draw(st.integers(1, 3))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DataError):
        into(bytes(image), Pixels((3, 16, 16)))


# ---- size, place and region ----


def test_an_image_of_the_right_size_is_decoded_into_its_row() -> None:
    for channels in (1, 3):
        for extension in (".png", ".jpg"):
            image = encode(pixels(32, 48, channels), extension)
            assert np.array_equal(into(image, Pixels((channels, 32, 48))), decode_full(image, channels, "here"))


def test_a_wrong_row_or_no_generator_is_refused() -> None:
    image = encode(pixels(8, 8, 3), ".png")
    for out in (np.empty((8, 9, 3), np.uint8), np.empty((8, 8, 6), np.uint8)[..., ::2]):
        with pytest.raises(ValueError, match="out is"):
            decode_into(out, image, Pixels((3, 8, 8)), "here")
    with pytest.raises(ValueError, match="give a generator"):
        decode_into(np.empty((8, 8, 3), np.uint8), image, Pixels((3, 8, 8), augment=Augment(rand_mirror=True)), "here")


def test_pixels_pickle_with_what_they_remember() -> None:
    wanted = Pixels((3, 8, 8), 9, "apply", Augment(pad=3, hue=0.1))
    assert wanted.random
    assert pickle.loads(pickle.dumps(wanted)) == wanted


@pytest.mark.parametrize("extension", [".png", ".jpg"])
def test_an_unscaled_crop_is_exact(extension: str) -> None:
    image = encode(noise(60, 45, 3), extension)
    full = decode_full(image, 3, "here")
    augment = Augment(rand_crop=True, rand_mirror=True)
    for record in range(40):
        drawn = draw(augment, generator(1, 2, record))
        top, left = offset(drawn.y, 60 - 32), offset(drawn.x, 45 - 30)
        cropped = into(image, Pixels((3, 32, 30), 45, augment=augment), record)
        assert np.array_equal(cropped, full[top : top + 32, left : left + 30])
    assert np.array_equal(into(image, Pixels((3, 32, 30), 45)), full[14:46, 7:37])


def whole_way(image: bytes, wanted: Pixels, drawn: Draw) -> np.ndarray:
    """Decode in full, resize in full, crop."""
    full = decode_full(image, wanted.shape[0], "here")
    _, height, width = wanted.shape
    scale = max(height / full.shape[0], width / full.shape[1], (wanted.resize or 0) / min(full.shape[:2]))
    size = (max(width, round(full.shape[1] * scale)), max(height, round(full.shape[0] * scale)))
    full = cv2.resize(full, size, interpolation=cv2.INTER_AREA if scale < 0.5 else cv2.INTER_LINEAR)
    top, left = offset(drawn.y, full.shape[0] - height), offset(drawn.x, full.shape[1] - width)
    return full[top : top + height, left : left + width].reshape(height, width, -1)


@pytest.mark.parametrize("resize", [None, 48, 64, 100])
@pytest.mark.parametrize(("extension", "channels"), [(".png", 3), (".jpg", 3), (".jpg", 1)])
def test_the_short_way_gives_nearly_what_the_whole_way_gives(extension: str, channels: int, resize: int | None) -> None:
    augment = Augment(rand_crop=True)
    for seed, size in enumerate([(150, 200), (410, 300), (101, 99), (800, 700), (60, 500)]):
        image = encode(noise(*size, 3, seed, blur=6), extension)
        for wanted in (Pixels((channels, 48, 40), resize), Pixels((channels, 48, 40), resize, augment=augment)):
            drawn = draw(augment, generator(1, 2, seed)) if wanted.random else Draw()
            assert difference(into(image, wanted, seed), whole_way(image, wanted, drawn)) < 4


@pytest.mark.parametrize("side", [32, 64, 112, 224])
def test_reduced_decoding_of_photographs(side: int) -> None:
    """No further from the whole way than a picture is from itself moved by a third of a pixel."""
    augment = Augment(rand_crop=True)
    wanted = Pixels((3, side, side), round(side * 8 / 7), augment=augment)
    move = np.array([[1, 0, 1 / 3], [0, 1, 1 / 3]])
    off, moved = [], []
    for record, image in enumerate(photos(10)):
        whole = whole_way(image, wanted, draw(augment, generator(1, 2, record)))
        off.append(difference(into(image, wanted, record), whole))
        moved.append(difference(cv2.warpAffine(whole, move, (side, side), borderMode=cv2.BORDER_REPLICATE), whole))
    assert np.mean(off) < np.mean(moved)


@pytest.mark.parametrize("sampling", ["444", "422", "420", "440", "411"])
def test_reduced_decoding_gives_the_sizes_that_are_reckoned_with(sampling: str) -> None:
    for height, width in ((1, 1), (7, 130), (65, 64), (127, 33)):
        image = simplejpeg.encode_jpeg(noise(height, width, 3), 80, "RGB", sampling)
        for factor in (1, 2, 4, 8):
            size = (-(-height // factor), -(-width // factor))
            picture = simplejpeg.decode_jpeg(image, min_height=size[0], min_width=size[1], min_factor=factor)
            assert picture.shape[:2] == size


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 300), st.booleans(), st.integers(0, 99))
def test_reduced_decoding_never_enlarges_what_full_decoding_would_not(
    height: int, width: int, wanted: int, regions: bool, record: int
) -> None:
    augment = Augment(random_resized_crop=regions, rand_crop=not regions)
    some = Pixels((3, wanted, wanted), augment=augment)
    view = image_module._view(some, draw(augment, generator(1, 1, record)), height, width)
    factor = image_module._factor(view, height, width)
    rows, columns = -(-height // factor), -(-width // factor)
    across = image_module._slice(view.left, view.right, columns)
    down = image_module._slice(view.top, view.bottom, rows)
    assert 0 <= down.start < down.stop <= rows
    assert 0 <= across.start < across.stop <= columns
    if factor > 1:  # to the whole pixel
        assert down.stop - down.start >= wanted - 1
        assert across.stop - across.start >= wanted - 1


def test_a_random_region_of_a_ramp_is_part_of_it() -> None:
    image = encode(pixels(300, 400, 3), ".png")
    augment = Augment(random_resized_crop=True, rand_mirror=True)
    areas = []
    for record in range(50):
        out = into(image, Pixels((3, 64, 64), augment=augment), record).astype(int)
        assert (np.diff(out[..., 0], axis=0) >= 0).all()
        assert (np.diff(out[..., 1], axis=1) >= 0).all()
        areas.append(np.ptp(out[..., 0]) * np.ptp(out[..., 1]) / 255**2)
    assert 0.05 < min(areas) < 0.25
    assert 0.8 < max(areas) <= 1


def test_the_same_record_looks_the_same_and_others_do_not() -> None:
    image = encode(noise(50, 50, 3, blur=2), ".jpg")
    wanted = Pixels((3, 32, 32), 40, augment=Augment(rand_crop=True, max_rotate_angle=9, pad=2, contrast=0.4, hue=0.2))
    assert np.array_equal(into(image, wanted, 5), into(image, wanted, 5))
    assert not np.array_equal(into(image, wanted, 5), into(image, wanted, 6))


def test_mirror_is_returned_and_left_to_the_caller() -> None:
    image = encode(pixels(32, 32, 3), ".png")
    plain, out = into(image, Pixels((3, 32, 32))), np.empty((32, 32, 3), np.uint8)
    wanted = Pixels((3, 32, 32), augment=Augment(rand_mirror=True))
    flags = {decode_into(out, image, wanted, "here", generator(1, 1, record)) for record in range(20)}
    assert flags == {True, False}
    assert np.array_equal(out, plain)


# ---- rotation, padding and colours ----


@pytest.mark.parametrize("extension", [".png", ".jpg"])
def test_almost_no_rotation_changes_almost_nothing(extension: str) -> None:
    image = encode(noise(120, 90, 3, blur=5), extension)
    crop = Augment(rand_crop=True)
    turned = into(image, Pixels((3, 40, 32), 50, augment=crop.model_copy(update={"max_rotate_angle": 1e-9})))
    assert difference(turned, into(image, Pixels((3, 40, 32), 50, augment=crop))) < 2
    whole = whole_way(image, Pixels((3, 40, 32), 50), draw(crop, generator(1, 2, 0)))
    assert difference(turned, whole) < (0.01 if extension == ".png" else 2)


def test_rotation_is_about_the_centre_and_fills() -> None:
    image = encode(np.full((41, 41, 3), 10, np.uint8), ".png")
    augment = Augment(max_rotate_angle=180, fill_value=200)
    for record in range(10):
        angle = draw(augment, generator(1, 2, record)).angle
        out = into(image, Pixels((3, 41, 41), augment=augment), record)
        assert (out[20, 20] == 10).all()
        assert difference(out, out[::-1, ::-1]) < 1  # a square turned about its centre keeps this symmetry
        if 20 < abs(angle) % 90 < 70:
            assert (out[[0, 0, -1, -1], [0, -1, 0, -1]] == 200).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_pad_and_crop_moves_by_whole_pixels(channels: int) -> None:
    image = noise(32, 32, channels)
    augment = Augment(rand_crop=True, rand_mirror=True, pad=4, fill_value=9)
    wanted = Pixels((channels, 32, 32), augment=augment)
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)), constant_values=9)
    places = set()
    for record in range(300):
        drawn = draw(augment, generator(1, 2, record))
        top, left = offset(drawn.y, 8), offset(drawn.x, 8)
        places.add((top, left))
        out = into(encode(image, ".png"), wanted, record)
        assert np.array_equal(out, padded[top : top + 32, left : left + 32])
    assert len(places) > 70  # of 81


def test_padding_without_rand_crop_changes_nothing() -> None:
    image = encode(noise(32, 32, 3), ".png")
    assert np.array_equal(into(image, Pixels((3, 32, 32), augment=Augment(pad=4))), decode_full(image, 3, "here"))


@pytest.mark.parametrize("channels", [1, 3])
def test_colours_are_the_matrix_with_saturation(channels: int) -> None:
    image = encode(noise(20, 20, channels), ".png")
    augment = Augment(brightness=0.9, contrast=0.5, saturation=0.5, hue=0.4, pca_noise=0.2)
    plain = decode_full(image, channels, "here").astype(float)
    for record in range(10):
        rng = generator(1, 2, record)
        draw(augment, rng)
        matrix = colour_matrix(augment, rng, plain.mean((0, 1)).tolist())
        expected = np.clip(plain @ matrix[:, :channels].T + matrix[:, channels], 0, 255)
        out = into(image, Pixels((channels, 20, 20), augment=augment), record)
        assert np.abs(out - expected).max() < 1.6  # OpenCV's fixed point


@pytest.mark.parametrize("name", ["captcha/train.rec", "captcha/val.rec", "detection/val.rec"])
def test_files_of_others_decode_as_in_mxnet(name: str) -> None:
    mx = pytest.importorskip("mxnet")
    path = JPEGS.parent / "recordio" / name
    if not path.exists():
        pytest.skip("no files by other writers here")
    for payload in itertools.islice(iter_payloads(str(path)), 50):
        record = unpack(payload)
        header, image = mx.recordio.unpack(bytes(payload))
        assert record.id == header.id
        np.testing.assert_array_equal(record.label, np.atleast_1d(header.label))
        assert bytes(record.image) == image
        for channels in (1, 3):
            expected = mx.image.imdecode(image, flag=int(channels == 3)).asnumpy()
            assert difference(decode_full(record.image, channels, "here"), expected) < 0.5
    assert len(record.label) == (19 if name.startswith("detection") else len(record.label))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_tiff_of_fractions_is_refused(tmp_path: Path, kind: type) -> None:
    """OpenCV would read one pixel value of them as three different colours."""
    file = bytes(cv2.imencode(".tiff", np.full((8, 8, 3), 0.5, kind))[1])
    for read in (lambda: decode_full(file, 3, "x"), lambda: probe(file, "x"), lambda: decode(file, (1, 8, 8), "x")):
        with pytest.raises(DataError, match=rf"x: the image has {np.dtype(kind)} pixels, and 8 or 16 bits a channel"):
            read()
    (tmp_path / "a.tiff").write_bytes(file)
    assert "8 or 16 bits a channel are allowed" in str(encode_file(str(tmp_path / "a.tiff"), Images()))


@pytest.mark.parametrize("value", [np.uint8(200), np.uint16(200 << 8)])
def test_a_tiff_of_8_or_16_bits_is_read(value: np.generic) -> None:
    file = bytes(cv2.imencode(".tiff", np.full((8, 8, 3), value, value.dtype))[1])
    assert abs(decode_full(file, 3, "x").astype(int) - 200).max() <= 1
