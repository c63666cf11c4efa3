"""``python -m raymx``: the commands that there are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from raymx import __version__

COMMANDS = {
    "run": "train an experiment, or a sweep of one, on this machine or on a cluster",
    "launch": "run a script that was written for MXNet's launch.py, as it is",
    "submit": "submit it to a cluster, and look after the runs there",
    "report": "make the report of runs that are finished or still going on",
    "why": "say where the time of a run's steps goes, and what each change would gain",
    "score": "measure a trained net: images/s by batch size, fused by oneDNN, in int8",
    "pack": "pack images into RecordIO files",
    "data": "verify, index and show RecordIO files",
    "doctor": "say what would stop a run, and how to put it right",
}
"""Each is ``python -m raymx.NAME``."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m raymx",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Elastic MXNet experiments on Ray. The commands, each with --help:\n\n"
        + "\n".join(f"  python -m raymx.{name:<8} {meaning}" for name, meaning in COMMANDS.items()),
    )
    top.add_argument("--version", action="version", version=f"raymx {__version__}")
    top.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the commands; the exit code, 2 where one was given that has to be written with a dot."""
    top = parser()
    args, _ = top.parse_known_args(arguments)
    if args.command is None:
        print(top.format_help().rstrip())
        return 0
    there = args.command in COMMANDS
    fix = f"python -m raymx.{args.command}" if there else f"one of {', '.join(COMMANDS)}, as python -m raymx.run"
    print(f"raymx: error: {args.command} is {'written with a dot' if there else 'no command'}: {fix}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
