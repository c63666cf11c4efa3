"""What a worker's GPUs are used for, by NVIDIA's NVML (the package nvidia-ml-py, of the extra [cu112]).

A thread looks twice a second. Nothing here ever fails a run: without the package, the driver or the right to ask there
are no figures.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

EVERY_S = 0.5


@dataclass
class GpuFigures:
    """Of all that was seen since they were last taken."""

    memory_mib: float = 0.0  # the most on one GPU
    memory_fraction: float = 0.0  # of that GPU's memory
    busy: float = 0.0  # sum of the parts of the time in which a GPU computed
    looks: int = 0  # at a GPU that told this

    def add(self, used: int, total: int, busy: float | None) -> None:
        """One look at one GPU: bytes, and the part of the time that it computed (0 to 1)."""
        self.memory_mib = max(self.memory_mib, used / (1 << 20))
        self.memory_fraction = max(self.memory_fraction, used / max(total, 1))
        if busy is not None:
            self.busy, self.looks = self.busy + busy, self.looks + 1

    def told(self) -> dict[str, float]:
        """By name; nothing where nothing was seen."""
        if not self.memory_mib:
            return {}
        memory = {"gpu_memory_peak_mib": self.memory_mib, "gpu_memory_fraction": self.memory_fraction}
        return {**memory, "gpu_utilization": self.busy / self.looks} if self.looks else memory


def visible(setting: str | None, count: int) -> list[int | str]:
    """The first ``count`` GPUs of CUDA_VISIBLE_DEVICES, as NVML names them: numbers, or UUIDs."""
    if setting is None:
        return list(range(count))
    names = [name.strip() for name in setting.split(",") if name.strip()]
    return [int(name) if name.isdigit() else name for name in names[:count]]


class GpuSampler:
    """Looks at this process's first ``count`` GPUs from the start until `close`."""

    def __init__(self, count: int, every_s: float = EVERY_S) -> None:
        self._count, self._every_s = count, every_s
        self._figures, self._lock, self._over = GpuFigures(), threading.Lock(), threading.Event()
        threading.Thread(target=self._run, daemon=True, name="raymx-gpu-usage").start()

    def take(self) -> dict[str, float]:
        """``gpu_memory_peak_mib``, ``gpu_memory_fraction``, ``gpu_utilization`` (0 to 1) since the last call."""
        with self._lock:
            figures, self._figures = self._figures, GpuFigures()
        return figures.told()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            gpus = [_handle(pynvml, name) for name in visible(os.environ.get("CUDA_VISIBLE_DEVICES"), self._count)]
            while not self._over.wait(self._every_s):
                for gpu in gpus:
                    self._look(pynvml, gpu)
        except Exception as error:
            log.info("what the GPUs are used for is not known: %s: %s", type(error).__name__, error)

    def _look(self, nvml: Any, gpu: Any) -> None:
        memory, busy = nvml.nvmlDeviceGetMemoryInfo(gpu), None
        with contextlib.suppress(Exception):  # a slice of a GPU (MIG) does not tell
            busy = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100
        with self._lock:
            self._figures.add(memory.used, memory.total, busy)


def _handle(nvml: Any, name: int | str) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(name) if isinstance(name, int) else nvml.nvmlDeviceGetHandleByUUID(name)
