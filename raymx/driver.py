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
from typing import Any

from raymx import cells, config, results, rules, tracking
from raymx.cells import Prepared
from raymx.cluster import placement
from raymx.cluster.placement import NodeResources
from raymx.config import Experiment
from raymx.display import Display
from raymx.errors import CheckpointError, ExperimentError, PlacementError, RaymxError, TrainingError
from raymx.interrupt import Interrupt
from raymx.jobs import packing
from raymx.options import EXIT_INTERRUPTED, EXIT_OK
from raymx.table import SweepDisplay
from raymx.text import count
from raymx.trials import Trials

PROBE_TIMEOUT_S = 5.0
JOIN_TIMEOUT_S = 180.0  # for nodes that the cluster always has: `ray up` returns before they are there
JOIN_LOOK_S = 2.0
_MOST_CHARACTERS = 500  # of an error of Tune's, which may hold a whole config


def dry_run(experiment: Experiment, address: str | None) -> int:
    """Print the resolved experiment, its placement and the cells of its sweep; the exit code says whether it can run.

    With an address (or RAY_ADDRESS) it looks at that cluster. It starts nothing.
    """
    print(config.to_yaml(experiment))
    nodes = None
    if cluster_address(address):
        connect(experiment, address, verbose=False, ship=False)
        nodes, more, _ = _nodes_to_plan_with()
        nodes = [*nodes, *more]
        prepared = cells.prepare(experiment, nodes, [*free_now(), *more])
    else:
        prepared = prepare_here(experiment, cpus_here(experiment))
    if experiment.sweep.space:
        print(cells.describe(prepared))
    plan = placement.with_spare(prepared.plan, prepared.spare_cpus)
    print(placement.describe(prepared.base, plan, nodes, trials=prepared.at_once))
    for note in () if experiment.sweep.space else rules.notes(prepared.base):
        print(f"note: {note}")
    return EXIT_OK


def prepare_here(experiment: Experiment, cpus: int) -> Prepared:
    """As a Ray started on this machine would run it, with the machine's GPUs, and so many logical CPUs free."""
    gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    return cells.prepare(
        experiment, [NodeResources("this machine", math.inf, gpus)], [NodeResources("this machine", cpus, gpus)]
    )


def needed_cpus(experiment: Experiment) -> int:
    """Logical CPUs that a run's trials need; ``data.cpus: auto`` is 1 where nothing is free."""
    prepared = prepare_here(experiment, 0)
    return placement.logical_cpus(prepared.plan) * prepared.at_once


def cpus_here(experiment: Experiment) -> int:
    """Logical CPUs of a Ray that is started on this machine for a run."""
    return max(needed_cpus(experiment), len(os.sched_getaffinity(0)))


def soft_limit(cpus: int) -> dict[str, str]:
    """For its environment: Ray ends idle processes beyond one a CPU, and counts actors too, so that the data streams
    would start theirs every epoch.
    """
    return {"RAY_num_workers_soft_limit": str(4 * cpus)}


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
    common: dict[str, Any] = {
        "logging_level": logging.INFO if verbose else logging.ERROR,
        "log_to_driver": verbose,
        "configure_logging": verbose,
    }
    if address:
        environment = {"working_dir": experiment.directory} if ship else {}
        try:
            probe(address)
            import_ahead()
            ray.init(address, runtime_env=environment, **common)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise PlacementError(
                f"cannot connect to the Ray cluster at {address} (--address or RAY_ADDRESS): "
                f"{str(error).strip().splitlines()[0]}; {_advice(str(error), experiment)}"
            ) from None
        return ""
    needed, cores = needed_cpus(experiment), len(os.sched_getaffinity(0))
    cpus = max(needed, cores)
    for name, value in soft_limit(cpus).items():
        os.environ.setdefault(name, value)
    import_ahead()
    ray.init("local", num_cpus=cpus, include_dashboard=False, **common)
    return (
        f"started Ray on this machine with {cpus} logical CPUs: the plan needs {needed}, the machine has "
        f"{count(cores, 'core')}"
    )


def _advice(error: str, experiment: Experiment) -> str:
    if "working_dir" in error or "Package size" in error:
        return (
            f"the experiment's folder {experiment.directory} travels to the cluster and may hold 512 MiB: move "
            "what the experiment does not need out of it"
        )
    # Ray sends a token to a named address only when told to, since it gives the token to whoever listens there.
    return (
        "is it running (`ray status` on its head)? When it asks for a token: run on its "
        "head with --address auto (`ray exec`, `ray attach`), or copy its ~/.ray/auth_token here and set "
        "RAY_AUTH_MODE=token, if you trust that address with it"
    )


def import_ahead() -> None:
    """Import Tune in a thread: it takes more than a second, while ray.init waits for other processes."""

    def load() -> None:
        with contextlib.suppress(Exception):  # what is wrong is raised where it is needed
            importlib.import_module("raymx.trial")

    threading.Thread(target=load, daemon=True).start()


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
    """Keep what a user cannot use off the screen: Ray's and Tune's own words, warnings of their libraries."""
    warnings.simplefilter("ignore")
    for name in ("ray", "ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    from ray._private import worker

    # What raylets tell every driver, whatever log_to_driver says: of one that ends, its stack trace.
    worker.print_to_stdstream = lambda *_, **__: None


def _nodes_to_plan_with() -> tuple[list[NodeResources], list[NodeResources], int]:
    """The cluster's nodes, those that its autoscaler could add, and how many are just joining."""
    import ray

    from raymx.cluster import autoscaler
    from raymx.cluster.nodes import cluster_nodes

    nodes = cluster_nodes()
    scaling = autoscaler.config_here(ray.get_runtime_context().gcs_address)
    return nodes, autoscaler.could_add(scaling, nodes), autoscaler.joining(scaling, len(nodes))


def free_now() -> list[NodeResources]:
    """What nobody holds at this moment, by node."""
    from ray._private.state import available_resources_per_node

    return [
        NodeResources(node, resources.get("CPU", 0), resources.get("GPU", 0))
        for node, resources in available_resources_per_node().items()
    ]


class Run:
    """One command's run: a sweep, or one trial, in a folder of its own under the storage path."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        address: str | None = None,
        storage_path: str | None = None,
        resume: str | None = None,
        retry_failed: bool = False,
        run_id: str | None = None,
        verbose: bool = False,
    ) -> None:
        """``resume`` is a run's folder, "" for the newest run of this name, None for a new run.

        ``retry_failed``: trials of a sweep that failed are run again when it is resumed. ``run_id`` is given to a run
        that was submitted: it names its folder and its files for those who watch it.
        """
        self.experiment = experiment
        self._address, self._resume, self._verbose = address, resume, verbose
        self._retry = retry_failed or not experiment.sweep.space
        self._run_id = run_id
        self._gpus = 0  # of the whole cluster
        self._grows = False  # whether its autoscaler must add nodes for this run
        self._storage_path = results.storage_path(storage_path)
        self._display: Display = (SweepDisplay if experiment.sweep.space else Display)(sys.stdout)

    def execute(self) -> int:
        """Train to the end, or until Ctrl-C; the exit code. Raises RaymxError with what went wrong."""
        began = time.time()
        folder = (
            self._resumed_folder()
            if self._resume is not None
            else self._run_id or results.new_folder(self._storage_path, self.experiment)
        )
        with Interrupt() as interrupt:
            started = connect(self.experiment, self._address, verbose=self._verbose, ship=not self._run_id)
            import ray

            try:
                if self._run_id:
                    self._write_for_watchers(self._run_id, folder)
                prepared = self._prepared()
                self._display.head(prepared, started)
                if self._grows:
                    self._display.warnings(
                        [
                            "the cluster's nodes cannot hold it, so its autoscaler starts more: "
                            + placement.needs(prepared.plan)
                        ],
                        "note",
                    )
                trials = Trials(self._storage_path, folder, prepared)
                from raymx.watch import Watch

                try:
                    with Watch(folder, self._display, interrupt, trials, placement.needs(prepared.plan)):
                        grid = self._fit(folder, prepared, trials)
                finally:
                    trials.interrupted()
                if not len(grid):  # Ctrl-C before Tune had a trial
                    return EXIT_INTERRUPTED
                if self.experiment.sweep.space:
                    return self._close_sweep(grid, folder, began, interrupt.requested, prepared.trials)
                return self._close(grid[0], folder, began, interrupt)
            finally:
                self._display.close()
                ray.shutdown()

    def _write_for_watchers(self, run_id: str, folder: str) -> None:
        """From now on what is displayed is also written where clients of the cluster can read it."""
        from ray._private.worker import global_worker

        from raymx.jobs.journal import Journal

        self._display.resume_with = "python -m raymx.submit EXPERIMENT --resume"
        self._display = Journal(
            self._display, run_id, global_worker.node.get_logs_dir_path(), os.path.join(self._storage_path, folder)
        )

    def _prepared(self) -> Prepared:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while True:
            nodes, more, joining = _nodes_to_plan_with()
            try:
                prepared = cells.prepare(self.experiment, [*nodes, *more], [*free_now(), *more])
                break
            except (PlacementError, ExperimentError):
                if not joining or time.monotonic() > deadline:
                    raise
            self._display.warnings([f"waiting for {count(joining, 'node')} of the cluster to join it"], "note")
            time.sleep(JOIN_LOOK_S)
        self._gpus = int(sum(node.gpu for node in (*nodes, *more)))
        self._grows = not placement.fits(prepared.plan, nodes)
        if len(nodes) > 1 and "://" not in self._storage_path:
            self._display.warnings(
                [
                    f"the cluster has {len(nodes)} nodes: --storage-path {self._storage_path} must be "
                    "a folder that all of them share, or a URI"
                ],
                "note",
            )
        return prepared

    def _resumed_folder(self) -> str:
        path = (
            results.storage_path(self._resume)
            if self._resume
            else results.newest_run(self._storage_path, self.experiment.name)
        )
        results.check_same(self.experiment, path)
        self._storage_path, folder = os.path.split(path)
        return folder

    def _fit(self, folder: str, prepared: Prepared, trials: Trials) -> Any:
        """Tune's results. Raises CheckpointError when Tune itself fails, which it does when it cannot write."""
        from raymx.cluster.waiting import announce

        try:
            results.record(self._storage_path, folder, self.experiment)
            if self._run_id:
                packing.keep_source(self.experiment.directory, os.path.join(self._storage_path, folder))
            trials.write_sweep()
            announce(self.experiment.sweep.priority)
            return self._tuner(folder, prepared).fit()
        except RaymxError:
            raise
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()[-1:]), "")[:_MOST_CHARACTERS]
            raise CheckpointError(
                f"Tune failed: {type(error).__name__}: {reason}; " + results.space(self._storage_path)
            ) from error

    def _tuner(self, folder: str, prepared: Prepared) -> Any:
        from ray import tune

        from raymx import sweep
        from raymx.trial import Trial
        from raymx.watch import TuneHooks

        space = sweep.param_space(prepared, folder, gpus_available=self._gpus)
        if self._resume is not None:
            return tune.Tuner.restore(
                os.path.join(self._storage_path, folder),
                Trial,
                resume_unfinished=True,
                resume_errored=self._retry,
                param_space=space,
            )
        metric, mode = results.best_metric(self.experiment)
        return tune.Tuner(
            Trial,
            param_space=space,
            tune_config=sweep.tune_config(prepared, metric, mode),
            run_config=tune.RunConfig(
                name=folder,
                storage_path=self._storage_path,
                verbose=0,
                callbacks=[TuneHooks(), *tracking.callbacks(self.experiment, folder)],
                checkpoint_config=sweep.checkpoint_config(self.experiment, metric, mode),
            ),
        )

    def _close(self, result: Any, folder: str, began: float, interrupt: Interrupt) -> int:
        """Say how a single trial ended, and write the summary."""
        interrupted = interrupt.requested and not (result.metrics or {}).get("done")
        error = None if interrupted else results.root_cause(result.error)  # else of a failure that was mended
        if error and os.strerror(errno.ENOSPC) in str(error):
            error = CheckpointError(f"{error}; {results.space(self._storage_path)}")
        state = "interrupted" if interrupted else "failed" if error else "finished"
        summary = results.summary(self.experiment, result, state, error, began)
        error = self._summarize(summary, folder) or error
        self._display.end(summary, os.path.join(self._storage_path, folder))
        return self._code(interrupted, error)

    def _close_sweep(self, grid: Any, folder: str, began: float, interrupted: bool, planned: int) -> int:
        """Make the report, say what it found, and write the summary."""
        from raymx import report

        path = os.path.join(self._storage_path, folder)
        failed = [result for result in grid if result.error is not None]
        unfinished = interrupted and (
            len(grid) < planned or any(not (one.metrics or {}).get("done") for one in grid if not one.error)
        )
        error: RaymxError | None = (
            None
            if unfinished or not failed
            else TrainingError(
                f"{len(failed)} of {len(grid)} trials failed, the first one with: "
                f"{results.root_cause(failed[0].error)}\n"
                f"run them again with  {self._display.resume_with} {path} --retry-failed"
            )
        )
        state = "interrupted" if unfinished else "failed" if error else "finished"
        summary = results.sweep_summary(self.experiment, grid, state, error, began)
        error = self._summarize(summary, folder) or error
        try:
            summary |= report.summary([path])
        except Exception as unmade:  # hours of training are not to end in a traceback
            error = error or RaymxError(f"the report could not be made: {unmade}; try  python -m raymx.report {path}")
        self._display.end(summary, path)
        return self._code(unfinished, error)

    def _summarize(self, summary: dict[str, Any], folder: str) -> RaymxError | None:
        """Write the summary; why it could not be written."""
        try:
            results.write(self._storage_path, folder, results.SUMMARY, results.as_json(summary))
        except ExperimentError as error:
            return error
        return None

    @staticmethod
    def _code(interrupted: bool, error: RaymxError | None) -> int:
        if interrupted:
            return EXIT_INTERRUPTED
        if error:
            raise error
        return EXIT_OK
