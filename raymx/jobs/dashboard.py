"""A cluster as jobs need it: submit, read, follow, stop.

All through that dashboard (its jobs API, and the log files that it serves), so that a client needs one port.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from raymx import _ray
from raymx.errors import ClusterUnreachable, JobError
from raymx.jobs.proxies import go_past, proxy_of

STOP_WAIT_S = 60  # for a job to save a checkpoint; then Ray kills it
RETRY_S = 2.0
START_TIMEOUT_S = 90.0
UNREACHABLE_S = 120.0  # how long logs are followed over a connection that has gone
ADDRESS_VARIABLES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
_NO_AGENT = "No available agent"
_ENDED = ("STOPPED", "SUCCEEDED", "FAILED")


class Dashboard:
    """A cluster's dashboard at ``address`` (http://HOST:8265)."""

    def __init__(self, address: str) -> None:
        """Raises JobError when no dashboard of Ray's answers there."""
        self.address = address.rstrip("/")
        try:
            self._client = _client(self.address)
            version = self._get("/api/version").json()
        except Exception as error:
            raise unreachable(self.address, error) from None
        self.is_here = Path(_ray.temporary_folder(), str(version.get("session_name") or "?")).is_dir()

    @property
    def python(self) -> str:
        """The command that is Python on the head: this one when the head is this machine, else that of its PATH."""
        return shlex.quote(sys.executable) if self.is_here else "python"

    def submit(self, command: str, run_id: str, package: str, about: Mapping[str, str]) -> None:
        """Submit a job whose working directory is the zip file ``package``; ``about`` is kept with it."""
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._client.submit_job(
                    entrypoint=command,
                    submission_id=run_id,
                    metadata=dict(about),
                    runtime_env={"working_dir": package, "env_vars": variables},
                )
                return
            except (RuntimeError, ValueError, OSError) as error:
                if _NO_AGENT not in str(error) or time.monotonic() > deadline:
                    raise JobError(f"{self.address} did not take the job {run_id}: {_first_line(error)}") from None
            time.sleep(RETRY_S)  # the cluster has just begun

    # All that follow raise ClusterUnreachable when nobody answers.

    def job(self, run_id: str) -> Any:
        """Ray's JobDetails. Raises JobError when there is no such job."""
        with self._answers():
            try:
                return self._client.get_job_info(run_id)
            except RuntimeError as error:
                if "404" not in str(error) and "does not exist" not in str(error):
                    raise
        known = [job.submission_id for job in self.jobs()]
        raise JobError(
            f"{run_id} is not a job of {self.address}; it has " + (", ".join(known[:10]) or "no job of raymx's")
        )

    def jobs(self) -> list[Any]:
        """The jobs that raymx submitted, the newest first."""
        with self._answers():
            jobs = self._client.list_jobs()
        found = [job for job in jobs if job.submission_id and "raymx" in (job.metadata or {})]
        return sorted(found, key=lambda job: job.start_time or 0, reverse=True)

    def file(self, job: Any, name: str) -> str | None:
        """A file of the log folder of a job's driver, None when it is not there (yet)."""
        if not job.driver_node_id:
            return None
        with self._answers():
            answer = self._get(f"/api/v0/logs/file?node_id={job.driver_node_id}&filename={quote(name)}&lines=-1")
        return answer.content.decode() if answer.status_code == 200 else None

    def logs(self, run_id: str) -> str:
        """All that the job has printed."""
        with self._answers():
            return str(self._client.get_job_logs(run_id))

    def follow(self, run_id: str) -> Iterator[str]:
        """Pieces of what a job prints, to its real end: a connection that breaks is made again, and goes on there."""
        seen, heard_at = 0, time.monotonic()
        while True:
            passed = 0
            with contextlib.suppress(Exception):  # aiohttp's many: asked again below
                for piece in _as_iterator(self._client.tail_job_logs(run_id)):
                    passed, before, heard_at = passed + len(piece), passed, time.monotonic()
                    if passed > seen:  # each connection begins with the first line
                        yield piece[max(0, seen - before) :]
                        seen = passed
            with contextlib.suppress(Exception):
                if str(self.job(run_id).status) in _ENDED:
                    rest = self.logs(run_id)[seen:]
                    yield rest
                    return
                heard_at = time.monotonic()
            if time.monotonic() - heard_at > UNREACHABLE_S:
                raise ClusterUnreachable(
                    f"{self.address} has not answered for {UNREACHABLE_S:.0f} s. The job goes on without us, if its "
                    f"cluster does: try  python -m raymx.submit logs {run_id}  later"
                )
            time.sleep(RETRY_S)

    def stop(self, run_id: str) -> bool:
        """Ask a job to stop; whether it was running."""
        with self._answers():
            return bool(self._client.stop_job(run_id))

    def wait_ended(self, run_id: str, timeout_s: float) -> bool:
        """Until a job has ended; False when it has not in time."""
        deadline = time.monotonic() + timeout_s
        while str(self.job(run_id).status) not in _ENDED:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.3)
        return True

    @contextlib.contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            raise ClusterUnreachable(f"{self.address} does not answer: {_first_line(error)}") from None

    def _get(self, path: str) -> Any:
        return _ray.ask_dashboard(self._client, path)


def _client(address: str) -> Any:
    """Ray's client of an address; it would take that of the environment instead."""
    from ray.job_submission import JobSubmissionClient

    go_past(address)
    with without(ADDRESS_VARIABLES):
        return JobSubmissionClient(address)


@contextlib.contextmanager
def without(names: tuple[str, ...]) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def unreachable(address: str, error: BaseException) -> JobError:
    text = _first_line(error)
    if proxy := proxy_of(address):
        host = urlsplit(address).hostname
        return JobError(
            f"no Ray dashboard answers at {address}: {text}; it was asked through {proxy}: add {host} to no_proxy if "
            "it can be reached without"
        )
    token = (
        "; the cluster asks for a token: copy its ~/.ray/auth_token here, and set RAY_AUTH_MODE=token"
        if re.search("401|403|[Tt]oken|[Aa]uth", text)
        else ""
    )
    port = urlsplit(address).port if address.startswith("http") else None
    hint = (
        ""
        if token
        else (
            "; is the cluster up, and is its dashboard's port open to this machine? For a cluster of  ray up  run  "
            f"ray dashboard cluster.yaml  beside this, and give http://127.0.0.1:{port or 8265}"
        )
    )
    return JobError(f"no Ray dashboard answers at {address}: {text}{token}{hint}")


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def _as_iterator(pieces: Any) -> Iterator[str]:
    """An asynchronous iterator, read in a thread of its own: a notebook's has a loop already."""
    found: queue.Queue[Any] = queue.Queue()
    left = threading.Event()

    async def read() -> None:
        async for piece in pieces:
            if left.is_set():
                return
            found.put(piece)

    def run() -> None:
        try:
            asyncio.run(read())
            found.put(None)
        except Exception as error:
            found.put(error)

    threading.Thread(target=run, daemon=True, name="raymx-logs").start()
    try:
        while (piece := found.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece
    finally:
        left.set()
