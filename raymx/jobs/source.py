"""Where what is known of a run is read: from its cluster, or from its folder once that is gone."""

from __future__ import annotations

import contextlib
from typing import Any

from raymx.driver.journal import rows_file
from raymx.errors import ClusterUnreachable, JobError
from raymx.jobs import status
from raymx.jobs.dashboard import Dashboard
from raymx.results import reports
from raymx.results.view import View


class RunSource:
    """Of one run. ``path`` is its folder or URI, as far as it is known without asking its cluster."""

    def __init__(self, run_id: str, dashboard: Dashboard | None, path: str) -> None:
        self.path = path
        self._id, self._dashboard = run_id, dashboard
        self._last: View | None = None

    def view(self) -> View:
        """How the run stands. Raises JobError when neither its cluster nor its folder can be read."""
        if self._last is not None and self._last.is_over:
            return self._last
        try:
            self._last = status.at_job(self._dashboard, self._id) if self._dashboard else status.at_folder(self.path)
        except ClusterUnreachable as error:
            path = self._last.path if self._last else self.path
            if not path or not reports.is_run(path):
                raise ClusterUnreachable(
                    f"{error}. The run may go on: look again with  raymx.attach({self._id!r})"
                ) from None
            self._last = status.at_folder(path)
        return self._last

    def rows(self, view: View) -> list[dict[str, Any]]:
        """Its reports so far."""
        if self._dashboard:
            with contextlib.suppress(ClusterUnreachable):
                text = self._dashboard.file(self._dashboard.job(self._id), rows_file(self._id))
                return list(reports.of_text(text or ""))
        return reports.of_folder(view.path)

    def folder(self, what: str) -> str:
        """The run's folder, when it can be read from here. Raises JobError that says that ``what`` cannot be."""
        view = self.view()
        if view.path and reports.is_run(view.path):
            return view.path
        if not view.is_over and not any(trial.epoch >= 1 for trial in view.trials):
            raise JobError(
                f"{what} are not there yet: {self._id} is {view.state}, and writes the first after an epoch; ask again "
                "then, or after run.result(), which waits for its end"
            )
        where = f"lie in {view.path} on the cluster" if view.path else "are not there yet"
        raise JobError(
            f"{what} {where}, and cannot be read from here: submit with a storage_path that both can read, "
            "such as a shared folder or s3://bucket/runs"
        )
