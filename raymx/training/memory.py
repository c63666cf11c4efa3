"""How full the memory of this node is, or of this container where that has less."""

from __future__ import annotations

import contextlib

_NODE = "/proc/meminfo"
_CONTAINERS = (  # limit, what is used, and what of that is files that can be dropped: cgroup v2, and v1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def used_fraction() -> float | None:
    """The part that is in use, by whatever process; None where the system does not say."""
    found = [of_node(_text(_NODE)), *(of_container(*map(_text, paths)) for paths in _CONTAINERS)]
    known = [fraction for fraction in found if fraction is not None]
    return max(known) if known else None


def of_node(meminfo: str) -> float | None:
    """Of the text of /proc/meminfo."""
    numbers = _numbers(meminfo.replace(":", " "))
    total, available = numbers.get("MemTotal"), numbers.get("MemAvailable")
    return None if not total or available is None else 1 - available / total


def of_container(limit: str, used: str, stat: str) -> float | None:
    """Of the texts of a control group's files; None where it has no limit, which v1 writes as a huge number."""
    try:
        whole, now = int(limit), int(used)
    except ValueError:  # "max", or no such file
        return None
    dropped = _numbers(stat).get("inactive_file", 0)
    return None if not 0 < whole < 1 << 60 else max(0.0, (now - dropped) / whole)


def _numbers(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) > 1 and words[1].isdigit()}


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:
        return file.read()
    return ""
