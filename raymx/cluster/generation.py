"""One generation of a role group: who takes part, what their loops say, and what is asked of them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
)

from raymx.cluster.losses import lost
from raymx.cluster.processes import Assignment
from raymx.errors import KVStoreError, RaymxError, RoleLost, TrainingError
from raymx.text.out_of_memory import lack_of_memory
from raymx.training.channel import Event

ANSWER_TIMEOUT_S = 300.0  # for a control call to a role: a checkpoint of a large net takes its time
PROGRESS_TIMEOUT_S = 1.0  # the display does without a late one


@dataclass
class Generation:
    """A formed generation. ``workers`` and ``servers`` are in the order of their ranks, which ps-lite gives anew."""

    number: int
    workers: list[Any]
    servers: list[Any] = field(default_factory=list)
    assignments: dict[int, Assignment] = field(default_factory=dict)  # of the workers, by rank
    serving: dict[Any, str] = field(default_factory=dict)  # refs that end only when something is wrong
    failures: dict[Any, str] = field(default_factory=dict)  # refs of wait_failure, by the server's name
    loops: dict[int, Any] = field(default_factory=dict)  # refs of run_loop, by rank
    listening: dict[int, Any] = field(default_factory=dict)  # refs of next_event, by rank
    events: dict[int, Event] = field(default_factory=dict)  # the newest event, by rank
    progress: dict[int, dict[str, Any]] = field(default_factory=dict)  # the last that each loop said, by rank
    _answered: dict[int, int] = field(default_factory=dict)  # answers to "held" and "report", by rank
    _asked: dict[int, Any] = field(default_factory=dict)  # refs of progress calls under way, by rank

    def poll(self, timeout_s: float) -> list[Event] | None:
        """The loops' newest events by rank, once every worker has posted one; None when ``timeout_s`` pass before.

        Raises what a role raised, or KVStoreError when one died.
        """
        waiting = {ref: rank for rank, ref in self.listening.items()}
        deadline = time.monotonic() + timeout_s
        while waiting:
            watched = [*waiting, *self.loops.values(), *self.serving, *self.failures]
            ready, _ = ray.wait(watched, timeout=max(0.0, deadline - time.monotonic()), fetch_local=False)
            if not ready:
                return None
            if ready[0] in waiting:
                rank = waiting.pop(ready[0])
                self.events[rank] = value_of(ready[0], f"worker {rank}")
                del self.listening[rank]
            else:
                self._check_ended(ready[0])
        return [self.events[rank] for rank in range(len(self.workers))]

    def waiting(self) -> dict[int, Event]:
        """The events that wait for an answer, by rank."""
        return {rank: event for rank, event in self.events.items() if rank not in self.listening}

    def answer(self, answers: Mapping[int, Any]) -> None:
        """Answer the events of some ranks, so that their loops go on, and listen to them again."""
        for rank, payload in answers.items():
            worker = self.workers[rank]
            self._answered[rank] = self._answered.get(rank, 0) + (self.events[rank].kind in ("held", "report"))
            worker.command.remote("answer", payload)
            self.listening[rank] = worker.next_event.remote()

    def answer_all(self, payload: Any = None) -> None:
        self.answer(dict.fromkeys(range(len(self.workers)), payload))

    def hold(self, count: int = 0) -> None:
        """Ask every loop to wait at its next boundary from its report number ``count`` on."""
        for rank, worker in enumerate(self.workers):
            worker.hold.remote(count, self._answered.get(rank, 0))

    def command(self, name: str, argument: Any = None) -> list[Any]:
        """Have every waiting loop do ``name``; the results by rank."""
        return self.ask([worker.command.remote(name, argument) for worker in self.workers], f"workers ({name})")

    def look(self) -> list[str]:
        """Take in where the loops are, of those that answer in time; their new warnings."""
        for rank, worker in enumerate(self.workers):
            if rank not in self._asked:
                self._asked[rank] = worker.progress.remote()
        ranks = {ref: rank for rank, ref in self._asked.items()}
        answered, _ = ray.wait(list(ranks), num_returns=len(ranks), timeout=PROGRESS_TIMEOUT_S)
        warnings = []
        for ref in answered:
            progress = value_of(ref, f"worker {ranks[ref]}")
            warnings += progress.pop("warnings")
            self.progress[ranks[ref]] = progress
            del self._asked[ranks[ref]]
        return warnings

    def pids(self) -> dict[int, str]:
        """The workers by their process ids, as far as they have told them."""
        return {one["pid"]: f"worker {rank}" for rank, one in self.progress.items() if "pid" in one}

    def on_servers(self, method: str, *arguments: Any) -> list[Any]:
        """Call a control method of every server; ``arguments`` are lists with an item a server."""
        refs = [
            getattr(server, method).remote(*(argument[i] for argument in arguments))
            for i, server in enumerate(self.servers)
        ]
        return self.ask(refs, f"servers ({method})")

    def ask(self, refs: list[Any], who: str) -> list[Any]:
        """The values of refs; raises as `poll` does, and KVStoreError after the time-out of a role that hangs."""
        values, waiting, deadline = {}, list(refs), time.monotonic() + ANSWER_TIMEOUT_S
        while waiting:
            # The others too: when one has died, those that are asked may wait for it for ever.
            watched = [*waiting, *self.loops.values(), *self.serving, *self.failures]
            ready, _ = ray.wait(watched, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                raise KVStoreError(f"{who}: no answer within {ANSWER_TIMEOUT_S:g} s")
            if ready[0] not in waiting:
                self._check_ended(ready[0])
            waiting.remove(ready[0])
            values[ready[0]] = value_of(ready[0], who)
        return [values[ref] for ref in refs]

    def _check_ended(self, ref: Any) -> None:
        """Something ended that goes on as long as the generation does: raise why."""
        if ref in self.failures:
            failure = value_of(ref, self.failures[ref])
            if not failure:
                raise RoleLost(f"{self.failures[ref]} ended in the middle of the run")
            raise TrainingError(f"the optimizer failed on {self.failures[ref]}:\n{failure}")
        if ref in self.serving:
            value_of(ref, self.serving[ref])
            raise RoleLost(f"{self.serving[ref]} ended in the middle of the run")
        rank = next(rank for rank, loop in self.loops.items() if loop == ref)
        value_of(ref, f"worker {rank}")
        raise RoleLost(f"worker {rank} ended in the middle of the run")


def value_of(ref: Any, who: str) -> Any:
    """The ref's value; raises a role's own error, RoleLost or OutOfMemory when its process died, else KVStoreError."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, RaymxError) else KVStoreError(f"{who}: {error}") from None
    except (RayActorError, OutOfMemoryError) as error:
        if isinstance(error, OutOfMemoryError) or lack_of_memory(str(error)):
            raise lost(who, str(error)) from None
        if error.actor_init_failed:
            raise KVStoreError(f"{who} cannot start: {_last_line(error)}") from None
        raise RoleLost(f"{who} died: {_how_it_died(error)}", role=who) from None
    except ObjectLostError:
        raise RoleLost(f"{who}: what it gave was lost with its node", role=who) from None
    except RayError as error:
        raise lost(who, str(error)) from None


def _how_it_died(error: RayActorError) -> str:
    """Ray's many words in a few."""
    text = str(error)
    if isinstance(error, ActorUnavailableError) or "node" in text.partition("is dead because")[2][:40]:
        return "its node cannot be reached"
    pid, node = (re.search(rf"\b{name}: (\S+)", text) for name in ("pid", "ip"))
    where = f" {pid.group(1)} on {node.group(1)}" if pid and node else ""
    return f"process{where} was killed or crashed"


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]
