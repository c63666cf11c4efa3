"""MXNet's C library, and the CUDA libraries that its GPU build needs, found without a system CUDA."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sysconfig

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
        import mxnet  # noqa: F401
    except (ImportError, AttributeError) as error:  # of np.bool, which NumPy has no more from 1.24 on
        raise KVStoreError(
            f"mxnet cannot be imported ({error}); install raymx with [cpu] or [cu112] on every node, "
            "and numpy below 1.24"
        ) from None
    except OSError as error:
        raise KVStoreError(f"MXNet's library cannot be loaded ({error}); " + _missing(str(error))) from None


def _missing(error: str) -> str:
    if "libgomp" in error:
        return "install the system package libgomp1"
    if "libcuda" in error:
        return "this is the GPU build and the node has no NVIDIA driver: install [cpu] there"
    return "for the GPU build install raymx with [cu112]"
