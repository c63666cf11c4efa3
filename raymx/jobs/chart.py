"""Curves of an objective over epochs, as a small inline SVG for light and dark pages. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

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


def chart(curves: Sequence[Points], title: str, mode: str, epochs: int) -> str:
    """An SVG of at most four ``curves``, the first one on top; "" where there is no point.

    The axis of epochs goes up to ``epochs``, or not that far as long as little of it is done.
    """
    drawn = [finite(curve) for curve in curves]
    every = [point for curve in drawn for point in curve]
    if not every:
        return ""
    last = max(epoch for epoch, _ in every)
    right = math.ceil(max(last, min(epochs, max(FEWEST_EPOCHS, 2 * last)), 1))
    low, high = _span([value for _, value in every])
    scale = _Scale(right, low, high)
    lines = [_curve(curve, at, scale, mode, len(drawn) == 1) for at, curve in enumerate(drawn) if curve]
    name = escape(title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1] + "…")
    return (
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name} over epochs">'
        f'<text x="{LEFT}" y="12">{name}</text>'
        f'<text x="{LEFT - 12}" y="{BOTTOM + 14}" text-anchor="end">epoch</text>'
        f"{''.join(_grid(scale))}{''.join(reversed(lines))}</svg>"
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


def _grid(scale: _Scale) -> Iterator[str]:
    step = _step((scale.high - scale.low) / 2)
    for number in range(math.ceil(scale.low / step), math.floor(scale.high / step) + 1):
        y = scale.y(number * step)
        yield (
            f'<path d="M{LEFT} {y:.1f}H{RIGHT}"/>'
            f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{_label(number * step, step)}</text>'
        )
    yield f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>'
    for epoch in range(0, scale.right + 1, max(1, round(_step(scale.right / 4)))):
        yield f'<text x="{scale.x(epoch):.1f}" y="{BOTTOM + 14}" text-anchor="middle">{epoch}</text>'


def _step(largest: float) -> float:
    """1, 2 or 5 times a power of ten, up to ``largest``."""
    power = 10.0 ** math.floor(math.log10(largest) + 1e-9)
    return next((factor * power for factor in (5, 2) if factor * power <= largest * (1 + 1e-9)), power)


def _label(value: float, step: float) -> str:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.{decimals}f}" if decimals <= 5 and abs(value) < 1e5 else f"{value:.2g}"


def _curve(points: Points, at: int, scale: _Scale, mode: str, alone: bool) -> str:
    colour = COLOURS[at % len(COLOURS)]
    places = [(scale.x(epoch), scale.y(value)) for epoch, value in _thinned(points, mode)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dash = f' stroke-dasharray="{DASHES[at % len(DASHES)]}"' if DASHES[at % len(DASHES)] else ""
    marked = places if len(places) == 1 or (alone and len(places) <= MARKED_POINTS) else []
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.3" fill="{colour}"/>' for x, y in marked)
    best = best_of(points, mode)
    ring = (
        f'<circle cx="{scale.x(best[0]):.1f}" cy="{scale.y(best[1]):.1f}" r="4.5" fill="none" stroke="{colour}"/>'
        if best and alone
        else ""
    )
    return f'<polyline points="{line}" stroke="{colour}"{dash}/>{dots}{ring}'


def _thinned(points: Points, mode: str) -> Points:
    """Not more points than can be seen; the best and the last one stay."""
    if len(points) <= MOST_POINTS:
        return points
    every = -(-len(points) // MOST_POINTS)
    best = best_of(points, mode)
    return [point for at, point in enumerate(points) if at % every == 0 or point == best or at == len(points) - 1]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and abs(value) < LARGEST
