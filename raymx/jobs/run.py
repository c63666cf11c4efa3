"""Runs on a cluster, from outside: submit one, find one again, look at it, wait for it, stop it.

run = submit(experiment)            # returns at once
run.result()                        # waits
attach(run.id)                      # from another process
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from raymx.driver.journal import rows_file
from raymx.errors import ClusterUnreachable, ExperimentError, JobError, RaymxError, TrainingError
from raymx.experiment import loading
from raymx.jobs import by_value, card, dashboard, packing, status, trained
from raymx.jobs.dashboard import Dashboard
from raymx.jobs.experiment import Experiment
from raymx.jobs.live import LiveCard
from raymx.jobs.messages import log
from raymx.results import reports, run_folder
from raymx.results.view import View
from raymx.sweep import space

LOOK_S = 1.0


class Run:
    """A run or a sweep on a cluster. In a notebook it shows itself as a live card.

    Losing this object, its notebook or the connection does not change the run. The words are those of
    concurrent.futures where there are some.
    """

    def __init__(self, run_id: str, where: Dashboard | None = None, path: str = "") -> None:
        """``where`` it runs; None for one whose cluster is gone, of which ``path`` is the folder or URI."""
        self.id = run_id
        self._head, self._path = where, path
        self._last: View | None = None

    def view(self) -> View:
        """How it stands. Raises JobError when neither its cluster nor its folder can be read."""
        if self._last is not None and self._last.is_over:
            return self._last
        try:
            self._last = status.at_job(self._head, self.id) if self._head else status.at_folder(self._path)
        except ClusterUnreachable as error:
            path = self._last.path if self._last else self._path
            if not path or not reports.is_run(path):
                raise ClusterUnreachable(
                    f"{error}. The run may go on: look again with  raymx.attach({self.id!r})"
                ) from None
            self._last = status.at_folder(path)
        return self._last

    @property
    def state(self) -> str:
        """pending, starting, running; or finished, interrupted, failed, lost."""
        return self.view().state

    @property
    def path(self) -> str:
        """The run's folder or URI, as its cluster sees it; "" before it has begun."""
        return self.view().path

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.view().is_over

    def running(self) -> bool:
        return self.state == "running"

    def cancelled(self) -> bool:
        """Whether it was stopped before its end."""
        return self.state == "interrupted"

    def result(self, timeout_s: float | None = None) -> Mapping[str, Any]:
        """Wait for its end; its summary: best, parameters, wall_s and so on, as in summary.json.

        Raises TrainingError when it failed, JobError when it was stopped or lost, TimeoutError after ``timeout_s``.
        """
        view = self.wait(timeout_s)
        if view.state == "failed":
            raise TrainingError(view.error or f"{self.id} failed; its output: run.logs()")
        if view.state != "finished":
            raise JobError(f"{self.id} is {view.state}: {view.error or 'it was stopped before its end'}")
        return view.summary

    def wait(self, timeout_s: float | None = None) -> View:
        """Wait for its end, whatever that is. Raises TimeoutError after ``timeout_s``."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (view := self.view()).is_over:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.id} has not ended within {timeout_s:g} s; it goes on")
            time.sleep(LOOK_S)
        return view

    def stop(self) -> None:
        """Save a checkpoint and end the run; returns when nothing of it is left. One that has ended stays as it is."""
        self.cancel()

    def cancel(self) -> bool:
        """As ``stop``; whether the run was stopped by it, False when it had ended before."""
        if self.done() or self._head is None:
            return False
        self._head.stop(self.id)
        if not self._head.wait_ended(self.id, dashboard.STOP_WAIT_S + 30):
            raise JobError(f"{self.id} has not ended yet; look again with run.state")
        return self.cancelled()

    def logs(self, follow: bool = False) -> None:
        """Print what it has printed; with ``follow`` also what it is going to, to its end."""
        for piece in self.log_pieces(follow):
            sys.stdout.write(piece)
            sys.stdout.flush()

    def log_pieces(self, follow: bool = False) -> Iterator[str]:
        """The same as text. Raises JobError when its cluster, which has it, is gone."""
        if self._head is None:
            raise JobError(
                f"the output of {self.id} was kept by its cluster, which is gone; its results are in {self._path}"
            )
        yield from self._head.follow(self.id) if follow else [self._head.logs(self.id)]

    def results(self, by: str | None = None) -> Any:
        """A pandas DataFrame, also while it runs: a row an epoch of a run, a row a trial of a sweep, or as ``by`` says
        ("epoch" or "trial").
        """
        view = self.view()
        by = by or ("trial" if view.is_sweep else "epoch")
        if by not in ("epoch", "trial"):
            raise ExperimentError(f"by is {by!r}: it must be epoch or trial")
        frame = reports.frame(self._rows(view))
        return frame if by == "epoch" else reports.by_trial(frame, view)

    def best(self) -> trained.Trained:
        """The best checkpoint so far. Raises JobError when there is none, or this machine cannot read it."""
        return trained.best(self._folder("its checkpoints"))

    def plot(self) -> Any:
        """The report's figures, also while it runs: shown in a notebook, else the paths of the pictures."""
        from raymx.jobs import plots

        return plots.show(self._folder("its results"))

    def _rows(self, view: View) -> list[dict[str, Any]]:
        if self._head:
            with contextlib.suppress(ClusterUnreachable):
                return list(reports.of_text(self._head.file(self._head.job(self.id), rows_file(self.id)) or ""))
        return reports.of_folder(view.path)

    def _folder(self, what: str) -> str:
        """The run's folder, when it can be read from here."""
        view = self.view()
        if view.path and reports.is_run(view.path):
            return view.path
        where = f"lie in {view.path} on the cluster" if view.path else "are not there yet"
        raise JobError(
            f"{what} {where}, and cannot be read from here: submit with a storage_path that both can read, "
            "such as a shared folder or s3://bucket/runs"
        )

    def __repr__(self) -> str:
        return f"<raymx.Run {self.id}: {self._state_in_words()}>"

    def _state_in_words(self) -> str:
        try:
            return self.state
        except RaymxError as error:
            return str(error)

    def __str__(self) -> str:
        return card.as_text(self.view(), time.time())

    def _ipython_display_(self) -> None:
        LiveCard(self.view).show()


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
    check(experiment)
    where = dashboard.find(address)
    if where is None:
        where = _started_here(spec)
    dashboard.check_storage(where, storage_path)
    if where.is_here:
        storage_path = run_folder.storage_path(storage_path)
    run_id = f"{spec.name}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.urandom(2).hex()}"
    command = [
        f"exec {where.python} -m raymx.run {packing.EXPERIMENT}",
        "--address auto",
        f"--run-id {run_id}",
        *([f"--storage-path {_quoted(storage_path)}"] if storage_path else []),
        *([f"--resume {_quoted(resume)}"] if resume else []),
        *(["--retry-failed"] if retry_failed else []),
        *(["--verbose"] if verbose else []),
    ]
    with packing.pack(spec, experiment.objects, data_stays=where.is_here) as parcel:
        for text in parcel.left_out:
            log.info("note: %s", text)
        where.submit(" ".join(command), run_id, parcel.path, {"raymx": "1", "name": spec.name})
    return Run(run_id, where)


def attach(run: str, address: str | None = None) -> Run:
    """The run with an id, or the one whose results are in a folder or URI. Raises JobError when there is none."""
    path = run_folder.storage_path(run if "/" in run else f"{run_folder.DEFAULT_STORAGE}/{run}")
    in_folder = reports.is_run(path)
    if not ("/" in run and in_folder) and (where := dashboard.find(address)):
        try:
            where.job(run)
            return Run(run, where)
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
    where = dashboard.find(address)
    return [] if where is None else [Run(job.submission_id, where) for job in where.jobs()]


def check(experiment: Experiment) -> None:
    """Raise ExperimentError for what can be known here; libraries and trackers are looked for on the cluster."""
    spec = experiment.spec
    loading.check_files(spec, known=by_value.MODULE if experiment.objects else "")
    space.check(spec)


def _started_here(spec: loading.Experiment) -> Dashboard:
    from raymx.driver.planning import cpus_here

    where, how_to_stop = dashboard.start_here(cpus_here(spec))
    log.info(how_to_stop)
    return where


def _quoted(path: str) -> str:
    """``~`` stays for the shell of the cluster."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)
