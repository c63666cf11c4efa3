"""The updater that runs an optimizer, on a server or in a worker."""

from __future__ import annotations

import numbers
import traceback
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from raymx.errors import CheckpointError
from raymx.experiment.user_code import load_function
from raymx.kvstore.schedule import Schedule
from raymx.kvstore.spec import OptimizerSpec
from raymx.kvstore.state import OptimizerState
from raymx.kvstore.update_meter import UpdateMeter

_FIXED_RATE = "learning_rate"  # among the scalars; MXNet's own attribute of this name cannot be set
_SGD_LIKE = tuple(kind.create_state_multi_precision for kind in (mx.optimizer.SGD, mx.optimizer.NAG, mx.optimizer.LARS))


class _ScheduleOfUpdates(mx.lr_scheduler.LRScheduler):
    """Our schedule as MXNet's, on the optimizer's own update count. A fixed rate, once set, replaces it."""

    def __init__(self, schedule: Schedule, updates_a_step: int) -> None:
        super().__init__()
        self.fixed: float | None = None
        self._schedule, self._updates_a_step = schedule, updates_a_step

    def __call__(self, num_update: int) -> float:
        if self.fixed is not None:
            return self.fixed
        return self._schedule.lr(max(num_update, 1) / self._updates_a_step)


class Updater:
    """Applies an `OptimizerSpec`: called with (key, gradient, weight), on lists of them too.

    State is created on first use by the optimizer itself and then overwritten with what was restored, so that every
    optimizer's own structure of state is kept without this class knowing it. Beside its arrays that is:

    - the float32 masters of float16 weights. A worker's are in the state that MXNet makes; a server's are the very
      weights that it updates, since MXNet keeps the float16 ones elsewhere: ``masters`` says that this is a server
      which was told to do so (`raymx.kvstore.trainer`);
    - every number that the optimizer has changed in itself since it was made, such as nadam's ``m_schedule``;
    - the rate of `set_learning_rate`.

    Not kept, so that a restored run goes another way: what lbsgd has gathered of an update when its ``batch_scale`` is
    above 1, and where MXNet is in its random numbers, which sgld draws.
    """

    def __init__(self, spec: OptimizerSpec, restored: OptimizerState | None = None, *, masters: bool = False) -> None:
        self._schedule = _ScheduleOfUpdates(spec.schedule, spec.updates_a_step)
        self.optimizer = _create(spec, self._schedule)
        self._as_made = _own_numbers(self.optimizer)
        self._updater = mx.optimizer.get_updater(self.optimizer)
        self._name, self._updates_a_step, self._spare_key = spec.name, spec.updates_a_step, spec.spare_key
        self._weights_are_masters = masters and bool(spec.options.get("multi_precision"))
        self._masters: dict[int, mx.nd.NDArray] = {}  # a server's
        self._with_master: set[int] = set()  # a worker's: keys whose state has one in it
        self._restored = restored or OptimizerState()
        self._start_counts = {key: count * spec.updates_a_step for key, count in self._restored.counts.items()}
        self.optimizer.num_update = max(self._start_counts.values(), default=0)
        self._restore_scalars()

    def __call__(self, key: Any, grad: Any, weight: Any) -> None:
        if not isinstance(key, (list, tuple)) and key == self._spare_key:
            weight[:] = grad
            return
        keys, weights = (key, weight) if isinstance(key, (list, tuple)) else ([key], [weight])
        for k, w in zip(keys, weights, strict=True):
            if k not in self._updater.states:
                self._start(k, w)
        self._updater(key, grad, weight)

    def _start(self, key: int, weight: mx.nd.NDArray) -> None:
        if self._weights_are_masters and weight.dtype == np.float32:
            self._masters[key] = weight  # the server's own memory, not a copy
        elif self.optimizer.multi_precision and weight.dtype == np.float16:
            self._with_master.add(key)
        self._updater.states[key] = self.optimizer.create_state_multi_precision(key, weight)
        self._updater.states_synced[key] = True
        self._restore_arrays(key)
        if key in self._start_counts:
            self.optimizer._set_current_context(weight.context.device_id)
            self.optimizer._index_update_count[key] = self._start_counts[key]

    def _restore_arrays(self, key: int) -> None:
        master, leaves = self._master_and_arrays(key)
        saved = self._restored.arrays.get(key, [])
        there, here = [array.size for array in saved], [leaf.size for leaf in leaves]
        if there and here and there != here:
            raise CheckpointError(
                f"the checkpoint has optimizer state of {there} elements for key {key}, and "
                f"{self._name} keeps {here}: it is of another optimizer; go on with that one, or "
                "start a new run"
            )
        for leaf, array in zip(leaves, saved, strict=False):  # of one with no momentum, say, there is nothing
            _fill(leaf, array)
        if master is not None and key in self._restored.masters:
            _fill(master, self._restored.masters[key])

    def _restore_scalars(self) -> None:
        scalars = dict(self._restored.scalars)
        self._schedule.fixed = scalars.pop(_FIXED_RATE, None)
        for name, value in scalars.items():
            if name in vars(self.optimizer):  # else it is of another optimizer
                setattr(self.optimizer, name, value)

    def _master_and_arrays(self, key: int) -> tuple[mx.nd.NDArray | None, list[mx.nd.NDArray]]:
        """The master of a key's weight, where there is one, and the arrays of its state."""
        state = self._updater.states[key]
        if key in self._with_master:
            return _apart(state, self.optimizer)
        return self._masters.get(key), _leaves(state)

    @property
    def learning_rate(self) -> float:
        """The rate of the last update (before any: of the first)."""
        return float(self.optimizer.learning_rate)

    @property
    def num_update(self) -> int:
        return int(self.optimizer.num_update)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Replace the schedule by a fixed rate, from the next update on."""
        self._schedule.fixed = float(learning_rate)

    def set_rescale(self, rescale: float) -> None:
        """What gradients are multiplied with from the next update on: a dynamic loss scale has changed."""
        self.optimizer.rescale_grad = rescale

    def state(self) -> OptimizerState:
        """The state by key as flat arrays; counts are in global steps, whatever the number of workers."""
        counts = {
            key: -(-count // self._updates_a_step)
            for by_key in self.optimizer._all_index_update_counts.values()
            for key, count in by_key.items()
        }
        state = OptimizerState(counts=counts, scalars=self._scalars())
        for key in self._updater.states:
            master, leaves = self._master_and_arrays(key)
            state.arrays[key] = [leaf.asnumpy().ravel() for leaf in leaves]
            if master is not None:
                state.masters[key] = master.asnumpy().ravel()
        for key, count in self._restored.counts.items():  # what was not touched since it was restored
            if key not in self._updater.states:
                state.arrays[key], state.counts[key] = self._restored.arrays.get(key, []), count
                if key in self._restored.masters:
                    state.masters[key] = self._restored.masters[key]
        return state

    def _scalars(self) -> dict[str, float]:
        changed = {
            name: value for name, value in _own_numbers(self.optimizer).items() if self._as_made.get(name) != value
        }
        return changed if self._schedule.fixed is None else {**changed, _FIXED_RATE: self._schedule.fixed}


class Guarded:
    """An updater as a store's callback: MXNet swallows what a callback raises, so the first failure is kept here."""

    def __init__(self, updater: Updater, on_failure: Callable[[str], None], meter: UpdateMeter | None = None) -> None:
        self._updater, self._on_failure, self._meter = updater, on_failure, meter
        self._failed = False

    def __call__(self, key: int, grad: Any, weight: Any) -> None:
        if self._failed:
            return
        try:
            if self._meter is None:
                self._updater(key, grad, weight)
            else:
                self._meter.update(key, weight, lambda: self._updater(key, grad, weight))
        except Exception:
            self._failed = True
            self._on_failure(traceback.format_exc())


def _create(spec: OptimizerSpec, schedule: _ScheduleOfUpdates) -> mx.optimizer.Optimizer:
    arguments = dict(spec.options, rescale_grad=spec.rescale_grad, lr_scheduler=schedule)
    factory: Callable[..., mx.optimizer.Optimizer]
    if ":" in spec.name:
        wanted = "a class of mx.optimizer.Optimizer, or a function that makes one"
        factory = load_function("training.optimizer.name", spec.name, spec.directory, wanted)
        optimizer = factory(**arguments)
    else:
        # No rate of its own: MXNet would print that it replaces that of the schedule, which it does not.
        optimizer = mx.optimizer.create(spec.name, learning_rate=None, **arguments)
    # By key and not through param_dict, which MXNet drops on the way to a server.
    optimizer.lr_mult, optimizer.wd_mult = dict(spec.lr_mult), dict(spec.wd_mult)
    return optimizer


def _own_numbers(optimizer: mx.optimizer.Optimizer) -> dict[str, float]:
    """An optimizer's attributes that are numbers. How often it was called is told by its counts, and how gradients are
    rescaled by the batch and the loss scale of the run that goes on.
    """
    return {
        name: int(value) if isinstance(value, numbers.Integral) else float(value)
        for name, value in vars(optimizer).items()
        if isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and name not in ("num_update", "rescale_grad")
    }


def _apart(state: Any, optimizer: mx.optimizer.Optimizer) -> tuple[mx.nd.NDArray | None, list[mx.nd.NDArray]]:
    """The master in the state of a float16 weight, and the rest; none where an optimizer of the user's arranges it."""
    make = type(optimizer).create_state_multi_precision
    if make in _SGD_LIKE:
        return state[1], _leaves(state[0])
    if make is mx.optimizer.Optimizer.create_state_multi_precision:
        return state[0], _leaves(state[1])
    return None, _leaves(state)


def _fill(leaf: mx.nd.NDArray, saved: NDArray[Any]) -> None:
    leaf[:] = mx.nd.array(saved.reshape(leaf.shape), ctx=leaf.context, dtype=leaf.dtype)


def _leaves(state: Any) -> list[mx.nd.NDArray]:
    if state is None:
        return []
    if isinstance(state, (tuple, list)):
        return [leaf for part in state for leaf in _leaves(part)]
    return [state]
