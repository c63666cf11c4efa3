"""The driver's side of a run: connect to Ray, check that the plan fits, let Tune run the trial, show it, sum it up."""

from __future__ import annotations

import glob
import logging
import os
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

from raymx import config, results, rules
from raymx.cluster import placement
from raymx.cluster.placement import NodeResources
from raymx.config import Experiment
from raymx.display import Display
from raymx.errors import KVStoreError, PlacementError
from raymx.watch import Watch

EXIT_OK, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 130


def dry_run(experiment: Experiment, address: str | None) -> int:
    """Print the resolved experiment and the placement. With an address it looks at that cluster; it starts nothing."""
    print(config.to_yaml(experiment))
    nodes = None
    if address:
        connect(experiment, address, verbose=False)
        nodes = cluster_nodes()
    gpus = resolved_gpus(experiment, nodes or [NodeResources("this machine", os.cpu_count() or 1, local_gpus())])
    plan = placement.plan(experiment, gpus)
    print(placement.describe(experiment, plan, nodes))
    for note in rules.notes(experiment):
        print(f"note: {note}")
    return 0


def connect(experiment: Experiment, address: str | None, *, verbose: bool) -> bool:
    """Connect to the cluster at ``address``, or start Ray here with the logical CPUs of the plan; whether it did."""
    quieten(verbose)
    import ray

    address = address or os.environ.get("RAY_ADDRESS")
    common: dict[str, Any] = {"logging_level": logging.INFO if verbose else logging.ERROR, "log_to_driver": verbose,
                              "configure_logging": verbose}
    if address:
        try:
            ray.init(address, runtime_env={"working_dir": experiment.directory}, **common)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise KVStoreError(f"no Ray cluster at --address {address}: {str(error).strip().splitlines()[0]}; a "
                               "cluster made by `ray up` has a token of its own, so run on its head (`ray exec`, `ray "
                               "attach`) or copy its ~/.ray/auth_token") from None
        return False
    cpus = placement.logical_cpus(placement.plan(experiment, resolved_gpus(experiment, [
        NodeResources("this machine", float("inf"), local_gpus())])))
    # Ray ends idle processes beyond one a CPU, and counts actors too: the data streams would start theirs every epoch.
    os.environ.setdefault("RAY_num_workers_soft_limit", str(4 * max(cpus, os.cpu_count() or 1)))
    ray.init("local", num_cpus=max(cpus, os.cpu_count() or 1), include_dashboard=False, **common)
    return True


def quieten(verbose: bool) -> None:
    """Keep what a user cannot use off the screen: Ray's and Tune's own progress, warnings of their libraries."""
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")       # Ctrl-C is the run's to handle: save first
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "2")          # so that a killed driver loses no checkpoint
    os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", "5")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")                # the new one prints folders even when silent
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    if verbose:
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    warnings.simplefilter("ignore")
    for name in ("ray", "ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def cluster_nodes() -> list[NodeResources]:
    import ray

    return [NodeResources(node["NodeManagerAddress"], node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0))
            for node in ray.nodes() if node["Alive"]]


def local_gpus() -> int:
    return len(glob.glob("/dev/nvidia[0-9]*"))


def resolved_gpus(experiment: Experiment, nodes: Sequence[NodeResources]) -> int:
    """GPUs a worker as a number."""
    gpus = experiment.resources.gpus_per_worker
    return placement.auto_gpus(experiment, nodes) if gpus == "auto" else int(gpus)


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
        folder = results.new_folder(self.experiment) if self._resume is None else self._resumed_folder()
        with Watch(folder, self._display) as watch:
            started_here = connect(self.experiment, self._address, verbose=self._verbose)
            import ray
            try:
                gpus, plan = self._placed()
                self._display.head(self.experiment, plan, placement.logical_cpus(plan) if started_here else None)
                watch.start()
                tuner = self._tuner(folder, gpus)
                result = tuner.fit()[0]
                watch.stop()
                return self._close(result, folder, began, watch)
            finally:
                ray.shutdown()

    def _placed(self) -> tuple[int, placement.Plan]:
        nodes = cluster_nodes()
        gpus = resolved_gpus(self.experiment, nodes)
        rules.check(self.experiment, gpus_available=int(sum(node.gpu for node in nodes)))
        plan = placement.plan(self.experiment, gpus)
        placement.check_fit(plan, nodes)
        return gpus, plan

    def _resumed_folder(self) -> str:
        assert self._resume is not None
        path = results.find_run(self._storage_path, self.experiment.name, self._resume)
        results.check_same(self.experiment, path)
        self._storage_path, folder = os.path.split(path)
        return folder

    def _tuner(self, folder: str, gpus: int) -> Any:
        from ray import tune

        from raymx.trial import Trial
        from raymx.watch import TuneHooks

        space = {"experiment": self.experiment.to_dict(), "directory": self.experiment.directory,
                 "gpus_per_worker": gpus, "run_id": folder}
        if self._resume is not None:
            return tune.Tuner.restore(os.path.join(self._storage_path, folder), Trial, resume_unfinished=True,
                                      resume_errored=True, param_space=space)
        results.write(self._storage_path, folder, results.EXPERIMENT, config.to_yaml(self.experiment))
        metric, mode = results.best_metric(self.experiment)
        return tune.Tuner(
            Trial, param_space=space, tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(
                name=folder, storage_path=self._storage_path, verbose=0, callbacks=[TuneHooks()],
                checkpoint_config=tune.CheckpointConfig(
                    num_to_keep=self.experiment.checkpoint.keep_best, checkpoint_score_attribute=metric,
                    checkpoint_score_order=mode, checkpoint_frequency=1, checkpoint_at_end=True)))

    def _close(self, result: Any, folder: str, began: float, watch: Watch) -> int:
        """Say how it ended, and write the summary."""
        error = results.root_cause(result.error)
        interrupted = watch.interrupted and not (result.metrics or {}).get("done")
        state = "interrupted" if interrupted else "failed" if error else "finished"
        summary = results.summary(self.experiment, result, state, began)
        results.write(self._storage_path, folder, results.SUMMARY, results.as_json(summary))
        self._display.end(summary, os.path.join(self._storage_path, folder))
        if interrupted:
            return EXIT_INTERRUPTED
        if error:
            raise error
        return EXIT_OK
