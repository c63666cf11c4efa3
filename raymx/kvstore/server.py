"""The loops that a process hosts to be a KVStore server or the KVStore scheduler.

MXNet's own server starts when mxnet is imported, takes the optimizer as a pickle from its open port and never ends in
a process that goes on. Here the process imports mxnet first with no role, serves one generation when told to, takes
its optimizer from this process (which gets it through Ray), and refuses every command that comes from the network.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from raymx.errors import KVStoreError
from raymx.kvstore.env import obsolete
from raymx.kvstore.update_meter import UpdateMeter

log = logging.getLogger(__name__)

_CONTROLLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def enter_generation(env: Mapping[str, str]) -> None:
    """Set this process's environment for the generation that the next created store joins."""
    for name in obsolete(list(os.environ), env):
        del os.environ[name]
    os.environ.update(env)


class HostedServer:
    """One server process, generation after generation. `serve` blocks; the other methods are for another thread."""

    def __init__(self, meter: Callable[[], UpdateMeter]) -> None:
        """``meter`` makes that of a generation."""
        self._new_meter = meter
        self._store: Any = None
        self._updater: Any = None
        self._meter: UpdateMeter | None = None
        self._failed = threading.Event()
        self._failure = ""
        self.refused: list[int] = []

    def serve(self, env: Mapping[str, str], store_type: str) -> None:
        """Be a server until the workers end the generation. Raises KVStoreError when MXNet does."""
        import mxnet as mx
        from mxnet.base import _LIB, MXNetError, check_call

        enter_generation(env)
        self._updater = self._meter = None
        self._failure, self.refused = "", []
        self._failed.clear()
        self._store = mx.kv.create(store_type)
        try:
            check_call(_LIB.MXKVStoreRunServer(self._store.handle, _CONTROLLER(self._refuse), None))
        except MXNetError as error:
            raise KVStoreError(f"the server's loop ended: {error}") from None
        finally:
            self._store = self._updater = self._meter = None
            self._failed.set()  # nobody need wait for a failure of this generation any more

    @property
    def rank(self) -> int:
        """ps-lite's number of this server, by which slices are numbered; known once the generation is formed."""
        return int(self._store.rank)

    def install(self, spec: Any, restored: Any) -> None:
        """Set the optimizer; once every worker has joined and before any gradient is pushed."""
        from raymx.kvstore.optimizer import Guarded, Updater

        self._updater = Updater(spec, restored, masters=True)
        self._meter = self._new_meter()
        if spec.traced:
            first, last = spec.traced
            self._meter.keep(first, last, spec.updates_a_step)
        self._store._set_updater(Guarded(self._updater, self._fail, self._meter))

    def updater(self) -> Any:
        """The `raymx.kvstore.optimizer.Updater` of this generation, for its state and its learning rate."""
        if self._updater is None:
            raise KVStoreError("this server has no optimizer: kvstore.update_on_kvstore is false")
        return self._updater

    def take_updates(self) -> dict[str, float]:
        """What `UpdateMeter.take` tells; nothing where the optimizer is elsewhere."""
        return self._meter.take() if self._meter else {}

    def updates(self, since: float, until: float) -> list[tuple[int, float, float]]:
        """(key, begin, end) of updates that began in between, of a run that is traced; times as of ``time.time``."""
        offset = time.time() - time.perf_counter()
        found = self._meter.kept(since - offset, until - offset) if self._meter else []
        return [(key, began + offset, ended + offset) for key, began, ended in found]

    def wait_failure(self) -> str:
        """Block until an update raised, and give the traceback, or until the generation ends, and give ""."""
        self._failed.wait()
        return self._failure

    def _fail(self, failure: str) -> None:
        self._failure = failure
        self._failed.set()

    def _refuse(self, command: int, _body: bytes, _: Any) -> None:
        self.refused.append(command)
        log.warning("refused command %d from the network", command)


def serve_as_scheduler(env: Mapping[str, str], library: str) -> None:
    """Be the KVStore scheduler of one generation. Needs MXNet's C library only, which loads in 0.1 s."""
    enter_generation(env)
    lib = ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    lib.MXGetLastError.restype = ctypes.c_char_p
    store = ctypes.c_void_p()
    _check(lib, lib.MXKVStoreCreate(b"dist", ctypes.byref(store)))
    try:
        _check(lib, lib.MXKVStoreRunServer(store, _CONTROLLER(lambda *_: None), None))
    finally:
        lib.MXKVStoreFree(store)


def _check(lib: ctypes.CDLL, status: int) -> None:
    if status != 0:
        raise KVStoreError(f"the KVStore scheduler ended: {lib.MXGetLastError().decode(errors='replace')}")
