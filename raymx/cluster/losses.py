"""What Ray says when a process is gone, as RoleLost in one line. Pure."""

from __future__ import annotations

from raymx.errors import OutOfMemory, RoleLost
from raymx.text.out_of_memory import lack_of_memory


def lost(who: str, said: str) -> RoleLost:
    """The error for ``who`` ("worker 1") out of Ray's words: a lack of memory by its own class, else the first line."""
    short = lack_of_memory(said)
    first = next(iter(said.strip().splitlines()), "no reason is known")
    return OutOfMemory(f"{who} was {short}", role=who) if short else RoleLost(f"{who}: {first}", role=who)


def lost_with_stream(who: str, kind: str, said: str) -> RoleLost:
    """The same of what Ray's ``kind`` of error says of a worker's read tasks, with all of its words."""
    short = lack_of_memory(said)
    return OutOfMemory(f"a read task of {who} was {short}") if short else RoleLost(f"{who}: {kind}: {said}")
