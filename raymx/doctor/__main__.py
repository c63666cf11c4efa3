"""``python -m raymx.doctor``: say what would stop a run, on this machine or on every node of a cluster, and its fix."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from raymx import __version__

try:
    from raymx.cli.address import refusal
    from raymx.cli.ray_start import start_problems, temp_folder
    from raymx.doctor import facts, findings, needs, storage_trial
    from raymx.doctor.findings import Finding
    from raymx.doctor.node_checks import INSTALL, check_node, check_storage, not_installed
except ModuleNotFoundError as missing:  # packaging, with which everything else is compared
    sys.exit(
        f"raymx: error: {missing.name} is not installed, nor is Ray, which brings it; in raymx's folder: "
        "pip install -e '.[cpu]'"
    )

# Not those of raymx.cli.options, which needs packages that may be what is missing.
_EXIT_OK, _EXIT_PROBLEM, _EXIT_INTERRUPTED = 0, 1, 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m raymx.doctor",
        allow_abbrev=False,
        description="Say what would stop a run, and how to put it right: on this machine, without starting Ray, or "
        "with --address (or RAY_ADDRESS) on every node of a cluster. The exit code is 1 when a problem was found.",
    )
    top.add_argument("--address", help="a running Ray cluster (host:port or auto), whose nodes are looked at")
    top.add_argument("--storage-path", metavar="PATH", help="the folder or URI for results that runs will be given")
    top.add_argument("--json", action="store_true", help="print the findings as a JSON list")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    args = parser().parse_args(arguments)
    try:
        return _diagnose(args)
    except KeyboardInterrupt:
        print("raymx: interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED


def _diagnose(args: argparse.Namespace) -> int:
    address = args.address or os.environ.get("RAY_ADDRESS") or None
    if not args.json:
        print(
            f"raymx {__version__}: looking at {f'the cluster at {address}' if address else 'this machine'}", flush=True
        )
    found = _cluster(address, args.storage_path) if address else _this_machine(args.storage_path)
    print(findings.as_json(found) if args.json else "\n".join(findings.lines(found)))
    return _EXIT_PROBLEM if findings.stops(found) else _EXIT_OK


def _this_machine(storage_path: str | None) -> list[Finding]:
    here, wanted = _here(), needs.installed()
    found = [
        *([] if wanted else [not_installed()]),
        *check_node(here, wanted),
        *(Finding("problem", "Ray's start", told, fix) for told, fix in start_problems()),
    ]
    try:
        from raymx.results.run_folder import storage_path as absolute
    except ImportError:  # of what is missing, which has been said
        return found
    path = absolute(storage_path)
    error, disk = storage_trial.try_here(path, f".raymx-doctor-{uuid.uuid4().hex}")
    return [*found, *check_storage(path, error, here["user"], disk)]


def _cluster(address: str, storage_path: str | None) -> list[Finding]:
    if problem := refusal(address):
        told, _, fix = problem.partition("; ")
        return [*check_node(_here(), needs.installed()), Finding("problem", "cluster", told, fix)]
    try:
        from raymx.doctor import cluster, cluster_checks
        from raymx.results.run_folder import storage_path as absolute
    except ImportError as error:
        return [
            *_this_machine(storage_path),
            Finding("problem", "cluster", f"{address} cannot be looked at from here: {error}", INSTALL),
        ]
    here = _here()
    seen = cluster.look(address, absolute(storage_path), here, _child())
    if isinstance(seen, Finding):
        return [*check_node(here, needs.installed()), seen]
    return cluster_checks.check_cluster(seen, needs.installed())


def _here() -> facts.NodeFacts:
    return facts.collect(_child(), temp_folder())


def _child() -> str:
    return Path(__file__).with_name("child.py").read_text()


if __name__ == "__main__":
    sys.exit(main())
