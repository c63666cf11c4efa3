"""Submit a run to a cluster, and find the runs that a cluster has.

run = submit(experiment)            # returns at once
attach(run.id)                      # the same, from another process
"""

from __future__ import annotations

import os
import shlex
import time

from raymx.errors import JobError
from raymx.experiment import loading
from raymx.jobs import by_value, packing
from raymx.jobs.clusters import check_storage, find_dashboard, start_cluster_here
from raymx.jobs.dashboard import Dashboard
from raymx.jobs.experiment import Experiment
from raymx.jobs.messages import log
from raymx.jobs.run import Run
from raymx.results import reports, run_folder
from raymx.sweep import space


def submit(
    experiment: Experiment | str | os.PathLike[str],
    address: str | None = None,
    *,
    storage_path: str | None = None,
    resume: str | None = None,
    retry_failed: bool = False,
    verbose: bool = False,
) -> Run:
    """Start a run or a sweep on a cluster and return at once.

    ``experiment`` is an `Experiment` or an experiment file. ``address`` is http://HOST:8265 or as ray.init has it;
    None or "auto" is the cluster of RAY_ADDRESS, or that of this machine, where one is started when there is none.
    ``storage_path`` is where its cluster keeps the results. ``resume`` is the folder or URI of a run that was
    interrupted, to go on with; ``retry_failed`` then runs failed trials of a sweep again. ``verbose``: the output has
    what Ray, MXNet and every role print. Raises ExperimentError for what is wrong with the experiment, JobError when
    the cluster cannot be used.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.from_yaml(experiment)
    spec = experiment.spec
    check(experiment, resumed=resume is not None)
    dashboard = find_dashboard(address)
    if dashboard is None:
        dashboard = _started_here(spec)
    check_storage(dashboard, storage_path)
    if dashboard.is_here:
        storage_path = run_folder.storage_path(storage_path)
    run_id = f"{spec.name}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.urandom(2).hex()}"
    command = [
        f"exec {dashboard.python} -m raymx.run {packing.EXPERIMENT}",
        "--address auto",
        f"--run-id {run_id}",
        *([f"--storage-path {_quoted(storage_path)}"] if storage_path else []),
        *([f"--resume {_quoted(resume)}"] if resume else []),
        *(["--retry-failed"] if retry_failed else []),
        *(["--verbose"] if verbose else []),
    ]
    with packing.pack(spec, experiment.objects, data_stays=dashboard.is_here) as parcel:
        for text in parcel.left_out:
            log.info("note: %s", text)
        dashboard.submit(" ".join(command), run_id, parcel.path, {"raymx": "1", "name": spec.name})
    return Run(run_id, dashboard)


def attach(run: str, address: str | None = None) -> Run:
    """The run with an id, or the one whose results are in a folder or URI. Raises JobError when there is none."""
    path = run_folder.storage_path(run if "/" in run else f"{run_folder.DEFAULT_STORAGE}/{run}")
    in_folder = reports.is_run(path)
    if not ("/" in run and in_folder) and (dashboard := find_dashboard(address)):
        try:
            dashboard.job(run)
            return Run(run, dashboard)
        except JobError:
            if not in_folder:
                raise
    if in_folder:
        return Run(os.path.basename(path.rstrip("/")), path=path)
    raise JobError(
        f"no cluster runs on this machine, and {path} is no run: give the address of the run's cluster, or "
        "the path of its results"
    )


def runs(address: str | None = None) -> list[Run]:
    """The runs that a cluster knows of, the newest first."""
    dashboard = find_dashboard(address)
    return [] if dashboard is None else [Run(job.submission_id, dashboard) for job in dashboard.jobs()]


def check(experiment: Experiment, *, resumed: bool = False) -> None:
    """Raise ExperimentError for what can be known here; libraries and trackers are looked for on the cluster."""
    spec = experiment.spec
    loading.check_files(spec, known=by_value.MODULE if experiment.objects else "", resumed=resumed)
    space.check(spec, resumed=resumed)


def _started_here(spec: loading.ExperimentConfig) -> Dashboard:
    from raymx.driver.planning import cpus_here

    dashboard, how_to_stop = start_cluster_here(cpus_here(spec))
    log.info(how_to_stop)
    return dashboard


def _quoted(path: str) -> str:
    """``~`` stays for the shell of the cluster."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)
