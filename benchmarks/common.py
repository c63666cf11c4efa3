"""What every benchmark here does: a table, ``--json PATH``, ``--check``, and which machine it was."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One line of the table: raymx beside its peer. ``goal`` is None for a figure that is only reported."""

    name: str
    raymx: float
    peer: float | None
    ratio: float | None
    goal: str | None = None
    met: bool | None = None


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", metavar="PATH", help="also write the figures there")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal falls short")
    return parser


def finish(args: argparse.Namespace, figures: Sequence[Figure], notes: Sequence[str] = ()) -> int:
    """Print the table, write the JSON, and give the exit code."""
    print(f"\n{machine()}\n")
    print(f"| {'what':<46} | {'raymx':>9} | {'peer':>9} | {'ratio':>6} | {'goal':<28} | met |")
    print(f"|{'-' * 48}|{'-' * 11}|{'-' * 11}|{'-' * 8}|{'-' * 30}|-----|")
    for figure in figures:
        print(
            f"| {figure.name:<46} | {_number(figure.raymx):>9} | {_number(figure.peer):>9} | "
            f"{_number(figure.ratio):>6} | {figure.goal or '':<28} | "
            f"{'' if figure.met is None else 'yes' if figure.met else 'NO':<3} |"
        )
    for note in notes:
        print(note)
    if args.json:
        measured = {"machine": machine(), "figures": [asdict(figure) for figure in figures], "notes": list(notes)}
        Path(args.json).write_text(json.dumps(measured, indent=1) + "\n")
    short = [figure.name for figure in figures if figure.met is False]
    if args.check and short:
        print(f"fell short: {', '.join(short)}", file=sys.stderr)
        return 1
    return 0


def machine() -> str:
    """The processor, its cores and the system."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"machine: {model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release()}"
    )


def spread(values: Sequence[float]) -> str:
    return f"median {median(values):.3g} of {', '.join(f'{value:.3g}' for value in values)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
