"""A command that leaves processes, without Ray: none stays when something goes wrong."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time

import pytest
from conftest import is_there

from raymx.errors import JobError
from raymx.jobs import clusters, started
from raymx.jobs.started import Started

LEAVES = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "print('left', child.pid, flush=True)"
)


def command(code: str) -> Started:
    return Started([sys.executable, "-c", code], os.environ)


def test_what_it_leaves_stays_when_all_went_well_and_is_ended_when_not() -> None:
    kept: list[int] = []
    with command(LEAVES) as one:
        one.wait(20)
        kept.append(int(one.output.split()[1]))
    assert is_there(kept[0])
    started.end_session(one._process.pid)
    assert not is_there(kept[0])
    with contextlib.suppress(RuntimeError), command(LEAVES) as one:
        one.wait(20)
        kept.append(int(one.output.split()[1]))
        raise RuntimeError("its dashboard did not come up")
    assert not is_there(kept[1])


def test_what_it_printed_is_told() -> None:
    told = "ended with: port 8265 is taken"
    with pytest.raises(JobError, match=told), command("print('port 8265\\nis taken'); raise SystemExit(3)") as one:
        one.wait(20)
    began = time.monotonic()
    with (
        pytest.raises(JobError, match=r"within 0 s: .* printed: nothing"),
        command("import time; time.sleep(60)") as one,
    ):
        one.wait(0.2)
    assert time.monotonic() - began < 10
    with pytest.raises(JobError, match="could not be started on this machine with /nowhere/ray"):
        Started(["/nowhere/ray"], {})


def test_another_port_when_the_dashboards_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(clusters, "DASHBOARD_PORT", taken.getsockname()[1])
        assert clusters._dashboard_port() != taken.getsockname()[1]
    assert clusters._dashboard_port() == clusters.DASHBOARD_PORT
