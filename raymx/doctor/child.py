"""What may abort or hang a process is tried in one of its own: a line of JSON for each stage, as soon as it is known.

It is run by its source (``python -c``), since a node may have no raymx: at its top it imports nothing of the project.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any


def try_raymx() -> dict[str, Any]:
    """Whether processes that Ray starts find raymx, and a digest of its code."""
    import raymx

    folder = os.path.dirname(os.path.abspath(str(raymx.__file__)))
    return {"version": raymx.__version__, "folder": folder, "code": _digest(folder)}


def try_libgomp() -> dict[str, Any]:
    ctypes.CDLL("libgomp.so.1")
    return {}


def try_driver() -> dict[str, Any]:
    """The NVIDIA driver's CUDA version (12020 is 12.2) and its GPUs, without a context on any of them."""
    cuda = ctypes.CDLL("libcuda.so.1")
    if status := cuda.cuInit(0):
        raise OSError("it finds no GPU" if status == 100 else f"cuInit gives error {status}")
    version, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return {"cuda": version.value, "devices": [_device(cuda, index) for index in range(count.value)]}


def try_mxnet() -> dict[str, Any]:
    """MXNet's version, whether it is built for CUDA, and the GPUs that it sees."""
    with contextlib.suppress(ImportError):  # a stage of its own says so
        from raymx.kvstore.native import preload_cuda

        preload_cuda()
    import mxnet

    found = {"version": mxnet.__version__, "cuda": bool(mxnet.runtime.Features().is_enabled("CUDA"))}
    try:
        return {**found, "gpus": mxnet.context.num_gpus()}
    except Exception as error:
        return {**found, "gpus": 0, "gpus_error": _text(error)}


def _digest(folder: str) -> str:
    """Of the names and the contents of all Python files."""
    digest = hashlib.sha256()
    files = sorted(
        os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name.endswith(".py")
    )
    for path in files:
        with open(path, "rb") as file:
            digest.update(os.path.relpath(path, folder).encode() + b"\0" + file.read() + b"\0")
    return digest.hexdigest()[:16]


def _device(cuda: Any, index: int) -> dict[str, Any]:
    device, name, major, minor = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)  # and MINOR
    return {"name": name.value.decode(errors="replace"), "capability": [major.value, minor.value]}


def _text(error: BaseException) -> str:
    """The kind of an error and its first line."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def _stage(name: str, work: Callable[[], dict[str, Any]]) -> None:
    try:
        found = work()
    except BaseException as error:  # SystemExit too: what is imported may do anything
        found = {"error": _text(error)}
    print(json.dumps({"stage": name, "found": found}), flush=True)


if __name__ == "__main__":
    _stage("raymx", try_raymx)
    _stage("libgomp", try_libgomp)
    _stage("driver", try_driver)
    _stage("mxnet", try_mxnet)
