"""How parameters lie on the servers, and how optimizer state is joined and cut. Pure: numpy only.

An array of fewer elements than the big-array bound lives whole on one server; a larger one is cut into one slice a
server. The arithmetic is that of MXNet 1.9.1's kvstore_dist.h (EncodeDefaultKey and EncodeCompressedKey). Optimizer
state follows the weight, so a checkpoint joins the slices into one canonical state a parameter, and a restore cuts it
again for another number of servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

COMPRESSION_FACTOR = 16  # 2 bits an element: 16 elements in one float32


@dataclass(frozen=True)
class Layout:
    """Where the keys of a store lie: ``num_servers`` servers, cut from ``bigarray_bound`` elements on."""

    num_servers: int
    bigarray_bound: int
    compressed: bool = False

    def slices(self, key: int, size: int) -> list[tuple[int, int]]:
        """(server, elements) of each piece of an array of ``size`` elements, in order."""
        if size < self.bigarray_bound:
            return [((key * 9973) % self.num_servers, size)]
        ends = self._compressed_ends(size) if self.compressed else _even_ends(size, self.num_servers)
        return [(server, end - start) for server, (start, end) in enumerate(zip([0, *ends], ends, strict=False))]

    def _compressed_ends(self, size: int) -> list[int]:
        """Compressed floats are cut evenly, so elements are cut at multiples of 16; the last takes the rest."""
        packed = math.ceil(size / COMPRESSION_FACTOR)
        return [*(end * COMPRESSION_FACTOR for end in _even_ends(packed, self.num_servers)[:-1]), size]


def _even_ends(size: int, slices: int) -> list[int]:
    # C's round(): halves go away from zero, unlike Python's round().
    return [math.floor(size / slices * (i + 1) + 0.5) for i in range(slices)]


@dataclass(frozen=True)
class Load:
    """How evenly elements lie on the servers."""

    imbalance: float  # the most loaded server's, as a multiple of the mean
    server: int  # which one that is
    key: int | None  # the largest array that lies whole there; None where all are cut
    size: int  # its elements


def load(layout: Layout, sizes: Mapping[int, int]) -> Load:
    """Of the keys with these sizes. Raises ValueError for no key."""
    each = [0] * layout.num_servers
    largest: list[tuple[int, int | None]] = [(0, None)] * layout.num_servers
    for key, size in sizes.items():
        slices = layout.slices(key, size)
        for server, length in slices:
            each[server] += length
        if len(slices) == 1 and layout.num_servers > 1:
            largest[slices[0][0]] = max(largest[slices[0][0]], (size, key), key=lambda one: one[0])
    most = max(range(layout.num_servers), key=lambda server: each[server])
    return Load(each[most] * layout.num_servers / sum(each), most, largest[most][1], largest[most][0])


@dataclass
class OptimizerState:
    """The optimizer's state by key: flat arrays, and in how many global steps each key was updated.

    Keys are a store's numbers; in a checkpoint they are structural names (see `rekey`). It is the same wherever the
    optimizer ran: ``masters`` has the float32 weights behind float16 ones, which are never among the ``arrays``.
    ``scalars`` are the optimizer's own numbers, which belong to no key (see `raymx.kvstore.optimizer.Updater`).
    """

    arrays: dict[Any, list[NDArray[Any]]] = field(default_factory=dict)
    counts: dict[Any, int] = field(default_factory=dict)
    masters: dict[Any, NDArray[Any]] = field(default_factory=dict)  # float32, flat
    scalars: dict[str, float] = field(default_factory=dict)


def rekey(state: OptimizerState, keys: Mapping[Any, Any]) -> OptimizerState:
    """The same state under other keys; what ``keys`` does not have is left out."""

    def renamed(values: Mapping[Any, Any]) -> dict[Any, Any]:
        return {keys[key]: value for key, value in values.items() if key in keys}

    return OptimizerState(renamed(state.arrays), renamed(state.counts), renamed(state.masters), dict(state.scalars))


def join(shards: Sequence[OptimizerState], layout: Layout, sizes: Mapping[int, int]) -> OptimizerState:
    """One canonical state out of the servers' shards. ``sizes`` has the elements of each key.

    ``scalars`` are those of server 0, which has key 0 under every layout. Nadam's ``m_schedule`` is one product over
    all keys of a server, so it means the same only as long as the number of servers does not change.

    Raises ValueError when the shards are not what the layout says.
    """
    state = OptimizerState(scalars=dict(shards[0].scalars))
    for key, size in sizes.items():
        servers = [server for server, _ in layout.slices(key, size)]
        pieces = [shards[server].arrays.get(key, []) for server in servers]
        state.arrays[key] = [_joined(key, arrays, size) for arrays in zip(*pieces, strict=True)]
        masters = [shards[server].masters[key] for server in servers if key in shards[server].masters]
        if masters:
            state.masters[key] = _joined(key, masters, size)
        state.counts[key] = max((shards[server].counts.get(key, 0) for server in servers), default=0)
    return state


def _joined(key: int, slices: Sequence[NDArray[Any]], size: int) -> NDArray[Any]:
    array = np.concatenate(slices)
    if len(array) != size:
        raise ValueError(
            f"key {key} has {len(array)} elements of optimizer state on the servers, and its weight has {size}"
        )
    return array


def cut(state: OptimizerState, layout: Layout, sizes: Mapping[int, int]) -> list[OptimizerState]:
    """The shard of each server, the inverse of `join` for any number of servers; each gets all ``scalars``."""
    shards = [OptimizerState(scalars=dict(state.scalars)) for _ in range(layout.num_servers)]
    for key, size in sizes.items():
        start = 0
        for server, length in layout.slices(key, size):
            piece = slice(start, start + length)
            shards[server].arrays[key] = [array.ravel()[piece] for array in state.arrays.get(key, [])]
            if key in state.masters:
                shards[server].masters[key] = state.masters[key].ravel()[piece]
            shards[server].counts[key] = state.counts.get(key, 0)
            start += length
    return shards


def bytes_a_step(sizes: Sequence[int], itemsize: int, *, compressed: bool = False) -> tuple[int, int]:
    """(pushed, pulled) payload bytes of one worker in one step; only pushes shrink under compression."""
    pulled = sum(sizes) * itemsize
    packed = sum(math.ceil(size / COMPRESSION_FACTOR) * 4 for size in sizes)
    return (packed if compressed else pulled), pulled
