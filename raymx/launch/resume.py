"""What a script that is started again finds of its parameters. Pure."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence


def epochs_of(names: Iterable[str], prefix: str) -> set[int]:
    """The epochs of which ``PREFIX-NNNN.params`` is among the file names of the prefix's folder."""
    pattern = re.compile(re.escape(os.path.basename(prefix)) + r"-(\d{4,})\.params")
    return {int(found[1]) for name in names if (found := pattern.fullmatch(name))}


def newest(found: Sequence[Collection[int]]) -> int | None:
    """The newest epoch that every worker's node has; None when there is none, so that the script begins anew."""
    common = set(found[0]).intersection(*found[1:]) if found else set()
    return max(common, default=None)


def with_resume(command: Sequence[str], flag: str, epoch: int | None) -> tuple[str, ...]:
    """The command with the resume flag behind it, which wins over an earlier one of argparse's."""
    if epoch is None:
        return tuple(command)
    return (*command, *shlex.split(flag.replace("{epoch}", str(epoch))))
