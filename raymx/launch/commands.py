"""A script's command: where the script is in it, its flags, and what the servers run instead. Pure."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from raymx.errors import ExperimentError

_PYTHON = re.compile(r"python(\d(\.\d+)?)?t?")
_NUMBER = re.compile(r"-(\d|\.\d)")


def as_words(command: Sequence[str] | str) -> tuple[str, ...]:
    """A command in words; a script alone is run by Python."""
    words = tuple(shlex.split(command)) if isinstance(command, str) else tuple(map(str, command))
    return ("python", *words) if words and words[0].endswith(".py") else words


def is_python(word: str) -> bool:
    """Whether a command begins with Python itself: ``python``, ``/usr/bin/python3.11``."""
    return bool(_PYTHON.fullmatch(os.path.basename(word)))


def script_at(command: Sequence[str]) -> int | None:
    """Which word is the script's file: the first one of that form; None where there is none, as in ``python -m``."""
    for at, word in enumerate(command):
        if at and command[at - 1] in ("-m", "-c"):
            return None
        if word.endswith((".py", ".sh")) and not word.startswith("-"):
            return at
    return None


def folder_of(command: Sequence[str], here: str) -> str:
    """The folder that the command runs in, and that travels: the current one, where the script lies in it or below.

    A script elsewhere runs in its own folder.
    """
    at = script_at(command)
    if at is None:
        return here
    script = os.path.normpath(os.path.join(here, command[at]))
    inside = os.path.commonpath([here, script]) == here if os.path.isabs(script) else True
    return here if inside else os.path.dirname(script)


def relative(command: Sequence[str], here: str, folder: str) -> tuple[str, ...]:
    """The same command for ``folder``: the script by its path in it, so that it is found on other nodes."""
    at = script_at(command)
    if at is None:
        return tuple(command)
    script = os.path.normpath(os.path.join(here, command[at]))
    named = os.path.relpath(script, folder)
    named = named if at else os.path.join(".", named)  # a bare name would be looked for in PATH
    return (*command[:at], named, *command[at + 1 :])


def script_folder(command: Sequence[str]) -> str:
    """The folder of the script, as the command names it; "" for none."""
    at = script_at(command)
    return "" if at is None else os.path.dirname(command[at])


def with_flag(command: Sequence[str], name: str, value: str) -> tuple[str, ...]:
    """The command with the script's flag ``--name`` at ``value``: replaced where it is given, else added at the end.

    Raises ExperimentError where it is there and takes no value.
    """
    begin = (script_at(command) or 0) + 1
    words, found = list(command), False
    for at in range(begin, len(words)):
        flag, equals, _ = words[at].partition("=")
        if not _is_flag(flag, name):
            continue
        found = True
        if equals:
            words[at] = f"{flag}={value}"
        elif at + 1 < len(words) and _is_value(words[at + 1]):
            words[at + 1] = value
        else:
            raise ExperimentError(
                f"--sweep {name}: the command has {flag} with no value behind it, and only flags that take one can be "
                "swept"
            )
    return tuple(words) if found else (*words, f"--{name}", value)


def flag_value(command: Sequence[str], name: str) -> str | None:
    """The value that the command gives the script's flag ``--name``; None when it has none."""
    found = None
    for at in range((script_at(command) or 0) + 1, len(command)):
        flag, equals, value = command[at].partition("=")
        if _is_flag(flag, name):
            found = value if equals else command[at + 1] if at + 1 < len(command) else found
    return found


def _is_flag(word: str, name: str) -> bool:
    """``--kv-store`` and ``--kv_store`` are one flag; a name of one letter has one dash too."""
    if not word.startswith("-"):
        return False
    dashes = ("--", "-") if len(name) == 1 else ("--",)
    return any(word.replace("_", "-") == (dash + name).replace("_", "-") for dash in dashes)


def _is_value(word: str) -> bool:
    return not word.startswith("-") or bool(_NUMBER.match(word))


PYTHON = "{raymx's python}"
"""Stands in a command for the interpreter that raymx itself runs in on that node; with it goes its own folder."""

_RAYMX = "import os, sys; sys.path.append(os.environ['RAYMX_LAUNCH_ROOT']); "


def server_command(command: Sequence[str], *, guard: bool, run_script: bool) -> tuple[str, ...]:
    """What a server runs.

    Importing mxnet with a server's role serves, and then ends the process. The script's own lines before its import
    do nothing that a server needs, and some harm: flags are read, data are downloaded, DMLC_ROLE is set. So a server
    imports mxnet alone, with the script's interpreter and folder. A command that is not Python's (a shell script) is
    run as it is, as MXNet's launcher does.
    """
    if guard:
        return (PYTHON, "-c", f"{_RAYMX}from raymx.launch import guard_server; guard_server.serve()")
    if run_script or not is_python(command[0]):
        return tuple(command)
    folder = script_folder(command)
    path = f"import sys; sys.path.insert(0, {folder!r}); " if folder else ""
    return (command[0], "-c", f"{path}import mxnet")


def scheduler_command() -> tuple[str, ...]:
    """What the KVStore scheduler runs: MXNet's C library alone, which loads in a tenth of a second."""
    lines = "from raymx.kvstore import native, server; native.preload_cuda(); "
    return (PYTHON, "-c", f"{_RAYMX}{lines}server.serve_as_scheduler(os.environ, native.mxnet_library())")


def asks_for_guard(text: str) -> bool:
    """Whether a script's text has the line ``import raymx.mx``."""
    return bool(re.search(r"^\s*(import\s+raymx\.mx\b|from\s+raymx\s+import\s+mx\b)", text, re.MULTILINE))
