"""``python -m raymx.why RUN...``: where the time of a run's steps goes, and what each change would gain."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from raymx import report
from raymx.cli.exit import EXIT_OK, exit_code


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m raymx.why",
        allow_abbrev=False,
        description="Say why runs are as fast as they are: what a step's time goes to, ranked, with the evidence and "
        "what each change would gain; of two runs, why one is faster.",
    )
    top.add_argument("paths", nargs="+", metavar="RUN", help="a run's folder or URI, finished or still going on")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Errors of the user's are one message on stderr."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _why(args.paths))


def _why(paths: Sequence[str]) -> int:
    print(report.why(paths))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
