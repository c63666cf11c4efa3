"""What this process takes of its machine."""

from __future__ import annotations

import resource
import time


class Usage:
    """CPUs and memory of this process."""

    def __init__(self) -> None:
        self._at, self._cpu_s = time.monotonic(), time.process_time()

    def take(self) -> dict[str, float]:
        """``cpus``: CPU seconds a second since the last call; ``rss_peak_mib``: the most memory since it started."""
        now, cpu_s = time.monotonic(), time.process_time()
        cpus = (cpu_s - self._cpu_s) / max(now - self._at, 1e-6)
        self._at, self._cpu_s = now, cpu_s
        return {"cpus": cpus, "rss_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
