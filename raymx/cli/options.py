"""The command line of ``python -m raymx.run``: MXNet's and Ray's flags, as overrides of the experiment file's keys."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from raymx import __version__
from raymx.errors import ExperimentError
from raymx.experiment import yaml_text
from raymx.experiment.loading import FLAGS

RESUME_NEWEST = ""
"""``args.resume`` when --resume names no run folder: the newest run of the experiment is meant."""

# The values of these flags are text whatever they look like; all others are read as YAML (2 is a number).
_ALONE = {"--dry-run": "--dry-run=full", "--profile": "--profile=20:30"}
_PAIRS: dict[str, Callable[[int, int], object]] = {
    "resources.workers": lambda least, most: {"min": least, "max": most},
    "profile.steps": lambda first, last: [first, last],
}
_TEXT_FLAGS = ("--name", "--kv-store", "--dtype", "--gc-type")


class _RunParser(argparse.ArgumentParser):
    """``--dry-run`` and ``--profile`` take a value behind ``=`` alone, so that EXPERIMENT may follow them."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args([_ALONE.get(one, one) for one in given], namespace)


def parser() -> argparse.ArgumentParser:
    """The parser; a flag that is not given is None, so that the experiment file's value stays."""
    top = _RunParser(
        prog="python -m raymx.run",
        allow_abbrev=False,
        description="Train an MXNet experiment on Ray. Flags override keys of the experiment file, --set any of them.",
    )
    top.add_argument(
        "--dry-run",
        nargs="?",
        const="full",
        choices=("full", "fast"),
        help="check everything, print the whole experiment and its placement, try one step of it in a process of this "
        "machine, and place nothing; --dry-run=fast leaves the step out",
    )
    top.add_argument("--run-id", help=argparse.SUPPRESS)  # of a submitted run: its folder's name too
    add_run_arguments(top)
    return top


def add_run_arguments(top: argparse.ArgumentParser) -> None:
    """The arguments of a run, wherever it is started."""
    top.add_argument("--version", action="version", version=f"raymx {__version__}")
    top.add_argument(
        "experiment",
        nargs="?",
        metavar="EXPERIMENT",
        help="the experiment file (YAML); when not given, raymx's own Fashion-MNIST experiment",
    )
    top.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="override one key, such as training.base_lr=0.1; may be repeated, and wins over other flags",
    )
    top.add_argument(
        "--resume",
        nargs="?",
        const=RESUME_NEWEST,
        metavar="RUN_FOLDER",
        help="continue an interrupted run: the one in RUN_FOLDER, or else this experiment's newest. "
        "Put EXPERIMENT before it",
    )
    top.add_argument(
        "--retry-failed", action="store_true", help="with --resume of a sweep: run the trials again that failed"
    )
    top.add_argument("-v", "--verbose", action="store_true", help="show what Ray, MXNet and every role print")
    _add_mxnet_flags(top.add_argument_group("as in MXNet's scripts and launcher"))
    _add_ray_flags(top.add_argument_group("as in Ray"))


def overrides(args: argparse.Namespace) -> dict[str, object]:
    """Dotted keys and values of the flags and then of every --set, which wins.

    Raises an ExperimentError for a --set that is not KEY=VALUE.
    """
    given = {key: getattr(args, _dest(flag)) for flag, key in FLAGS.items()}
    found: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    for setting in args.settings:
        key, value = _setting(setting)
        found.pop(key, None)  # so that it is applied in its turn, after the flags
        found[key] = value
    return found


def _add_mxnet_flags(group: argparse._ArgumentGroup) -> None:
    def add(*flags: str, metavar: str, help: str) -> None:
        key = FLAGS[flags[0]]
        read = str if flags[0] in _TEXT_FLAGS else _gpus if flags[0] == "--gpus" else partial(_flag_value, key)
        group.add_argument(*flags, metavar=metavar, type=read, help=f"{help} ({key})")

    add("--kv-store", metavar="TYPE", help="KVStore type: auto, local, device, dist_sync, dist_async, ...")
    add("--num-workers", "-n", metavar="N", help="number of workers; MIN:MAX such as 2:8 for an elastic run")
    add("--num-servers", "-s", metavar="N", help="number of servers")
    add(
        "--gpus",
        metavar="IDS",
        help="GPUs of each worker as a list of ids: 0,1 is two GPUs (Ray chooses which), 0 is "
        "one, auto is what there is",
    )
    add(
        "--batch-size",
        metavar="N",
        help="samples in one update over ALL workers (training.global_batch_size), where MXNet's scripts mean one "
        "worker's; the learning rate goes with it by training.lr_rule, as with a sweep's axis of this name",
    )
    add("--lr", metavar="RATE", help="learning rate at the base batch size")
    add("--num-epochs", metavar="N", help="passes over the training data")
    add("--dtype", metavar="TYPE", help="float32, float64, float16, amp_float16 or amp_bfloat16")
    add("--gc-type", metavar="TYPE", help="gradient compression: none or 2bit")
    add("--gc-threshold", metavar="X", help="threshold of 2bit compression")
    add("--disp-batches", metavar="N", help="show progress every N batches")
    add(
        "--profile",
        metavar="FIRST:LAST",
        help="trace these steps, counted from 1, of all roles on one clock, in a file that Perfetto opens; alone it is "
        "--profile=20:30",
    )


def _add_ray_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--address", help="a running Ray cluster (host:port or auto); when not given, Ray starts here")
    group.add_argument("--storage-path", metavar="PATH", help="folder or URI for results and checkpoints of all runs")
    group.add_argument("--name", help="name of the run (name)")


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _flag_value(key: str, text: str) -> object:
    """A flag's value; what is wrong with it is said by the experiment's own checks, which name the flag."""
    try:
        return _value(key, text, "value")
    except ExperimentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _value(key: str, text: str, source: str) -> object:
    """YAML, but for 2:8 workers and steps, which YAML 1.1 takes for a number to the base 60."""
    ends = re.fullmatch(r"([0-9]+):([0-9]+)", text.strip()) if key in _PAIRS else None
    return _PAIRS[key](int(ends[1]), int(ends[2])) if ends else yaml_text.parse(text, source)


def _gpus(text: str) -> int | str:
    """GPUs a worker from MXNet's list of ids, where a lone ``2`` is the GPU with id 2 and rarely what is meant."""
    if text in ("auto", ""):
        return text or 0
    ids = text.split(",")
    if not all(part.strip().isdecimal() for part in ids) or len({int(part) for part in ids}) < len(ids):
        raise argparse.ArgumentTypeError(f"{text} is not a list of different GPU ids such as 0,1, nor auto")
    if len(ids) == 1 and int(text) > 0:
        several = f"; for {text} GPUs a worker write --set resources.gpus_per_worker={text}" if int(text) > 1 else ""
        raise argparse.ArgumentTypeError(
            f"in MXNet {text} is the one GPU with id {text}, but Ray chooses which GPUs a "
            f"worker gets: for one GPU a worker write --gpus 0{several}"
        )
    return len(ids)


def _setting(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ExperimentError(f"--set {text}: it must be KEY=VALUE with a dotted key, such as training.base_lr=0.1")
    return key, _value(key, value, f"--set {text}")


def default_experiment() -> str:
    """The Fashion-MNIST experiment of this checkout, or of the folder where the command is given."""
    places = [Path.cwd(), Path(__file__).resolve().parents[2]]
    for place in places:
        path = place / "experiments" / "fashion_mnist.yaml"
        if path.exists():
            return str(path)
    raise ExperimentError(
        "no EXPERIMENT was given and there is no experiments/fashion_mnist.yaml in "
        f"{' or '.join(map(str, places))}; name an experiment file"
    )
