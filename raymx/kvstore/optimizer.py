"""The updater that runs an optimizer, on a server or in a worker."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import mxnet as mx

from raymx.imports import load_object
from raymx.kvstore.spec import OptimizerSpec
from raymx.kvstore.state import OptimizerState
from raymx.training.schedule import Schedule


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
    optimizer's own structure of state is kept without this class knowing it.
    """

    def __init__(self, spec: OptimizerSpec, restored: OptimizerState | None = None) -> None:
        self._schedule = _ScheduleOfUpdates(spec.schedule, spec.updates_a_step)
        self.optimizer = _create(spec, self._schedule)
        self._updater = mx.optimizer.get_updater(self.optimizer)
        self._updates_a_step = spec.updates_a_step
        restored = restored or OptimizerState()
        self._restored_arrays = dict(restored.arrays)
        self._start_counts = {key: count * spec.updates_a_step for key, count in restored.counts.items()}
        self.optimizer.num_update = max(self._start_counts.values(), default=0)

    def __call__(self, key: Any, grad: Any, weight: Any) -> None:
        keys, weights = (key, weight) if isinstance(key, (list, tuple)) else ([key], [weight])
        for k, w in zip(keys, weights, strict=True):
            if k not in self._updater.states:
                self._start(k, w)
        self._updater(key, grad, weight)

    def _start(self, key: int, weight: mx.nd.NDArray) -> None:
        state = self.optimizer.create_state_multi_precision(key, weight)
        for leaf, saved in zip(_leaves(state), self._restored_arrays.get(key, []), strict=False):
            leaf[:] = mx.nd.array(saved.reshape(leaf.shape), ctx=leaf.context, dtype=leaf.dtype)
        self._updater.states[key] = state
        self._updater.states_synced[key] = True
        if key in self._start_counts:
            self.optimizer._set_current_context(weight.context.device_id)
            self.optimizer._index_update_count[key] = self._start_counts[key]

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

    def state(self) -> OptimizerState:
        """The state by key as flat arrays; counts are in global steps, whatever the number of workers."""
        counts = {key: -(-count // self._updates_a_step)
                  for by_key in self.optimizer._all_index_update_counts.values() for key, count in by_key.items()}
        arrays = {key: [leaf.asnumpy().ravel() for leaf in _leaves(state)]
                  for key, state in self._updater.states.items()}
        for key, count in self._start_counts.items():         # what was not touched since it was restored
            arrays.setdefault(key, self._restored_arrays.get(key, []))
            counts.setdefault(key, count // self._updates_a_step)
        return OptimizerState(arrays=arrays, counts=counts)


class Guarded:
    """An updater as a store's callback: MXNet swallows what a callback raises, so the first failure is kept here."""

    def __init__(self, updater: Updater, on_failure: Callable[[str], None]) -> None:
        self._updater, self._on_failure = updater, on_failure
        self._failed = False

    def __call__(self, key: int, grad: Any, weight: Any) -> None:
        if self._failed:
            return
        try:
            self._updater(key, grad, weight)
        except Exception:
            self._failed = True
            self._on_failure(traceback.format_exc())


def _create(spec: OptimizerSpec, schedule: _ScheduleOfUpdates) -> mx.optimizer.Optimizer:
    arguments = dict(spec.options, rescale_grad=spec.rescale_grad, lr_scheduler=schedule)
    factory: Callable[..., mx.optimizer.Optimizer]
    if ":" in spec.name:
        factory = load_object(spec.name, spec.directory)
        optimizer = factory(**arguments)
    else:
        optimizer = mx.optimizer.create(spec.name, **arguments)
    # By key and not through param_dict, which MXNet drops on the way to a server.
    optimizer.lr_mult, optimizer.wd_mult = dict(spec.lr_mult), dict(spec.wd_mult)
    return optimizer


def _leaves(state: Any) -> list[mx.nd.NDArray]:
    if state is None:
        return []
    if isinstance(state, (tuple, list)):
        return [leaf for part in state for leaf in _leaves(part)]
    return [state]
