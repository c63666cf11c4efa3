"""Rows of results out of what all workers' log lines say. Pure: times are passed in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from raymx.launch.log_lines import SECONDS, SPEED, Reading


@dataclass
class _Told:
    """Of one worker in one epoch."""

    speeds: list[float] = field(default_factory=list)
    interim: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)


class Epochs:
    """The epochs of one generation. A row is made of an epoch once every worker that says anything has gone on to a
    later one, or has ended.

    A metric is the mean over the workers that print it; ``samples_per_sec`` the sum over workers of the median of what
    each prints; ``train_s`` the longest.
    """

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._told: dict[int, dict[int, _Told]] = {}  # by epoch, then by worker
        self._at: dict[int, int] = {}  # the epoch that each worker is in
        self._ended: set[int] = set()
        self._closed = -1

    @property
    def silent(self) -> int:
        """Workers that have printed no speed in an epoch in which another one did."""
        speakers = {worker for told in self._told.values() for worker, one in told.items() if one.speeds}
        return self._num_workers - len(speakers) if speakers else 0

    def add(self, worker: int, reading: Reading) -> list[dict[str, Any]]:
        """Take a reading in; the rows that can be made now."""
        epoch = self._at.get(worker, 0) if reading.epoch is None else reading.epoch
        self._at[worker] = max(epoch, self._at.get(worker, epoch))
        told = self._told.setdefault(epoch, {}).setdefault(worker, _Told())
        if reading.speed is not None and math.isfinite(reading.speed):
            told.speeds.append(reading.speed)
        (told.interim if reading.interim else told.values).update(reading.values)
        return self._rows(self._whole())

    def end(self, worker: int) -> list[dict[str, Any]]:
        """A worker has ended well; the rows that can be made now."""
        self._ended.add(worker)
        return self._rows(self._whole())

    def _whole(self) -> float:
        """The first epoch of which more may come."""
        going = [at for worker, at in self._at.items() if worker not in self._ended]
        if going:
            return min(going)
        return math.inf if len(self._ended) == self._num_workers else -math.inf

    def _rows(self, before: float) -> list[dict[str, Any]]:
        ready = sorted(epoch for epoch in self._told if self._closed < epoch < before)
        self._closed = max([self._closed, *ready])
        return [self._row(epoch, self._told[epoch]) for epoch in ready]

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
