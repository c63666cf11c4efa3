"""``python -m raymx.report PATH...``: make the report of a sweep, or of several beside each other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from raymx import report
from raymx.cli.exit import EXIT_OK, exit_code


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m raymx.report",
        allow_abbrev=False,
        description="Make the report of a run or a sweep, finished or running: which settings train fastest for the "
        "accuracy, and the evidence. Writes report.html, its plots, results.csv, results.parquet and findings.json.",
    )
    top.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a run's folder or URI; several are compared, with an axis that says which one",
    )
    top.add_argument(
        "--output", metavar="FOLDER", help="where to write it (default: PATH/report, or ./report for several)"
    )
    top.add_argument(
        "--target",
        type=float,
        metavar="X",
        help="the objective's value for the time to it (default: 0.01 from the best)",
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Errors of the user's are one message on stderr."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _build(args), "; the report may lack files")


def _build(args: argparse.Namespace) -> int:
    print(report.build(args.paths, args.output, args.target))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
