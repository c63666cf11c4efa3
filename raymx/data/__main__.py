"""``python -m raymx.data verify|index|show PATH...``: look at record files, and write their .idx."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from raymx.cli import machine
from raymx.data.recordio.index import index_path, write_index
from raymx.data.recordio.record_set import RecordSet
from raymx.data.recordio.scan import scan
from raymx.data.tools.show import rows, table, write_sheet
from raymx.data.tools.verify import Report, index_state, verify
from raymx.errors import DataError
from raymx.storage import expand

_PATHS = "a .rec file, a pattern, a folder, or a URI (s3://, gs://, hdfs://, file://) of one of them"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 all is right, 1 something is broken, 2 wrong usage."""
    top = parser()
    options = top.parse_args(arguments)
    if options.command is None:
        top.print_help()
        return 2
    try:
        return int(options.run(options))
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("python -m raymx.data", description="Look at RecordIO files.")
    commands = top.add_subparsers(dest="command", metavar="{verify,index,show}")
    look = commands.add_parser("verify", help="look at every record and image; exit 1 when something is broken")
    look.add_argument("--quick", action="store_true", help="do not decode the images")
    look.add_argument("--json", action="store_true", help="print the result as JSON")
    look.add_argument(
        "--workers",
        type=_count,
        default=machine.cores(),
        metavar="N",
        help="processes that share the records of a large file (default: %(default)s, the CPUs)",
    )
    look.set_defaults(run=_verify)
    index = commands.add_parser("index", help="write the .idx file where it is missing or stale")
    index.set_defaults(run=_index)
    show = commands.add_parser("show", help="list some records")
    show.add_argument("--count", type=_count, default=10, metavar="N", help="how many (default: %(default)s)")
    show.add_argument("--start", type=int, default=0, metavar="N", help="number of the first, from 0 on")
    show.add_argument("--random", action="store_true", help="any records, other ones each time")
    show.add_argument("--picture", metavar="FILE.png", help="write a contact sheet of their images")
    show.set_defaults(run=_show)
    for command in (look, index, show):
        command.add_argument("paths", nargs="+", metavar="PATH", help=_PATHS)
    return top


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


def _verify(options: argparse.Namespace) -> int:
    reports, missing = [], []
    for given in options.paths:
        try:
            paths = expand([given])
        except DataError as error:
            missing.append(str(error))
            continue
        for path in paths:
            try:
                reports.append(_with_progress(path, not options.quick, options.workers))
            except DataError as error:
                missing.append(str(error))
                continue
            if not options.json:
                print("\n".join(reports[-1].lines()))
    right = not missing and all(report.right for report in reports)
    if options.json:
        files = [report.to_dict() for report in reports]
        print(json.dumps({"right": right, "files": files, "missing": missing}, indent=2))
    elif reports:
        print(_summary(reports, len(missing)))
    for problem in missing:
        print(f"error: {problem}", file=sys.stderr)
    return 0 if right else 1


def _with_progress(path: str, decode: bool, workers: int) -> Report:
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(os.path.basename(path), total=None)
        return verify(path, decode, workers, lambda done, total: bar.update(task, completed=done, total=total))


def _summary(reports: Sequence[Report], missing: int) -> str:
    files = f"{len(reports)} file{'s' * (len(reports) != 1)}"
    total = sum(report.records for report in reports)
    broken = sum(len(report.tally.broken) for report in reports)
    stale = sum(report.index not in ("none", "right") for report in reports)
    if broken or stale or missing:
        gone = f", {missing} not read" if missing else ""
        return f"NOT right: {broken:,} broken places and {stale} stale .idx{gone}; {files}, {total:,} whole records"
    return f"all right: {files}, {total:,} records"


def _index(options: argparse.Namespace) -> int:
    for path in expand(options.paths):
        beside = index_path(path)
        if beside == path:
            raise DataError(f"{path} is an .idx file itself; name the .rec file")
        state = index_state(path, scan(path))
        if state == "right":
            print(f"{beside} is right; left as it is")
            continue
        count = write_index(path, beside)
        print(
            f"{beside}: {'written' if state == 'none' else 'replaced'}, {count:,} records"
            + ("" if state == "none" else f" (it was stale: {state})")
        )
    return 0


def _show(options: argparse.Namespace) -> int:
    records = RecordSet.open(options.paths, on_bad_record="skip")
    if not 0 <= options.start < records.num_records:
        raise DataError(f"--start {options.start}: the records are numbered from 0 to {records.num_records - 1}")
    ids = np.arange(options.start, records.num_records)
    if options.random:
        ids = np.sort(np.random.default_rng().permutation(ids)[: options.count])
    found = rows(records, ids[: options.count].tolist(), options.picture is not None)
    print(table(found))
    for path, problem in records.problems:
        print(f"{path}: byte {problem.offset}: {problem.reason}", file=sys.stderr)
    if options.picture is not None:
        write_sheet(options.picture, found)
        print(f"{options.picture}: {len(found)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
