"""A card that follows a run, in a real kernel and outside of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from raymx.jobs import live
from raymx.jobs.live import LiveCard
from raymx.results.view import TrialView, View

VIEW = View("tiny_1", "tiny", "running", metric="validation_accuracy", trials=(TrialView("t_00000", epochs=4),))
OVER = replace(VIEW, state="finished")


class Handle:
    """Where a notebook would show what changes."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def update(self, bundle: dict[str, str], raw: bool) -> None:
        assert raw
        self.pages.append(bundle["text/html"])


def followed(look: Callable[[], View]) -> list[str]:
    """All pages that a card sends after it was shown, until it ends by itself."""
    card, handle = LiveCard(look, every_s=0.001), Handle()
    card._handle = handle
    card._shown.set()
    thread = threading.Thread(target=card._follow, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return handle.pages


def told(*views: View | Exception) -> Callable[[], View]:
    """A ``look`` that gives these one after the other, the last for ever."""
    rest: Iterator[Any] = iter(views)

    def look() -> View:
        view = next(rest, views[-1])
        if isinstance(view, Exception):
            raise view
        return view

    return look


def at_epoch(epoch: float) -> View:
    return replace(VIEW, trials=(replace(VIEW.trials[0], epoch=epoch),))


def test_a_card_is_sent_when_it_changes_and_ends_with_the_run() -> None:
    pages = followed(told(at_epoch(1), at_epoch(1), at_epoch(1), at_epoch(2), OVER))
    assert len(pages) == 3
    assert "1/4" in pages[0]
    assert "2/4" in pages[1]
    assert ">finished<" in pages[2]


def test_a_look_that_fails_once_is_not_told() -> None:
    pages = followed(told(at_epoch(1), ConnectionError("<no route>"), OVER))
    assert len(pages) == 2
    assert "route" not in "".join(pages)


def test_a_cluster_that_stays_away_is_told_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TROUBLE_S", 0.0)
    monkeypatch.setattr(live, "GIVE_UP_S", 0.05)
    pages = followed(told(at_epoch(1), ConnectionError("<no route>")))
    assert "trying again: &lt;no route&gt;" in pages[1]
    assert "cannot be reached" in pages[-1]
    assert "raymx.attach(&#39;tiny_1&#39;)" in pages[-1]
    assert "1/4" in pages[-1]  # what was known last stays


def test_a_run_that_was_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "GIVE_UP_S", 0.01)
    assert "cannot be reached" in followed(told(ConnectionError("no route")))[-1]


def test_an_update_that_fails_does_not_end_the_thread_with_an_error() -> None:
    card = LiveCard(told(VIEW, OVER), every_s=0.001)
    card._shown.set()  # and no handle: every update raises
    card._follow()


def test_a_view_that_cannot_be_drawn_is_told() -> None:
    odd: Any = replace(VIEW, trials=(replace(VIEW.trials[0], epochs=None),))  # type: ignore[arg-type]
    pages = followed(told(odd, OVER))
    assert "cannot be drawn" in pages[0]
    assert ">finished<" in pages[1]


def test_outside_of_a_notebook_it_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    LiveCard(told(at_epoch(1))).show()
    assert "epoch                1/4" in capsys.readouterr().out
    LiveCard(told(ConnectionError("no route"))).show()
    assert capsys.readouterr().out == "no route\n"
