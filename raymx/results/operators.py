"""What MXNet's operators take, by name, out of a trace; and what differs between two of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raymx.results.trace import Span

COLUMN = "operators"
MOST = 40  # that a row of results keeps
_WAIT = ("KVStore", "WaitForVar")
LEAST = 0.02  # of all operators' time: what takes less is not compared


@dataclass(frozen=True)
class Operator:
    """One kind of operator: how often it runs in a step, and the seconds that it takes there in all."""

    name: str
    calls: float
    seconds: float


def summed(engines: Sequence[Sequence[Span]], steps: int) -> list[list[Any]]:
    """[name, calls, seconds] a step and worker, the longest first. ``engines``: the operators of each worker.

    Those that wait for a store or for another operator are left out: they compute nothing.
    """
    found: dict[str, tuple[int, float]] = {}
    for span in (span for spans in engines for span in spans if not span.name.startswith(_WAIT)):
        calls, seconds = found.get(span.name, (0, 0.0))
        found[span.name] = (calls + 1, seconds + span.ended - span.began)
    of = max(len(engines), 1) * max(steps, 1)
    longest = sorted(found.items(), key=lambda item: -item[1][1])[:MOST]
    return [[name, calls / of, seconds / of] for name, (calls, seconds) in longest]


def of_rows(rows: Sequence[Mapping[str, Any]]) -> list[Operator]:
    """Those of a trial's rows: the first that has them; none where no step was traced."""
    told = next((row[COLUMN] for row in rows if row.get(COLUMN)), ())
    return [Operator(str(name), float(calls), float(seconds)) for name, calls, seconds in told]


def lines(operators: Sequence[Operator], most: int = 10) -> Iterator[str]:
    """A table for people, the longest first."""
    whole = sum(one.seconds for one in operators) or 1.0
    width = max((len(one.name) for one in operators[:most]), default=0)
    for one in operators[:most]:
        share = 100 * one.seconds / whole
        yield f"{one.name:<{width}}  {share:5.1f} %  {1000 * one.seconds:9.3f} ms  {one.calls:g} times a step"


def compared(
    fast: Sequence[Operator], slow: Sequence[Operator], samples: tuple[float, float] = (1.0, 1.0)
) -> Iterator[str]:
    """``Convolution 1.9x, 3.1 ms and 5.9 ms``: what each operator of ``slow`` takes as times of ``fast``.

    For as many samples: ``samples`` are those of a step of a worker in each.
    """
    first = {one.name: one.seconds / samples[0] for one in fast}
    second = {one.name: one.seconds / samples[1] for one in slow}
    whole = max(sum(first.values()), sum(second.values()))
    for name in sorted({*first, *second}, key=lambda one: -max(first.get(one, 0.0), second.get(one, 0.0))):
        one, other = first.get(name), second.get(name)
        if max(one or 0.0, other or 0.0) < LEAST * whole:
            continue
        if one and other:
            yield f"{name} {other / one:.2f}x ({_each(one)} and {_each(other)})"
        else:
            yield f"{name} only in the {'first' if one else 'second'} ({_each(one or other or 0.0)})"


def _each(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} us a sample"
