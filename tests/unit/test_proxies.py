"""Dashboards and the proxies of the environment."""

from __future__ import annotations

import os

import pytest

from raymx.jobs import proxies
from raymx.jobs.dashboard import unreachable

PROXY = "http://proxy.company.com:3128"


@pytest.fixture(autouse=True)
def behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "")  # so that what is set in a test goes with it
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", PROXY)


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("head", True),
        ("10.1.2.3", True),
        ("192.168.0.7", True),
        ("::1", True),
        ("8.8.8.8", False),
        ("head.cloud.com", False),
        ("", False),
    ],
)
def test_near_hosts(host: str, near: bool) -> None:
    assert proxies.is_near(host) == near


def test_a_near_cluster_is_reached_past_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "intern.company.com")
    url = "http://127.0.0.1:8265"
    assert proxies.proxy_of(url) == f"http_proxy={PROXY}"
    proxies.go_past(url)
    proxies.go_past(url)
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "intern.company.com,127.0.0.1"
    assert proxies.proxy_of(url) == ""


def test_an_error_names_the_proxy_that_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    far = "http://head.cloud.com:8265"
    proxies.go_past(far)
    assert "no_proxy" not in os.environ
    told = str(unreachable(far, OSError("403 Forbidden")))
    assert f"it was asked through http_proxy={PROXY}: add head.cloud.com to no_proxy" in told
    monkeypatch.delenv("http_proxy")
    assert "asks for a token" in str(unreachable(far, OSError("403 Forbidden")))


def test_a_proxys_password_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:secret@proxy:3128")
    assert proxies.proxy_of("http://head.cloud.com") == "http_proxy=http://proxy:3128"
