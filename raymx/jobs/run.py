"""A run on a cluster, from outside: look at it, wait for it, stop it.

run.result()                        # waits
run.results()                       # a table of what it reported so far
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from raymx.errors import ExperimentError, JobError, RaymxError, TrainingError
from raymx.jobs import card, trained
from raymx.jobs.dashboard import STOP_WAIT_S, Dashboard
from raymx.jobs.live import LiveCard
from raymx.jobs.source import RunSource
from raymx.results import reports
from raymx.results.view import View

EVERY_S = 1.0  # a run that is waited for is looked at


class Run:
    """A run or a sweep on a cluster. In a notebook it shows itself as a live card.

    Losing this object, its notebook or the connection does not change the run. The words are those of
    concurrent.futures where there are some.
    """

    def __init__(self, run_id: str, dashboard: Dashboard | None = None, path: str = "") -> None:
        """``dashboard`` of its cluster; None for one whose cluster is gone, of which ``path`` is the folder or URI."""
        self.id = run_id
        self._dashboard = dashboard
        self._source = RunSource(run_id, dashboard, path)

    def view(self) -> View:
        """How it stands. Raises JobError when neither its cluster nor its folder can be read."""
        return self._source.view()

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
            time.sleep(EVERY_S)
        return view

    def stop(self) -> None:
        """Save a checkpoint and end the run; returns when nothing of it is left. One that has ended stays as it is."""
        self.cancel()

    def cancel(self) -> bool:
        """As ``stop``; whether the run was stopped by it, False when it had ended before."""
        if self.done() or self._dashboard is None:
            return False
        self._dashboard.stop(self.id)
        if not self._dashboard.wait_ended(self.id, STOP_WAIT_S + 30):
            raise JobError(f"{self.id} has not ended yet; look again with run.state")
        return self.cancelled()

    def logs(self, follow: bool = False) -> None:
        """Print what it has printed; with ``follow`` also what it is going to, to its end."""
        for piece in self.log_pieces(follow):
            sys.stdout.write(piece)
            sys.stdout.flush()

    def log_pieces(self, follow: bool = False) -> Iterator[str]:
        """The same as text. Raises JobError when its cluster, which has it, is gone."""
        if self._dashboard is None:
            raise JobError(
                f"the output of {self.id} was kept by its cluster, which is gone; "
                f"its results are in {self._source.path}"
            )
        yield from self._dashboard.follow(self.id) if follow else [self._dashboard.logs(self.id)]

    def results(self, by: str | None = None) -> Any:
        """A pandas DataFrame, also while it runs: a row an epoch of a run, a row a trial of a sweep, or as ``by`` says
        ("epoch" or "trial").
        """
        view = self.view()
        by = by or ("trial" if view.is_sweep else "epoch")
        if by not in ("epoch", "trial"):
            raise ExperimentError(f"by is {by!r}: it must be epoch or trial")
        frame = reports.frame(self._source.rows(view))
        return frame if by == "epoch" else reports.by_trial(frame, view)

    def best(self) -> trained.Trained:
        """The best checkpoint so far. Raises JobError when there is none, or this machine cannot read it."""
        return trained.best(self._source.folder("its checkpoints"))

    def why(self) -> str:
        """Where the time of its steps goes, and what each change would gain: `python -m raymx.why`.

        Raises a RaymxError where its folder cannot be read from here.
        """
        from raymx import report

        return report.why([self._source.folder("its results")])

    def plot(self) -> Any:
        """The report's figures, also while it runs: shown in a notebook, else the paths of the pictures."""
        from raymx.jobs import plots

        return plots.show(self._source.folder("its results"))

    def __repr__(self) -> str:
        try:
            state = self.state
        except RaymxError as error:
            state = str(error)
        return f"<raymx.Run {self.id}: {state}>"

    def __str__(self) -> str:
        return card.as_text(self.view(), time.time())

    def _ipython_display_(self) -> None:
        LiveCard(self.view).show()
