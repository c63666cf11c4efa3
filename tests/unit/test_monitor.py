"""What the driver does about trials that are lost, and about Ctrl-C, with neither Tune nor Ray."""

from __future__ import annotations

import math
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from raymx.driver import stopper
from raymx.driver.interrupt import Interrupt
from raymx.driver.messages import Messages
from raymx.driver.monitor import Monitor
from raymx.driver.restarts import FOR_EVER, LAST, RESTARTS_IN_ONE_PLACE, Restarts
from raymx.driver.stopper import Stopper


class TestRestarts:
    trial = SimpleNamespace(trial_id="a", max_failures=3)

    def test_a_trial_that_gets_on_is_started_again_for_ever(self) -> None:
        restarts = Restarts()
        restarts.begun(self.trial)
        for epoch in range(3 * RESTARTS_IN_ONE_PLACE):
            restarts.lost("a", [epoch, 0])
        assert self.trial.max_failures == FOR_EVER

    def test_a_trial_that_is_lost_in_one_place_is_given_up(self) -> None:
        restarts = Restarts()
        restarts.begun(self.trial)
        for _ in range(RESTARTS_IN_ONE_PLACE - 1):
            restarts.lost("a", [1, 5])
        assert self.trial.max_failures == FOR_EVER
        restarts.lost("a", [0, 0])  # before it could read its checkpoint
        assert self.trial.max_failures == LAST
        restarts.begun(self.trial)
        assert self.trial.max_failures == LAST

    def test_a_trial_that_is_lost_while_it_starts_is_started_again(self) -> None:
        trial = SimpleNamespace(trial_id="a", max_failures=LAST)  # as Tune makes it
        restarts = Restarts()
        restarts.know([trial])
        assert trial.max_failures == FOR_EVER
        restarts.give_up("a")
        restarts.know([trial])
        assert trial.max_failures == LAST

    def test_a_lack_of_memory_is_given_up_sooner(self) -> None:
        restarts = Restarts()
        restarts.begun(self.trial)
        for epoch in (1, 2, 3):
            restarts.lost("a", [epoch, 0], lack_of_memory=True)
        assert self.trial.max_failures == FOR_EVER
        restarts.lost("a", [3, 0])
        restarts.lost("a", [3, 0], lack_of_memory=True)
        assert self.trial.max_failures == LAST


class Mailbox:
    """The messages of a run, in this process."""

    def __init__(self, progress: dict[str, Any] | None = None) -> None:
        self.progress, self.asked, self.over = progress or {}, 0, 0

    def read(self, trial_id: str) -> dict[str, Any]:
        return self.progress

    def request_stop(self) -> None:
        self.asked += 1

    def say_over(self) -> None:
        self.over += 1


class TestStopper:
    @pytest.fixture(autouse=True)
    def _made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signals: list[int] = []
        monkeypatch.setattr(signal, "raise_signal", self.signals.append)
        self.interrupt, self.mailbox, self.said = Interrupt(), Mailbox(), [""]
        self.stopper = Stopper(self.interrupt, self.mailbox, self.said.append)  # type: ignore[arg-type]

    def test_nothing_happens_without_ctrl_c(self) -> None:
        self.stopper.step({"a": "training"})
        self.stopper.saved("a")
        assert (self.mailbox.asked, self.signals) == (0, [])

    def test_trials_that_train_save_first(self) -> None:
        self.interrupt.requested = True
        for _ in range(3):
            self.stopper.step({"a": "training", "b": "forming", "c": "training"})
        assert (self.mailbox.asked, self.signals) == (1, [])
        assert self.said[-1].startswith("stopping: saving a checkpoint")
        self.stopper.saved("a")
        assert not self.signals
        self.stopper.saved("c")
        self.stopper.between_steps()
        assert (self.mailbox.over, self.signals) == (1, [signal.SIGUSR1])

    def test_a_trial_that_forms_is_let_go_when_tune_takes_no_more_results(self) -> None:
        """Before that, Tune would take its row that adds nothing for the end of its training."""
        self.interrupt.requested = True
        for _ in range(3):
            self.stopper.step({"a": "forming"})
        assert self.said[-1].startswith("stopping: nothing was trained")
        assert (self.mailbox.over, self.signals) == (0, [])
        self.stopper.between_steps()
        assert (self.mailbox.over, self.signals) == (1, [signal.SIGUSR1])

    def test_tune_goes_on_while_nobody_stops_it(self) -> None:
        self.stopper.step({"a": "training"})
        self.stopper.between_steps()
        assert (self.mailbox.over, self.signals) == (0, [])

    def test_a_trial_that_does_not_save_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.interrupt.requested = True
        self.stopper.step({"a": "training"})
        monkeypatch.setattr(stopper, "SAVE_GRACE_S", -1.0)
        self.stopper.step({"a": "training"})
        self.stopper.between_steps()
        assert self.signals == [signal.SIGUSR1]


def test_a_trials_messages_are_shown_once() -> None:
    shown: list[str] = []
    display = SimpleNamespace(warnings=lambda texts: None, note=lambda trial_id, text: shown.append(text))
    mailbox = Mailbox({"notes": ["one"]})
    messages = Messages(mailbox, display)  # type: ignore[arg-type]
    messages.show("a")
    mailbox.progress = {"notes": ["one", "two"], "phase": "training"}
    assert messages.show("a")["phase"] == "training"
    messages.show("a")
    assert shown == ["one", "two"]


@pytest.mark.parametrize(
    ("axes", "nan", "loss", "state"),
    [
        ({}, "stop", math.nan, "failed"),
        ({"a": 1}, "stop", math.nan, "stopped"),
        ({"a": 1}, "go_on", math.nan, "finished"),
        ({}, "stop", 0.5, "finished"),
    ],
)
def test_how_a_trial_is_over_whose_loss_is_nan(axes: dict[str, int], nan: str, loss: float, state: str) -> None:
    monitor: Any = Monitor.__new__(Monitor)
    experiment = SimpleNamespace(failures=SimpleNamespace(nan=nan))
    monitor._stopped, over = set(), list[tuple[Any, ...]]()
    monitor._trials = SimpleNamespace(records={"t": SimpleNamespace(axes=axes, experiment=experiment)})
    monitor._over = lambda *arguments: over.append(arguments)
    monitor.on_complete(SimpleNamespace(trial_id="t", last_result={"epoch": 1, "train_loss": loss, "done": True}))
    assert over[0][:2] == ("t", state)
