"""MXNet's C library, and the CUDA libraries that its GPU build needs, found without a system CUDA."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any

from raymx.errors import KVStoreError

# In the order in which they must be loaded; the wheels that bring them are the extra [cu112].
_CUDA_LIBRARIES = (
    "cuda_runtime/lib/libcudart.so.11.0",
    "cuda_nvrtc/lib/libnvrtc.so.11.2",
    "nvtx/lib/libnvToolsExt.so.1",
    "cublas/lib/libcublasLt.so.11",
    "cublas/lib/libcublas.so.11",
    "cufft/lib/libcufft.so.10",
    "curand/lib/libcurand.so.10",
    "cusolver/lib/libcusolver.so.11",
    "nccl/lib/libnccl.so.2",
    "cudnn/lib/libcudnn.so.8",
)


def mxnet_library() -> str:
    """The path of libmxnet.so, without importing mxnet."""
    spec = importlib.util.find_spec("mxnet")
    if spec is None or spec.origin is None:
        raise KVStoreError("mxnet is not installed on this node; install raymx with [cpu] or [cu112] there")
    return os.path.join(os.path.dirname(spec.origin), "libmxnet.so")


def preload_cuda() -> None:
    """Load the CUDA libraries of the nvidia wheels, where they are installed, so that mxnet-cu112 finds them."""
    root = os.path.join(sysconfig.get_paths()["purelib"], "nvidia")
    if not os.path.isdir(root):
        return
    for library in _CUDA_LIBRARIES:
        path = os.path.join(root, library)
        if os.path.exists(path):
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


def import_mxnet() -> None:
    """Import mxnet, or say in words why it cannot be."""
    preload_cuda()
    try:
        with _without_slow_imports():
            import mxnet  # noqa: F401
    except (ImportError, AttributeError) as error:  # of np.bool, which NumPy has no more from 1.24 on
        raise KVStoreError(
            f"mxnet cannot be imported ({error}); install raymx with [cpu] or [cu112] on every node, "
            "and numpy below 1.24"
        ) from None
    except OSError as error:
        raise KVStoreError(f"MXNet's library cannot be loaded ({error}); " + _missing(str(error))) from None


# What mxnet imports at once where it is installed, and the names that it gives it: few programs ever use them.
_LATER = {
    "sklearn": (),  # for the base class of FeedForward, which is deprecated
    "scipy.stats": (("mxnet.test_utils", "ss"), ("mxnet.contrib.quantization", "stats")),
    "scipy.sparse": (("mxnet.ndarray.sparse", "spsp"), ("mxnet.ndarray.utils", "spsp")),
}


@contextlib.contextmanager
def _without_slow_imports() -> Iterator[None]:
    """Within, mxnet goes without what it rarely needs, which it gets when it uses it: half of its import's time.

    ``distutils`` is Python's own within: setuptools would put itself in its place, which takes another tenth.
    """
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _LATER if name not in modules]
    before = set(modules)
    modules.update(dict.fromkeys(hidden))  # None: Python takes it for not installed
    _import_pythons_own("distutils")
    try:
        yield
    finally:
        for name in set(modules) - before:
            if name in hidden or name.partition(".")[0] == "distutils":
                del modules[name]
    for name in hidden:
        for module, attribute in _LATER[name]:
            if importlib.util.find_spec(name.partition(".")[0]):
                setattr(modules[module], attribute, _Later(name))


def _import_pythons_own(name: str) -> None:
    if name not in sys.modules and (spec := PathFinder.find_spec(name)) and spec.loader:
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


class _Later:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def _missing(error: str) -> str:
    if "libgomp" in error:
        return "install the system package libgomp1"
    if "libcuda" in error:
        return "this is the GPU build and the node has no NVIDIA driver: install [cpu] there"
    return "for the GPU build install raymx with [cu112]"
