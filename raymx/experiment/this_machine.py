"""What this machine's processor and GPUs are, as far as MXNet is concerned."""

from __future__ import annotations

import contextlib
import glob
import subprocess
from functools import cache

from raymx.experiment.mxnet_gpus import has_code

_TIMEOUT_S = 20.0


def has_avx512() -> bool | None:
    """Whether the processor has what MXNet computes bfloat16 with; None where that cannot be read."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        return " avx512bw" in file.read()
    return None


def gpu_files() -> int:
    """NVIDIA GPUs as the kernel has them."""
    return len(glob.glob("/dev/nvidia[0-9]*"))


@cache
def unusable_gpus() -> str:
    """The GPUs that MXNet has no code for, in words; "" where it has, or they cannot be asked."""
    if not gpu_files():
        return ""
    command = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return unusable_of(done.stdout)


def unusable_of(listing: str) -> str:
    """``NVIDIA H100 80GB HBM3 (9.0)`` of what nvidia-smi lists: a line with name and compute capability each."""
    found: dict[str, None] = {}
    for line in listing.splitlines():
        name, _, capability = line.rpartition(",")
        numbers = capability.strip().split(".")
        if name and all(number.isdecimal() for number in numbers) and not has_code([int(one) for one in numbers]):
            found[f"{name.strip()} ({capability.strip()})"] = None
    return ", ".join(found)
