"""Processes that are held to a part of a core, by control groups of Linux (v1 or v2; it needs root)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # v1, v2
PERIOD_US = 10_000


def why_not() -> str | None:
    """Why no process can be held here; None when one can."""
    try:
        with held([], 1.0):
            return None
    except (OSError, RuntimeError) as error:
        return f"no control group can be made here: {error}"


@contextlib.contextmanager
def held(processes: Sequence[int], cpus: float) -> Iterator[None]:
    """Within, these processes with all of their threads have so many CPUs together."""
    root = next((root for root in ROOTS if (root / "cgroup.procs").exists()), None)
    if root is None:
        raise RuntimeError("none is mounted")
    group = root / "raymx_held"
    group.mkdir()
    try:
        _limit(group, cpus)
        before = {process: _group_of(process, root) for process in processes}
        for process in processes:
            (group / "cgroup.procs").write_text(str(process))
        yield
        for process, old in before.items():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended
                (old / "cgroup.procs").write_text(str(process))
    finally:
        group.rmdir()


def _limit(group: Path, cpus: float) -> None:
    quota_us = int(cpus * PERIOD_US)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(max(1000, quota_us)))


def _group_of(process: int, root: Path) -> Path:
    """Where it is now, of the hierarchy with the CPUs."""
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "cpu" in names.split(",") or (not names and root == ROOTS[1]):
            return root / path.lstrip("/")
    return root
