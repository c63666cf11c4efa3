"""What would keep Ray from starting on this machine for this user. Standard library only: the doctor needs it too."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

SOCKET_LIMIT = 107  # bytes of a Unix socket's path, on Linux
_TEMP_VARIABLES = ("RAY_TMPDIR", "TMPDIR")  # as Ray looks for it
_NAME_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")  # as Python looks for it


def temp_folder() -> str:
    """Ray's folder for its sessions."""
    return os.path.join(_temp()[1], "ray")


def whose(head_file: Path) -> str:
    """Of the cluster that runs on this machine, when another user has started it: whose it is and what to do; else "".

    ``head_file`` is Ray's, with which it says that it runs.
    """
    try:
        owner = head_file.stat().st_uid
    except OSError:
        return ""
    if owner == os.getuid():
        return ""
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"the user with uid {owner}"
    return (
        f"the Ray on this machine is that of {name}: ask for its token, give the --address of one that you may use, or "
        "set RAY_TMPDIR to a folder of your own, such as /tmp/ray-$USER, to have one of your own"
    )


def longest_folder() -> int:
    """Bytes of the longest folder in which Ray can have its own, with a Unix socket in it."""
    below = f"/ray/session_2026-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
    return SOCKET_LIMIT - len(below)


def why_not() -> str:
    """Why Ray cannot be started here, and what to set, in a sentence; "" when it can."""
    return next((f"Ray cannot be started on this machine: {told}; {fix}" for told, fix in start_problems()), "")


def start_problems() -> Iterator[tuple[str, str]]:
    """(what is wrong, what to set) of each problem, naming the path."""
    yield from _temp_problems(*_temp())
    try:
        home = Path.home()
    except RuntimeError:
        yield (
            f"this user (uid {os.getuid()}) has no home folder and no name here",
            "set HOME to a folder that it can write",
        )
    else:
        yield from _home_problems(home)
    try:
        getpass.getuser()
    except (KeyError, OSError):
        yield f"this user (uid {os.getuid()}) has no name here", f"set {_NAME_VARIABLES[1]} to any name"


def _temp() -> tuple[str, str]:
    """(the variable that names it, the folder in which Ray makes its own)."""
    return next(
        ((name, os.environ[name]) for name in _TEMP_VARIABLES if name in os.environ), (_TEMP_VARIABLES[0], "/tmp")
    )


def _temp_problems(variable: str, folder: str) -> Iterator[tuple[str, str]]:
    longest = longest_folder()
    if (length := len(os.fsencode(folder))) > longest:
        yield (
            f"{variable} is {folder}, of {length} characters: the paths of Ray's sockets below it would be longer than "
            f"the {SOCKET_LIMIT} that a Unix socket's may have",
            f"set RAY_TMPDIR to a folder of at most {longest} characters, such as /tmp",
        )
    elif not _can_write(Path(folder, "ray")):
        yield f"{folder}/ray, Ray's folder for its sessions, cannot be written", "set RAY_TMPDIR to a folder that can"


def _home_problems(home: Path) -> Iterator[tuple[str, str]]:
    """Ray makes its token below it where there is none."""
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    token = home / ".ray" / "auth_token"
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token" or given or _is_file(token):
        return
    if not _can_write(token):
        yield (
            f"the home folder {home} cannot be written, and Ray keeps its token there ({token})",
            "set HOME to a folder that can be written, or RAY_AUTH_TOKEN_PATH to a file with a token",
        )


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.is_file()
    return False


def _can_write(path: Path) -> bool:
    """Whether a file or a folder can be made there; nothing is."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0))
