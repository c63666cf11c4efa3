"""Numbers as a reader wants them. Pure."""

from __future__ import annotations

import math

from raymx.report.model import ObjectiveColumn

NONE = "–"


def speed(value: float | None) -> str:
    """Samples a second."""
    return NONE if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds(value: float | None) -> str:
    if value is None:
        return NONE
    if value < 120:
        return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def short_seconds(value: float) -> str:
    """Of a step, say."""
    return seconds(value) if value >= 1 else f"{value * 1000:.3g} ms"


def size(value: float | None) -> str:
    """Bytes."""
    if value is None:
        return NONE
    power = min(3, int(math.log10(value) / 3)) if value >= 1 else 0
    return f"{value / 1000**power:.4g} {('bytes', 'kB', 'MB', 'GB')[power]}"


def objective(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}" if 1e-3 <= abs(value) < 1e5 or not value else f"{value:.4g}"


def difference(value: float, of: ObjectiveColumn) -> str:
    """Of two objectives: "-0.3 points" of an accuracy, "+0.012 train_loss" of anything else."""
    return f"{value * 100:+.1f} points" if of.in_points else f"{value:+.3g} {of.metric}"


def part(value: float) -> str:
    return f"{value * 100:.0f} %"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
