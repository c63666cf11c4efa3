"""Pushes gradients to a KVStore and pulls weights, or summed gradients, back.

Gluon's own Trainer uses pushpull, which refuses compression on a dist store; numbers keys by global name counters,
which differ between a warm and a fresh process; and never gets a new rate or a multiplier to the servers. This one
pushes each key in priority order, then pulls each, numbers keys by structural name, and installs the optimizer where
it runs.

AMP's own way with a loss scale is to look for an overflow once gradients were pushed: too late where the store has the
optimizer. Here it is looked for before anything can be updated, and no worker updates when any has found one. The loop
does not wait for that (`raymx.kvstore.deferred`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import mxnet as mx
import numpy as np

from raymx.errors import TrainingError
from raymx.kvstore.deferred import Copies, Deferred
from raymx.kvstore.engine import is_naive
from raymx.kvstore.loss_scale import LossScale, Scales
from raymx.kvstore.optimizer import Guarded, Updater
from raymx.kvstore.overflow import Overflow
from raymx.kvstore.spec import OptimizerSpec, StoreSettings
from raymx.kvstore.state import OptimizerState, bytes_a_step
from raymx.kvstore.wire import Arrays, Wire

_SET_MULTI_PRECISION = 1  # CommandType::kSetMultiPrecision of kvstore_dist_server.h


class Watch(Protocol):
    """May ask for the arrays of each step, of the first device, in the order of the keys, once all is queued that
    writes them.
    """

    def gradients(self, gradients: Callable[[], Sequence[Any]]) -> None:
        """Before they are pushed."""

    def weights(self, weights: Callable[[], Sequence[Any]]) -> None:
        """After they are updated, or pulled."""


class Trainer:
    """Synchronizes ``params`` over a store: those of `trained_parameters`, whose order numbers the keys.

    ``install`` is called once with the `OptimizerSpec` when the optimizer runs on servers, and returns when it does;
    ``set_remote_rate`` likewise for a new rate; ``on_step`` as each step begins, and ``watch`` of its arrays.
    ``scale``: what the loop's losses are multiplied by, which the updates divide by.
    """

    def __init__(
        self,
        params: Mapping[str, mx.gluon.Parameter],
        store: Any,
        spec: OptimizerSpec,
        settings: StoreSettings,
        *,
        scale: LossScale | None = None,
        restored: OptimizerState | None = None,
        install: Callable[[OptimizerSpec, dict[int, int]], None] | None = None,
        set_remote_rate: Callable[[float], None] | None = None,
        on_step: Callable[[], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._on_step, self._watch = on_step, watch
        self._deferred: Deferred | None = None
        _check_optimizer(spec.name, params)
        self._settings, self._scale = settings, scale
        self._scales = Scales(spec.rescale_grad, half=settings.half, compressed=bool(settings.compression))
        self._params = list(params.items())
        self._added_up = [param for param in params.values() if param.grad_req == "add"]
        copies = [Copies(param) for param in params.values()] if scale and not is_naive() else []
        self._arrays: list[Arrays] = list(copies or params.values())
        self._wire = Wire(self._arrays, store, half=settings.half)
        self._on_servers = settings.distributed and settings.update_on_kvstore
        self._set_remote_rate = set_remote_rate
        self._updaters: list[Updater] = []
        self._failures: list[str] = []
        if settings.compression:
            store.set_gradient_compression(dict(settings.compression))
        if settings.distributed and spec.options.get("multi_precision") and store.rank == 0:
            store._send_command_to_servers(_SET_MULTI_PRECISION, "")  # float16 keys are added up in float32 too
        spec = replace(
            _with_multipliers(spec, self._params),
            rescale_grad=self._scales.of_pushed(self._scale_now),
            spare_key=self._wire.spare_key,
        )
        if self._on_servers:
            assert install is not None
            install(spec, self.sizes)
        else:
            self._install_here(spec, restored, store)
        self._wire.init(for_weights=settings.update_on_kvstore)
        self._overflow = Overflow(settings, store, self._wire.spare_key) if scale else None
        if scale and copies:
            self._deferred = Deferred(
                copies,
                self._update,
                lambda: scale.value,
                keeps_weights=not settings.update_on_kvstore,
                one_by_one=settings.distributed and settings.update_on_kvstore,
            )
            self._deferred.give_weights()

    def step(self) -> None:
        """One update: call it after backward; or after several, where ``grad_req`` is add: those begin at 0 again.

        A parameter that no backward has reached since the last step, as of a layer that was left out, counts with 0.
        Returns before the engine has done it. With a loss scale, when gradients of any worker are inf or nan, nothing
        is updated anywhere; what such an update raises is raised by the next step but one, or by what needs it done.
        """
        if self._on_step:
            self._on_step()
        _zero_stale(param for _, param in self._params)
        if self._watch:
            self._watch.gradients(lambda: [param.list_grad()[0] for _, param in self._params])
        (self._deferred.step if self._deferred else self._update)()
        if self._watch:
            self._watch.weights(lambda: [param.list_data()[0] for _, param in self._params])
        for param in self._added_up:
            param.zero_grad()

    def _update(self) -> None:
        rescale = self._scales.of_pushed(self._scale_now)
        self._wire.load(self._scales.push_factor(self._scale_now))
        overflow = self._overflow is not None and self._overflow.before_push(self._wire.gradients)
        if overflow and self._settings.asynchronous:
            self._wire.pull_weights()
        elif not overflow:
            self._wire.push()
            overflow = self._take_what_comes(rescale)
        if self._scale:
            self._scale.step_done(overflow)

    def _take_what_comes(self, rescale: float) -> bool:
        """After a push: new weights, or the gradients for an update here; whether those have an overflow."""
        if self._failures:
            raise TrainingError(f"the optimizer failed in an update:\n{self._failures[0]}")
        if self._settings.update_on_kvstore:
            self._wire.pull_weights()
            return False
        self._wire.pull_gradients()
        overflow = self._overflow is not None and self._overflow.after_pull(self._wire.gradients)
        if not overflow:
            self._update_here(rescale)
        return overflow

    def pull(self) -> None:
        """Take the store's newest weights; in async they may be ahead of this worker's."""
        if self._settings.update_on_kvstore:
            self._join()
            self._wire.pull_weights()
            if self._deferred:
                self._deferred.give_weights()

    @property
    def loss_scale(self) -> float:
        """What the losses of the next step are to be multiplied by; ``part.scale`` of a batch has it.

        A dynamic one is known when the steps before are done, for which it waits.
        """
        self._join()
        return self._scale_now

    def loss_scale_to_come(self) -> float | mx.nd.NDArray:
        """The same, with no wait: a dynamic one as float32 (1,)."""
        if self._deferred and self._scale and self._scale.dynamic:
            return self._deferred.value()
        return self._scale_now

    @property
    def _scale_now(self) -> float:
        return self._scale.value if self._scale else 1.0

    def take_scaling(self) -> dict[str, float]:
        """The loss scale now, and the steps skipped since the last call; nothing where there is no scale."""
        if self._scale is None:
            return {}
        self._join()
        return {"loss_scale": self._scale.value, "skipped_steps": self._scale.take_skipped()}

    @property
    def names(self) -> list[str]:
        """The structural name of each key."""
        return [name for name, _ in self._params]

    @property
    def sizes(self) -> dict[int, int]:
        """Elements of each key."""
        return {key: int(np.prod(param.shape)) for key, (_, param) in enumerate(self._params)}

    def exchanges(self) -> list[tuple[str, int, int]]:
        """(name, pushed, pulled): the payload bytes of each key in one step of this worker, 0 where none leave it."""
        each = [(0, 0)] * len(self._params)
        if self._settings.distributed:
            each = self._wire.bytes_by_key(compressed=bool(self._settings.compression))
        return [(name, *both) for name, both in zip(self.names, each, strict=True)]

    def bytes_a_step(self) -> tuple[int, int]:
        """(pushed, pulled) payload bytes of this worker in one step; (0, 0) where nothing leaves the process."""
        agrees = self._overflow is not None and self._overflow.agrees
        agreed = bytes_a_step([1], 4, compressed=bool(self._settings.compression)) if agrees else (0, 0)
        each = self.exchanges()
        return sum(one[1] for one in each) + agreed[0], sum(one[2] for one in each) + agreed[1]

    def learning_rate(self) -> float | None:
        """The rate of the last update, or None where the servers know it."""
        return None if self._on_servers else self._updaters[0].learning_rate

    def set_learning_rate(self, learning_rate: float) -> None:
        """Replace the schedule by a fixed rate wherever the optimizer runs; every worker must call it."""
        self._join()
        if self._on_servers:
            assert self._set_remote_rate is not None
            mx.nd.waitall()
            self._set_remote_rate(learning_rate)
        for updater in self._updaters:
            updater.set_learning_rate(learning_rate)

    def optimizer_state(self) -> OptimizerState | None:
        """The optimizer's state by key, with a dynamic loss scale among its numbers; None where the servers have it."""
        if self._on_servers:
            return None
        self._join()
        state = self._updaters[0].state()
        state.scalars.update(self._scale.state() if self._scale else {})
        return state

    def close(self) -> None:
        """Let go of the store."""
        if self._deferred:
            self._deferred.close()
        self._wire.close()
        if self._overflow:
            self._overflow.close()

    def _join(self) -> None:
        if self._deferred:
            self._deferred.join()

    # Where the optimizer is

    def _install_here(self, spec: OptimizerSpec, restored: OptimizerState | None, store: Any) -> None:
        on_store = self._settings.update_on_kvstore
        devices = 1 if on_store else len(self._params[0][1].list_ctx())
        self._updaters = [Updater(spec, restored) for _ in range(devices)]
        if on_store:
            store._set_updater(Guarded(self._updaters[0], self._failures.append))

    def _update_here(self, rescale: float) -> None:
        keys = list(range(len(self._params)))
        for device, updater in enumerate(self._updaters):
            updater.set_rescale(rescale)
            updater(
                keys,
                [arrays.list_grad()[device] for arrays in self._arrays],
                [arrays.list_data()[device] for arrays in self._arrays],
            )


def _zero_stale(params: Iterable[mx.gluon.Parameter]) -> None:
    """Set gradients to 0 that are those of a former step: backward writes only those of what forward used.

    Where no backward came at all, the loop has written them itself, and they stay.
    """
    pairs = [pair for param in params for pair in zip(param.list_data(), param.list_grad(), strict=True)]
    stale = [grad for data, grad in pairs if not data._fresh_grad]
    for grad in stale if len(stale) < len(pairs) else ():
        grad[:] = 0
    for data, _ in pairs:
        data._fresh_grad = False


def trained_parameters(params: Mapping[str, mx.gluon.Parameter]) -> dict[str, mx.gluon.Parameter]:
    """The parameters that have a gradient (grad_req is not "null"), once each: a shared one has several names.

    Raises TrainingError when one cannot take part, with the reason.
    """
    trained: dict[str, mx.gluon.Parameter] = {}
    seen: set[int] = set()
    for name, param in params.items():
        if param.grad_req == "null" or id(param) in seen:
            continue
        seen.add(id(param))
        _check(name, param)
        trained[name] = param
    if not trained:
        raise TrainingError("the net has no parameter with a gradient: there is nothing to train")
    return trained


def _check(name: str, param: mx.gluon.Parameter) -> None:
    if param._stype != "default" or param._grad_stype != "default":
        raise TrainingError(
            f"parameter {name} is sparse (storage {param._stype}, gradient {param._grad_stype}): MXNet "
            "1.9.1 aborts in distributed training with it; build the layer with sparse_grad=False"
        )
    if param._deferred_init or param._data is None:
        raise TrainingError(
            f"parameter {name} is not initialized, its shape is {param.shape}: initialize the net and "
            "run one batch through it before trainer(net)"
        )
    if param.shape is None:  # of a SymbolBlock, whose file of parameters has brought arrays and told no shape
        param.shape = param.list_data()[0].shape


def _check_optimizer(optimizer: str, params: Mapping[str, mx.gluon.Parameter]) -> None:
    other = [f"{name} {param.shape}" for name, param in params.items() if len(param.shape) != 2]
    if optimizer == "groupadagrad" and other:
        raise TrainingError(
            "training.optimizer.name is groupadagrad, which needs weights with rows and columns, and "
            f"the net has {', '.join(other[:3])}{' and others' if other[3:] else ''}; use adagrad"
        )


def _with_multipliers(spec: OptimizerSpec, params: list[tuple[str, mx.gluon.Parameter]]) -> OptimizerSpec:
    lr = {key: param.lr_mult for key, (_, param) in enumerate(params) if param.lr_mult != 1.0}
    wd = {key: param.wd_mult for key, (_, param) in enumerate(params) if param.wd_mult != 1.0}
    return replace(spec, lr_mult={**spec.lr_mult, **lr}, wd_mult={**spec.wd_mult, **wd})
