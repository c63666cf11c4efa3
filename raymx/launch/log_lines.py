"""What a script's own log lines say of speed and metrics: Speedometer's, fit's, and patterns of the user's. Pure.

Epoch[0] Batch [0-20]	Speed: 1234.56 samples/sec	accuracy=0.5
Epoch[0] Train-accuracy=0.5
Epoch[0] Time cost=5.678
Epoch[0] Validation-accuracy=0.6
[Epoch 0] training: accuracy=0.5
[Epoch 0] validation: accuracy=0.6
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raymx.errors import ExperimentError
from raymx.results import columns

SPEED = "samples_per_sec"
SECONDS = "train_s"
EPOCH = "epoch"

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_SPEEDOMETER = re.compile(
    rf"(?:Epoch|Iter)\[(?P<epoch>\d+)\]\s*Batch\s*\[\d+(?:-\d+)?\]\s*Speed:\s*(?P<speed>{_NUMBER})\s*samples/s(?:ec)?(?P<rest>.*)"
)
_FIT = re.compile(rf"Epoch\[(?P<epoch>\d+)\]\s*(?P<split>Train|Validation)-(?P<name>[^=\s]+)=(?P<value>{_NUMBER})")
_SECONDS = re.compile(rf"(?:Epoch\[|\[Epoch )(?P<epoch>\d+)\].*?\btime cost[=:]\s*(?P<value>{_NUMBER})", re.IGNORECASE)
_GLUON = re.compile(
    r"\[Epoch (?P<epoch>\d+)\]\s*(?P<split>train|training|val|validation|test):(?P<rest>.*)", re.IGNORECASE
)
_GLUON_SPEED = re.compile(rf"\[Epoch (?P<epoch>\d+)\].*?\bspeed:\s*(?P<speed>{_NUMBER})\s*samples/s", re.IGNORECASE)
_METRIC = re.compile(rf"([A-Za-z][\w-]*)\s*[=:]\s*({_NUMBER})(?![\w.])")

_OF_RAYMX = frozenset(column.name for column in (*columns.OWN, *columns.TUNE) if columns.METRIC not in column.name) - {
    EPOCH,
    SPEED,
    SECONDS,
    "learning_rate",
    "train_loss",
    "validation_loss",
    "loss_scale",
}


@dataclass(frozen=True)
class Reading:
    """What one line says. ``epoch`` counts from 0, None where the line does not say; ``values`` by column of a row.

    ``speed`` is samples a second of the worker that wrote it. ``interim``: the values are of a part of the epoch.
    """

    epoch: int | None
    values: Mapping[str, float] = field(default_factory=dict)
    speed: float | None = None
    interim: bool = False


def compiled(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """The user's patterns. Raises ExperimentError for one that is none, or that names nothing."""
    return tuple(_compiled(text) for text in patterns)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        found = re.compile(text)
    except re.error as error:
        raise ExperimentError(f"--pattern {text}: it is no regular expression of Python's ({error})") from None
    if not found.groupindex:
        raise ExperimentError(
            f"--pattern {text}: it names no group: write (?P<NAME>...) around each number, as in "
            r"'loss (?P<train_loss>[\d.]+)'; (?P<samples_per_sec>...) is speed, (?P<epoch>...) the epoch from 0"
        )
    taken = sorted(_OF_RAYMX & found.groupindex.keys())
    if taken:
        raise ExperimentError(f"--pattern {text}: {taken[0]} is a column of raymx's own: choose another name")
    return found


def read(line: str, patterns: Sequence[re.Pattern[str]] = ()) -> list[Reading]:
    """All that a line says; the user's patterns first, and where one fits a line nothing else is read of it."""
    own = [found for pattern in patterns if (found := _own(pattern, line))]
    return own or list(_known(line))


def _own(pattern: re.Pattern[str], line: str) -> Reading | None:
    found = pattern.search(line)
    if not found:
        return None
    numbers = {name: value for name, text in found.groupdict().items() if (value := _number(text)) is not None}
    if not numbers:
        return None
    epoch, speed = numbers.pop(EPOCH, None), numbers.pop(SPEED, None)
    return Reading(None if epoch is None or not math.isfinite(epoch) else int(epoch), numbers, speed)


def _known(line: str) -> Iterator[Reading]:
    if found := _SPEEDOMETER.search(line):
        values = {f"train_{_column(name)}": value for name, value in _metrics(found["rest"])}
        yield Reading(int(found["epoch"]), values, _number(found["speed"]), interim=True)
        return
    if found := _GLUON_SPEED.search(line):
        yield Reading(int(found["epoch"]), {}, _number(found["speed"]))
    if found := _SECONDS.search(line):
        yield Reading(int(found["epoch"]), {SECONDS: float(found["value"])})
    if found := _FIT.search(line):
        yield Reading(int(found["epoch"]), {_split(found["split"]) + _column(found["name"]): float(found["value"])})
    elif found := _GLUON.search(line):
        values = {_split(found["split"]) + _column(name): value for name, value in _metrics(found["rest"])}
        if values:
            yield Reading(int(found["epoch"]), values)


def _metrics(text: str) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in _METRIC.findall(text)]


def _split(word: str) -> str:
    return "train_" if word.lower().startswith("train") else "validation_"


def _column(name: str) -> str:
    """``cross-entropy`` -> ``cross_entropy``; some print Train-accuracy in Speedometer's lines too."""
    name = re.sub(r"^(train|validation)[-_]", "", name, flags=re.IGNORECASE)
    return re.sub(r"\W+", "_", name).strip("_").lower()


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
