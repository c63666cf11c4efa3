"""What MXNet's engine does between two moments, by its own profiler, which knows one such window at a time."""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import mxnet as mx

from raymx.results.trace import Span

_TRAILER, _BETWEEN = '"displayTimeUnit"', " \n,"
# Its bookkeeping, and raymx's own operators.
_NOT_COMPUTED = ("DeleteVariable", "raymx_mark", "raymx_update", "raymx_gate")


class EngineProfile:
    """From `start` to `stop`. It counts time as ``time.time`` does."""

    def __init__(self) -> None:
        self._bulk, self._file = 0, ""

    def start(self) -> None:
        """From now on each operator is noted."""
        descriptor, self._file = tempfile.mkstemp(suffix=".json")
        os.close(descriptor)
        mx.profiler.set_config(profile_symbolic=True, profile_imperative=True, filename=self._file)
        self._bulk = mx.engine.set_bulk_size(0)  # operators that run in one go have one name
        mx.profiler.set_state("run")

    def stop(self) -> dict[str, list[Span]]:
        """The operators since `start`, by thread of the engine; it must have done them."""
        mx.profiler.set_state("stop")
        mx.profiler.dump(finished=False)
        mx.engine.set_bulk_size(self._bulk)
        try:
            return spans_of(Path(self._file).read_text(errors="replace"))
        finally:
            os.unlink(self._file)


def spans_of(text: str) -> dict[str, list[Span]]:
    """The operators in a file of MXNet's profiler, by thread.

    A file after the process's first one begins with a comma, and the end may be missing: neither is JSON. Each operator
    is there twice, as an event of its device (``B``, ``E``) and as one of its kind (``b``, ``e``): the first are taken.
    """
    listed = text[text.find("[") + 1 :]
    if _TRAILER in listed:
        listed = listed[: listed.rindex(_TRAILER)].rstrip(_BETWEEN).removesuffix("]")
    events = json.loads(f"[{listed.strip(_BETWEEN)}]")
    threads: defaultdict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("ph") in ("B", "E") and event["name"] not in _NOT_COMPUTED:
            threads[event["tid"]].append(event)
    ordered = sorted(threads.values(), key=lambda some: some[0]["ts"])
    return {f"engine {number}": list(_paired(some)) for number, some in enumerate(ordered)}


def _paired(events: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    """Begins and ends of one thread, which follow each other, or lie within each other."""
    stack: list[Mapping[str, Any]] = []
    for event in events:
        if event["ph"] == "B":
            stack.append(event)
        elif stack and stack[-1]["name"] == event["name"]:
            yield Span(str(event["name"]), stack.pop()["ts"] / 1e6, event["ts"] / 1e6)
