"""Addresses of a cluster, in the words of each command."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.cli.address import refusal
from raymx.doctor import __main__ as doctor
from raymx.driver.connection import connect
from raymx.errors import JobError, PlacementError
from raymx.jobs.clusters import find_dashboard

CLIENT = "ray://head:10001"
TOLD = "ray:// is Ray Client, which raymx cannot use; give head:6379 or, to submit, http://head:8265"


@pytest.mark.parametrize("address", ["auto", "local", "10.0.0.1:6379", "head:6379"])
@pytest.mark.parametrize("submits", [False, True])
def test_what_ray_takes_passes(address: str, submits: bool) -> None:
    assert refusal(address, submits=submits) == ""


def test_a_dashboard_is_for_those_who_submit() -> None:
    assert refusal("http://head:8265", submits=True) == ""
    assert refusal("http://head:8265/").endswith("give head:6379")


def test_every_command_refuses_ray_client_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PlacementError, match=TOLD.replace("(", r"\(")):
        connect(make_experiment(), CLIENT, verbose=False)
    monkeypatch.setenv("RAY_ADDRESS", CLIENT)
    with pytest.raises(PlacementError, match="ray:// is Ray Client"):
        connect(make_experiment(), None, verbose=False)
    with pytest.raises(JobError, match="ray:// is Ray Client"):
        find_dashboard(None)
    facts: Any = {}
    monkeypatch.setattr(doctor, "_here", lambda: facts)
    monkeypatch.setattr(doctor, "check_node", lambda *_: [])
    assert doctor.main([]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "ray:// is Ray Client, which raymx cannot use" in told
    assert "give head:6379 or, to submit, http://head:8265" in told
