"""The random choices: repeatable, independent of each other, within their bounds, and mx.image's arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, Philox

from raymx.data.pipeline.augment import CENTRE, STILL, draw, generator, offset, region
from raymx.data.pipeline.augmentations import changes_colour, colour_matrix
from raymx.experiment.schema import Augment

COLOURS = {"brightness": 0.4, "contrast": 0.3, "saturation": 0.5, "hue": 0.2, "pca_noise": 0.1}
EVERYTHING = Augment(rand_crop=True, rand_mirror=True, max_rotate_angle=20, pad=4, **COLOURS)
MEAN = (120.0, 90.0, 60.0)
word = st.integers(0, 2**32 - 1)


@given(word, word, word)
def test_the_same_numbers_give_the_same_stream(seed: int, epoch: int, record: int) -> None:
    assert draw(EVERYTHING, generator(seed, epoch, record)) == draw(EVERYTHING, generator(seed, epoch, record))
    key = np.array([seed << 32 | epoch, record], np.uint64)
    assert (generator(seed, epoch, record).random(8) == Generator(Philox(key=key)).random(8)).all()


def test_each_number_matters() -> None:
    streams = {tuple(generator(*numbers).random(3)) for numbers in np.ndindex(5, 5, 5)}
    assert len(streams) == 125


def test_no_setting_changes_another_choice() -> None:
    for record in range(50):
        mirror, full = (draw(a, generator(1, 2, record)) for a in (Augment(rand_mirror=True), EVERYTHING))
        regions = draw(Augment(random_resized_crop=True, rand_mirror=True), generator(1, 2, record))
        assert mirror.mirror == full.mirror == regions.mirror
        assert (regions.y, regions.x) == (full.y, full.x)
        matrices = []
        for augment in (Augment(**COLOURS), EVERYTHING):
            rng = generator(1, 2, record)
            draw(augment, rng)
            matrices.append(colour_matrix(augment, rng, MEAN))
        assert np.array_equal(*matrices)


def test_draws_spread_over_their_ranges() -> None:
    draws = [draw(EVERYTHING, generator(3, 0, record)) for record in range(2000)]
    assert 0.45 < np.mean([d.mirror for d in draws]) < 0.55
    for name, low, high in (("y", 0, 1), ("x", 0, 1), ("angle", -20, 20)):
        values = np.array([getattr(d, name) for d in draws])
        assert low <= values.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < values.max() < high
        assert abs(values.mean() - (low + high) / 2) < 0.03 * (high - low)


def test_nothing_asked_is_the_centre() -> None:
    drawn = draw(Augment(), generator(1, 2, 3))
    assert (drawn.mirror, drawn.angle, drawn.y, drawn.x) == (STILL.mirror, STILL.angle, STILL.y, STILL.x)


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 70_000))
def test_an_offset_stays_inside(fraction: float, room: int) -> None:
    assert 0 <= offset(fraction, room) <= room
    assert offset(CENTRE, room) == room // 2


def test_offsets_are_equally_likely() -> None:
    counts = np.bincount([offset(f, 8) for f in generator(1, 1, 1).random(9000)], minlength=9)
    assert counts.size == 9
    assert counts.min() > 850


@given(st.integers(1, 3000), st.integers(1, 3000), word)
def test_a_region_is_inside_the_image(height: int, width: int, record: int) -> None:
    augment = Augment(random_resized_crop=True)
    top, left, h, w = region(augment, draw(augment, generator(1, 0, record)), (height, width), (224, 200))
    assert 0 <= top <= top + h <= height
    assert 0 <= left <= left + w <= width
    assert h > 0
    assert w > 0


def test_area_and_aspect_of_regions() -> None:
    augment = Augment(random_resized_crop=True, min_random_area=0.2, max_random_area=0.6)
    regions = [region(augment, draw(augment, generator(1, 0, n)), (800, 1000), (224, 224))[2:] for n in range(1000)]
    h, w = np.array(regions, float).T
    area, aspect = h * w / 800_000, w / h
    assert 0.198 < area.min() < 0.21
    assert 0.59 < area.max() < 0.602
    assert 0.748 < aspect.min() < 0.76
    assert 1.31 < aspect.max() < 1.336
    assert abs(area.mean() - 0.4) < 0.02
    assert abs(np.log(aspect).mean()) < 0.02  # uniform in the logarithm


def test_whole_area_of_a_square_is_the_square() -> None:
    augment = Augment(random_resized_crop=True, min_random_area=1, min_aspect_ratio=1, max_aspect_ratio=1)
    assert region(augment, draw(augment, generator(1, 1, 1)), (97, 97), (32, 32)) == (0, 0, 97, 97)


@pytest.mark.parametrize(
    ("size", "aspect", "expected"),
    [((900, 1000), 50, (338, 400, 224, 200)), ((100, 1000), 50, (0, 455, 100, 89)), ((1, 1000), 0.01, (0, 499, 1, 1))],
)
def test_a_region_that_never_fits_becomes_the_centre(
    size: tuple[int, int], aspect: float, expected: tuple[int, ...]
) -> None:
    """mx.image.center_crop with the wanted size, scaled down to fit."""
    augment = Augment(random_resized_crop=True, min_random_area=1, min_aspect_ratio=aspect, max_aspect_ratio=aspect)
    assert region(augment, draw(augment, generator(1, 1, 1)), size, (224, 200)) == expected


# ---- colours ----


class Given:
    """A generator that gives what the test says: four uniform numbers, one after another, and three normal ones."""

    def __init__(self, uniform: list[float], normal: list[float]) -> None:
        self.uniform, self.normal = np.array(uniform), np.array(normal)
        self.given = 0

    def random(self, count: int) -> np.ndarray:
        start = self.given % 4
        self.given += count
        return self.uniform[start : start + count]

    def standard_normal(self, count: int) -> np.ndarray:
        assert count == 3
        return self.normal


def apply(matrix: np.ndarray, image: np.ndarray) -> np.ndarray:
    channels = len(matrix)
    return image @ matrix[:, :channels].T + matrix[:, channels]


def mx_colours(monkeypatch: pytest.MonkeyPatch, augment: Augment, image: np.ndarray, rng: Given) -> np.ndarray:
    """mx.image's own augmenters, with their random numbers replaced by those of ``rng``."""
    mx = pytest.importorskip("mxnet")
    monkeypatch.setattr(mx.image.image.np.random, "normal", lambda mean, std, size: mean + std * rng.normal)
    values = np.array([55.46, 4.794, 1.148])
    vectors = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
    changes = (
        (augment.brightness, mx.image.BrightnessJitterAug),
        (augment.contrast, mx.image.ContrastJitterAug),
        (augment.saturation, mx.image.SaturationJitterAug),
        (augment.hue, mx.image.HueJitterAug),
        (augment.pca_noise, lambda std: mx.image.LightingAug(std, values, vectors)),
    )
    pixels = mx.nd.array(image)
    for (size, make), uniform in zip(changes, [*rng.uniform, 0.5], strict=True):
        monkeypatch.setattr(mx.image.image.random, "uniform", lambda low, high, u=uniform: low + (high - low) * u)
        if size > 0:  # as CreateAugmenter does; HueJitterAug(0) is not quite the identity
            pixels = make(size)(pixels)
    return pixels.asnumpy()


@pytest.mark.parametrize("only", [*COLOURS, "all"])
def test_the_matrix_is_mx_images_augmenters(monkeypatch: pytest.MonkeyPatch, only: str) -> None:
    augment = Augment(**(COLOURS if only == "all" else {only: COLOURS[only]}))
    for seed in range(5):
        numbers = np.random.default_rng(seed)
        image = numbers.integers(0, 256, (9, 7, 3)).astype(np.float32)
        rng = Given(numbers.random(4).tolist(), numbers.standard_normal(3).tolist())
        expected = mx_colours(monkeypatch, augment, image.copy(), rng)
        matrix = colour_matrix(augment, rng, image.mean((0, 1)).tolist())  # type: ignore[arg-type]
        assert matrix.dtype == np.float32
        assert matrix.shape == (3, 4)
        assert np.abs(apply(matrix, image) - expected).max() < 0.01


def test_brightness_contrast_and_saturation_commute() -> None:
    """What the docstring says of mx.image's shuffling: contrast, whose mean the others might change, may come last."""
    image = np.random.default_rng(0).random((8, 8, 3)) * 255
    rng = Given([0.9, 0.2, 0.7, 0.5], [0, 0, 0])
    augment = Augment(brightness=0.5, contrast=0.5, saturation=0.5)
    at_once = apply(colour_matrix(augment, rng, image.mean((0, 1))), image)  # type: ignore[arg-type]
    for name in ("saturation", "brightness", "contrast"):
        image = apply(colour_matrix(Augment(**{name: 0.5}), rng, image.mean((0, 1))), image)  # type: ignore[arg-type]
    assert np.abs(image - at_once).max() < 0.01


def test_no_colours_is_the_identity() -> None:
    assert np.array_equal(colour_matrix(Augment(), generator(1, 2, 3), MEAN), np.eye(3, 4, dtype=np.float32))
    assert np.array_equal(colour_matrix(Augment(), generator(1, 2, 3), (9.0,)), [[1, 0]])


def test_gray_has_brightness_and_contrast_only() -> None:
    both = [
        colour_matrix(a, generator(1, 2, 3), (100.0,))
        for a in (Augment(**COLOURS), Augment(brightness=COLOURS["brightness"], contrast=COLOURS["contrast"]))
    ]
    assert both[0].shape == (1, 2)
    assert np.array_equal(*both)
    gray = colour_matrix(Augment(**COLOURS).model_copy(update={"hue": 0.0, "pca_noise": 0.0}), generator(1, 2, 3), MEAN)
    mean = 0.299 * MEAN[0] + 0.587 * MEAN[1] + 0.114 * MEAN[2]
    colour = apply(gray, np.full(3, 50.0))
    alone = apply(colour_matrix(Augment(**COLOURS), generator(1, 2, 3), (mean,)), np.full(1, 50.0))
    assert np.allclose(colour, alone)  # a gray picture stays gray, and gets the same


@pytest.mark.parametrize("name", COLOURS)
def test_which_settings_change_colours(name: str) -> None:
    assert changes_colour(Augment(**{name: 0.1}), 3)
    assert changes_colour(Augment(**{name: 0.1}), 1) == (name in ("brightness", "contrast"))
    assert not changes_colour(Augment(rand_mirror=True, rand_crop=True, pad=4), 3)


@given(word)
def test_alphas_stay_in_their_ranges(record: int) -> None:
    bright = colour_matrix(Augment(brightness=0.3), generator(0, 0, record), MEAN)[0, 0]
    assert 0.7 - 1e-6 <= bright <= 1.3 + 1e-6
    contrast = colour_matrix(Augment(contrast=0.3), generator(0, 0, record), (100.0,))[0]
    assert math.isclose(contrast[1], (1 - contrast[0]) * 100, abs_tol=1e-3)
