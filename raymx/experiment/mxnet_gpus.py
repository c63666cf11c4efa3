"""Which GPUs MXNet 1.9.1 can use. Pure, and it imports nothing: the doctor needs it where packages are missing.

libmxnet.so of mxnet-cu112 1.9.1 has machine code for 5.0, 6.0, 7.0, 8.0 and 8.6, which later ones of the same major
version run, and no PTX, of which a driver could make code for newer GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

OLDEST, NEWEST = (5, 0), (8, 9)
"""Compute capabilities."""

_NOT_IN_RANGE = ("K80", "H100", "H200", "H20", "B200", "B300", "GB200", "GB300", "RTX-PRO-6000")
_OTHER_MAKERS = ("AMD-", "Intel-GPU-", "MXC")


def has_code(capability: Sequence[int]) -> bool:
    """Whether there is code for a compute capability (major, minor)."""
    return OLDEST <= tuple(capability) <= NEWEST


def has_code_for_type(name: str) -> bool:
    """The same of one of Ray's accelerator types, such as A100; of an unknown one it is taken to be so."""
    return name not in _NOT_IN_RANGE and not name.startswith(_OTHER_MAKERS)


def range_in_words() -> str:
    """``5.0 to 8.9``."""
    return " to ".join(".".join(map(str, end)) for end in (OLDEST, NEWEST))
