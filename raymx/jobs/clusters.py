"""Find the dashboard of a cluster, or start a cluster on this machine that outlives this process."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
import time
import warnings

from raymx import _ray
from raymx.cli.address import refusal
from raymx.cli.ray_start import whose, why_not
from raymx.errors import ExperimentError, JobError
from raymx.jobs import proxies
from raymx.jobs.dashboard import ADDRESS_VARIABLES, RETRY_S, START_TIMEOUT_S, Dashboard, unreachable, without
from raymx.jobs.started import Started

CONNECT_TIMEOUT_S = 5.0
DASHBOARD_PORT = 8265  # Ray's default


def find_dashboard(address: str | None) -> Dashboard | None:
    """The cluster at ``address``: http://HOST:8265, HOST:6379, or "auto" (also None), which is that of RAY_ADDRESS or
    the one that runs on this machine; None when "auto" finds none. Raises JobError."""
    _quieten()
    if address in (None, "auto"):
        address = next((os.environ[name] for name in ADDRESS_VARIABLES if os.environ.get(name)), "auto")
    assert address is not None
    if problem := refusal(address, submits=True):
        raise JobError(problem)
    if address.startswith(("http://", "https://")):
        return Dashboard(address)
    try:
        url = _dashboard_of(address)
        return Dashboard(url) if url else None
    except JobError as error:
        if address == "auto" and (told := whose(_ray.head_file())):
            raise JobError(f"{told} ({str(error).partition('; ')[0]})") from None
        raise


def start_cluster_here(cpus: int) -> tuple[Dashboard, str]:
    """Start a cluster on this machine that outlives this process; and how to stop it, in words. Raises JobError."""
    from raymx.driver.planning import SUBMITTED_TO, process_settings

    if told := why_not():
        raise JobError(told)
    _ray.make_token()
    if (told := whose(_ray.head_file())) and not os.access(_ray.head_file(), os.W_OK):  # Ray writes there that it runs
        raise JobError(told)
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    proxies.go_past(f"http://{SUBMITTED_TO}")
    environment = {
        **os.environ,
        **process_settings(cpus),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""),
    }
    command = [
        ray,
        "start",
        "--head",
        "--port=0",
        f"--node-ip-address={SUBMITTED_TO}",
        f"--dashboard-host={SUBMITTED_TO}",
        f"--dashboard-port={_dashboard_port()}",
        f"--dashboard-agent-listen-port={_free_port()}",  # jobs need it, and its default may be another's
        f"--num-cpus={cpus}",
        "--disable-usage-stats",
    ]
    with Started(command, environment) as started:
        started.wait(START_TIMEOUT_S)
        dashboard = _once_up(started)
    return dashboard, f"started Ray on this machine with {cpus} logical CPUs; it stays until  {ray} stop"


def _dashboard_port() -> int:
    """Ray's own, or another one where that is taken: by another program, another user's Ray, a tunnel to a cluster.

    Whoever looks for the cluster asks it for the port.
    """
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", DASHBOARD_PORT)):
        return DASHBOARD_PORT
    return _free_port()


def _free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])


def _once_up(started: Started) -> Dashboard:
    """The cluster of this machine, whose dashboard comes up seconds after the rest, or later on a busy machine."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            if found := find_dashboard("auto"):
                return found
            reason = "it is not there any more"
        except JobError as error:
            reason = str(error)
        if time.monotonic() > deadline:
            raise JobError(
                f"Ray was started on this machine, but its dashboard did not come up within {START_TIMEOUT_S:.0f} s "
                f"({reason}){_dashboard_log()}, so it was ended again; Ray printed: {started.output}"
            )
        time.sleep(RETRY_S)


def _dashboard_log() -> str:
    """Where the dashboard says why, when it says so."""
    file = os.path.join(_ray.temporary_folder(), "session_latest", "logs", "dashboard.log")
    return f": see {file}" if os.path.exists(file) else ""


def _quieten() -> None:
    """Import Ray and keep its own words off the screen, also those of its import in a notebook without ipywidgets."""
    logging.getLogger("ray.widgets").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("ray.job_submission")
    for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _dashboard_of(address: str) -> str | None:
    """The dashboard's URL of a cluster that is named as ray.init takes it; None when "auto" finds none here."""
    found = _ray.head_here() if address == "auto" else address
    if found is None:
        return None
    if address == "auto":
        _ray.use_token()
    host, _, port = found.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        if address == "auto":
            return None  # what ran there was killed
        raise unreachable(address, error) from None
    try:
        with without(ADDRESS_VARIABLES):
            return _ray.dashboard_url(found)
    except (Exception, SystemExit) as error:
        raise unreachable(found, error) from None


def check_storage(dashboard: Dashboard, storage: str | None) -> None:
    """Raise ExperimentError for a storage path that means nothing on the machine of the cluster's head."""
    if storage and not dashboard.is_here and "://" not in storage and not storage.startswith(("/", "~")):
        raise ExperimentError(
            f"--storage-path {storage} is relative, and the cluster at {dashboard.address} is another "
            "machine: give a path of its own from / on, ~/..., or a URI"
        )
