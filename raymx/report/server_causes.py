"""What the servers have to do with a trial's speed: their updates, and how evenly they are loaded. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raymx.report import words
from raymx.results.gains import speedup_without
from raymx.results.setup import Setup
from raymx.results.step_text import DEAD_BAND, StepTime, known

AT_LIMIT = 0.9  # of its CPUs: a server that uses more holds the others up
STARVED = 0.5  # of its CPUs: one that updates and uses less waits for something
UNEVEN = 1.25  # times the mean

Told = tuple[float, str, str]
"""The share of a step, what was seen, and what a change is worth."""


def told(rows: Sequence[Mapping[str, Any]], step: StepTime, setup: Setup) -> Iterator[Told]:
    """Only where steps wait for gradients and weights."""
    if step.fractions["communication"] < DEAD_BAND:
        return
    yield from _updates(rows, step, setup)
    yield from _imbalance(rows, step)


def _updates(rows: Sequence[Mapping[str, Any]], step: StepTime, setup: Setup) -> Iterator[Told]:
    if step.updates is None or step.updates < DEAD_BAND:
        return
    share = min(step.updates, step.fractions["communication"])
    used, cpus = known(rows, "server_cpus_used"), setup.server_cpus
    seen = f"the busiest server's updates take {words.part(step.updates)} of the training time"
    fix = "more servers (kvstore.servers), or CPUs for each (kvstore.cpus_per_server)"
    if used is not None and used < STARVED * min(cpus, step.updates):
        seen += (
            f", in which it uses {used:.2f} of its {cpus:g} CPU{'s' * (cpus != 1)}: its node gives it no more, or the "
            "optimizer waits for something"
        )
        fix = "a node that gives the servers their CPUs (kvstore.server_placement: dedicated), or more servers"
    yield share, seen, f"with updates that take no time it would be {_up_to(share)}: {fix}"


def _imbalance(rows: Sequence[Mapping[str, Any]], step: StepTime) -> Iterator[Told]:
    """The most loaded server's part of the wait is as much longer as its load: with all alike it may be shorter."""
    times, largest = known(rows, "server_bytes_imbalance"), rows[-1].get("server_largest_array")
    if times is None or times < UNEVEN or not largest:
        return
    server, name, size = largest
    share = step.fractions["communication"] * (1 - 1 / times)
    if share < DEAD_BAND:
        return
    yield (
        share,
        f"server {server} holds {times:.1f}x the mean of the servers' bytes; the largest array that lies whole on it "
        f"is {name}, of {size:,} elements",
        f"with as much on each it would be {_up_to(share)}: set MXNET_KVSTORE_BIGARRAY_BOUND (kvstore.env.all) below "
        f"{size:,}, so that {name} is cut over the servers",
    )


def _up_to(share: float) -> str:
    return f"up to {speedup_without(share):.2f}x as fast (1.00 to {speedup_without(share):.2f})"
