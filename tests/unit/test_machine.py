"""The cores that a process may use, by what the kernel's files say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raymx.cli.machine import cores


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, 64),
        ({"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        ({"sys/fs/cgroup/cpu.max": "250000 100000"}, 3),
        ({"sys/fs/cgroup/cpu.max": "10000 100000"}, 1),
        ({"sys/fs/cgroup/cpu.max": "9900000 100000"}, 64),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "400000 100000"}, 4),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 64),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n2:cpu,cpuacct:/job/7\n",
                "sys/fs/cgroup/cpu/job/7/cpu.cfs_quota_us": "600000",
                "sys/fs/cgroup/cpu/job/7/cpu.cfs_period_us": "100000",
            },
            6,
        ),
    ],
)
def test_a_quota_counts(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert cores(tmp_path) == expected
