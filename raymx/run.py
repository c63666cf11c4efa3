"""``python -m raymx.run EXPERIMENT``: check, place, train, and say where the results are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from raymx.cli import options
from raymx.cli.exit import EXIT_OK, exit_code
from raymx.experiment import loading
from raymx.experiment.loading import ExperimentConfig
from raymx.sweep import combinations, space
from raymx.tracking import settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Errors of the user's are one message on stderr."""
    args = options.parser().parse_args(arguments)
    return exit_code(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    given = options.overrides(args)
    experiment = _experiment(args, given)
    _check(experiment, given, resumed=args.resume is not None)
    if args.dry_run:
        from raymx.driver.dry_run import dry_run

        for text in dry_run(experiment, args.address, fast=args.dry_run == "fast"):
            print(text)
        return EXIT_OK
    from raymx.driver.run import Driver

    return Driver(
        experiment,
        address=args.address,
        storage_path=args.storage_path,
        resume=args.resume,
        retry_failed=args.retry_failed,
        run_id=args.run_id,
        verbose=args.verbose,
    ).execute()


def _check(experiment: ExperimentConfig, given: Mapping[str, object], *, resumed: bool) -> None:
    """Raise ExperimentError for what can be known before Ray starts. ``given``: the keys that flags set."""
    loading.check_files(experiment, resumed=resumed)
    settings.check(experiment)
    space.check(experiment, given, resumed=resumed)
    if experiment.sweep.space:
        combinations.check_installed(experiment.sweep)


def _experiment(args: argparse.Namespace, overrides: Mapping[str, object]) -> ExperimentConfig:
    """What the command line names: an experiment file, or the run to resume, with its overrides."""
    if args.resume and not args.experiment:
        from raymx.results import run_folder

        before = run_folder.experiment_to_resume(args.resume)
        return loading.parse_experiment(before.to_dict(), before.directory, overrides)
    return loading.load_experiment(args.experiment or options.default_experiment(), overrides)


if __name__ == "__main__":
    sys.exit(main())
