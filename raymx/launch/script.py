"""What `raymx.launch` runs: a command, how many roles, and what each asks for. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raymx.errors import ExperimentError
from raymx.launch import commands, environment, log_lines


@dataclass(frozen=True)
class Script:
    """A training script and the roles that it runs in.

    ``command`` is a file such as ``train.py`` with its arguments, or a whole command (``python -u train.py --lr 0.1``),
    as one text or as a list. ``servers`` are by default as many as workers; 0 is for scripts whose store has none.
    ``env`` goes to all roles, ``env_worker`` and ``env_server`` to those. ``sweep`` has values for the script's own
    flags, by name, each point run ``repeats`` times, ``concurrent`` of them at once. Raises ExperimentError for what
    cannot be.
    """

    command: Sequence[str] | str
    workers: int = 1
    servers: int | None = None
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    cpus_per_server: float = 1.0
    env: Mapping[str, str] = field(default_factory=dict)
    env_worker: Mapping[str, str] = field(default_factory=dict)
    env_server: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    restarts: int = 0
    resume_flag: str = ""
    resume_prefix: str = ""
    patterns: Sequence[str] = ()
    objective: str = ""
    sweep: Mapping[str, Sequence[str]] = field(default_factory=dict)
    repeats: int = 1
    concurrent: int = 1
    guard: bool = False
    servers_run_script: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "command", commands.as_words(self.command))
        set_(self, "servers", self.workers if self.servers is None else self.servers)
        set_(self, "patterns", tuple(self.patterns))
        set_(self, "sweep", {key.lstrip("-"): tuple(map(str, values)) for key, values in self.sweep.items()})
        set_(self, "name", self.name or _name_of(self.words))
        problems = list(_problems(self))
        if problems:
            raise ExperimentError("\n".join(problems))
        log_lines.compiled(self.patterns)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.command)

    @property
    def num_servers(self) -> int:
        return self.servers or 0

    def flags(self) -> list[str]:
        """The flags of a command line that asks for the same roles; what goes for a whole sweep is left out."""
        found = ["-n", str(self.workers), "-s", str(self.num_servers)]
        for flag, value, default in (
            ("--cpus-per-worker", self.cpus_per_worker, 1),
            ("--gpus-per-worker", self.gpus_per_worker, 0),
            ("--cpus-per-server", self.cpus_per_server, 1),
            ("--port", self.port, 0),
            ("--restarts", self.restarts, 0),
        ):
            found += [flag, str(value)] if value != default else []
        for flag, text in (("--resume-flag", self.resume_flag), ("--resume-prefix", self.resume_prefix)):
            found += [f"{flag}={text}"] if text else []
        found += [f"--pattern={text}" for text in self.patterns]
        return found + ["--guard"] * self.guard + ["--servers-run-script"] * self.servers_run_script

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for a run's record; values of environment variables stay out, which may be secrets."""
        return {
            "command": shlex.join(self.words),
            "workers": self.workers,
            "servers": self.num_servers,
            "cpus_per_worker": self.cpus_per_worker,
            "gpus_per_worker": self.gpus_per_worker,
            "cpus_per_server": self.cpus_per_server,
            "env": sorted({*self.env, *self.env_worker, *self.env_server}),
            "restarts": self.restarts,
            "resume_flag": self.resume_flag,
            "resume_prefix": self.resume_prefix,
            "patterns": list(self.patterns),
            "sweep": {key: list(values) for key, values in self.sweep.items()},
            "repeats": self.repeats,
            "guard": self.guard,
        }


def _name_of(command: Sequence[str]) -> str:
    at = commands.script_at(command)
    named = command[at] if at is not None else command[0] if command else ""
    stem = re.sub(r"\.\w+$", "", named.rstrip("/").rsplit("/", 1)[-1])
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("._-") or "script"


def _problems(script: Script) -> list[str]:
    found = []
    if not script.words:
        found.append("no command was given: end the line with it, as in  -n 2 python train.py --kv-store dist_sync")
    for flag, number, least in (
        ("-n (workers)", script.workers, 1),
        ("-s (servers)", script.num_servers, 0),
        ("--restarts", script.restarts, 0),
        ("--repeats", script.repeats, 1),
        ("--concurrent", script.concurrent, 1),
    ):
        if number < least:
            found.append(f"{flag} is {number}: give a whole number, at least {least}")
    for flag, amount in (("--cpus-per-worker", script.cpus_per_worker), ("--cpus-per-server", script.cpus_per_server)):
        if amount <= 0:
            found.append(f"{flag} is {amount:g}: give a number above 0")
    if script.gpus_per_worker < 0:
        found.append(f"--gpus-per-worker is {script.gpus_per_worker:g}: give 0 or more")
    if not 0 <= script.port <= 65535:
        found.append(f"--port is {script.port}: give a port from 1 to 65535, or 0 for any free one")
    if bool(script.resume_flag) != bool(script.resume_prefix):
        given, other = (
            ("--resume-flag", "--resume-prefix") if script.resume_flag else ("--resume-prefix", "--resume-flag")
        )
        found.append(
            f"{given} needs {other} beside it: as in  --resume-prefix model --resume-flag '--load-epoch {{epoch}}'"
        )
    if script.resume_flag and "{epoch}" not in script.resume_flag:
        found.append(f"--resume-flag {script.resume_flag!r} has no {{epoch}} in it: as in '--load-epoch {{epoch}}'")
    found += environment.reserved_problems({**script.env, **script.env_worker, **script.env_server})
    found += [
        f"--sweep {key} has no values: give --sweep {key}=A,B" for key, values in script.sweep.items() if not values
    ]
    found += [
        f"--sweep {key} has the value {value} twice" for key, values in script.sweep.items() for value in _twice(values)
    ]
    return found


def _twice(values: Sequence[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})
