"""What `raymx.launch --guard` and ``import raymx.mx`` change in a worker's mxnet.

Gluon's trainer compresses on a dist store: it pushes and pulls, where its own pushpull refuses. Where the servers are
raymx's (`raymx.launch.guard_server`), optimizers travel as JSON, and what a trainer changes afterwards reaches the
servers: its learning rate, its parameters' multipliers, the batch size of a step.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from raymx.launch import environment, guard_server, optimizers

_APPLIED = "_raymx_guarded"


def apply(mxnet: Any) -> None:
    """Change ``mxnet``, once. With servers of MXNet's own, or none, only Gluon's trainer is."""
    if getattr(mxnet, _APPLIED, False):
        return
    setattr(mxnet, _APPLIED, True)
    trainer = mxnet.gluon.Trainer
    trainer._allreduce_grads = _compressing(trainer._allreduce_grads)
    if os.environ.get(environment.GUARD):
        mxnet.kvstore.KVStore.set_optimizer = _as_json(mxnet, mxnet.kvstore.KVStore.set_optimizer)
        trainer._init_kvstore = _remembering(trainer._init_kvstore)
        trainer.step = _telling(trainer.step)


def _compressing(original: Any) -> Any:
    def _allreduce_grads(self: Any) -> None:
        """Push all gradients, then pull all weights (or sums)."""
        store = self._kvstore
        if not store or not self._compression_params or "dist" not in store.type:
            original(self)
            return
        pushed = [(key, one) for key, one in enumerate(self._params) if one.grad_req != "null"]
        for key, one in pushed:
            store.push(key, one.list_grad(), priority=-key)
        for key, one in pushed:
            if one._stype == "default":
                out = one.list_data() if self._update_on_kvstore else one.list_grad()
                store.pull(key, out, priority=-key, ignore_sparse=self._distributed)

    return _allreduce_grads


def _as_json(mxnet: Any, original: Any) -> Any:
    def set_optimizer(self: Any, optimizer: Any) -> None:
        """Send an optimizer to all servers, as JSON."""
        if "dist" not in self.type or not _is_worker(mxnet):
            original(self, optimizer)
            return
        _send(self, guard_server.INSTALL, optimizers.as_text(optimizer, mxnet))
        if optimizer.multi_precision:
            self._send_command_to_servers(_MULTI_PRECISION, "")

    return set_optimizer


_MULTI_PRECISION = 1  # MXNet's number of that command


def _is_worker(mxnet: Any) -> bool:
    found = ctypes.c_int()
    mxnet.base.check_call(mxnet.base._LIB.MXKVStoreIsWorkerNode(ctypes.byref(found)))
    return bool(found.value)


def _send(store: Any, kind: str, content: dict[str, Any]) -> None:
    token = os.environ[environment.TOKEN]
    store._send_command_to_servers(guard_server.CONTROLLER, guard_server.message(token, kind, content))


def _remembering(original: Any) -> Any:
    def _init_kvstore(self: Any) -> None:
        original(self)
        self._raymx_sent, self._raymx_steps = _settings(self), 0

    return _init_kvstore


def _telling(original: Any) -> Any:
    def step(self: Any, batch_size: Any, ignore_stale_grad: bool = False) -> None:
        """A step, before which the servers are told what has changed since the last one."""
        if self._kv_initialized and self._update_on_kvstore and self._distributed:
            self._optimizer.rescale_grad = self._scale / batch_size
            _tell(self)
        original(self, batch_size, ignore_stale_grad)
        if self._kv_initialized:
            self._raymx_steps += 1

    return step


def _tell(trainer: Any) -> None:
    now = _settings(trainer)
    changed = {name: value for name, value in now.items() if value != trainer._raymx_sent[name]}
    if changed:
        steps = trainer._optimizer.begin_num_update + trainer._raymx_steps + 1
        at = 0 if "async" in trainer._kvstore.type else steps  # async servers count the updates of all workers
        _send(trainer._kvstore, guard_server.CHANGE, {**changed, "from_update": at})
        trainer._raymx_sent = now


def _settings(trainer: Any) -> dict[str, Any]:
    """What a script may change in a trainer between two steps. A schedule runs where the optimizer is."""
    optimizer = trainer._optimizer
    return {
        "lr": None if optimizer.lr_scheduler is not None else float(optimizer.lr),
        "rescale_grad": float(optimizer.rescale_grad),
        **optimizers.multipliers(optimizer),
    }
