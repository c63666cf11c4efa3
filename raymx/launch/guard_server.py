"""A KVStore server that unpickles nothing from the network: it takes settings as JSON, from who knows the run's token.

Pushes, pulls and MXNet's own commands (stop, sync mode, compression) cannot be authenticated: whoever reaches the port
can still read and spoil weights, but run no code.
"""

from __future__ import annotations

import ctypes
import hmac
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from raymx.kvstore import native
from raymx.kvstore.env import ROLE
from raymx.launch import environment, optimizers

INSTALL, CHANGE = "install", "change"
"""What a message is about: a new optimizer, or other values of the one that is there."""
CONTROLLER = 0  # MXNet's number of the command that its own servers unpickle


class Refused(Exception):
    """A message that is none, or that somebody else sent."""


def message(token: str, kind: str, content: Mapping[str, Any]) -> str:
    """The body of a command."""
    return f"{token} {json.dumps({kind: content})}"


def understood(body: bytes, token: str) -> tuple[str, dict[str, Any]]:
    """(kind, content) of a body. Raises Refused."""
    given, _, text = body.partition(b" ")
    if not token or not hmac.compare_digest(given, token.encode()):
        raise Refused("it has not this run's token")
    try:
        found = json.loads(text)
    except ValueError:
        raise Refused("it is no JSON") from None
    if not isinstance(found, dict) or len(found) != 1 or not found.keys() <= {INSTALL, CHANGE}:
        raise Refused("it is neither an optimizer nor a change of one")
    kind, content = next(iter(found.items()))
    return kind, dict(content)


class Updates:
    """The updater of a server whose optimizer can change while it runs.

    A change says from which update on it holds, counted by key. A worker sends it before its own push of that update,
    so a sync server has it in time, and applies it at the same update however the messages of several workers mix.
    """

    def __init__(self, optimizer: Any, updater: Callable[[Any, Any, Any], None]) -> None:
        self._optimizer, self._updater = optimizer, updater
        self._changes: list[tuple[int, Mapping[str, Any]]] = [(0, _state_of(optimizer))]

    def change(self, content: Mapping[str, Any]) -> None:
        settings = dict(content)
        start = int(settings.pop("from_update"))
        before = next(known for at, known in reversed(self._changes) if at <= start)
        for name in ("lr_mult", "wd_mult"):
            if name in settings:
                settings[name] = dict(map(tuple, settings[name]))
        self._changes = [one for one in self._changes if one[0] < start] + [(start, {**before, **settings})]

    def __call__(self, key: Any, gradient: Any, weight: Any) -> None:
        optimizer = self._optimizer
        number = optimizer._index_update_count.get(key, optimizer.begin_num_update) + 1
        settings = next(known for at, known in reversed(self._changes) if at <= number)
        vars(optimizer).update(settings)
        self._updater(key, gradient, weight)


def _state_of(optimizer: Any) -> dict[str, Any]:
    return {name: getattr(optimizer, name) for name in ("lr", "rescale_grad", "lr_mult", "wd_mult")}


class GuardedServer:
    """What the server does with commands."""

    def __init__(self, mxnet: Any, store: Any, token: str) -> None:
        self._mxnet, self._store, self._token = mxnet, store, token
        self._updates: Updates | None = None

    def on_command(self, command: int, body: bytes, _: Any = None) -> None:
        """MXNet would swallow what this raises, and go on without an optimizer: so the process ends."""
        try:
            self._do(command, body or b"")
        except Refused as error:
            sys.stderr.write(f"raymx: refused command {command} from the network: {error}\n")
        except Exception:
            _fail()

    def _do(self, command: int, body: bytes) -> None:
        if command != CONTROLLER:
            raise Refused("raymx knows none of that number")
        kind, content = understood(body, self._token)
        if kind == INSTALL:
            optimizer = optimizers.of_text(content, self._mxnet)
            self._updates = Updates(optimizer, self._mxnet.optimizer.get_updater(optimizer))
            self._store._set_updater(self._update)
        elif self._updates is not None:
            self._updates.change(content)

    def _update(self, key: Any, gradient: Any, weight: Any) -> None:
        assert self._updates is not None
        try:
            self._updates(key, gradient, weight)
        except Exception:  # MXNet would go on with the sum of the gradients in place of the weights
            _fail()


def _fail() -> NoReturn:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def serve() -> None:
    """Be a server until the workers end the store."""
    role = os.environ.pop(ROLE)  # with a role, importing mxnet would serve and then exit
    native.import_mxnet()
    os.environ[ROLE] = role
    import mxnet
    from mxnet.base import _LIB, check_call

    store = mxnet.kv.create("dist")
    server = GuardedServer(mxnet, store, os.environ[environment.TOKEN])
    controller = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(server.on_command)
    check_call(_LIB.MXKVStoreRunServer(store.handle, controller, None))
