"""What diagnoses are made of, and what one is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from raymx.report.cell_summaries import Key, grouped
from raymx.report.study import Entry, Study

INPUT_BOUND = 0.30  # part of the training time that waits for data

Said = tuple[float, str] | None
"""Of one trial: (the number, what it says), or nothing to say."""

Found = tuple[Entry, float, str]
"""A trial, the number that shows it, and what that says."""


@dataclass(frozen=True)
class Evidence:
    """A study; ``classes`` of each sweep, None where the net does not classify."""

    study: Study
    classes: Mapping[str, int | None]

    @cached_property
    def groups(self) -> Mapping[Key, list[Entry]]:
        """The repeats of each cell."""
        return grouped(self.study)


def of_each(check: Callable[[Entry], Said]) -> Callable[[Evidence], Iterator[Found]]:
    """Looks at every trial alone."""

    def find(evidence: Evidence) -> Iterator[Found]:
        for entry in evidence.study.entries:
            said = check(entry)
            if said is not None:
                yield entry, *said

    return find
