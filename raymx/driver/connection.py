"""Connect to a Ray cluster, or start Ray on this machine, and keep its own words off the screen."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from raymx import _ray
from raymx.cli import machine
from raymx.cli.address import refusal
from raymx.cli.ray_start import temp_folder, whose, why_not
from raymx.driver import last_resort
from raymx.driver.planning import needed_cpus, process_settings
from raymx.errors import PlacementError
from raymx.experiment.loading import ExperimentConfig
from raymx.text.words import count

PROBE_TIMEOUT_S = 5.0


def cluster_address(address: str | None) -> str | None:
    return address or os.environ.get("RAY_ADDRESS") or None


def connect(experiment: ExperimentConfig, address: str | None, *, verbose: bool, ship: bool = True) -> str:
    """Connect to the cluster, or start Ray here with the logical CPUs of the plan, and say so in words ("" when not).

    To a cluster the experiment's folder travels as Ray's working directory, unless ``ship`` is false.
    """
    folder = Folder("experiment", experiment.directory)
    return connect_for(lambda: needed_cpus(experiment), address, folder, verbose=verbose, ship=ship)


@dataclass(frozen=True)
class Folder:
    """A folder that travels to a cluster; ``whose``: the experiment's, the script's."""

    whose: str
    path: str


def connect_for(
    needed_here: Callable[[], int],
    address: str | None,
    folder: Folder,
    *,
    verbose: bool,
    ship: bool = True,
    tune: bool = True,
) -> str:
    """The same for any work: ``needed_here`` says how many logical CPUs it needs where Ray is started here, ``tune``
    whether it uses Tune.
    """
    address = cluster_address(address)
    if address and (problem := refusal(address)):
        raise PlacementError(problem)
    set_environment()
    import ray

    if not verbose:
        quieten()
    common: dict[str, Any] = {
        "logging_level": logging.INFO if verbose else logging.ERROR,
        "log_to_driver": verbose,
        "configure_logging": verbose,
    }
    if address:
        environment = {"working_dir": folder.path} if ship else {}
        try:
            probe(address)
            with importing_tune() if tune else contextlib.nullcontext():
                ray.init(address, runtime_env=environment, **common)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise PlacementError(
                f"cannot connect to the Ray cluster at {address} (--address or RAY_ADDRESS): "
                f"{str(error).strip().splitlines()[0]}; {_advice(address, str(error), folder)}"
            ) from None
        return ""
    needed, cores = needed_here(), machine.cores()
    cpus = max(needed, cores)
    for name, value in process_settings(cpus).items():
        os.environ.setdefault(name, value)
    check_start()
    last_resort.mark()
    with importing_tune() if tune else contextlib.nullcontext():
        start(lambda: ray.init("local", num_cpus=cpus, include_dashboard=False, **common), ray.shutdown)
    return (
        f"started Ray on this machine with {cpus} logical CPUs: the plan needs {needed}, the machine has "
        f"{count(cores, 'core')}"
    )


def check_start() -> None:
    """Raise PlacementError for what would keep Ray from starting here; it would end in a traceback of Ray's."""
    if told := why_not():
        raise PlacementError(told)


def start(init: Callable[[], object], shutdown: Callable[[], object]) -> None:
    """Start Ray, and once more where that fails: on a busy machine its processes may be late.

    Raises PlacementError with Ray's reason, in one line; then nothing is left of it.
    """
    for tries_left in (1, 0):
        try:
            init()
            return
        except Exception as error:  # of many kinds
            shutdown()
            if not tries_left:
                reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
                raise PlacementError(
                    f"Ray could not be started on this machine, tried twice: {reason}; is the machine very busy, or "
                    f"out of memory or disk? Ray's own words are in {temp_folder()}/session_latest/logs"
                ) from None


def _advice(address: str, error: str, folder: Folder) -> str:
    if address == "auto" and (told := whose(_ray.head_file())):
        return told
    if "working_dir" in error or "Package size" in error:
        return (
            f"the {folder.whose}'s folder {folder.path} travels to the cluster and may hold 512 MiB: move "
            f"what the {folder.whose} does not need out of it"
        )
    # Ray sends a token to a named address only when told to, since it gives the token to whoever listens there.
    return (
        "is it running (`ray status` on its head)? When it asks for a token: run on its "
        "head with --address auto (`ray exec`, `ray attach`), or copy its ~/.ray/auth_token here and set "
        "RAY_AUTH_MODE=token, if you trust that address with it"
    )


@contextlib.contextmanager
def importing_tune() -> Iterator[None]:
    """Import Tune in a thread within: it takes more than a second, while ray.init waits for other processes.

    It is imported whole afterwards: a module of a package that another thread still imports cannot be imported.
    """

    def load() -> None:
        with contextlib.suppress(Exception):  # what is wrong is raised where it is needed
            importlib.import_module("raymx.trial.trainable")

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def probe(address: str) -> None:
    """Raise OSError when nothing listens at a host:port; Ray itself would try for minutes. Other forms pass."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()


def set_environment() -> None:
    """What Ray and Tune read when they are imported or started."""
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C is the run's to handle: save first
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")  # all that a killed driver can lose
    os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", "2")
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")  # a row of an interrupted epoch lacks some
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new one prints folders even when silent
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def quieten() -> None:
    """Keep what a user cannot use off the screen: Ray's and Tune's own words, warnings of their libraries.

    tensorboardX says "NaN or Inf found in input tensor." of each such number in a row, which rows show themselves.
    """
    warnings.simplefilter("ignore")
    for name in ("ray", "ray.tune", "ray.train", "tensorboardX"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _ray.silence_raylets()
