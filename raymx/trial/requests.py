"""What the trial answers when all loops of a generation ask for the same thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raymx.cluster.generation import Generation
from raymx.errors import DataError, TooManyBadRecords, TrainingError
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.kvstore import env
from raymx.kvstore.state import Layout, OptimizerState, cut, join, load, rekey
from raymx.results import server_columns


class Requests:
    """One generation's: sums over the workers, the optimizer on the servers, its rate, the same data everywhere."""

    def __init__(self, experiment: ExperimentConfig, generation: Generation, restored: OptimizerState | None) -> None:
        """``experiment`` is that of the generation's size; ``restored`` by structural name."""
        self._experiment, self._generation, self._restored = experiment, generation, restored
        self._names: list[str] = []  # of the servers' keys; empty where the optimizer is in the workers
        self._sizes: dict[int, int] = {}  # elements of each of them

    def answer(self, kind: str, payloads: list[Any]) -> Any:
        """The answer to an event of this kind, which is the same for all loops."""
        answers: dict[str, Callable[[list[Any]], Any]] = {
            "total": total,
            "install": self._install,
            "rate": self._set_rate,
            "data": check_same_data,
        }
        return answers[kind](payloads)

    def _install(self, payloads: list[Any]) -> None:
        spec, self._sizes, self._names = payloads[0]
        if any(sizes != self._sizes for _, sizes, _ in payloads):
            raise TrainingError("the workers' nets differ in their parameters; a net must not depend on the rank")
        restored: list[OptimizerState | None] = [None] * len(self._generation.servers)
        if self._restored:
            keys = {name: key for key, name in enumerate(self._names)}
            restored = list(cut(rekey(self._restored, keys), self._layout(), self._sizes))
        self._generation.on_servers("install", [spec] * len(restored), restored)

    def _set_rate(self, payloads: list[float]) -> None:
        self._generation.on_servers("set_learning_rate", [payloads[0]] * len(self._generation.servers))

    def _layout(self) -> Layout:
        kvstore = self._experiment.kvstore
        return Layout(
            len(self._generation.servers),
            env.bigarray_bound(kvstore.env.model_dump()),
            compressed=kvstore.compression.type != "none",
        )

    def optimizer_state(self) -> OptimizerState:
        """The servers' state as one, by structural name."""
        whole = join(self._generation.on_servers("state"), self._layout(), self._sizes)
        return rekey(whole, dict(enumerate(self._names)))

    def learning_rate(self) -> float:
        """The rate that the optimizer used in its last update, from where the optimizer is."""
        if self._names:
            return float(max(self._generation.on_servers("last_update"))[1])
        rate = self._generation.command("learning_rate")[0]
        return math.nan if rate is None else float(rate)

    def usage(self, row: Mapping[str, Any], arrays: Sequence[tuple[str, int]]) -> dict[str, Any]:
        """The columns of what the servers take; nothing without servers.

        ``row`` is what is known of it; ``arrays`` are the names and elements of the keys.
        """
        told = self._generation.on_servers("usage")
        if not told:
            return {}
        sizes = dict(enumerate(size for _, size in arrays))
        on_servers = load(self._layout(), sizes) if sizes else None
        where = None if on_servers is None else (on_servers.imbalance, on_servers.server)
        largest = (arrays[on_servers.key][0], on_servers.size) if on_servers and on_servers.key is not None else None
        return server_columns.columns_of(
            told, row, in_step=not rules.is_async(self._experiment), where=where, largest=largest
        )

    def refused(self) -> list[str]:
        """A warning for each server that got commands from the network."""
        return [
            f"server {rank} refused commands {commands} from the network, which nobody in this run sends: is its "
            "port open to others?"
            for rank, commands in enumerate(self._generation.on_servers("refused"))
            if commands
        ]


def total(payloads: list[dict[str, Any]]) -> dict[str, Any]:
    """Numbers and arrays by name, added over the workers."""
    if any(payload.keys() != payloads[0].keys() for payload in payloads):
        raise TrainingError(
            "total() got different names in different workers: "
            + " / ".join(str(sorted(payload)) for payload in payloads)
        )
    return {name: sum(payload[name] for payload in payloads[1:]) + payloads[0][name] for name in payloads[0]}


def check_same_data(payloads: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """Raise DataError unless all workers found the same files: (node, [(file, digest)]) of each worker."""
    node, files = payloads[0]
    for rank, (other_node, other_files) in enumerate(payloads):
        if files != other_files:
            names = sorted({name for name, _ in set(files) ^ set(other_files)}) or ["the order of the files"]
            raise DataError(
                f"worker 0 on node {node} and worker {rank} on node {other_node} read different data "
                f"({', '.join(names)}): copy the same files to every node, or name a folder that all nodes "
                "share"
            )


def check_bad_records(reports: list[dict[str, Any]], max_bad: float) -> None:
    """Raise TooManyBadRecords when all workers together skipped more than this part of the records.

    One that alone has met more raises that itself, in the middle of an epoch.
    """
    bad, records = sum(report["bad_records"] for report in reports), reports[0].get("records", 0)
    if records and bad > max_bad * records:
        raise TooManyBadRecords(
            f"{bad:,} bad records of {records:,} were skipped since the last report, where data.max_bad {max_bad:g} "
            f"allows {int(max_bad * records):,}; the warnings name the files: correct them (python -m raymx.data "
            "verify), or raise data.max_bad"
        )
