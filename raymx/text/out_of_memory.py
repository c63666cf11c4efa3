"""Ray's long text about a process that its memory monitor ended -> a short one. Pure."""

from __future__ import annotations

import re

_SIGN = re.compile(r"low on memory|due to memory pressure")
_NODE = re.compile(r"Memory on the node \(IP: ([^,)\s]+)")
_AMOUNTS = re.compile(r"\bwas ([\d.]+)\s*GB(?: used)? / ([\d.]+)\s*GB")
_USER = re.compile(r"Top \d+ memory users:\s*PID\s+MEM\(GB\)\s+COMMAND\s+(\d+)\s+([\d.]+)\s+([^\n]*)")
_MOST_CHARACTERS = 40  # of a command


def lack_of_memory(text: str) -> str | None:
    """``ended for lack of memory: 27.7 of 28.8 GB on 10.0.0.1, most by process 7 (ray::Worker.run_loop, 8.5 GB)``.

    None for a text about something else.
    """
    if not _SIGN.search(text):
        return None
    amounts, node, user = _AMOUNTS.search(text), _NODE.search(text), _USER.search(text)
    where = f" on {node[1]}" if node else ""
    used = f": {float(amounts[1]):.1f} of {float(amounts[2]):.1f} GB{where}" if amounts else where
    most = f", most by process {user[1]} ({_short(user[3])}, {float(user[2]):.1f} GB)" if user else ""
    return f"ended for lack of memory{used}{most}"


def _short(command: str) -> str:
    words = command.strip()
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}..."
