"""Whether gradients are finite, and whether they are in all workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import mxnet as mx

_AT_ONCE = 200  # arrays that MXNet's operator can take


def all_finite(arrays: Iterable[mx.nd.NDArray]) -> bool:
    """Whether no element is inf or nan; waits for the engine."""
    alike: defaultdict[Any, list[mx.nd.NDArray]] = defaultdict(list)
    for array in arrays:  # the operator reads all of its inputs as the type of the first
        alike[array.dtype, array.context].append(array)
    finite = [
        mx.nd.multi_all_finite(*some[i : i + _AT_ONCE], num_arrays=len(some[i : i + _AT_ONCE]))
        for some in alike.values()
        for i in range(0, len(some), _AT_ONCE)
    ]
    return all(bool(fine.asscalar()) for fine in finite)


class Agreement:
    """Sync workers agree through a key of the store itself, in a round trip to one server: each pushes ``unit`` when it
    has found something, and all pull the sum. The optimizer of a server leaves that key alone (`OptimizerSpec`).
    """

    def __init__(self, store: Any, key: int, unit: float = 1.0) -> None:
        """``unit``: what the store can send, which under 2-bit compression is the threshold alone."""
        self._store, self._key, self._unit = store, key, unit
        self._flag = mx.nd.zeros(1)
        store.init(key, self._flag.copy())

    def any(self, here: bool) -> bool:
        """Whether ``here`` is true in any worker; all must ask."""
        self._flag[:] = self._unit if here else 0.0
        self._store.push(self._key, self._flag)
        self._store.pull(self._key, out=self._flag)
        return bool(self._flag.asscalar())

    def close(self) -> None:
        """Let go of the store."""
        self._store = None
