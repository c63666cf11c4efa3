"""The random choices for one image: a function of (seed, epoch, record), with no image in it.

    rng = generator(seed, epoch, record)
    drawn = draw(augment, rng)                       # mirror, angle, offset and region of the crop
    matrix = colour_matrix(augment, rng, mean)       # of augmentations.py; after the crop, whose mean colour it needs

Every choice takes the same numbers of the generator whether it is switched on or not, so that a setting changes only
what it names: an image is mirrored or not whatever the crop, and cropped at the same offset whatever the colours.
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
"""The offset of a centre crop. Just below a half: an odd margin is rounded down, as mx.image.center_crop does."""

_TRIES = 10  # of a random region, as mx.image.random_size_crop


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
    y: float = CENTRE  # offset of the crop: a fraction of the rows that are left over, from 0 (top) to below 1
    x: float = CENTRE
    angle: float = 0.0  # degrees, counter-clockwise
    tries: Sequence[float] = ()  # for random_resized_crop: fractions for area, aspect, area, aspect, ...


STILL = Draw()


def draw(augment: Augment, rng: Generator) -> Draw:
    """All choices but the colours."""
    mirror, y, x, angle, *tries = rng.random(4 + 2 * _TRIES).tolist()
    crops = augment.rand_crop or augment.random_resized_crop
    return Draw(
        augment.rand_mirror and mirror < 0.5,
        y if crops else CENTRE,
        x if crops else CENTRE,
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
