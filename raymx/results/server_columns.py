"""The columns of a row that say what the servers did. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def columns_of(
    told: Sequence[Mapping[str, float]],
    row: Mapping[str, Any],
    *,
    in_step: bool,
    where: tuple[float, int] | None = None,
    largest: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """``told`` by the servers, in the order of their ranks; ``row``: its figures of training so far.

    ``in_step``: each update is of all workers together. ``where``: how unevenly elements lie (the most loaded server's,
    as a multiple of the mean), and on which server most; ``largest``: the name and the elements of the largest array
    that lies whole there.
    """
    return {
        "server_cpus_used": max(one["cpus"] for one in told),
        "server_rss_peak_mib": max(one["rss_peak_mib"] for one in told),
        **_updates(told, row, in_step),
        **({} if where is None else {"server_bytes_imbalance": where[0]}),
        **({} if where is None or largest is None else {"server_largest_array": [where[1], *largest]}),
    }


def _updates(told: Sequence[Mapping[str, float]], row: Mapping[str, Any], in_step: bool) -> dict[str, Any]:
    """Nothing where the optimizer is in the workers, or no step is timed."""
    if not all("updates" in one for one in told) or not row["steps"] or not row["train_s"]:
        return {}
    # The first step is in no other figure of speed: its updates are taken out, as a part of all.
    due = row["steps"] * (1 if in_step else row["num_workers"])
    timed = [min(1.0, due / one["rounds"]) if one["rounds"] else 0.0 for one in told]
    seconds = [one["update_s"] * part for one, part in zip(told, timed, strict=True)]
    return {
        "server_update_fraction": max(seconds) / row["train_s"],
        "server_update_s": seconds,
        "server_updates": [round(one["updates"]) for one in told],
    }
