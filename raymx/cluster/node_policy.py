"""Which nodes are left out for a while, since processes die there again and again. Pure: no Ray, no mxnet, no clock.

    deaths = deaths.after(node, now_s)          # a process of a role died there, or the node itself did
    deaths.left_out(now_s)                      # nodes to take no more workers on

Nodes are known by their address: one that comes back after a restart has a new id. What a run cannot do without (the
node of its own bundles) is not this module's to leave out: see `raymx.cluster.role_manager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEATHS = 2  # so many with no quiet time between: the node is left out
FIRST_S, LONGEST_S = 60.0, 1800.0  # for so long, twice as long each time it dies again
QUIET_S = 600.0  # with no death, once it is taken again: what was before is forgotten


@dataclass(frozen=True)
class _Record:
    deaths: int
    until_s: float  # left out until then; the time of its death where it is not


@dataclass(frozen=True)
class NodeDeaths:
    """Of one trial. Times are seconds of one clock."""

    _records: Mapping[str, _Record] = field(default_factory=dict)

    def after(self, node: str, now_s: float) -> NodeDeaths:
        """With one more death, at that time."""
        before = self._records.get(node)
        deaths = 1 + (before.deaths if before and now_s - before.until_s < QUIET_S else 0)
        return NodeDeaths({**self._records, node: _Record(deaths, now_s + penalty_s(deaths))})

    def left_out(self, now_s: float) -> dict[str, float]:
        """The nodes that are left out at that time, and for how many seconds yet."""
        left = {node: record.until_s - now_s for node, record in self._records.items()}
        return {node: seconds for node, seconds in left.items() if seconds > 0}

    def in_words(self, node: str, now_s: float) -> str:
        """What to tell the user after a death there; "" when the node is not left out."""
        left_s = self.left_out(now_s).get(node)
        if left_s is None:
            return ""
        return f"{node}: processes died there {self._records[node].deaths} times, it gets no worker for {left_s:.0f} s"


def penalty_s(deaths: int) -> float:
    """For how long a node is left out after so many deaths."""
    return 0.0 if deaths < DEATHS else min(LONGEST_S, FIRST_S * 2.0 ** (deaths - DEATHS))
