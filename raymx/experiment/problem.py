"""Why settings cannot work together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Settings that cannot work together: the key to look at, its value, why, and what to do."""

    key: str
    value: object
    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.key} is {self.value}: {self.reason}; {self.fix}"
