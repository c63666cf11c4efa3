"""Pushes gradients to a KVStore and pulls weights, or summed gradients, back.

Gluon's own Trainer uses pushpull, which refuses compression on a dist store; numbers keys by global name counters,
which differ between a warm and a fresh process; and never gets a new rate or a multiplier to the servers. This one
pushes each key in priority order, then pulls each, numbers keys by structural name, and installs the optimizer where
it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mxnet as mx
import numpy as np

from raymx.errors import TrainingError
from raymx.kvstore.optimizer import Guarded, Updater
from raymx.kvstore.spec import OptimizerSpec
from raymx.kvstore.state import OptimizerState, bytes_a_step

_SET_MULTI_PRECISION = 1      # CommandType::kSetMultiPrecision of kvstore_dist_server.h


@dataclass(frozen=True)
class StoreSettings:
    """How a trainer uses its store."""

    distributed: bool
    update_on_kvstore: bool
    compression: Mapping[str, Any] | None = None       # {"type": "2bit", "threshold": 0.5}


class Trainer:
    """Synchronizes ``params`` over a store: those of `trained_parameters`, whose order numbers the keys.

    ``install`` is called once with the `OptimizerSpec` when the optimizer runs on servers, and returns when it does;
    ``set_remote_rate`` likewise for a new rate.
    """

    def __init__(self, params: Mapping[str, mx.gluon.Parameter], store: Any, spec: OptimizerSpec,
                 settings: StoreSettings, *, restored: OptimizerState | None = None,
                 install: Callable[[OptimizerSpec, dict[int, int]], None] | None = None,
                 set_remote_rate: Callable[[float], None] | None = None) -> None:
        self._store, self._settings = store, settings
        self._params = list(params.items())
        self._on_servers = settings.distributed and settings.update_on_kvstore
        self._set_remote_rate = set_remote_rate
        self._updaters: list[Updater] = []
        self._failures: list[str] = []
        if settings.compression:
            store.set_gradient_compression(dict(settings.compression))
        spec = _with_multipliers(spec, self._params)
        if self._on_servers:
            if spec.options.get("multi_precision") and store.rank == 0:
                store._send_command_to_servers(_SET_MULTI_PRECISION, "")
            assert install is not None
            install(spec, self.sizes)
        else:
            self._install_here(spec, restored)
        self._init_keys()

    def step(self) -> None:
        """One update: call it after backward. Returns before the engine has done it."""
        for key, (_, param) in enumerate(self._params):
            self._store.push(key, param.list_grad(), priority=-key)
        if self._failures:
            raise TrainingError(f"the optimizer failed in an update:\n{self._failures[0]}")
        on_store = self._settings.update_on_kvstore
        for key, (_, param) in enumerate(self._params):
            self._store.pull(key, out=param.list_data() if on_store else param.list_grad(), priority=-key)
        if not on_store:
            self._update_here()

    def pull(self) -> None:
        """Take the store's newest weights; in async they may be ahead of this worker's."""
        if self._settings.update_on_kvstore:
            for key, (_, param) in enumerate(self._params):
                self._store.pull(key, out=param.list_data(), priority=-key)

    @property
    def names(self) -> list[str]:
        """The structural name of each key."""
        return [name for name, _ in self._params]

    @property
    def sizes(self) -> dict[int, int]:
        """Elements of each key."""
        return {key: int(np.prod(param.shape)) for key, (_, param) in enumerate(self._params)}

    def bytes_a_step(self) -> tuple[int, int]:
        """(pushed, pulled) payload bytes of this worker in one step; (0, 0) where nothing leaves the process."""
        if not self._settings.distributed:
            return 0, 0
        itemsize = np.dtype(self._params[0][1].dtype).itemsize
        return bytes_a_step(list(self.sizes.values()), itemsize, compressed=bool(self._settings.compression))

    def learning_rate(self) -> float | None:
        """The rate of the last update, or None where the servers know it."""
        return None if self._on_servers else self._updaters[0].learning_rate

    def set_learning_rate(self, learning_rate: float) -> None:
        """Replace the schedule by a fixed rate wherever the optimizer runs; every worker must call it."""
        if self._on_servers:
            assert self._set_remote_rate is not None
            mx.nd.waitall()
            self._set_remote_rate(learning_rate)
        for updater in self._updaters:
            updater.set_learning_rate(learning_rate)

    def optimizer_state(self) -> OptimizerState | None:
        """The optimizer's state by key, or None where the servers have it."""
        return None if self._on_servers else self._updaters[0].state()

    def close(self) -> None:
        """Let go of the store."""
        self._store = None

    def _install_here(self, spec: OptimizerSpec, restored: OptimizerState | None) -> None:
        on_store = self._settings.update_on_kvstore
        devices = 1 if on_store else len(self._params[0][1].list_ctx())
        self._updaters = [Updater(spec, restored) for _ in range(devices)]
        if on_store:
            self._store._set_updater(Guarded(self._updaters[0], self._failures.append))

    def _init_keys(self) -> None:
        keys = list(range(len(self._params)))
        # Copies, since inference on a CPU may leave a weight in oneDNN's own layout: a dist store cannot push that, and
        # MXNet's engine drops the error. A copy has the plain layout, and stays apart from what the net does next.
        self._store.init(keys, [param.list_data()[0].copy() for _, param in self._params])
        for key, (_, param) in enumerate(self._params):
            self._store.pull(key, out=param.list_data(), priority=-key)
        mx.nd.waitall()

    def _update_here(self) -> None:
        keys = list(range(len(self._params)))
        for device, updater in enumerate(self._updaters):
            updater(keys, [param.list_grad()[device] for _, param in self._params],
                    [param.list_data()[device] for _, param in self._params])


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
        raise TrainingError(f"parameter {name} is sparse (storage {param._stype}, gradient {param._grad_stype}): MXNet "
                            "1.9.1 aborts in distributed training with it; build the layer with sparse_grad=False")
    if param._deferred_init or param._data is None:
        raise TrainingError(f"parameter {name} is not initialized, its shape is {param.shape}: initialize the net and "
                            "run one batch through it before trainer(net)")


def _with_multipliers(spec: OptimizerSpec, params: list[tuple[str, mx.gluon.Parameter]]) -> OptimizerSpec:
    lr = {key: param.lr_mult for key, (_, param) in enumerate(params) if param.lr_mult != 1.0}
    wd = {key: param.wd_mult for key, (_, param) in enumerate(params) if param.wd_mult != 1.0}
    return replace(spec, lr_mult={**spec.lr_mult, **lr}, wd_mult={**spec.wd_mult, **wd})
