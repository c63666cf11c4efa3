"""Changes of colour: each a function of the affine map of those before it, float64 (C, C + 1), that gives its own.

C is 3 (RGB) or 1 (gray). ``numbers`` are what `uniform` or `normal` drew for the change. The arithmetic is that of
mx.image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from raymx.experiment.schema import Augment

Map = NDArray[np.float64]
Numbers = Sequence[float] | NDArray[np.float64]
"""What was drawn for a change."""

IDENTITY = {channels: np.eye(channels, channels + 1) for channels in (1, 3)}
"""No change, by the number of channels. Copy it."""

# The numbers of mx.image: BrightnessJitterAug and its kin, HueJitterAug, and CreateAugmenter for the noise.
_GRAY = np.array([[0.299, 0.587, 0.114]] * 3)  # a colour times it: its gray, three times
_SAME = np.eye(3)
_ONE = np.eye(1)
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
_PCA_VALUES = np.array([55.46, 4.794, 1.148])
_PCA_VECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])


def uniform(count: int) -> Callable[[Generator], Numbers]:
    """Draws so many numbers from -1 to 1, all equally likely."""
    return lambda rng: [2 * number - 1 for number in rng.random(count).tolist()]


def normal(count: int) -> Callable[[Generator], Numbers]:
    """Draws so many numbers of the standard normal distribution."""
    return lambda rng: rng.standard_normal(count)


def light(of: Map, augment: Augment, numbers: Numbers, mean: Sequence[float]) -> Map:
    """Brightness, contrast and saturation, each with alpha = 1 + U(-x, x). They come first: ``of`` is the identity.

    They commute, so that mx.image's shuffling of them changes nothing. ``mean`` is the mean colour of the picture.
    """
    bright, contrast, saturation = numbers
    b, c, s = 1 + augment.brightness * bright, 1 + augment.contrast * contrast, 1 + augment.saturation * saturation
    count = len(of)
    same, gray = (_SAME, _GRAY) if count == 3 else (_ONE, _ONE)  # gray in gray is itself: s has no effect
    of[:, :count] = (b * c * s) * same + (b * c * (1 - s)) * gray
    of[:, count] = (b * (1 - c)) * (gray @ np.asarray(mean))
    return of


def hue(of: Map, augment: Augment, numbers: Numbers, mean: Sequence[float]) -> Map:
    """HueJitterAug: a turn by U(-x, x) half circles in the plane of I and Q of YIQ."""
    alpha = augment.hue * numbers[0] * math.pi
    u, w = math.cos(alpha), math.sin(alpha)
    return _FROM_YIQ @ np.array([[1.0, 0.0, 0.0], [0.0, u, -w], [0.0, w, u]]) @ _TO_YIQ @ of


def pca_noise(of: Map, augment: Augment, numbers: Numbers, mean: Sequence[float]) -> Map:
    """LightingAug: along the principal components of ImageNet's colours."""
    of[:, 3] += augment.pca_noise * (_PCA_VECTORS @ (numbers * _PCA_VALUES))
    return of
