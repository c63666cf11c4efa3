"""What taking a part of a step away would gain, as an interval. Pure.

The interval is that of the rows: nine in ten of them lie in it (with few rows, all but the outermost little). Where a
change takes away no certain part, it begins at what is certain and ends at what is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIDDLE = (0.05, 0.95)  # of the rows


@dataclass(frozen=True)
class Gain:
    """How many times as fast a step would be, and between which limits; None where one row only was measured."""

    times: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"about {self.times:.2f}x as fast (of one row, so with no interval)"
        return f"about {self.times:.2f}x as fast ({self.low:.2f} to {self.high:.2f})"


def speedup_without(fraction: float) -> float:
    """How many times as fast a step is without a part of it: by Amdahl's law, where nothing else takes its place."""
    return 1 / max(1 - fraction, 1e-9)


def gain(fraction: float, rows: Sequence[float], *, least: float = 1.0, likely: float = 1.0, most: float = 1.0) -> Gain:
    """Without so much of a part: ``fraction`` of a step, in ``rows`` that of each row that counts.

    ``least``, ``likely`` and ``most`` say how much of the part the change takes away (0 to 1).
    """
    times = speedup_without(likely * fraction)
    if len(rows) < 2:
        return Gain(times)
    low, high = (quantile(rows, at) for at in MIDDLE)
    low_times, high_times = speedup_without(least * low), speedup_without(most * high)
    return Gain(times, min(low_times, times), max(high_times, times))


def quantile(values: Sequence[float], at: float) -> float:
    """Of some numbers, between neighbours by where it lies: 0 is the smallest, 1 the largest."""
    ordered = sorted(values)
    place = at * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
