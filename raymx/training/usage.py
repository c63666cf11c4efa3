"""What this process takes of its machine."""

from __future__ import annotations

import resource
import time

from raymx.training import memory
from raymx.training.gpu_usage import GpuSampler


class Usage:
    """CPUs and memory of this process; with GPUs (``num_gpus``) what those are used for."""

    def __init__(self, num_gpus: int = 0) -> None:
        self._at, self._cpu_s = time.monotonic(), time.process_time()
        self._gpus = GpuSampler(num_gpus) if num_gpus else None

    def take(self) -> dict[str, float]:
        """``cpus``: CPU seconds a second since the last call; ``rss_peak_mib``: the most memory since it started;
        ``node_memory``: the part of the node's that is in use; and what `GpuSampler` tells.
        """
        now, cpu_s = time.monotonic(), time.process_time()
        cpus = (cpu_s - self._cpu_s) / max(now - self._at, 1e-6)
        self._at, self._cpu_s = now, cpu_s
        node = memory.used_fraction()
        return {
            "cpus": cpus,
            "rss_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            **({} if node is None else {"node_memory": node}),
            **(self._gpus.take() if self._gpus else {}),
        }

    def close(self) -> None:
        if self._gpus:
            self._gpus.close()
