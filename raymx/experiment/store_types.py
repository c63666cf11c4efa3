"""The table of KVStore types: what each one is, and what it can do. Pure.

    STORE_TYPES["dist_async"].is_async          # True

To add one: a row here, and a store of that name in MXNet (``mx.kv.create(name)``). The experiment file, the rules, the
placement of servers and the documentation read the row.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreType:
    """One type of KVStore. ``meaning`` is a sentence for whoever chooses; ``aliases`` are other spellings of it."""

    name: str
    meaning: str
    is_dist: bool = False  # it has servers, and workers send to them
    is_async: bool = False  # the servers apply each worker's push on its own
    adds_up_on_devices: bool = False  # where a worker adds up the gradients of its devices; else on the CPU
    can_compress: bool = True
    aliases: tuple[str, ...] = ()


_ROWS = (
    StoreType(
        "local",
        "For one worker: its devices' gradients are added up on the CPU.",
        can_compress=False,
    ),
    StoreType(
        "device",
        "For one worker: its devices' gradients are added up on the devices themselves.",
        adds_up_on_devices=True,
    ),
    StoreType(
        "dist_sync",
        "Servers wait for the gradients of all workers, then update: every worker has the same weights in every step.",
        is_dist=True,
    ),
    StoreType(
        "dist_async",
        "Servers apply each worker's gradients as they come: nobody waits, and gradients may be of old weights.",
        is_dist=True,
        is_async=True,
    ),
    StoreType(
        "dist_sync_device",
        "As dist_sync, and a worker adds up its devices' gradients on the devices before it sends them.",
        is_dist=True,
        adds_up_on_devices=True,
        aliases=("dist_device_sync",),
    ),
    StoreType(
        "dist_async_device",
        "As dist_async, and a worker adds up its devices' gradients on the devices before it sends them.",
        is_dist=True,
        is_async=True,
        adds_up_on_devices=True,
        aliases=("dist_device_async",),
    ),
)

STORE_TYPES: dict[str, StoreType] = {row.name: row for row in _ROWS}
"""By name, in the order in which a message lists them."""

AUTO = "auto"
"""The name that stands for one of `STORE_TYPES`: see `auto`."""


def auto(max_workers: int) -> StoreType:
    """What ``auto`` comes to for a run that may have so many workers."""
    return STORE_TYPES["device" if max_workers == 1 else "dist_sync"]


def spelled(name: str) -> str:
    """A name as the table has it: in lower case, and without MXNet's other spellings."""
    others = {alias: row.name for row in STORE_TYPES.values() for alias in row.aliases}
    return others.get(name.lower(), name.lower())
