"""Updates that depend on what the gradients are, without holding the loop.

Whether a step with a loss scale is skipped is known when its gradients are computed. A loop that waited for that would
have nothing queued meanwhile, and the device would stand still after every step. Here a thread waits instead, and does
the update; the loop goes on to queue the next step, whose forward pass takes its turn when the weights are there.

The thread works on copies, each of which is known to MXNet's engine under two names (`Shared`): as the loop's, which
an operator holds until the thread is done (`raymx.kvstore.engine.hold`), and as the thread's own.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mxnet as mx

from raymx.kvstore import engine

BEHIND = 2  # steps: the loop may queue so many before the update of the first one is done
CLOSE_S = 5.0  # for the thread to end, which has nothing to do any more


class Shared:
    """Two NDArrays over the same memory, which MXNet's engine takes for two: nobody but their users orders what each
    does to it. New and plain, so that no operator changes their layout.
    """

    def __init__(self, like: mx.nd.NDArray) -> None:
        """With the values of ``like``, for which it waits."""
        self.threads = mx.nd.zeros(like.shape, ctx=like.context, dtype=like.dtype)
        like.as_nd_ndarray().copyto(self.threads)
        self.loops = mx.nd.from_dlpack(mx.nd.to_dlpack_for_write(self.threads))
        self.loops.wait_to_read()


class Copies:
    """A parameter's gradients and weights, a device each, as a thread sees them: a stand-in for the parameter."""

    def __init__(self, param: mx.gluon.Parameter) -> None:
        self._param = param
        self.gradients = [Shared(grad) for grad in param.list_grad()]
        self.weights = [Shared(data) for data in param.list_data()]

    def list_grad(self) -> list[mx.nd.NDArray]:
        """The thread's."""
        return [shared.threads for shared in self.gradients]

    def list_data(self) -> list[mx.nd.NDArray]:
        """The thread's."""
        return [shared.threads for shared in self.weights]

    def pairs_of_gradients(self) -> Iterable[tuple[mx.nd.NDArray, Shared]]:
        """The parameter's own, each with its copy."""
        return zip(self._param.list_grad(), self.gradients, strict=True)

    def pairs_of_weights(self) -> Iterable[tuple[mx.nd.NDArray, Shared]]:
        """The parameter's own, each with its copy."""
        return zip(self._param.list_data(), self.weights, strict=True)


def load(copies: Sequence[Copies], *, weights: bool) -> None:
    """Queue: the parameters' gradients, and weights, to their copies."""
    _copy([(grad, shared.loops) for each in copies for grad, shared in each.pairs_of_gradients()])
    if weights:
        _copy([(data, shared.loops) for each in copies for data, shared in each.pairs_of_weights()])


def give(copies: Sequence[Copies]) -> None:
    """Queue: the copies' weights to the parameters."""
    _copy([(shared.loops, data) for each in copies for data, shared in each.pairs_of_weights()])


def _copy(pairs: Sequence[tuple[mx.nd.NDArray, mx.nd.NDArray]]) -> None:
    """Each first array to the second one: those of one type and device by one operator, since small ones are many."""
    alike: defaultdict[Any, list[tuple[mx.nd.NDArray, mx.nd.NDArray]]] = defaultdict(list)
    for source, target in pairs:
        alike[source.dtype, source.context].append((source.as_nd_ndarray(), target.as_nd_ndarray()))
    for some in alike.values():
        sources, targets = zip(*some, strict=True)
        mx.nd.amp_multicast(*sources, num_outputs=len(sources), out=list(targets))


class Deferred:
    """Carries out ``update`` for each `step`, in a thread, in order. ``update`` may wait for the engine; it reads the
    gradients of ``copies`` and leaves the weights in them. ``value``: what `value` gives after it.
    """

    def __init__(
        self,
        copies: Sequence[Copies],
        update: Callable[[], None],
        value: Callable[[], float],
        *,
        keeps_weights: bool,
        one_by_one: bool,
    ) -> None:
        """``keeps_weights``: ``update`` changes the weights, and does not take them from somewhere else. With
        ``one_by_one`` they come slowly, and each is used as soon as it is there: that is more operators a step.
        """
        self._copies, self._update, self._value_of, self._keeps_weights = copies, update, value, keeps_weights
        self._groups = [[each] for each in copies] if one_by_one else [list(copies)]
        self._value = Shared(mx.nd.array([value()]))
        self._turns: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self._done, self._asked = 0, 0
        self._changed = threading.Condition()
        self._failed: tuple[int, Exception] | None = None  # the number of the step that raised, from 1 on
        self._thread = threading.Thread(target=self._run, name="raymx-updates", daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Queue a step. Raises what a former one raised: always the one before the last, so that a run that is begun
        anew meets it at the same place.
        """
        self._wait_for(self._asked - BEHIND + 1)
        self._asked += 1
        load(self._copies, weights=self._keeps_weights)
        _Step(self._groups, self._value, self._turns.put)
        for group in self._groups:
            give(group)

    def value(self) -> mx.nd.NDArray:
        """float32 (1,): ``value()`` after the steps queued so far."""
        return self._value.loops.copy()

    def join(self) -> None:
        """Wait until all steps are done. Raises what one of them raised."""
        self._wait_for(self._asked)

    def give_weights(self) -> None:
        """Between steps: bring the parameters what was written to the copies by others than ``update``."""
        for weight in (weight for each in self._copies for weight in each.list_data()):
            weight.wait_to_read()
        give(self._copies)
        mx.nd.waitall()

    def close(self) -> None:
        """End the thread, which lets go of all that ``update`` has."""
        self._turns.put(None)
        self._thread.join(CLOSE_S)
        del self._update, self._value_of

    def _wait_for(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._done >= number)
        if self._failed and self._failed[0] <= number:
            raise self._failed[1]

    def _run(self) -> None:
        while (step := self._turns.get()) is not None:
            try:
                if not self._failed:
                    self._update()
                step.weights_come()
                self._value.threads[:] = self._value_of()
                self._value.threads.wait_to_read()
            except Exception as error:
                self._failed = (self._done + 1, error)
            finally:
                step.end()
            with self._changed:
                self._done += 1
                self._changed.notify_all()


class _Step:
    """What the engine holds for one step: the gradients until its end, each group's weights until they are there."""

    def __init__(self, groups: Sequence[Sequence[Copies]], value: Shared, ready: Callable[[_Step], None]) -> None:
        self._ready, self._groups = ready, groups
        self._left, self._lock = len(groups) + 1, threading.Lock()
        self._ends: dict[int, Callable[[], None]] = {}
        for number, group in enumerate(groups):
            self._hold(number, (), [shared.loops for each in group for shared in each.weights])
        gradients = [shared.loops for group in groups for each in group for shared in each.gradients]
        self._hold(len(groups), gradients, [value.loops])

    def _hold(self, number: int, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        engine.hold(lambda end: self._begun(number, end), "raymx_update", reads, writes)

    def _begun(self, number: int, end: Callable[[], None]) -> None:
        with self._lock:
            self._ends[number] = end
            self._left -= 1
            if self._left:
                return
        self._ready(self)

    def weights_come(self) -> None:
        """Give out each group's weights as soon as they are there: the next forward pass begins with the first ones."""
        for number, group in enumerate(self._groups):
            for weight in (weight for each in group for weight in each.list_data()):
                weight.wait_to_read()
            self._ends.pop(number)()

    def end(self) -> None:
        """Give out all that is still held."""
        for number in sorted(self._ends):
            self._ends.pop(number)()
