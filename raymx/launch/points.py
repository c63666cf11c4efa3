"""A sweep over a script's own flags: its trials, and their commands. Pure."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raymx.errors import ExperimentError
from raymx.launch import commands
from raymx.launch.script import Script


@dataclass(frozen=True)
class Planned:
    """One trial: its number, its cell and which repeat of it, the point of the sweep, and the command."""

    number: int
    cell: int
    repeat: int
    point: Mapping[str, str]
    command: tuple[str, ...]

    @property
    def trial_id(self) -> str:
        return f"{self.number:05d}"

    @property
    def folder(self) -> str:
        return f"Trial_{self.trial_id}"


def axis(text: str) -> tuple[str, tuple[str, ...]]:
    """``lr=0.1,0.05``. Raises ExperimentError for anything else. A value with a comma in it is written in quotes:
    ``layers='"64,64","32,32"'``.
    """
    name, equals, values = text.partition("=")
    name = name.strip().lstrip("-")
    found = [value.strip() for value in _cut(values)]
    if not (equals and name and found and all(found)):
        raise ExperimentError(f"--sweep {text}: write FLAG=VALUE,VALUE with a flag of the script's, as in lr=0.1,0.05")
    return name, tuple(found)


def _cut(text: str) -> list[str]:
    reader = shlex.shlex(text, posix=True)
    reader.whitespace, reader.whitespace_split, reader.commenters = ",", True, ""
    try:
        return list(reader)
    except ValueError:
        return [""]


def trials(script: Script) -> tuple[Planned, ...]:
    """All repeats of the first point, then of the next; without a sweep, the command as it is."""
    points = list(_points(script.sweep))
    return tuple(
        Planned(cell * script.repeats + repeat, cell, repeat, point, _command(script.words, point))
        for cell, point in enumerate(points)
        for repeat in range(script.repeats)
    )


def _points(sweep: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    for values in itertools.product(*sweep.values()):
        yield dict(zip(sweep, values, strict=True))


def _command(command: tuple[str, ...], point: Mapping[str, str]) -> tuple[str, ...]:
    for name, value in point.items():
        command = commands.with_flag(command, name, value)
    return command
