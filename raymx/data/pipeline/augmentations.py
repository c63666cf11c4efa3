"""The table of augmentations, and what it makes of a picture.

To add one: its key in `raymx.experiment.schema.Augment` (with type, limits, default and meaning), and a row here with
its function. A change of colour gets its random numbers by the row; what else is random draws them in
`raymx.data.pipeline.augment.draw`. A new row goes behind those of its kind, whose numbers then stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from raymx.data.pipeline import colours, shifts
from raymx.data.pipeline.augment import Draw
from raymx.data.pipeline.colours import Map, Numbers
from raymx.data.pipeline.shifts import Picture
from raymx.experiment.schema import Augment


@dataclass(frozen=True)
class Augmentation:
    """One random change: any of its ``keys`` of ``data.augment`` switches it on, true or above 0."""

    keys: tuple[str, ...]
    settings: tuple[str, ...] = ()  # further keys that say how
    colour_only: tuple[str, ...] = ()  # of its keys, those that gray pictures do not have

    def is_on(self, augment: Augment, channels: int) -> bool:
        """Whether it changes pictures of so many channels."""
        for key in self.keys if channels == 3 else self.gray_keys:  # noqa: SIM110  # any() takes longer, at each image
            if getattr(augment, key):
                return True
        return False

    @cached_property
    def gray_keys(self) -> tuple[str, ...]:
        """Those of its keys that gray pictures have too."""
        return tuple(key for key in self.keys if key not in self.colour_only)


@dataclass(frozen=True)
class Shift(Augmentation):
    """One that comes between the resize and the crop."""

    apply: Callable[[Picture, Augment, Draw], Picture] = lambda picture, augment, drawn: picture


@dataclass(frozen=True)
class Colour(Augmentation):
    """A change of colour, after the crop: an affine map. It takes the same numbers whether it is on or not."""

    draw: Callable[[Generator], Numbers] = lambda rng: ()
    apply: Callable[[Map, Augment, Numbers, Sequence[float]], Map] = lambda of, augment, numbers, mean: of


CROPS = (
    Augmentation(("rand_crop",)),
    Augmentation(
        ("random_resized_crop",), ("min_random_area", "max_random_area", "min_aspect_ratio", "max_aspect_ratio")
    ),
    Augmentation(("rand_mirror",)),
)
"""Which part of the picture is taken, and which way round: `augment.draw` and `augment.region`."""

SHIFTS = (
    Shift(("max_rotate_angle",), ("fill_value",), apply=shifts.rotate),
    Shift(("pad",), ("fill_value",), apply=shifts.pad),
)
"""In their order."""

COLOURS = (
    Colour(
        ("brightness", "contrast", "saturation"),
        colour_only=("saturation",),
        draw=colours.uniform(3),
        apply=colours.light,
    ),
    Colour(("hue",), colour_only=("hue",), draw=colours.uniform(1), apply=colours.hue),
    Colour(("pca_noise",), colour_only=("pca_noise",), draw=colours.normal(3), apply=colours.pca_noise),
)
"""In their order, which is that of mx.image."""

BATCHES = (Augmentation(("mixup",)), Augmentation(("cutmix",)))
"""What pictures of one batch do to each other, in the graph: `raymx.training.mixing`."""

AUGMENTATIONS: tuple[Augmentation, ...] = (*CROPS, *SHIFTS, *COLOURS, *BATCHES)
"""All, in the order in which a picture meets them."""


def shifts_picture(augment: Augment) -> bool:
    """Whether ``shifted`` can change anything."""
    return any(row.is_on(augment, 3) for row in SHIFTS)


def shifted(picture: Picture, augment: Augment, drawn: Draw) -> Picture:
    """All that comes between the resize and the crop."""
    for row in SHIFTS:
        if row.is_on(augment, 3):
            picture = row.apply(picture, augment, drawn)
    return picture


def changes_colour(augment: Augment, channels: int) -> bool:
    """Whether ``colour_matrix`` can be anything but the identity."""
    return any(row.is_on(augment, channels) for row in COLOURS)


def colour_matrix(augment: Augment, rng: Generator, mean: Sequence[float]) -> NDArray[np.float32]:
    """One affine map for all changes of colour: float32 (C, C + 1), ``new = M[:, :C] @ old + M[:, C]``.

    ``mean`` is the mean colour of the cropped image, C numbers of 0 to 255; C is 3 (RGB) or 1 (gray, for which only
    brightness and contrast count). mx.image clips nowhere; here the result is clipped once, when it becomes uint8.
    """
    channels = len(mean)
    matrix = colours.IDENTITY[channels].copy()
    for row in COLOURS:
        numbers = row.draw(rng)
        if row.is_on(augment, channels):
            matrix = row.apply(matrix, augment, numbers, mean)
    return matrix.astype(np.float32)
