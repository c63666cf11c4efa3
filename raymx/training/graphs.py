"""The statistics in a graph that MXNet reads from a file: batch norm's running mean and variance. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

_KEY = "use_global_stats"


def changing_statistics(graph: str, auxiliary: Collection[str]) -> set[str]:
    """Of a graph's auxiliary states those that training changes, by name; ``graph`` is a symbol's JSON."""
    nodes = json.loads(graph)["nodes"]
    held = {name for node in nodes if _is_held(node) for name in _inputs(nodes, node)}
    return set(auxiliary) - held


def with_held_statistics(graph: str, names: Collection[str], refuse: Callable[[str, str], Exception]) -> str:
    """The graph in which batch norm takes these statistics as they are, in training too.

    Raises ``refuse(name, operator)`` for one of another operator's.
    """
    read = json.loads(graph)
    for node in read["nodes"]:
        for name in set(_inputs(read["nodes"], node)) & set(names):
            if not node["op"].startswith("BatchNorm"):
                raise refuse(name, node["op"])
            node["attrs"] = {**node.get("attrs", {}), _KEY: "True"}
    return json.dumps(read)


def _is_held(node: dict[str, Any]) -> bool:
    return str(node.get("attrs", {}).get(_KEY)) in ("True", "1")


def _inputs(nodes: list[dict[str, Any]], node: dict[str, Any]) -> Iterator[str]:
    for number, *_ in node["inputs"]:
        if nodes[number]["op"] == "null":
            yield nodes[number]["name"]
