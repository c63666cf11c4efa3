"""How many cores this process may use: those that it may run on, and the CPU quota of its container."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cores(root: Path = Path("/")) -> int:
    """At least 1. A quota of 2.5 CPUs counts as 3, as Ray counts it."""
    return max(1, min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """CPUs that each control group above this process allows, of those that limit them; ``root`` is for tests."""
    for folder in _groups(root):
        for limit in (_unified(folder), _first_version(folder)):
            if limit is not None and limit > 0:
                yield limit


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups and of all above them; in a container its own is the top."""
    mounts = {"": root / "sys/fs/cgroup", "cpu": root / "sys/fs/cgroup/cpu"}
    yield from mounts.values()
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            mount = mounts.get("cpu" if "cpu" in kinds.split(",") else kinds)
            if mount is not None:
                place = PurePosixPath(path.lstrip("/"))
                yield from (mount / one for one in (place, *place.parents) if str(one) != ".")


def _unified(folder: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # "max" is no number
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    return None


def _first_version(folder: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period  # -1 for no limit
    return None
