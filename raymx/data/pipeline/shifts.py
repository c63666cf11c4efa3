"""What comes between the resize and the crop: each a function of the picture, uint8 (h, w) or (h, w, 3)."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.augment import Draw
from raymx.experiment.schema import Augment

Picture = NDArray[np.uint8]


def rotate(picture: Picture, augment: Augment, drawn: Draw) -> Picture:
    """By the drawn angle about the centre; the size stays."""
    if not drawn.angle:
        return picture
    centre = ((picture.shape[1] - 1) / 2, (picture.shape[0] - 1) / 2)
    turn = cv2.getRotationMatrix2D(centre, drawn.angle, 1.0)
    return np.asarray(cv2.warpAffine(picture, turn, picture.shape[1::-1], borderValue=_fill(augment)))


def pad(picture: Picture, augment: Augment, drawn: Draw) -> Picture:
    """So many pixels more on each side."""
    edges = (augment.pad,) * 4
    return np.asarray(cv2.copyMakeBorder(picture, *edges, cv2.BORDER_CONSTANT, value=_fill(augment)))


def _fill(augment: Augment) -> tuple[int, ...]:
    return (augment.fill_value,) * 3
