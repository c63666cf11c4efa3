"""The trace of a trial: what its workers and servers have noted of some steps, on one clock, in a file."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from raymx.cluster.generation import Generation
from raymx.experiment.schema import Profile
from raymx.results import operators
from raymx.results.trace import (
    FILE,
    VIEWER,
    Span,
    Traced,
    apart,
    by_name,
    chrome,
    clock_offset,
    on_one_clock,
    transfers,
)
from raymx.storage import FILE_ERRORS, Location, reason

ROUND_TRIPS = 5  # to each process on another node, of which the shortest counts
CLOCK_TIMEOUT_S = 10.0
MOST_OWN = 1000  # of what the trial does: the newest are kept
MARGIN_S = 0.05  # before and after: clocks of nodes differ


class Tracing:
    """What a trial does for its trace; nothing where none is asked for."""

    def __init__(self, profile: Profile, folder: Location) -> None:
        """The file goes into the trial's ``folder``; one of an earlier generation there is replaced."""
        self._profile, self._folder = profile, folder
        self._own: list[Span] = []
        self._is_made = False

    @contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """What the trial itself does meanwhile, for which its loops wait."""
        began = time.time()
        yield
        if self._profile.steps:
            self._own = [*self._own[1 - MOST_OWN :], Span(name, began, time.time())]

    def write(self, reports: Sequence[Mapping[str, Any]], generation: Generation) -> tuple[dict[str, Any], str]:
        """The columns of a row and a note for the user, where these reports end a trace; ({}, "") where they do not."""
        traced: dict[int, Traced] = {rank: one["traced"] for rank, one in enumerate(reports) if one["traced"]}
        if not traced:
            return {}, ""
        self._is_made = True
        try:
            workers = [on_one_clock(one, _offset(generation.workers[rank], one.node)) for rank, one in traced.items()]
            window = _window(workers)
            servers = _servers(generation, [name for name, _ in reports[0]["arrays"]], *window)
        except GetTimeoutError:
            return {}, f"there is no trace: a process did not tell its time within {CLOCK_TIMEOUT_S:g} s"
        where = self._folder / FILE
        whole = [*self._trial(*window), *_processes(workers, servers)]
        try:
            where.write_whole(gzip.compress(json.dumps(chrome(whole)).encode()))
        except FILE_ERRORS as error:
            return {}, f"the trace could not be written to {where.path}: {reason(error)}"
        steps = len({span.about.get("step") for one in workers for span in one.tracks.get("steps", ())})
        engines = [_engine(one) for one in workers]
        note = f"a trace of {steps} steps is in {where.path}: open it at {VIEWER}"
        return {operators.COLUMN: operators.summed(engines, steps)}, note

    def _trial(self, since: float, until: float) -> list[Traced]:
        spans = [span for span in self._own if since <= span.began and span.ended <= until]
        return [Traced("trial", os.uname().nodename, {"checkpoints": spans})] if spans else []

    def missing(self) -> str:
        """At the end of the run: that no step was traced, and why; "" where one was, or none was to be."""
        if self._profile.steps is None or self._is_made:
            return ""
        return (
            f"there is no trace: profile.steps is {list(self._profile.steps)}, and the workers ended before they had "
            f"made step {self._profile.steps[1]}; they count from 1 where they begin, and anew after a resize"
        )


def _processes(workers: Sequence[Traced], servers: Sequence[Traced]) -> Iterator[Traced]:
    """Each worker with its pushes and pulls, its read tasks, and the servers."""
    updates = by_name(span for server in servers for spans in server.tracks.values() for span in spans)
    for one in workers:
        yield from apart(_with_transfers(one, updates))
    yield from servers


def _engine(one: Traced) -> list[Span]:
    return [span for name, spans in one.tracks.items() if name.startswith("engine") for span in spans]


def _with_transfers(one: Traced, updates: Mapping[str, Sequence[Span]]) -> Traced:
    if not any(exchange.pushed for exchange in one.exchanges):  # a store within the process
        return one
    tracks = {**one.tracks, "pushes and pulls": transfers(one.exchanges, updates)}
    return Traced(one.process, one.node, tracks)


def _window(workers: Sequence[Traced]) -> tuple[float, float]:
    spans = [span for one in workers for track in one.tracks.values() for span in track]
    return min(span.began for span in spans) - MARGIN_S, max(span.ended for span in spans) + MARGIN_S


def _servers(generation: Generation, names: Sequence[str], since: float, until: float) -> list[Traced]:
    """The updates of each server, by parameter; none where the optimizer is in the workers."""
    count = len(generation.servers)
    told = generation.on_servers("updates", [since] * count, [until] * count)
    found = []
    for rank, (node, updates) in enumerate(told):
        spans = [Span(names[key], began, ended) for key, began, ended in updates if key < len(names)]
        traced = Traced(f"server {rank}", node, {"updates": spans})
        found.append(on_one_clock(traced, _offset(generation.servers[rank], node)))
    return [one for one in found if one.tracks["updates"]]


def _offset(role: Any, node: str) -> float:
    """What to add to its clock to get that of this process."""
    if node == os.uname().nodename:
        return 0.0
    samples = []
    for _ in range(ROUND_TRIPS):
        sent = time.time()
        told = ray.get(role.clock.remote(), timeout=CLOCK_TIMEOUT_S)
        samples.append((sent, told, time.time()))
    return clock_offset(samples)
