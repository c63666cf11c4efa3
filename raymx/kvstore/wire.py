"""What travels between a worker and its store: gradients and weights, or float16 copies of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import mxnet as mx
import numpy as np

from raymx.kvstore.state import bytes_a_step


class Arrays(Protocol):
    """A parameter, or what stands in for one: its gradients and weights, a device each."""

    def list_grad(self) -> list[mx.nd.NDArray]: ...

    def list_data(self) -> list[mx.nd.NDArray]: ...


class Wire:
    """The parameters as keys 0, 1, ... of a store. With ``half`` gradients and weights travel in float16, whatever the
    type of the net is. Nothing here waits for the engine, but for `init`.
    """

    def __init__(self, params: Sequence[Arrays], store: Any, *, half: bool) -> None:
        self._params, self._store, self._half = list(params), store, half
        self._copies = [[grad.astype("float16") for grad in param.list_grad()] for param in params] if half else []

    @property
    def gradients(self) -> list[list[mx.nd.NDArray]]:
        """By key, then by device: what `push` sends and `pull_gradients` brings."""
        return self._copies if self._half else [param.list_grad() for param in self._params]

    @property
    def spare_key(self) -> int:
        """A key that no parameter has."""
        return len(self._params)

    def init(self, *, for_weights: bool) -> None:
        """Make the keys, and have every worker take the weights of rank 0. ``for_weights``: they are what is pulled."""
        # Copies, since inference on a CPU may leave a weight in oneDNN's own layout: a dist store cannot push that, and
        # MXNet's engine drops the error. A copy has the plain layout, and stays apart from what the net does next.
        weights = [param.list_data()[0].copy() for param in self._params]
        if self._half and for_weights:
            self._make(0, [weight.astype("float16") for weight in weights])
            self.pull_weights()
        elif self._half:  # weights that stay float32 come once, under keys of their own
            self._make(0, [weight.astype("float16") for weight in weights])
            self._make(self.spare_key + 1, weights)
            self._pull(self.spare_key + 1, [param.list_data() for param in self._params])
        else:
            self._make(0, weights)
            self.pull_weights()
        mx.nd.waitall()

    def load(self, factor: float) -> None:
        """Get the gradients of a step, times ``factor``, ready to be sent."""
        for grad, copy in self._with_copies([param.list_grad() for param in self._params]):
            mx.nd.cast(grad * factor, dtype="float16", out=copy)
        if not self._half and factor != 1.0:
            for grads in self.gradients:
                for grad in grads:
                    grad *= factor

    def push(self) -> None:
        """Send what was loaded."""
        for key, grads in enumerate(self.gradients):
            self._store.push(key, grads, priority=-key)

    def pull_weights(self) -> None:
        """Take the store's weights."""
        self._take([param.list_data() for param in self._params])

    def pull_gradients(self) -> None:
        """Take the sums over all workers."""
        self._take([param.list_grad() for param in self._params])

    def close(self) -> None:
        """Let go of the store."""
        self._store = None

    def bytes_by_key(self, *, compressed: bool) -> list[tuple[int, int]]:
        """(pushed, pulled) payload bytes of this worker in one step."""
        return [
            bytes_a_step([int(np.prod(grads[0].shape))], np.dtype(grads[0].dtype).itemsize, compressed=compressed)
            for grads in self.gradients
        ]

    def _make(self, first: int, values: list[mx.nd.NDArray]) -> None:
        self._store.init(list(range(first, first + len(values))), values)

    def _take(self, arrays: list[list[mx.nd.NDArray]]) -> None:
        self._pull(0, self._copies or arrays)
        for array, copy in self._with_copies(arrays):
            mx.nd.cast(copy, dtype=np.dtype(array.dtype).name, out=array)

    def _pull(self, first: int, arrays: list[list[mx.nd.NDArray]]) -> None:
        for key, devices in enumerate(arrays):
            self._store.pull(first + key, out=devices, priority=-key)

    def _with_copies(self, arrays: list[list[mx.nd.NDArray]]) -> Iterator[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
        """Each array with its float16 copy, where there is one."""
        for devices, copies in zip(arrays, self._copies, strict=False):
            yield from zip(devices, copies, strict=True)
