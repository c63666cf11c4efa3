"""The random choices for one image: a function of (seed, epoch, record), with no image in it.

    rng = generator(seed, epoch, record)
    drawn = draw(augment, rng)                       # mirror, angle, place and region of the crop
    matrix = colour_matrix(augment, rng, mean)       # after the crop, whose mean colour it needs

Every choice takes the same numbers of the generator whether it is switched on or not, so that a setting changes only
what it names: an image is mirrored or not whatever the crop, and cropped at the same place whatever the colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, Philox
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from raymx.experiment.schema import Augment

CENTRE = 0.5 - 2.0**-32
"""The place of a centre crop. Just below a half: an odd margin is rounded down, as mx.image.center_crop does."""

_TRIES = 10  # of a random region, as mx.image.random_size_crop

# The numbers of mx.image: BrightnessJitterAug and its kin, HueJitterAug, and CreateAugmenter for the noise.
_GRAY = np.array([[0.299, 0.587, 0.114]] * 3)  # a colour times it: its gray, three times
_SAME = np.eye(3)
_ONE = np.eye(1)
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
_PCA_VALUES = np.array([55.46, 4.794, 1.148])
_PCA_VECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])


class _Key(ISeedSequence):
    """Hands Philox its key. ``Philox(key=...)`` is the same stream, but first asks the system for 16 random bytes,
    which takes 15 of its 19 microseconds."""

    def __init__(self, first: int, second: int) -> None:
        self._words = (first, second)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """The key, two uint64: Philox asks for nothing else."""
        return np.array(self._words, np.uint64)


def generator(seed: int, epoch: int, record: int) -> Generator:
    """``Philox(key=[seed << 32 | epoch, record])``: independent streams for different numbers.

    ``seed`` and ``epoch`` are from 0 to 2**32 - 1, ``record`` (the same number in every run) from 0 to 2**64 - 1.
    """
    return Generator(Philox(_Key(seed << 32 | epoch, record)))  # type: ignore[arg-type]  # numpy's types lag behind


@dataclass(frozen=True)
class Draw:
    """What was drawn for one image, before its size is known. The default is the centre crop and no change."""

    mirror: bool = False
    y: float = CENTRE  # place of the crop: a fraction of the rows that are left over, from 0 (top) to below 1
    x: float = CENTRE
    angle: float = 0.0  # degrees, counter-clockwise
    tries: Sequence[float] = ()  # for random_resized_crop: fractions for area, aspect, area, aspect, ...


STILL = Draw()


def draw(augment: Augment, rng: Generator) -> Draw:
    """All choices but the colours."""
    mirror, y, x, angle, *tries = rng.random(4 + 2 * _TRIES).tolist()
    moves = augment.rand_crop or augment.random_resized_crop
    return Draw(
        augment.rand_mirror and mirror < 0.5,
        y if moves else CENTRE,
        x if moves else CENTRE,
        augment.max_rotate_angle * (2 * angle - 1),
        tries,
    )


def offset(fraction: float, room: int) -> int:
    """A whole number from 0 to ``room``, all equally likely for a uniform ``fraction`` of [0, 1)."""
    return min(room, int(fraction * (room + 1)))


def region(augment: Augment, drawn: Draw, size: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int, int, int]:
    """Top, left, height and width of random_resized_crop in an image of ``size`` (height, width) pixels.

    mx.image.random_size_crop: the area uniform, the aspect (width / height) uniform in its logarithm; the first of ten
    that fits in, else the centre crop of ``wanted``, scaled down if the image is smaller.
    """
    height, width = size
    low, high = math.log(augment.min_aspect_ratio), math.log(augment.max_aspect_ratio)
    for area, aspect in zip(drawn.tries[::2], drawn.tries[1::2], strict=True):
        pixels = height * width * (augment.min_random_area * (1 - area) + augment.max_random_area * area)
        ratio = math.exp(low * (1 - aspect) + high * aspect)
        h, w = max(1, round(math.sqrt(pixels / ratio))), max(1, round(math.sqrt(pixels * ratio)))
        if h <= height and w <= width:
            return offset(drawn.y, height - h), offset(drawn.x, width - w), h, w
    scale = min(1.0, height / wanted[0], width / wanted[1])
    h, w = max(1, int(wanted[0] * scale)), max(1, int(wanted[1] * scale))
    return (height - h) // 2, (width - w) // 2, h, w


def changes_colour(augment: Augment, channels: int) -> bool:
    """Whether ``colour_matrix`` can be anything but the identity."""
    light = augment.brightness > 0 or augment.contrast > 0
    return light or (channels == 3 and (augment.saturation > 0 or augment.hue > 0 or augment.pca_noise > 0))


def colour_matrix(augment: Augment, rng: Generator, mean: Sequence[float]) -> NDArray[np.float32]:
    """One affine map for all changes of colour: float32 (C, C + 1), ``new = M[:, :C] @ old + M[:, C]``.

    ``mean`` is the mean colour of the cropped image, C numbers of 0 to 255; C is 3 (RGB) or 1 (gray, for which only
    brightness and contrast count). The changes are those of mx.image, each with alpha = 1 + U(-x, x), in its order:
    brightness, contrast and saturation (which commute, so that mx.image's shuffling of them changes nothing), hue, PCA
    noise. mx.image clips nowhere; here the result is clipped once, when it becomes uint8.
    """
    bright, contrast, saturation, turn = (2 * rng.random(4) - 1).tolist()
    noise = rng.standard_normal(3)
    b, c, s = 1 + augment.brightness * bright, 1 + augment.contrast * contrast, 1 + augment.saturation * saturation
    count = len(mean)
    same, gray = (_SAME, _GRAY) if count == 3 else (_ONE, _ONE)  # gray in gray is itself: s has no effect
    matrix = np.empty((count, count + 1))
    matrix[:, :count] = (b * c * s) * same + (b * c * (1 - s)) * gray
    matrix[:, count] = (b * (1 - c)) * (gray @ np.asarray(mean))
    if count == 3 and augment.hue > 0:
        matrix = _hue(augment.hue * turn) @ matrix
    if count == 3 and augment.pca_noise > 0:
        matrix[:, 3] += augment.pca_noise * (_PCA_VECTORS @ (noise * _PCA_VALUES))
    return matrix.astype(np.float32)


def _hue(alpha: float) -> NDArray[np.float64]:
    """HueJitterAug: a turn by ``alpha`` half circles in the plane of I and Q of YIQ."""
    u, w = math.cos(alpha * math.pi), math.sin(alpha * math.pi)
    return _FROM_YIQ @ np.array([[1.0, 0.0, 0.0], [0.0, u, -w], [0.0, w, u]]) @ _TO_YIQ
