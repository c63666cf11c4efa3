"""How much of the object store this process's streams keep: by Ray Data's own count, the most since it was asked."""

from __future__ import annotations

_most = 0.0


def note(size: float) -> None:
    """One stream keeps so many bytes now."""
    global _most
    _most = max(_most, size)


def take_mib() -> float:
    """The most in MiB since the last call; 0 where nothing was streamed."""
    global _most
    most, _most = _most, 0.0
    return most / (1 << 20)
