"""One trace of all roles, as Perfetto and Chrome read it, out of what each role has noted on its own clock. Pure.

    spans of each role -> `on_one_clock` -> `transfers` -> `chrome`

The format is the Trace Event Format (JSON): complete events ``X`` with their begin and length in microseconds, in
threads of processes that are named by events ``M``. Events of one thread must lie within or beside each other, so what
overlaps is spread over several threads (`lanes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

FILE = "trace.json.gz"
"""In the folder of a trial."""
VIEWER = "https://ui.perfetto.dev"
READ_TASKS = "read tasks"
"""The track of what a worker's read tasks did."""


@dataclass(frozen=True)
class Span:
    """Something that took from then to then, in seconds since 1970."""

    name: str
    began: float
    ended: float
    about: Mapping[str, Any] = field(default_factory=dict)

    def later(self, seconds: float) -> Span:
        return replace(self, began=self.began + seconds, ended=self.ended + seconds)


Tracks = Mapping[str, Sequence[Span]]
"""Spans by the name of a thread."""


@dataclass(frozen=True)
class Exchange:
    """One parameter in one step of one worker: its gradient is computed, and its weight is here again."""

    step: int
    name: str
    gradient: float
    weight: float
    pushed: int  # bytes
    pulled: int


@dataclass(frozen=True)
class Traced:
    """What one process has noted, on the clock of its node."""

    process: str
    node: str
    tracks: Tracks
    exchanges: Sequence[Exchange] = ()


def clock_offset(samples: Iterable[tuple[float, float, float]]) -> float:
    """What to add to another node's clock to get one's own: of (sent, its time, received), by the shortest round trip.

    The other node's time is taken for that of the middle of the round trip (Cristian 1989), so it is off by half of the
    round trip at most.
    """
    sent, told, received = min(samples, key=lambda sample: sample[2] - sample[0])
    return (sent + received) / 2 - told


def on_one_clock(traced: Traced, offset: float) -> Traced:
    """The same, ``offset`` seconds later."""
    tracks = {name: [span.later(offset) for span in spans] for name, spans in traced.tracks.items()}
    exchanges = [replace(one, gradient=one.gradient + offset, weight=one.weight + offset) for one in traced.exchanges]
    return replace(traced, tracks=tracks, exchanges=exchanges)


def transfers(exchanges: Sequence[Exchange], updates: Mapping[str, Sequence[Span]]) -> list[Span]:
    """A worker's pushes and pulls. ``updates``: those of all servers, by parameter.

    A push lasts from the gradient to the first update that begins after it and ends before the weight is here: its way
    to the server, and the wait for the other workers. A pull lasts from the end of the last such update. Where no
    server updates it, as with ``kvstore.update_on_kvstore: false``, both are one span.
    """
    return [span for one in exchanges for span in _of_exchange(one, updates.get(one.name, ()))]


def _of_exchange(one: Exchange, updates: Sequence[Span]) -> Iterator[Span]:
    within = _within(one, updates, 0.0) or _within(one, updates, CLOCK_S)
    about = {"step": one.step, "pushed_bytes": one.pushed, "pulled_bytes": one.pulled}
    if not within:
        yield Span(f"push and pull {one.name}", one.gradient, one.weight, about)
        return
    began, ended = min(span.began for span in within), max(span.ended for span in within)
    yield Span(f"push {one.name}", min(one.gradient, began), began, {"step": one.step, "bytes": one.pushed})
    yield Span(f"pull {one.name}", min(ended, one.weight), one.weight, {"step": one.step, "bytes": one.pulled})


def _within(one: Exchange, updates: Sequence[Span], late: float) -> list[Span]:
    """Updates between its gradient and its weight. ``late``: a mark may be reached after what it stands beside."""
    return [span for span in updates if one.gradient <= span.began + late and span.ended <= one.weight + CLOCK_S]


def apart(one: Traced) -> Iterator[Traced]:
    """The worker, and its read tasks as a process of their own, which they are."""
    tracks = dict(one.tracks)
    tasks = tracks.pop(READ_TASKS, ())
    yield replace(one, tracks=tracks)
    if tasks:
        yield Traced(f"read tasks of {one.process}", one.node, {"reading and decoding": tasks})


CLOCK_S = 0.001  # by so much clocks of one node's processes may differ


def lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans in as few threads as hold them so that none overlaps another, by their begin."""
    found: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: (one.began, one.ended)):
        free = next((lane for lane in found if lane[-1].ended <= span.began), None)
        if free is None:
            found.append([span])
        else:
            free.append(span)
    return found


def nested(spans: Sequence[Span]) -> bool:
    """Whether each two of them lie within or beside each other."""
    ends: list[float] = []
    for span in sorted(spans, key=lambda one: (one.began, -one.ended)):
        while ends and ends[-1] <= span.began:
            ends.pop()
        if ends and span.ended > ends[-1]:
            return False
        ends.append(span.ended)
    return True


def chrome(all_traced: Sequence[Traced]) -> dict[str, Any]:
    """The trace as JSON data, with microseconds from the first begin on."""
    spans = [span for traced in all_traced for track in traced.tracks.values() for span in track]
    first = min((span.began for span in spans), default=0.0)
    events = [event for number, traced in enumerate(all_traced, 1) for event in _of_process(number, traced, first)]
    return {"displayTimeUnit": "ms", "otherData": {"began_s": first}, "traceEvents": events}


def _of_process(number: int, traced: Traced, first: float) -> Iterator[dict[str, Any]]:
    yield _named("process_name", number, 0, {"name": f"{traced.process} ({traced.node})"})
    yield _named("process_sort_index", number, 0, {"sort_index": number})
    thread = 0
    for name, track in traced.tracks.items():
        threads = [list(track)] if nested(track) else lanes(track)
        for lane, spans in enumerate(threads, 1):
            thread += 1
            title = name if len(threads) == 1 else f"{name} {lane}"
            yield _named("thread_name", number, thread, {"name": title})
            yield _named("thread_sort_index", number, thread, {"sort_index": thread})
            for span in sorted(spans, key=lambda one: (one.began, -one.ended)):
                began, ended = (round(1e6 * (at - first), 3) for at in (span.began, span.ended))
                yield {
                    "ph": "X",
                    "name": span.name,
                    "cat": name,
                    "pid": number,
                    "tid": thread,
                    "ts": began,
                    "dur": round(max(0.0, ended - began), 3),  # so that neighbours touch and do not overlap
                    "args": dict(span.about),
                }


def _named(kind: str, process: int, thread: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": dict(args)}


def by_name(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Spans by their names."""
    found: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        found[span.name].append(span)
    return dict(found)
