"""A worker's process has one KVStore, which raymx made: another one of a distributed type would wait for ever."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from raymx.errors import LoopError

_OF_SEVERAL_PROCESSES = ("dist", "p3", "horovod", "byteps")


@contextlib.contextmanager
def no_other_store() -> Iterator[None]:
    """While the user's code runs: ``mx.kv.create`` of a type for several processes raises LoopError."""
    from mxnet import kvstore

    create = kvstore.create

    def guarded(name: Any = "local") -> Any:
        if isinstance(name, str) and any(kind in name.lower() for kind in _OF_SEVERAL_PROCESSES):
            frame = next(frame for frame in reversed(traceback.extract_stack()) if not _is_between(frame.filename))
            raise LoopError(
                f'mx.kv.create("{name}") in {frame.filename}, line {frame.lineno}: this process is in raymx\'s KVStore '
                "already, and would wait for others for ever; leave it out, choose the type with kvstore.type, and "
                "use  trainer = ctx.trainer(net)  in place of gluon.Trainer"
            )
        return create(name)

    kvstore.create = guarded
    try:
        yield
    finally:
        kvstore.create = create


def _is_between(filename: str) -> bool:
    """Whether it is this file, or of MXNet, whose Gluon trainer makes a store by its type."""
    return filename == __file__ or "/mxnet/" in filename
