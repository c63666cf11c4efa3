"""All roles of one KVStore: placed, started, listened to, ended together."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raymx.errors import KVStoreError, PlacementError
from raymx.kvstore.env import Topology
from raymx.launch import bundles, commands, environment, resume
from raymx.launch.bundles import Seat
from raymx.launch.outcome import Ended, Verdict, lone, verdict
from raymx.launch.role import Place, Role, Task
from raymx.launch.script import Script

START_TIMEOUT_S = 120.0  # for the actors' processes, once their place is there
STOP_TIMEOUT_S = 6.0  # longer than the supervisor's grace
CLOSE_POLL_S = 0.2


@dataclass(frozen=True)
class Where:
    """Where the command runs: the folder, as it is on this node, whether other nodes have it under the same path, and
    this node's id.
    """

    folder: str
    shared: bool
    node: str

    def on(self, place: Place) -> str:
        """The folder on a role's node; "" for the one that Ray has unpacked there."""
        return self.folder if self.shared or place.node == self.node else ""


class Group:
    """The placement group of one trial's roles. It stays from one generation to the next."""

    def __init__(self, script: Script) -> None:
        self.script, self.seats = script, bundles.seats(script)
        self._group: PlacementGroup = placement_group([dict(bundle) for bundle in bundles.bundles(script)])
        self._ready = self._group.ready()

    def is_ready(self) -> bool:
        return bool(ray.wait([self._ready], timeout=0)[0])

    def actor(self, seat: Seat) -> Any:
        """A new process for a role."""
        role: Any = Role  # as Ray's decorator has made it
        return role.options(
            num_cpus=seat.cpus,
            num_gpus=seat.gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, seat.bundle),
        ).remote()

    def remove(self) -> None:
        remove_placement_group(self._group)


class Generation:
    """One start of all roles, from their processes to their last lines.

    ``on_line`` is called with each line, ``on_end`` when a role has ended and its lines are all there. ``poll`` never
    waits; ``waits_for`` are references to wait for in between.
    """

    def __init__(
        self,
        group: Group,
        where: Where,
        command: Sequence[str],
        on_line: Callable[[Seat, str], None],
        on_end: Callable[[Ended], None],
    ) -> None:
        self._group, self._script, self._where = group, group.script, where
        self._on_line, self._on_end = on_line, on_end
        self._actors = {seat: group.actor(seat) for seat in group.seats}
        self._runs: dict[Any, Seat] = {}
        self._lines: dict[Any, Seat] = {}
        self._ended: list[Ended] = []
        self._verdict: Verdict | None = None
        self._stop_by = 0.0
        self._told_lone = False
        try:
            self.places = self._placed()
            self.epoch = self._newest_epoch()
            self._begin(resume.with_resume(command, self._script.resume_flag, self.epoch))
        except BaseException:
            self.kill()
            raise

    def _placed(self) -> dict[Seat, Place]:
        asked = [actor.place.remote() for actor in self._actors.values()]
        try:
            return dict(zip(self._actors, ray.get(asked, timeout=START_TIMEOUT_S), strict=True))
        except GetTimeoutError:
            raise PlacementError(
                f"the processes of the roles did not start within {START_TIMEOUT_S:.0f} s: is raymx installed on every "
                "node, and is the folder that travels small?  python -m raymx.doctor --address ...  looks"
            ) from None
        except RayError as error:
            raise KVStoreError(f"a role's process could not be started: {_first_line(error)}") from None

    def _newest_epoch(self) -> int | None:
        """The epoch to go on from; None where that is not wished, or nothing is there that all workers' nodes have."""
        prefix = self._script.resume_prefix
        if not prefix:
            return None
        asked = [
            self._actors[seat].epochs.remote(self._where.on(place), prefix)
            for seat, place in self.places.items()
            if seat.kind == "worker"
        ]
        return resume.newest(ray.get(asked, timeout=START_TIMEOUT_S))

    def _begin(self, command: Sequence[str]) -> None:
        topology, token = self._topology(), secrets.token_hex(16)
        for seat, actor in self._actors.items():
            task = self._task(seat, command, topology, token)
            self._runs[actor.run.remote(task)] = seat
            self._lines[actor.lines.remote()] = seat

    def _topology(self) -> Topology | None:
        script = self._script
        if not script.num_servers:
            return None
        seat = next(seat for seat in self._actors if seat.kind == "scheduler")
        host = self.places[seat].host
        try:
            port = ray.get(self._actors[seat].free_port.remote(host, script.port), timeout=START_TIMEOUT_S)
        except RayError as error:
            raise KVStoreError(
                f"port {script.port} of {host} cannot be taken for the KVStore scheduler ({_first_line(error)}): give "
                "another --port, or leave it out for a free one"
            ) from None
        return Topology(script.workers, script.num_servers, host, port)

    def _task(self, seat: Seat, command: Sequence[str], topology: Topology | None, token: str) -> Task:
        script, place = self._script, self.places[seat]
        settings = environment.own_settings(seat.kind, script.env, script.env_worker, script.env_server)
        env = {"PYTHONUNBUFFERED": "1", **settings}
        if topology is not None:
            env = environment.of_role(seat.kind, topology, place.host, settings)
        if script.guard and seat.kind != "scheduler":
            env |= {environment.GUARD: "1", environment.TOKEN: token}
        return Task(
            tuple(_own_command(seat, command, script)),
            self._where.on(place),
            env,
            dict(os.environ) if place.node == self._where.node else None,
            max(1, int(seat.cpus)),
            hooked=seat.kind == "worker" and topology is not None,
        )

    # While it runs

    @property
    def waits_for(self) -> list[Any]:
        return [*self._runs, *self._lines]

    def poll(self) -> Verdict | None:
        """Take in what the roles have said; what came of them once all is over and all is read."""
        self._take_lines()
        self._take_ends()
        now = time.monotonic()
        if self._verdict is None:
            self._verdict = verdict(self._ended, self._group.seats, now)
            if self._verdict is not None:
                self.stop()
        is_over = not self._runs and not self._lines
        if self._verdict is not None and (is_over or now >= self._stop_by):
            self.kill()
            return self._verdict
        return None

    def warning(self) -> str:
        """A sentence, once, for workers that may wait for ever; else ""."""
        told = "" if self._told_lone or self._verdict else lone(self._ended, self._group.seats, time.monotonic())
        self._told_lone |= bool(told)
        return told

    def _take_lines(self) -> None:
        for ref in self._ready(self._lines):
            seat = self._lines.pop(ref)
            try:
                lines = ray.get(ref)
            except RayError:
                continue  # its run fails too
            if lines is not None:
                for line in lines:
                    self._on_line(seat, line)
                self._lines[self._actors[seat].lines.remote()] = seat

    def _take_ends(self) -> None:
        heard = set(self._lines.values())
        for ref in self._ready(self._runs):
            if self._runs[ref] in heard and self._verdict is None and not _failed(ref):
                continue  # its last lines are still to come
            seat = self._runs.pop(ref)
            ended = _ended(seat, ref)
            if self._verdict is None:
                self._ended.append(ended)
            self._on_end(ended)

    @staticmethod
    def _ready(refs: dict[Any, Seat]) -> list[Any]:
        return list(ray.wait(list(refs), num_returns=len(refs), timeout=0)[0]) if refs else []

    # The end

    def stop(self) -> None:
        """Have every role end, those that do not at once within `STOP_TIMEOUT_S`."""
        self._stop_by = time.monotonic() + STOP_TIMEOUT_S
        for actor in self._actors.values():
            actor.stop.remote()

    def close(self) -> None:
        """End all roles in good order, and read what they say meanwhile."""
        self.stop()
        while (self._runs or self._lines) and time.monotonic() < self._stop_by:
            ray.wait(self.waits_for, timeout=CLOSE_POLL_S)
            self._take_lines()
            self._take_ends()
        self.kill()

    def kill(self) -> None:
        """End the processes; the commands that are left go with them."""
        for actor in self._actors.values():
            ray.kill(actor)
        self._runs, self._lines = {}, {}


def _own_command(seat: Seat, command: Sequence[str], script: Script) -> Sequence[str]:
    if seat.kind == "scheduler":
        return commands.scheduler_command()
    if seat.kind == "server":
        run_script = script.servers_run_script
        return commands.server_command(command, guard=script.guard, run_script=run_script)
    return command


def _failed(ref: Any) -> bool:
    try:
        return bool(ray.get(ref) != 0)
    except RayError:
        return True


def _ended(seat: Seat, ref: Any) -> Ended:
    now = time.monotonic()
    try:
        return Ended(seat, int(ray.get(ref)), now)
    except RayError as error:
        return Ended(seat, 1, now, lost=_first_line(error))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
