"""``python -m raymx.submit``: submit an experiment to a cluster, and look after the runs there.

python -m raymx.submit EXPERIMENT --address http://HEAD:8265 --follow
python -m raymx.submit logs -f
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from raymx.cli import options
from raymx.cli.exit import EXIT_ERROR, EXIT_OK, exit_code
from raymx.errors import JobError
from raymx.experiment import loading
from raymx.jobs import card, card_text, submitting
from raymx.jobs.experiment import Experiment
from raymx.jobs.run import Run
from raymx.results.columns import NOT_BRIEF
from raymx.sweep import space
from raymx.text.words import columns, duration

_RUN = "RUN_ID"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code, as of ``ray job submit``: 1 when the run that was waited for failed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = COMMANDS.get(given[0]) if given else None
    if command is None:
        args = submit_parser().parse_args(given)
        return exit_code(lambda: _submit(args), "; the run, if it was submitted, goes on")
    args = command_parser(given[0]).parse_args(given[1:])
    return exit_code(lambda: command(args), "; the run goes on")


def submit_parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m raymx.submit",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Submit an MXNet experiment to a Ray cluster and return at once; the flags are those of raymx.run.",
        epilog="other commands, each with --address and --help:\n"
        + "\n".join(f"  {name:<8} {(function.__doc__ or '').splitlines()[0]}" for name, function in COMMANDS.items()),
    )
    top.add_argument("-f", "--follow", action="store_true", help="show what the run prints, to its end")
    options.add_run_arguments(top)
    return top


def command_parser(name: str) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=f"python -m raymx.submit {name}", allow_abbrev=False, description=COMMANDS[name].__doc__
    )
    if name != "list":
        top.add_argument(
            "run",
            metavar=_RUN,
            nargs=None if name == "stop" else "?",
            help="the run's id" + ("" if name == "stop" else " (default: the newest)"),
        )
    if name == "logs":
        top.add_argument("-f", "--follow", action="store_true", help="go on to the run's end")
    if name == "results":
        top.add_argument("--csv", action="store_true", help="as CSV, with all columns")
        top.add_argument("--by", choices=("epoch", "trial"), help="a row each (default: epoch; of a sweep, trial)")
    top.add_argument(
        "--address",
        help="the cluster, http://HEAD:8265 or as in Ray (default: RAY_ADDRESS, else the one "
        "that runs on this machine)",
    )
    return top


def _submit(args: argparse.Namespace) -> int:
    if args.resume == options.RESUME_NEWEST:
        raise JobError("--resume needs the RUN_FOLDER, which the run printed after the word results")
    given = options.overrides(args)
    experiment = Experiment(loading.load_experiment(args.experiment or options.default_experiment(), given))
    space.Space(experiment.spec).check_given(given)  # what else there is to check submit does
    found = submitting.submit(
        experiment,
        args.address,
        storage_path=args.storage_path,
        resume=args.resume,
        retry_failed=args.retry_failed,
        verbose=args.verbose,
    )
    print(f"submitted {found.id}")
    if args.follow:
        return _follow(found)
    at = f" --address {args.address}" if args.address else ""
    print(
        f"its output  python -m raymx.submit logs -f {found.id}{at}\n"
        f"stop it     python -m raymx.submit stop {found.id}{at}"
    )
    return EXIT_OK


def _status(args: argparse.Namespace) -> int:
    """how a run stands"""
    print(card.as_text(_the_run(args).view(), time.time()))
    return EXIT_OK


def _logs(args: argparse.Namespace) -> int:
    """what a run has printed; -f follows it to its end"""
    found = _the_run(args)
    if args.follow:
        return _follow(found)
    found.logs()
    return EXIT_OK


def _follow(found: Run) -> int:
    found.logs(follow=True)
    return EXIT_OK if found.view().state == "finished" else EXIT_ERROR


def _stop(args: argparse.Namespace) -> int:
    """save a checkpoint and end a run"""
    found = submitting.attach(args.run, args.address)
    stopped = found.cancel()
    print(
        f"{found.id} {'is stopped' if stopped else 'had ended before'}: {found.state}"
        + (f"; results in {found.path}" if found.path else "")
    )
    return EXIT_OK


def _list(args: argparse.Namespace) -> int:
    """the runs that a cluster knows of"""
    rows = [("run", "state", "started", "for", "objective")]
    for found in submitting.runs(args.address):
        view = found.view()
        best = card_text.ranked(view)
        began = "" if math.isnan(view.started) else datetime.fromtimestamp(view.started).strftime("%Y-%m-%d %H:%M")
        rows.append(
            (
                view.run_id,
                view.state,
                began,
                duration((view.ended if view.is_over else time.time()) - view.started),
                f"{view.metric} {best[0].objective:.4f}" if best else "",
            )
        )
    print("\n".join(columns(rows)) if len(rows) > 1 else "no run of raymx's was submitted to this cluster")
    return EXIT_OK


def _results(args: argparse.Namespace) -> int:
    """the reports of a run, also while it runs: a row an epoch, or of a sweep a row a trial"""
    frame = _the_run(args).results(args.by)
    if args.csv:
        frame.to_csv(sys.stdout, index=False)
    elif frame.empty:
        print("no report yet: there is one after the first epoch")
    else:
        print(frame[[name for name in frame if name not in NOT_BRIEF]].to_string(index=False))
    return EXIT_OK


def _the_run(args: argparse.Namespace) -> Run:
    """The run that was named, or the newest one."""
    if args.run:
        return submitting.attach(args.run, args.address)
    found = submitting.runs(args.address)
    if not found:
        raise JobError(
            "no run of raymx's was submitted to this cluster, or none runs on this machine: give a "
            f"{_RUN}, or --address"
        )
    return found[0]


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "status": _status,
    "logs": _logs,
    "stop": _stop,
    "list": _list,
    "results": _results,
}
