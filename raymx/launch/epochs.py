"""Rows of results out of what all workers' log lines say. Pure: times are passed in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from raymx.launch.log_lines import SECONDS, SPEED, Reading

SILENT_S = 5.0
"""So long a worker that has not printed anything yet is waited for: lines of one may come well after another's."""


@dataclass
class _Told:
    """Of one worker in one epoch."""

    speeds: list[float] = field(default_factory=list)
    interim: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)


class Epochs:
    """The epochs of one generation. A row is made of an epoch once every worker has gone on to a later one, or has
    ended; where some print nothing, as where rank 0 alone does, `SILENT_S` after all others have.

    A metric is the mean over the workers that print it; ``samples_per_sec`` the sum over workers of the median of what
    each prints; ``train_s`` the longest. Times are seconds on any clock.
    """

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._told: dict[int, dict[int, _Told]] = {}  # by epoch, then by worker
        self._at: dict[int, int] = {}  # the epoch that each worker is in
        self._since: dict[int, float] = {}  # when it has entered that
        self._ended: set[int] = set()
        self._closed = -1

    @property
    def silent(self) -> int:
        """Workers that have printed no speed where another one did."""
        speakers = {worker for told in self._told.values() for worker, one in told.items() if one.speeds}
        return self._num_workers - len(speakers) if speakers else 0

    def add(self, worker: int, reading: Reading, now_s: float) -> None:
        """Take a reading in."""
        epoch = self._at.get(worker, 0) if reading.epoch is None else reading.epoch
        if epoch > self._at.get(worker, -1):
            self._at[worker], self._since[worker] = epoch, now_s
        told = self._told.setdefault(epoch, {}).setdefault(worker, _Told())
        if reading.speed is not None and math.isfinite(reading.speed):
            told.speeds.append(reading.speed)
        (told.interim if reading.interim else told.values).update(reading.values)

    def end(self, worker: int) -> None:
        """A worker has ended well."""
        self._ended.add(worker)

    def ready(self, now_s: float) -> list[dict[str, Any]]:
        """The rows that can be made now, each once."""
        return self.before(self._whole(now_s))

    def before(self, epoch: float) -> list[dict[str, Any]]:
        """The rows of all earlier epochs that have none yet, of what is known: nobody will add to them."""
        ready = sorted(one for one in self._told if self._closed < one < epoch)
        self._closed = max([self._closed, *ready])
        return [self._row(one, self._told[one]) for one in ready]

    def _whole(self, now_s: float) -> float:
        """The first epoch of which more may come."""
        if len(self._ended) == self._num_workers:
            return math.inf
        going = [worker for worker in self._at if worker not in self._ended]
        if not going:
            return -math.inf
        heard = len(self._at.keys() | self._ended) == self._num_workers
        if not heard and now_s - max(self._since[worker] for worker in going) < SILENT_S:
            return -math.inf
        return min(self._at[worker] for worker in going)

    def _row(self, epoch: int, told: Mapping[int, _Told]) -> dict[str, Any]:
        found: dict[str, list[float]] = {}
        for one in told.values():
            for name, value in {**one.interim, **one.values}.items():
                found.setdefault(name, []).append(value)
        seconds = found.pop(SECONDS, [])
        row: dict[str, Any] = {"epoch": epoch + 1, **{name: fmean(values) for name, values in found.items()}}
        row["num_workers"] = self._num_workers
        speeds = [median(told[worker].speeds) for worker in sorted(told) if told[worker].speeds]
        if speeds:
            row |= {SPEED: sum(speeds), "worker_samples_per_sec": speeds}
        if seconds:
            row[SECONDS] = max(seconds)
        return row
