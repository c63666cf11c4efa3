"""``python -m raymx.launch``: scripts written for MXNet's launch.py, as they are, on Ray."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from raymx.cli.exit import exit_code
from raymx.launch import options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code, the first failing worker's. Errors of the user's are one message."""
    args = options.parser().parse_args(arguments)
    return exit_code(lambda: _launch(args))


def _launch(args: argparse.Namespace) -> int:
    script = options.script_of(args, os.environ)
    from raymx.launch import driver

    if not script.guard and driver.guarded(script, os.getcwd()):
        script = replace(script, guard=True)
    for note in options.notes(args):
        print(f"note: {note}")
    return driver.Launch(
        script,
        address=args.address,
        storage_path=args.storage_path,
        shared_folder=args.shared_folder,
        run_id=args.run_id,
        verbose=args.verbose,
    ).execute()


if __name__ == "__main__":
    sys.exit(main())
