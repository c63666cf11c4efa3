"""What the monitor makes of Tune's events, with neither Tune nor Ray running."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle
from ray.exceptions import ActorDiedError, RayActorError

from raymx.driver import monitor as monitors
from raymx.driver.interrupt import Interrupt
from raymx.driver.monitor import Monitor
from raymx.driver.restarts import FOR_EVER, LAST

OUT_OF_MEMORY = (
    "Task was killed due to the node running low on memory.\nMemory on the node (IP: n1, ID: 6) was 27.7GB / 28.8GB"
)


class Shown:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warned: list[str] = []

    def note(self, _trial_id: str, text: str) -> None:
        self.notes.append(text)

    def warnings(self, texts: list[str], word: str = "warning") -> None:
        self.warned += [f"{word}: {text}" for text in texts]

    def say(self, text: str) -> None: ...


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Monitor, Shown]:
    shown, made = Shown(), Monitor
    monkeypatch.setattr(monitors, "remove_slots", lambda _owner: None)
    given: Any = (shown, Interrupt(), SimpleNamespace(records={}), "the run needs 4 CPU")
    monitor = made("run", *given)
    mailbox: Any = SimpleNamespace(name_of=lambda trial_id: f"run/{trial_id}", read=lambda _trial_id: {})
    monitor._mailbox = mailbox
    return monitor, shown


def lost(folder: Path, text: str, error: BaseException | None = None) -> Any:
    """A trial of Tune's that has failed before it began, and maybe before that in another way."""
    (folder / "error.txt").write_text(f"Failure # 1 (occurred at x)\nearlier\nFailure # 2 (occurred at y)\n{text}\n")
    if error:
        (folder / "error.pkl").write_bytes(cloudpickle.dumps(error))
    return SimpleNamespace(
        trial_id="a",
        max_failures=0,
        error_file=str(folder / "error.txt"),
        pickled_error_file=str(folder / "error.pkl"),
        get_error=lambda: None,
    )


def test_a_process_that_is_killed_while_it_starts(watched: tuple[Monitor, Shown], tmp_path: Path) -> None:
    monitor, shown = watched
    trial = lost(tmp_path, "The actor died unexpectedly", ActorDiedError(None))
    monitor._restarts.know([trial])
    monitor.on_recover(trial)
    assert trial.max_failures == FOR_EVER
    assert shown.notes == ["the trial's process was lost: starting it again"]


def test_a_process_that_raises_while_it_starts_is_given_up(watched: tuple[Monitor, Shown], tmp_path: Path) -> None:
    monitor, shown = watched
    error = RayActorError(
        "id", "The actor died because of an error raised in its creation task", actor_init_failed=True
    )
    trial = lost(tmp_path, str(error), error)
    monitor.on_recover(trial)
    assert trial.max_failures == LAST
    assert shown.notes == []


def test_a_lack_of_memory_is_named_and_given_up_soon(watched: tuple[Monitor, Shown], tmp_path: Path) -> None:
    monitor, shown = watched
    trial = lost(tmp_path, OUT_OF_MEMORY, ActorDiedError(None))  # the pickled error is of the failure before
    monitor.on_recover(trial)
    assert trial.max_failures == FOR_EVER
    monitor.on_recover(trial)
    assert trial.max_failures == LAST
    assert shown.notes[0] == (
        "the trial's process was ended for lack of memory: 27.7 of 28.8 GB on n1: starting it again"
    )


def test_a_wait_for_room_is_told_once_and_only_when_there_is_one(
    watched: tuple[Monitor, Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, shown = watched
    waits: list[str | None] = [None, "free now: 0 CPUs; held by mnist_1: 4 CPUs", "free now: 1 CPUs"]
    monkeypatch.setattr(monitors, "own_wait", lambda: waits.pop(0))
    monkeypatch.setattr(monitors, "ROOM_S", 0.0)
    monitor._look_for_room_at = 0.0
    monitor._tell_what_it_waits_for()
    assert shown.warned == []
    for _ in range(3):
        monitor._tell_what_it_waits_for()
    assert shown.warned == [
        "note: waiting for room in the cluster: the run needs 4 CPU; free now: 0 CPUs; held by mnist_1: 4 CPUs"
    ]
