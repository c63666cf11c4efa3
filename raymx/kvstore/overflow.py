"""Whether gradients are finite, and whether they are in all workers. All here waits for the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import mxnet as mx
import numpy as np

from raymx.kvstore.spec import StoreSettings

_AT_ONCE = 200  # arrays that MXNet's operators can take


def all_finite(arrays: Iterable[mx.nd.NDArray]) -> bool:
    """Whether no element is inf or nan.

    Where the sum of squares is finite, all of them are; that takes about 1 ns an element on a CPU, and MXNet's operator
    that looks at each one 26 ns. It has the last word, since squares may be too large where what is squared is not.
    """
    alike: defaultdict[Any, list[mx.nd.NDArray]] = defaultdict(list)
    for array in arrays:  # the operators read all of their inputs as the type of the first
        alike[array.dtype, array.context].append(array)
    groups = [some[i : i + _AT_ONCE] for some in alike.values() for i in range(0, len(some), _AT_ONCE)]
    squares = [mx.nd.multi_sum_sq(*group, num_arrays=len(group)) for group in groups]
    if all(np.isfinite(sums.asnumpy()).all() for sums in squares):
        return True
    finite = [mx.nd.multi_all_finite(*group, num_arrays=len(group)) for group in groups]
    return all(bool(fine.asscalar()) for fine in finite)


class Overflow:
    """Looks for gradients that are inf or nan, where a store needs it to be known, and with all workers of a sync run.

    What a store with an optimizer gets is updated at once, and what is compressed hides an inf for ever: then gradients
    are looked at before they are pushed. Else the sums that are pulled are.
    """

    def __init__(self, settings: StoreSettings, store: Any, spare_key: int) -> None:
        """``spare_key``: a key of the store that no parameter has."""
        self._looks_before = settings.update_on_kvstore or bool(settings.compression)
        alone = not settings.distributed or settings.asynchronous or store.num_workers == 1
        self._agreement: Agreement | None = None
        if self._looks_before and not alone:
            unit = settings.compression["threshold"] if settings.compression else 1.0
            self._agreement = Agreement(store, spare_key, unit)

    @property
    def agrees(self) -> bool:
        """Whether workers agree before each push; async ones each push for themselves."""
        return self._agreement is not None

    def before_push(self, gradients: Sequence[Sequence[mx.nd.NDArray]]) -> bool:
        """Whether these, by key and device, must not be pushed; False where it is seen later."""
        if not self._looks_before:
            return False
        here = not all_finite(grad for grads in gradients for grad in grads)
        return self._agreement.any(here) if self._agreement else here

    def after_pull(self, gradients: Sequence[Sequence[mx.nd.NDArray]]) -> bool:
        """Whether these sums must not be used. All workers pull the same, with any overflow in them: they agree."""
        return not self._looks_before and not all_finite(grads[0] for grads in gradients)

    def close(self) -> None:
        """Let go of the store."""
        if self._agreement:
            self._agreement.close()


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
