"""Curves of an objective over epochs, as a small inline SVG for light and dark pages, by chart.svg.j2. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from raymx.text.templates import render

Points = Sequence[tuple[float, float]]
"""(epoch, value)"""

COLOURS = ("#3A8FD0", "#D5701E", "#009E73", "#C46CA0")  # after Okabe and Ito; each is seen on white and on black
DASHES = ("", "6 3", "2 2", "8 3 2 3")
WIDTH, HEIGHT = 380, 122  # pixels
LEFT, RIGHT, TOP, BOTTOM = 46, 362, 22, 104  # of the area with the curves
LONGEST_TITLE = 48  # characters
MOST_POINTS = 80  # of one curve
MARKED_POINTS = 12  # of a curve whose points are all marked
LARGEST = 1e100  # number that can be drawn: differences of such are finite
FEWEST_EPOCHS = 4  # on the axis, so that the first points do not fill it


def finite(points: Points) -> list[tuple[float, float]]:
    """The points that can be drawn."""
    return [(epoch, value) for epoch, value in points if _is_number(epoch) and _is_number(value)]


def best_of(points: Points, mode: str) -> tuple[float, float] | None:
    """The point with the best value by ``mode`` (min, max), the first one of equals; None where there is none."""
    sign = -1 if mode == "min" else 1
    return max(finite(points), key=lambda point: sign * point[1], default=None)


def chart(curves: Sequence[Points], title: str, mode: str, epochs: int) -> Markup:
    """An SVG of at most four ``curves``, the first one on top; "" where there is no point.

    The axis of epochs goes up to ``epochs``, or not that far as long as little of it is done.
    """
    drawn = [finite(curve) for curve in curves]
    every = [point for curve in drawn for point in curve]
    if not every:
        return Markup()
    last = max(epoch for epoch, _ in every)
    right = math.ceil(max(last, min(epochs, max(FEWEST_EPOCHS, 2 * last)), 1))
    low, high = _span([value for _, value in every])
    scale = _Scale(right, low, high)
    lines = [_curve(curve, at, scale, mode, len(drawn) == 1) for at, curve in enumerate(drawn) if curve]
    return render(
        "raymx.jobs",
        "chart.svg.j2",
        title=title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1] + "…",
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        bottom=BOTTOM,
        values=list(_values(scale)),
        epochs=list(_epochs(scale)),
        curves=lines[::-1],
    )


class _Scale:
    """Where a point is, in pixels."""

    def __init__(self, right: int, low: float, high: float) -> None:
        self.right, self.low, self.high = right, low, high

    def x(self, epoch: float) -> float:
        return LEFT + max(0.0, epoch) / self.right * (RIGHT - LEFT)

    def y(self, value: float) -> float:
        return BOTTOM - (value - self.low) / (self.high - self.low) * (BOTTOM - TOP)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """A range that holds all values, with some room around; never empty."""
    low, high = min(values), max(values)
    room = 0.08 * (high - low)
    if room <= 1e-9 * max(abs(low), abs(high)):
        room = 0.05 * max(abs(low), abs(high)) or 0.05
    return low - room, high + room


def _values(scale: _Scale) -> Iterator[tuple[float, str]]:
    """The height of each line of the grid, and its label."""
    step = _step((scale.high - scale.low) / 2)
    for number in range(math.ceil(scale.low / step), math.floor(scale.high / step) + 1):
        yield scale.y(number * step), _label(number * step, step)


def _epochs(scale: _Scale) -> Iterator[tuple[float, int]]:
    """The place of each epoch that is named, and its number."""
    for epoch in range(0, scale.right + 1, max(1, round(_step(scale.right / 4)))):
        yield scale.x(epoch), epoch


def _step(largest: float) -> float:
    """1, 2 or 5 times a power of ten, up to ``largest``."""
    power = 10.0 ** math.floor(math.log10(largest) + 1e-9)
    return next((factor * power for factor in (5, 2) if factor * power <= largest * (1 + 1e-9)), power)


def _label(value: float, step: float) -> str:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.{decimals}f}" if decimals <= 5 and abs(value) < 1e5 else f"{value:.2g}"


def _curve(points: Points, at: int, scale: _Scale, mode: str, alone: bool) -> dict[str, Any]:
    """How one is drawn; ``marked`` points have a dot, ``ringed`` ones a ring."""
    places = [(scale.x(epoch), scale.y(value)) for epoch, value in _thinned(points, mode)]
    best = best_of(points, mode)
    return {
        "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in places),
        **look(at),
        "marked": places if len(places) == 1 or (alone and len(places) <= MARKED_POINTS) else [],
        "ringed": [(scale.x(best[0]), scale.y(best[1]))] if best and alone else [],
    }


def look(at: int) -> dict[str, str]:
    """The colour and the dash of the curve with this number."""
    return {"colour": COLOURS[at % len(COLOURS)], "dash": DASHES[at % len(DASHES)]}


def _thinned(points: Points, mode: str) -> Points:
    """Not more points than can be seen; the best and the last one stay."""
    if len(points) <= MOST_POINTS:
        return points
    every = -(-len(points) // MOST_POINTS)
    best = best_of(points, mode)
    return [point for at, point in enumerate(points) if at % every == 0 or point == best or at == len(points) - 1]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and abs(value) < LARGEST
