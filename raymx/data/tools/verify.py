"""Look at every record of a file, and its image, and say what is there and what is broken.

report = verify("train.rec", workers=4)
report.right, report.tally.labels, list(report.lines())
"""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.image import probe
from raymx.data.recordio.index import FIX, index_path, index_problem
from raymx.data.recordio.record import FileIndex, Problem, read_payloads, require_image, scan, unpack
from raymx.errors import DataError
from raymx.storage import exists, open_reader

SHOWN = 20  # broken records that are listed one by one
MANY = 4000  # records from which on more processes are worth their start
_CHUNK = 500  # records that a process looks at before it reports back

COUNTED = 1 << 16  # different labels that are counted one by one; more are no classes
_CLASSES_SHOWN = 3

Size = tuple[int, int, int]  # height, width, channels


@dataclass
class Labels:
    """What labels there are. Sums with others, of the records behind, by ``add``."""

    low: float = math.inf  # of all labels of all records that are numbers
    high: float = -math.inf
    not_finite: int = 0  # NaN and infinite ones
    counts: Counter[float] = field(default_factory=Counter)  # of records with one label
    runs: int = 0  # of equal neighbours among those
    first: float | None = None  # the labels where these records begin and end
    last: float | None = None

    def take(self, labels: NDArray[np.float32]) -> None:
        """Count the labels of the next record."""
        finite = labels[np.isfinite(labels)]
        self.not_finite += len(labels) - len(finite)
        if len(finite):
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        if len(labels) == 1 and len(finite):
            value = float(finite[0])
            self.runs += value != self.last
            self.first = value if self.first is None else self.first
            self.last = value
            if len(self.counts) <= COUNTED:
                self.counts[value] += 1

    def add(self, behind: Labels) -> None:
        """Count what the records behind these have too."""
        self.low, self.high = min(self.low, behind.low), max(self.high, behind.high)
        self.not_finite += behind.not_finite
        self.runs += behind.runs - (behind.first is not None and behind.first == self.last)
        self.first = behind.first if self.first is None else self.first
        self.last = self.last if behind.last is None else behind.last
        if len(self.counts) <= COUNTED:
            self.counts.update(behind.counts)

    @property
    def order(self) -> str:
        """``sorted``, ``all the same`` or ``mixed``; "" where there are no two records with one label."""
        total = sum(self.counts.values())
        if total < 2 or len(self.counts) > COUNTED:
            return ""
        if len(self.counts) == 1:
            return "all the same"
        return "sorted" if self.runs == len(self.counts) < total else "mixed"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "low": self.low if self.low <= self.high else None,
            "high": self.high if self.low <= self.high else None,
            "not_finite": self.not_finite,
            "counts": {f"{label:g}": count for label, count in sorted(self.counts.items())} if self.counted else None,
            "runs": self.runs,
            "order": self.order,
        }

    @property
    def counted(self) -> bool:
        """Whether there are few enough for ``counts`` to be of all."""
        return len(self.counts) <= COUNTED

    def lines(self) -> Iterator[str]:
        """For people: from where to where, how often, in which order."""
        values = f"{self.low:g} to {self.high:g}" if self.low <= self.high else "none"
        odd = f"; {self.not_finite:,} not finite (NaN or infinite)" if self.not_finite else ""
        different = f"; {len(self.counts):,} different" if self.counts and self.counted else ""
        yield f"{values}{different}{odd}"
        if len(self.counts) > 1 and self.counted:
            most = self.counts.most_common()
            shown = f"most {_labels(most[:_CLASSES_SHOWN])}; fewest {_labels(most[: -_CLASSES_SHOWN - 1 : -1])}"
            yield _labels(sorted(most)) if len(most) <= 2 * _CLASSES_SHOWN else shown
        if self.order == "mixed":
            yield f"{self.runs:,} runs of equal neighbours"
        elif self.order:
            advice = ": train with data.order global, which shuffles" if self.order == "sorted" else ""
            yield f"{self.order}, in {self.runs:,} run{'s' * (self.runs != 1)} of equal neighbours{advice}"


@dataclass
class Tally:
    """What some records hold. Sums with others by ``add``."""

    label_widths: Counter[int] = field(default_factory=Counter)
    labels: Labels = field(default_factory=Labels)
    kinds: Counter[str] = field(default_factory=Counter)  # of images: jpeg, png, ...
    sizes: Counter[Size] = field(default_factory=Counter)  # of images
    broken: list[Problem] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what ``other``, of the records behind, counted too."""
        self.label_widths.update(other.label_widths)
        self.labels.add(other.labels)
        self.kinds.update(other.kinds)
        self.sizes.update(other.sizes)
        self.broken.extend(other.broken)


@dataclass
class Report:
    """What was found in one file."""

    path: str
    records: int
    file_bytes: int
    index: str  # "none", "right", or why the .idx is stale
    decoded: bool
    tally: Tally

    @property
    def right(self) -> bool:
        """Whether nothing is broken or stale, and there is a record."""
        return not self.tally.broken and self.index in ("none", "right")

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Sizes are [height, width, channels]."""
        sizes = self.tally.sizes
        return {
            "path": self.path,
            "records": self.records,
            "bytes": self.file_bytes,
            "right": self.right,
            "index": self.index,
            "label_widths": {str(width): count for width, count in sorted(self.tally.label_widths.items())},
            "labels": self.tally.labels.to_dict(),
            "kinds": dict(self.tally.kinds.most_common()),
            "sizes": [{"size": list(size), "records": count} for size, count in sizes.most_common(5)],
            "smallest": list(_by_area(sizes)[0]) if sizes else None,
            "largest": list(_by_area(sizes)[-1]) if sizes else None,
            "num_broken": len(self.tally.broken),
            "broken": [{"offset": bad.offset, "reason": bad.reason} for bad in self.tally.broken],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        tally = self.tally
        yield self.path
        yield f"  records       {self.records:,} in {self.file_bytes:,} bytes"
        yield f"  label widths  {_counts(sorted(tally.label_widths.items()))}"
        for number, line in enumerate(tally.labels.lines()):
            yield f"  {'' if number else 'labels':12}  {line}"
        if self.decoded:
            yield f"  image kinds   {_counts(tally.kinds.most_common())}"
            yield f"  image sizes   {_sizes(tally.sizes)}"
        stale = self.index not in ("none", "right")
        yield f"  index (.idx)  {f'stale: {self.index}; {FIX.format(path=self.path)}' if stale else self.index}"
        yield f"  broken        {len(tally.broken) or 'none'}"
        for bad in tally.broken[:SHOWN]:
            yield f"    byte {bad.offset}: {bad.reason}"
        if len(tally.broken) > SHOWN:
            yield f"    and {len(tally.broken) - SHOWN:,} more"


def verify(
    path: str, decode: bool = True, workers: int = 1, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Look at every record of a file, local or by URI; with ``decode``, at every image by decoding it.

    Up to ``workers`` processes share the records when they are many. ``progress`` is called with the records done and
    all. Broken things are in the report; a DataError is raised only when the file cannot be read at all.
    """
    index = scan(path, on_bad="skip")
    tally = Tally(broken=list(index.problems))
    if not len(index) and not index.problems:
        tally.broken.append(Problem(0, "the file has no records"))
    done = 0
    for count, part in _tallies(index, decode, workers if len(index) >= MANY else 1):
        tally.add(part)
        done += count
        if progress is not None:
            progress(done, len(index))
    tally.broken.sort(key=lambda bad: bad.offset)
    return Report(path, len(index), index.file_bytes, index_state(path, index), decode, tally)


def index_state(path: str, index: FileIndex) -> str:
    """``"none"``, ``"right"``, or why the .idx beside a file is stale."""
    if index_path(path) == path or not exists(index_path(path)):
        return "none"
    return index_problem(path, index) or "right"


def _tallies(index: FileIndex, decode: bool, workers: int) -> Iterator[tuple[int, Tally]]:
    """(records, what they hold) of the file's records, some at a time and in order."""
    chunks = [slice(at, at + _CHUNK) for at in range(0, len(index), _CHUNK)]
    look = partial(_look_at, index.path, decode)
    locations = ((index.offsets[chunk], index.sizes[chunk]) for chunk in chunks)
    if workers == 1:
        yield from map(look, locations)
        return
    # Not by fork: threads, such as those that show the progress, may hold locks.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(look, locations)


def _look_at(path: str, decode: bool, locations: tuple[NDArray[np.int64], NDArray[np.int64]]) -> tuple[int, Tally]:
    """(records, what they hold) of the records at (offsets, sizes)."""
    cv2.setNumThreads(1)  # each process has a CPU of its own
    cv2.setLogLevel(0)  # what fails is reported
    tally = Tally()
    offsets, sizes = locations
    with open_reader(path) as reader:
        for offset, payload in zip(offsets.tolist(), read_payloads(reader, offsets, sizes), strict=True):
            where = f"{path}, record at byte {offset}"
            try:
                if isinstance(payload, DataError):
                    raise payload
                _count(tally, payload, where, decode)
            except DataError as error:
                tally.broken.append(Problem(offset, str(error).removeprefix(f"{where}: ")))
    return len(offsets), tally


def _count(tally: Tally, payload: bytes | memoryview, where: str, decode: bool) -> None:
    record = unpack(payload, where)
    tally.label_widths[len(record.label)] += 1
    tally.labels.take(record.label)
    require_image(record, where)
    if decode:
        stored = probe(record.image, where)
        tally.kinds[stored.kind] += 1
        tally.sizes[stored.height, stored.width, stored.channels] += 1


def _by_area(sizes: Counter[Size]) -> list[Size]:
    return sorted(sizes, key=lambda size: (size[0] * size[1], size))


def _labels(counts: list[tuple[float, int]]) -> str:
    return ", ".join(f"{label:g} ({count:,})" for label, count in counts)


def _counts(counts: list[tuple[Any, int]]) -> str:
    return ", ".join(f"{value} ({count:,})" for value, count in counts) or "none"


def _sizes(sizes: Counter[Size]) -> str:
    if not sizes:
        return "none"
    shown = ", ".join(f"{h}x{w}x{c} ({count:,})" for (h, w, c), count in sizes.most_common(3))
    low, high = _by_area(sizes)[0], _by_area(sizes)[-1]
    more = f"; {len(sizes)} sizes from {low[0]}x{low[1]} to {high[0]}x{high[1]}" if len(sizes) > 1 else ""
    return f"{shown}{more} (height x width x channels)"
