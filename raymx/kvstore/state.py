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

COMPRESSION_FACTOR = 16     # 2 bits an element: 16 elements in one float32


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


def _even_ends(size: int, parts: int) -> list[int]:
    # C's round(): halves go away from zero, unlike Python's round().
    return [math.floor(size / parts * (i + 1) + 0.5) for i in range(parts)]


@dataclass
class OptimizerState:
    """The optimizer's state by key: flat arrays, and in how many global steps each key was updated.

    Keys are a store's numbers; in a checkpoint they are structural names (see `rekey`).
    """

    arrays: dict[Any, list[NDArray[Any]]] = field(default_factory=dict)
    counts: dict[Any, int] = field(default_factory=dict)


def rekey(state: OptimizerState, keys: Mapping[Any, Any]) -> OptimizerState:
    """The same state under other keys; what ``keys`` does not have is left out."""
    return OptimizerState(arrays={keys[key]: arrays for key, arrays in state.arrays.items() if key in keys},
                          counts={keys[key]: count for key, count in state.counts.items() if key in keys})


def join(parts: Sequence[OptimizerState], layout: Layout, sizes: Mapping[int, int]) -> OptimizerState:
    """One canonical state out of the servers' parts. ``sizes`` has the elements of each key.

    Raises ValueError when the parts are not what the layout says.
    """
    whole = OptimizerState()
    for key, size in sizes.items():
        servers = [server for server, _ in layout.slices(key, size)]
        pieces = [parts[server].arrays.get(key, []) for server in servers]
        whole.arrays[key] = [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]
        if any(len(array) != size for array in whole.arrays[key]):
            raise ValueError(f"key {key} has {[len(array) for array in whole.arrays[key]]} elements of optimizer state "
                             f"on the servers, and its weight has {size}")
        whole.counts[key] = max((parts[server].counts.get(key, 0) for server in servers), default=0)
    return whole


def cut(whole: OptimizerState, layout: Layout, sizes: Mapping[int, int]) -> list[OptimizerState]:
    """The part of each server, the inverse of `join` for any number of servers."""
    parts = [OptimizerState() for _ in range(layout.num_servers)]
    for key, size in sizes.items():
        start = 0
        for server, length in layout.slices(key, size):
            piece = slice(start, start + length)
            parts[server].arrays[key] = [array.ravel()[piece] for array in whole.arrays.get(key, [])]
            parts[server].counts[key] = whole.counts.get(key, 0)
            start += length
    return parts


def bytes_a_step(sizes: Sequence[int], itemsize: int, *, compressed: bool = False) -> tuple[int, int]:
    """(pushed, pulled) payload bytes of one worker in one step; only pushes shrink under compression."""
    whole = sum(sizes) * itemsize
    packed = sum(math.ceil(size / COMPRESSION_FACTOR) * 4 for size in sizes)
    return (packed if compressed else whole), whole
