"""Means with 95 % confidence intervals after Student. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean of ``n`` numbers and its interval, which fewer than two numbers do not have."""

    mean: float
    low: float | None
    high: float | None
    n: int


def interval(values: Sequence[float]) -> Interval | None:
    """The mean of ``values`` with its interval; None of none."""
    if not values:
        return None
    mean, n = fmean(values), len(values)
    if n < 2:
        return Interval(mean, None, None, n)
    half = quantile(n - 1) * stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def ratio_interval(ratios: Sequence[float]) -> Interval | None:
    """The geometric mean of positive ``ratios``, and its interval from their logarithms: 2x and 0.5x make 1x."""
    found = interval([math.log(ratio) for ratio in ratios])
    if found is None:
        return None
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Interval(math.exp(found.mean), low, high, found.n)


def pooled_sd(groups: Sequence[Sequence[float]]) -> tuple[float | None, int]:
    """(standard deviation within groups, its degrees of freedom); (None, 0) where no group has two numbers."""
    several = [group for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in several)
    squares = sum((value - fmean(group)) ** 2 for group in several for value in group)
    return (math.sqrt(squares / df), df) if df else (None, 0)


def margin(sd: float, df: int, n: int, other: int) -> float:
    """Half the interval of a difference of the means of ``n`` and of ``other`` numbers, whose deviation is ``sd``."""
    return quantile(df) * sd * math.sqrt(1 / n + 1 / other)


def quantile(df: int, confidence: float = CONFIDENCE) -> float:
    """t with ``df`` degrees of freedom: the two-sided quantile, 12.71 for one and 1.96 for very many."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        outside = _beta(df / 2, 0.5, df / (df + middle * middle))
        low, high = (middle, high) if outside > 1 - confidence else (low, middle)
    return (low + high) / 2


def _beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function."""
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Its continued fraction, by Lentz's method (Numerical Recipes, 6.4)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            value *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return value
