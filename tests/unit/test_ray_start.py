"""What would keep Ray from starting here, found before it is tried; and a start that is tried once more."""

from __future__ import annotations

import getpass
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from raymx import _ray
from raymx.cli import ray_start
from raymx.driver import connection
from raymx.errors import JobError, PlacementError
from raymx.jobs import clusters


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TMPDIR", "RAY_TMPDIR", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "somebody")


def problems() -> list[str]:
    return [f"{told}: {fix}" for told, fix in ray_start.start_problems()]


def test_nothing_is_wrong() -> None:
    assert problems() == []


@pytest.mark.parametrize("variable", ["RAY_TMPDIR", "TMPDIR"])
def test_a_folder_that_is_too_long_for_sockets(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "/tmp/" + 60 * "x"
    monkeypatch.setenv(variable, long)
    (told,) = problems()
    assert told.startswith(f"{variable} is {long}, of 65 characters")
    assert "set RAY_TMPDIR to a folder of at most" in told
    longest = ray_start.longest_folder()
    monkeypatch.setenv(variable, "/tmp/" + (longest - 5) * "x")
    assert problems() == []
    assert ray_start.temp_folder().startswith("/tmp/x")


def only(*writable: str) -> Callable[[object, int], bool]:
    return lambda path, mode: str(path).startswith(writable)


def test_folders_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/proc/ray here")
    monkeypatch.setattr(os, "access", only())
    temp, home = problems()
    assert (
        temp
        == "/proc/ray here/ray, Ray's folder for its sessions, cannot be written: set RAY_TMPDIR to a folder that can"
    )
    assert home.startswith(f"the home folder {tmp_path} cannot be written, and Ray keeps its token there")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/run/token")
    assert problems() == [temp]


def test_a_token_that_is_there_needs_no_writing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("x")
    monkeypatch.setattr(os, "access", only("/tmp"))
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    assert problems() == []


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert problems() == ["this user (uid 4711) has no name here: set USER to any name"]


def test_a_problem_is_told_before_ray_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", 90 * "/x")
    with pytest.raises(PlacementError, match="Ray cannot be started on this machine: RAY_TMPDIR is /x/x") as caught:
        connection.check_start()
    assert "\n" not in str(caught.value)


class Ray:
    """Starts at its ``at``-th try."""

    def __init__(self, at: int) -> None:
        self.at, self.tries, self.ended = at, 0, 0

    def init(self) -> None:
        self.tries += 1
        if self.tries < self.at:
            raise RuntimeError("The current node timed out during startup.\nThis could happen because ...")

    def shutdown(self) -> None:
        self.ended += 1


def test_a_start_that_times_out_is_tried_once_more() -> None:
    ray = Ray(at=2)
    connection.start(ray.init, ray.shutdown)
    assert (ray.tries, ray.ended) == (2, 1)


def test_a_start_that_fails_twice_is_one_line() -> None:
    ray = Ray(at=9)
    told = r"Ray could not be started on this machine, tried twice: The current node timed out during startup\.; "
    with pytest.raises(PlacementError, match=told) as caught:
        connection.start(ray.init, ray.shutdown)
    assert (ray.tries, ray.ended) == (2, 2)
    assert "\n" not in str(caught.value)


def test_another_users_ray_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ray_current_cluster"
    assert ray_start.whose(file) == ""
    file.write_text("127.0.0.1:6379")
    assert ray_start.whose(file) == ""
    owner = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert ray_start.whose(file).startswith(f"the Ray on this machine is that of {owner}: ask for its token")

    def refuses(address: str) -> None:
        raise JobError("no Ray dashboard answers at http://127.0.0.1:8265: 401; the cluster asks for a token: copy")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(clusters, "_dashboard_of", refuses)
    monkeypatch.setattr(_ray, "head_file", lambda: file)
    with pytest.raises(JobError, match=f"is that of {owner}: .*RAY_TMPDIR.* answers at http://127.0.0.1:8265: 401"):
        clusters.find_dashboard("auto")
    with pytest.raises(JobError, match="the cluster asks for a token: copy"):
        clusters.find_dashboard("127.0.0.1:6379")
