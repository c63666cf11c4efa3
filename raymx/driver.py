"""The driver's side of a run: connect to Ray, check that the plan fits, let Tune run the trial, show it, sum it up."""

from __future__ import annotations

import contextlib
import errno
import glob
import importlib
import logging
import math
import os
import socket
import sys
import threading
import time
import warnings
from collections import UserDict
from collections.abc import Sequence
from typing import Any

from raymx import config, results, rules
from raymx.cluster import placement
from raymx.cluster.placement import NodeResources
from raymx.config import Experiment
from raymx.display import Display, count
from raymx.errors import CheckpointError, ExperimentError, PlacementError, RaymxError
from raymx.interrupt import Interrupt
from raymx.options import EXIT_INTERRUPTED, EXIT_OK

PROBE_TIMEOUT_S = 5.0


def dry_run(experiment: Experiment, address: str | None) -> int:
    """Print the resolved experiment and the placement; the exit code says whether it can run.

    With an address (or RAY_ADDRESS) it looks at that cluster. It starts nothing.
    """
    print(config.to_yaml(experiment))
    nodes, free = None, this_machine(experiment)
    if cluster_address(address):
        connect(experiment, address, verbose=False, ship=False)
        nodes, free = cluster_nodes(), free_now()
    experiment, gpus = resolved(experiment, nodes or this_machine(), free)
    plan = placement.plan(experiment, gpus)
    print(placement.describe(experiment, plan, nodes))
    for note in rules.notes(experiment):
        print(f"note: {note}")
    check_cluster(experiment, plan, nodes or this_machine())
    return EXIT_OK


def check_cluster(experiment: Experiment, plan: placement.Plan, nodes: Sequence[NodeResources]) -> None:
    """Raise an error of the rules, or PlacementError, when the experiment cannot run on these nodes."""
    rules.check(experiment, gpus_available=int(sum(node.gpu for node in nodes)))
    placement.check_fit(plan, nodes)


def cluster_address(address: str | None) -> str | None:
    return address or os.environ.get("RAY_ADDRESS") or None


def connect(experiment: Experiment, address: str | None, *, verbose: bool, ship: bool = True) -> str:
    """Connect to the cluster, or start Ray here with the logical CPUs of the plan, and say so in words ("" when not).

    To a cluster the experiment's folder travels as Ray's working directory, unless ``ship`` is false.
    """
    set_environment()
    import ray

    if not verbose:
        quieten()
    address = cluster_address(address)
    common: dict[str, Any] = {"logging_level": logging.INFO if verbose else logging.ERROR, "log_to_driver": verbose,
                              "configure_logging": verbose}
    if address:
        environment = {"working_dir": experiment.directory} if ship else {}
        try:
            probe(address)
            import_ahead()
            ray.init(address, runtime_env=environment, **common)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise PlacementError(
                f"cannot connect to the Ray cluster at {address} (--address or RAY_ADDRESS): "
                f"{str(error).strip().splitlines()[0]}; {_advice(str(error), experiment)}") from None
        return ""
    here = this_machine()
    plan = placement.plan(experiment, resolved(experiment, here, here)[1])
    check_cluster(experiment, plan, here)
    needed, cores = placement.logical_cpus(plan), len(os.sched_getaffinity(0))
    cpus = max(needed, cores)
    # Ray ends idle processes beyond one a CPU, and counts actors too: the data streams would start theirs every epoch.
    os.environ.setdefault("RAY_num_workers_soft_limit", str(4 * cpus))
    import_ahead()
    ray.init("local", num_cpus=cpus, include_dashboard=False, **common)
    return (f"started Ray on this machine with {cpus} logical CPUs: the plan needs {needed}, the machine has "
            f"{count(cores, 'core')}")


def _advice(error: str, experiment: Experiment) -> str:
    if "working_dir" in error or "Package size" in error:
        return (f"the experiment's folder {experiment.directory} travels to the cluster and may hold 512 MiB: move "
                "what the experiment does not need out of it")
    # Ray sends a token to a named address only when told to, since it gives the token to whoever listens there.
    return ("is it running (`ray status` on its head)? When it asks for a token, which is Ray's default: run on its "
            "head with --address auto (`ray exec`, `ray attach`), or copy its ~/.ray/auth_token here and set "
            "RAY_AUTH_MODE=token, if you trust that address with it")


def import_ahead() -> None:
    """Import Tune in a thread: it takes more than a second, while ray.init waits for other processes."""
    def load() -> None:
        with contextlib.suppress(Exception):        # what is wrong is raised where it is needed
            importlib.import_module("raymx.trial")

    threading.Thread(target=load, daemon=True).start()


def probe(address: str) -> None:
    """Raise OSError when nothing listens at a host:port; Ray itself would try for minutes. Other forms pass."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()


def set_environment() -> None:
    """What Ray and Tune read when they are imported or started."""
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")       # Ctrl-C is the run's to handle: save first
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")          # all that a killed driver can lose
    os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", "2")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")                # the new one prints folders even when silent
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def quieten() -> None:
    """Keep what a user cannot use off the screen: Ray's and Tune's own words, warnings of their libraries."""
    warnings.simplefilter("ignore")
    for name in ("ray", "ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def cluster_nodes() -> list[NodeResources]:
    import ray

    return [NodeResources(node["NodeManagerAddress"], node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0))
            for node in ray.nodes() if node["Alive"]]


def free_now() -> list[NodeResources]:
    """What nobody holds at this moment, by node."""
    from ray._private.state import available_resources_per_node

    return [NodeResources(node, resources.get("CPU", 0), resources.get("GPU", 0))
            for node, resources in available_resources_per_node().items()]


def this_machine(experiment: Experiment | None = None) -> list[NodeResources]:
    """What a Ray that is started here will have: its own GPUs, and as many logical CPUs as it is told.

    For an experiment, those that it would be started with.
    """
    gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    anything = [NodeResources("this machine", math.inf, gpus)]
    if experiment is None:
        return anything
    needed = placement.logical_cpus(placement.plan(experiment, resolved(experiment, anything, anything)[1]))
    return [NodeResources("this machine", max(needed, len(os.sched_getaffinity(0))), gpus)]


def resolved(experiment: Experiment, nodes: Sequence[NodeResources],
             free: Sequence[NodeResources]) -> tuple[Experiment, int]:
    """The experiment with a number for ``data.cpus``, and the GPUs of a worker as a number.

    GPUs are counted on the ``nodes``, CPUs for data where they are ``free`` now: a run should not wait for them.
    """
    gpus = experiment.resources.gpus_per_worker
    number = placement.auto_gpus(experiment, nodes) if gpus == "auto" else int(gpus)
    return placement.with_data_cpus(experiment, number, free), number


class Run:
    """One command's run: a sweep of one trial, in a folder of its own under the storage path."""

    def __init__(self, experiment: Experiment, *, address: str | None = None, storage_path: str | None = None,
                 resume: str | None = None, verbose: bool = False) -> None:
        """``resume`` is a run's folder, "" for the newest run of this name, None for a new run."""
        self.experiment = experiment
        self._address, self._resume, self._verbose = address, resume, verbose
        self._storage_path = results.storage_path(storage_path)
        self._display = Display(sys.stdout)

    def execute(self) -> int:
        """Train to the end, or until Ctrl-C; the exit code. Raises RaymxError with what went wrong."""
        began = time.time()
        folder = self._resumed_folder() if self._resume is not None else results.new_folder(
            self._storage_path, self.experiment)
        with Interrupt() as interrupt:
            started = connect(self.experiment, self._address, verbose=self._verbose)
            import ray
            try:
                placed, gpus, plan = self._placed()
                self._display.head(self.experiment, plan, started)
                from raymx.watch import Watch

                with Watch(folder, self._display, interrupt, placement.needs(plan)):
                    grid = self._fit(folder, placed, gpus)
                if not len(grid):       # Ctrl-C before Tune had a trial
                    return EXIT_INTERRUPTED
                return self._close(grid[0], folder, began, interrupt)
            finally:
                ray.shutdown()

    def _placed(self) -> tuple[Experiment, int, placement.Plan]:
        nodes = cluster_nodes()
        placed, gpus = resolved(self.experiment, nodes, free_now())
        plan = placement.plan(placed, gpus)
        check_cluster(self.experiment, plan, nodes)
        if len(nodes) > 1 and "://" not in self._storage_path:
            self._display.warnings([f"the cluster has {len(nodes)} nodes: --storage-path {self._storage_path} must be "
                                    "a folder that all of them share, or a URI"], "note")
        return placed, gpus, plan

    def _resumed_folder(self) -> str:
        path = results.storage_path(self._resume) if self._resume else results.newest_run(
            self._storage_path, self.experiment.name)
        results.check_same(self.experiment, path)
        self._storage_path, folder = os.path.split(path)
        return folder

    def _fit(self, folder: str, placed: Experiment, gpus: int) -> Any:
        """Tune's results. Raises CheckpointError when Tune itself fails, which it does when it cannot write."""
        try:
            return self._tuner(folder, placed, gpus).fit()
        except RaymxError:
            raise
        except Exception as error:
            raise CheckpointError(f"Tune failed: {type(error).__name__}: {error}; "
                                  + results.space(self._storage_path)) from error

    def _tuner(self, folder: str, placed: Experiment, gpus: int) -> Any:
        from ray import tune

        from raymx.trial import Trial
        from raymx.watch import TuneHooks

        # Of what a restored trial is given anew, Tune takes the objects and leaves plain data as they were saved.
        space = {"experiment": UserDict(placed.to_dict()), "directory": self.experiment.directory,
                 "gpus_per_worker": gpus, "run_id": folder}
        results.record(self._storage_path, folder, self.experiment)
        if self._resume is not None:
            return tune.Tuner.restore(os.path.join(self._storage_path, folder), Trial, resume_unfinished=True,
                                      resume_errored=True, param_space=space)
        metric, mode = results.best_metric(self.experiment)
        return tune.Tuner(
            Trial, param_space=space, tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(
                name=folder, storage_path=self._storage_path, verbose=0, callbacks=[TuneHooks()],
                checkpoint_config=tune.CheckpointConfig(
                    num_to_keep=self.experiment.checkpoint.keep_best, checkpoint_score_attribute=metric,
                    checkpoint_score_order=mode, checkpoint_frequency=1, checkpoint_at_end=True)))

    def _close(self, result: Any, folder: str, began: float, interrupt: Interrupt) -> int:
        """Say how it ended, and write the summary."""
        interrupted = interrupt.requested and not (result.metrics or {}).get("done")
        error = None if interrupted else results.root_cause(result.error)       # else of a failure that was mended
        if error and os.strerror(errno.ENOSPC) in str(error):
            error = CheckpointError(f"{error}; {results.space(self._storage_path)}")
        state = "interrupted" if interrupted else "failed" if error else "finished"
        summary = results.summary(self.experiment, result, state, error, began)
        try:
            results.write(self._storage_path, folder, results.SUMMARY, results.as_json(summary))
        except ExperimentError as unwritten:
            error = error or unwritten
        self._display.end(summary, os.path.join(self._storage_path, folder))
        if interrupted:
            return EXIT_INTERRUPTED
        if error:
            raise error
        return EXIT_OK
