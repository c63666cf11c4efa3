"""``python -m raymx.score RUN``: how fast a trained net is on this machine, and what int8 loses."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from raymx.cli.exit import EXIT_OK, exit_code
from raymx.errors import ExperimentError
from raymx.jobs import scores, trained


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m raymx.score",
        allow_abbrev=False,
        description="Measure a run's best net on this machine's CPU: images/s by batch size in float32, as a Module, "
        "fused by oneDNN, and in int8, with the score on the validation records beside.",
    )
    top.add_argument("run", metavar="RUN", help="a run's folder or URI, finished or still going on")
    top.add_argument("--json", metavar="PATH", help="write the figures to a JSON file too")
    top.add_argument(
        "--batch-sizes",
        type=_sizes,
        metavar="N,N",
        default=scores.BATCH_SIZES,
        help=f"pictures at a time (default {','.join(map(str, scores.BATCH_SIZES))})",
    )
    top.add_argument(
        "--seconds", type=float, metavar="S", default=0.5, help="of each figure, at least (default %(default)s)"
    )
    return top


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split(","))
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text}: batch sizes are at least 1")
    return sizes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Errors of the user's are one message on stderr."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _score(args.run, args.batch_sizes, args.seconds, args.json))


def _score(run: str, sizes: Sequence[int], seconds: float, path: str | None) -> int:
    found = scores.score(run, trained.best(run), sizes, seconds, lambda text: print(text, file=sys.stderr))
    if path:
        try:
            Path(path).write_text(json.dumps(found.as_dict(), indent=1) + "\n")
        except OSError as error:
            raise ExperimentError(f"--json {path}: it cannot be written ({error.strerror})") from None
    print(scores.table(found))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
