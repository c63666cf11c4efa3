"""A worker's part in its generation. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Membership:
    """Which worker of a generation this is, and the bundle whose data CPUs are its own."""

    rank: int
    num_workers: int
    generation: int
    distributed: bool  # the store has servers
    placement_group: Any = None
    bundle_index: int = -1
