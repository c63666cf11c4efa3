"""The facts of one node, as plain data. It needs the standard library only, and travels to nodes by its source."""

from __future__ import annotations

import contextlib
import getpass
import glob
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, TypedDict

CHILD_TIMEOUT_S = 60.0
STAGES = ("raymx", "libgomp", "driver", "mxnet")  # of child.py

_ENVIRONMENT = ("RAY_AUTH_MODE", "RAY_num_workers_soft_limit", "CUDA_VISIBLE_DEVICES")
# With a role set, importing mxnet would serve and then exit.
_NOT_FOR_CHILD = ("DMLC_ROLE",)


class Space(TypedDict):
    """Bytes of the file system under a path, or under the nearest folder above that exists."""

    path: str
    total: int
    free: int


class NodeFacts(TypedDict):
    """What there is on one node. ``child`` has a stage of child.py each: what it found, or its "error"."""

    host: str
    user: str
    executable: str
    platform: str
    python: str
    packages: dict[str, str]  # version by name, in the form of `canonical`
    child: dict[str, dict[str, Any]]
    gpu_files: int  # NVIDIA GPUs as the kernel has them
    memory: int  # bytes that processes here may use
    shm: Space
    temp: Space  # Ray's folder for its sessions
    environment: dict[str, str]
    token: bool  # there is one; it is never read


def collect(child: str, temp: str, timeout_s: float = CHILD_TIMEOUT_S) -> NodeFacts:
    """Look at this node. ``child`` is the source of child.py, ``temp`` Ray's folder for its sessions."""
    return NodeFacts(
        host=socket.gethostname(),
        user=_user(),
        executable=sys.executable,
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages=packages(),
        child=try_out(child, timeout_s),
        gpu_files=len(glob.glob("/dev/nvidia[0-9]*")),
        memory=_memory(),
        shm=space("/dev/shm"),
        temp=space(temp),
        environment={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        token=has_token(),
    )


def canonical(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages() -> dict[str, str]:
    """The version of every installed distribution, the first one on the path where there are two."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # none where a broken uninstall left an empty folder
            found.setdefault(canonical(name), distribution.version)
    return found


def space(path: str) -> Space:
    """The file system under a path. Nothing is written."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    usage = shutil.disk_usage(path)
    return Space(path=path, total=usage.total, free=usage.free)


def has_token(home: str = "~") -> bool:
    """Whether Ray would find a token here, in the places and the order of its documentation."""
    file = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.join(os.path.expanduser(home), ".ray", "auth_token")
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or os.path.isfile(file)


def try_out(child: str, timeout_s: float) -> dict[str, dict[str, Any]]:
    """What each stage of the child process found, or the error it ended with."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_FOR_CHILD and not (name == "CUDA_VISIBLE_DEVICES" and not value)
    }  # Ray's, for actors without GPUs
    try:
        # In the root folder, so that a checkout in the current one does not count as an installed raymx.
        done = subprocess.run(
            [sys.executable, "-c", child],
            capture_output=True,
            text=True,
            errors="replace",
            cwd="/",
            env=environment,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        output, end = done.stdout, _end(done.returncode, done.stderr)
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or b""
        output = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
        end = f"it was not done after {timeout_s:.0f} s"
    except OSError as error:
        output, end = "", str(error)
    found = _stages(output)
    return {stage: found.get(stage, {"error": end}) for stage in STAGES}


def _stages(output: str) -> dict[str, dict[str, Any]]:
    """The stages out of what the child printed, among whatever the libraries print."""
    found = {}
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            stage = json.loads(line)
            if isinstance(stage, Mapping) and "stage" in stage:
                found[stage["stage"]] = stage["found"]
    return found


def _end(code: int, stderr: str) -> str:
    last = next(iter(stderr.strip().splitlines()[-1:]), "it printed nothing")
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"the process {how}: {last}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user has no name
        return str(os.getuid())


def _memory() -> int:
    """Bytes of the machine, or of its container where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:  # "max" is no number
            return min(machine, int(file.read()))
    return machine
