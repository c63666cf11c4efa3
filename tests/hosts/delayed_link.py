"""A network cable with a delay, for `hosts.Host.delay`: two network cards, and frames carried from one to the other.

    python delayed_link.py PORT CARD PID MS

makes PORT in its own network and CARD in that of process PID. Frames of up to 64 KiB are carried whole, as the kernel
hands them to a card that cuts them up itself; so it takes a small part of a core to fill a fast link. It ends, and the
cards with it, when its standard input does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque

_NAME_IT, _OFFLOAD = 0x400454CA, 0x400454D0  # TUNSETIFF, TUNSETOFFLOAD
_TAP, _NO_PREFIX, _OFFLOAD_HEADER = 0x2, 0x1000, 0x4000
_CHECKSUM_AND_LONG_TCP = 0x1 | 0x2 | 0x4
_MOST_BYTES = 10 + 14 + 65536  # the header for offloads, Ethernet's, and a packet


def card(name: str) -> int:
    """Make a network card; what the kernel sends by it is read from the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _NAME_IT, struct.pack("16sH22x", name.encode(), _TAP | _NO_PREFIX | _OFFLOAD_HEADER))
    fcntl.ioctl(descriptor, _OFFLOAD, _CHECKSUM_AND_LONG_TCP)
    return descriptor


def carry(one: int, other: int, delay_s: float) -> None:
    """Carry frames both ways until the standard input ends."""
    ways = {one: (other, deque[tuple[float, bytes]]()), other: (one, deque[tuple[float, bytes]]())}
    while True:
        due = min((queue[0][0] for _, queue in ways.values() if queue), default=None)
        timeout = None if due is None else max(due - time.monotonic(), 0.0)
        readable = select.select([0, one, other], [], [], timeout)[0]
        if 0 in readable and not os.read(0, 1):
            return
        for end in set(readable) & set(ways):
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame = os.read(end, _MOST_BYTES)
                    ways[end][1].append((time.monotonic() + delay_s, frame))
        for target, queue in ways.values():
            while queue and queue[0][0] <= time.monotonic():
                with contextlib.suppress(OSError):  # a card that is down takes nothing
                    os.write(target, queue.popleft()[1])


def main(port: str, name: str, process: str, ms: str) -> None:
    here, there = card(port), card("delayed0")
    subprocess.run(["ip", "link", "set", "delayed0", "netns", process, "name", name], check=True)
    print("ready", flush=True)
    carry(here, there, float(ms) / 1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
