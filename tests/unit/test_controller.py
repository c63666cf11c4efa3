"""The controller of a trial, stepped transition by transition: the cluster and the loops are scripts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raymx import storage
from raymx.cluster.role_manager import Observation
from raymx.cluster.scaling_policy import Status
from raymx.errors import KVStoreError, LoopError, RoleLost, TrainingError
from raymx.experiment.loading import parse_experiment
from raymx.kvstore.state import OptimizerState
from raymx.results import rows
from raymx.training.channel import Event
from raymx.trial import controller as controllers
from raymx.trial.controller import Controller
from raymx.trial.failures import Relocation
from raymx.trial.states import Failed, Finished, Forming, Holding, Paused, Recovering, Resizing, Running

REPORT = {
    "metrics": {"train_loss": 0.5},
    "epoch": 1,
    "bad_records": 0,
    "scaling": {},
    "bytes": (0, 0),
    "usage": {"cpus": 1.0, "rss_peak_mib": 200.0},
    "host_waits": [],
    "held_s": 0.0,
    "sync_s": 0.0,
    "input": {"batches": {}, "spent": {}, "transfer_s": 0.0},
    "store": ("node", 0.0),
    "arrays": [],
    "traced": None,
    "parts": {"steps": 0, "seconds": {}, "backward": {}, "own": {}, "host_bound": 0.0, "alone_s": None},
    "meter": {"steps": 3, "samples": 30, "train_s": 1.0, "first_step_s": 0.1, "first_batch_s": 0.05},
}
SNAPSHOT = {
    "parameters": b"",
    "optimizer": OptimizerState(),
    "epoch": 0,
    "step": 3,
    "state": {},
    "sums": {},
    "records": 30,
}


class Loops:
    """A generation whose loops do what the test says: each poll takes the next of ``script``."""

    def __init__(self, count: int, script: list[Any]) -> None:
        self.workers, self.servers, self.progress = list(range(count)), [], {}
        self.script, self.answers, self.held = script, list[Any](), 0
        self._waiting: dict[int, Event] = {}

    def poll(self, timeout_s: float) -> list[Event] | None:
        came = self.script.pop(0)
        if isinstance(came, Exception):
            raise came
        if came is None:
            return None
        self._waiting = dict(enumerate(came))
        return list(came)

    def waiting(self) -> dict[int, Event]:
        return self._waiting

    def answer(self, answers: dict[int, Any]) -> None:
        if answers:
            self.answers.append(answers)

    def answer_all(self, payload: Any = None) -> None:
        self.answer(dict.fromkeys(self._waiting, payload))

    def hold(self, count: int = 0) -> None:
        self.held += 1

    def look(self) -> list[str]:
        return []

    def pids(self) -> dict[int, str]:
        return {7: "worker 1"}

    def on_servers(self, method: str, *_: Any) -> list[Any]:
        return []

    def command(self, name: str, argument: Any = None) -> list[Any]:
        answers: dict[str, Any] = {
            "statistics": {},
            "snapshot": SNAPSHOT | {"schedule_shift": 0.0},
            "learning_rate": 0.1,
        }
        return [answers[name]] * len(self.workers)


class Roles:
    """A role manager whose cluster is what the test says; what it was asked to do is in ``done``."""

    def __init__(self, scripts: list[list[Any]]) -> None:
        self.group = SimpleNamespace(generation=None, dissolve=lambda: self.done.append("dissolve"))
        self.scripts, self.done = scripts, list[str]()
        self.status = {"own_bundles": "ready"}
        self.experiment: Any = None
        self.due = True

    def observe(self, *, saved: bool = False, recovers_from: str = "") -> Observation:
        workers = len(self.group.generation.workers) if self.group.generation else 0
        status: dict[str, Any] = {"workers": workers, "saved": saved, "recovers_from": recovers_from}
        return Observation(Status(**status, **self.status, since_resize_s=100.0), {})

    def tend_slots(self, observed: Observation, decision: Any) -> None:
        self.done.append(decision.action)

    def form(self, workers: int, saved: Any, hold_from: int | None, check: Callable[[], None]) -> Any:
        check()
        self.group.generation = Loops(workers, self.scripts.pop(0))
        self.done.append(f"form {workers}")
        resources = self.experiment.resources.model_copy(update={"workers": workers})
        return self.experiment.model_copy(update={"resources": resources})

    def end_generation(self) -> None:
        self.group.generation = None
        self.done.append("end")

    def kill(self) -> None:
        self.group.generation = None
        self.done.append("kill")

    def wait_for_slots(self) -> None: ...

    def add_standbys(self, *, of_sweep: bool) -> None: ...

    def node_is_gone(self) -> bool:
        return False

    def note_death(self, error: RoleLost) -> list[str]:
        return ["n2 is left out"] if "n2" in str(error) else []

    def unreachable(self) -> list[str]:
        return []

    def addresses(self) -> list[str]:
        return ["n1"]


class Mailbox:
    """Messages of one trial."""

    def __init__(self) -> None:
        self.posted: dict[str, Any] = {}
        self.stop = self.ended = self.waited = False

    def name_of(self, trial_id: str) -> str:
        return f"run/{trial_id}"

    def read(self, trial_id: str) -> dict[str, Any]:
        return {}

    def post(self, trial_id: str, content: dict[str, Any]) -> None:
        self.posted = content

    def stop_requested(self) -> bool:
        return self.stop

    def end(self, trial_id: str) -> None:
        self.ended = True

    def wait_over(self) -> None:
        self.waited = True


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "POLL_S", 0.0)


def trial(tmp_path: Path, *scripts: list[Any], **resources: Any) -> tuple[Controller, Roles, Mailbox]:
    raw = {
        "name": "scripted",
        "model": {"net": "resnet18_v1", "classes": 10},
        "data": {"train": "train.rec", "image_shape": [1, 28, 28]},
        "training": {"epochs": 2},
        "resources": {"workers": 2, **resources},
        "checkpoint": {"every_steps": 3},
    }
    roles, mailbox = Roles(list(scripts)), Mailbox()
    roles.experiment = parse_experiment(raw, str(tmp_path))
    location = storage.location(str(tmp_path))
    made: Any = Controller
    return made(roles.experiment, roles, mailbox, "t", location, is_of_sweep=False), roles, mailbox


def all_of(kind: str, count: int, payload: Any = None, workers: int = 2) -> list[Event]:
    return [Event(kind, count, payload)] * workers


def report(epoch: int, workers: int = 2) -> list[Event]:
    return all_of("report", 3 * epoch, REPORT | {"epoch": epoch}, workers)


BEAT = {"heartbeat": 1}
HELD = all_of("held", 3, (0, 3, 10))


def test_an_epoch_is_a_row_and_the_last_one_is_done(tmp_path: Path) -> None:
    controller, roles, mailbox = trial(tmp_path, [report(1), report(2)])
    assert controller.state == Forming()
    row = controller.next_row()
    assert row is not None
    assert (row["epoch"], row["done"], row["nodes"], row["restarts"]) == (1, False, "n1", 0)
    assert controller.state == Holding()
    row = controller.next_row()
    assert row is not None
    assert row["done"]
    assert controller.state == Finished()
    assert controller.next_row() is None
    assert not mailbox.waited
    assert [one for one in roles.done if one.startswith("form")] == ["form 2"]


def test_a_killed_process_is_recovered_from_step_by_step(tmp_path: Path) -> None:
    lost = RoleLost("worker 1 died: process 7 on n1 was killed or crashed")
    controller, roles, mailbox = trial(tmp_path, [HELD, lost], [report(1)])
    for state in (Running(), Holding(), Running()):
        controller.advance()
        assert controller.state == state
    with pytest.raises(RoleLost):
        controller.advance()
    controller._recover(lost)
    assert isinstance(controller.state, Recovering)
    assert (controller.state.failure.kind, roles.done[-1]) == ("process", "end")
    controller.advance()
    assert controller.state == Running()
    assert roles.done[-2:] == ["restart", "form 2"]
    assert "was killed or crashed: went on with 2 workers in" in mailbox.posted["notes"][-1]
    assert mailbox.posted["notes"][-1].endswith("from epoch 0 step 3")
    row = controller.next_row()
    assert row is not None
    assert row["restarts"] == 1


def test_a_node_that_is_left_out_is_told(tmp_path: Path) -> None:
    controller, _, mailbox = trial(tmp_path, [HELD, RoleLost("worker 1 died: process 7 on n2")], [report(1)])
    assert controller.next_row() is not None
    assert "n2 is left out" in mailbox.posted["notes"]


def test_an_error_before_the_first_step_is_final_and_nothing_is_left(tmp_path: Path) -> None:
    controller, roles, mailbox = trial(tmp_path, [TrainingError("the net is wrong")])
    with pytest.raises(TrainingError, match="the net is wrong"):
        controller.next_row()
    assert controller.state == Failed()
    assert roles.done[-1] == "kill"
    assert mailbox.ended


def test_a_planned_hold_saves_and_goes_on_to_the_next(tmp_path: Path) -> None:
    controller, roles, _ = trial(tmp_path, [HELD, None])
    for _ in range(3):
        controller.advance()
    assert controller.state == Running()
    assert roles.group.generation.answers == [{0: 6, 1: 6}]
    assert controller.checkpoints.saved is not None
    assert controller.checkpoints.saved.step == 3


def test_loops_that_are_apart_are_brought_together(tmp_path: Path) -> None:
    apart = [Event("held", 3, (0, 3, 10)), Event("held", 5, (0, 5, 10))]
    controller, roles, _ = trial(tmp_path, [apart])
    controller.advance()
    controller.advance()
    assert controller.state == Running()
    assert roles.group.generation.answers == [{0: 5}]


def test_more_room_is_taken_after_a_checkpoint(tmp_path: Path) -> None:
    elastic = {"workers": {"min": 2, "max": 4}}
    controller, roles, mailbox = trial(tmp_path, [HELD], [report(1, workers=3)], **elastic)
    controller.advance()
    roles.status = {"own_bundles": "ready", "spare_slots": 1}
    controller.advance()
    assert controller.state == Holding()
    controller.advance()
    assert isinstance(controller.state, Resizing)
    assert controller.state.decision.workers == 3
    row = controller.next_row()
    assert row is not None
    assert row["num_workers"] == 3
    assert "grew from 2 to 3 workers" in mailbox.posted["notes"][-1]


def test_it_waits_for_room_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, roles, mailbox = trial(tmp_path, [report(1)])
    roles.status = {"own_bundles": "lost"}
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            roles.status = {"own_bundles": "ready"}

    monkeypatch.setattr(controllers.time, "sleep", nap)
    assert controller.next_row() is not None
    assert len(naps) == 3
    assert len([note for note in mailbox.posted["notes"] if "waiting for room" in note]) == 1


def test_a_lost_placement_is_left_for_another(tmp_path: Path) -> None:
    controller, roles, mailbox = trial(tmp_path)
    roles.status = {"own_bundles": "lost", "lost_for_s": 100.0}
    with pytest.raises(Relocation):
        controller.next_row()
    assert roles.done[-1] == "kill"
    assert mailbox.posted["phase"] == "leaving"


def test_a_stop_holds_saves_and_pauses(tmp_path: Path) -> None:
    controller, roles, mailbox = trial(tmp_path, [None, HELD])
    controller.advance()
    mailbox.stop = True
    row = controller.next_row()
    assert row is not None
    assert row["should_checkpoint"]
    assert row["epoch"] == pytest.approx(0.3)
    assert roles.group.generation.held == 1
    assert controller.state == Paused()
    assert controller.next_row() is None
    assert mailbox.waited


def test_a_stop_while_nothing_runs_pauses_at_once(tmp_path: Path) -> None:
    controller, roles, mailbox = trial(tmp_path, [])
    mailbox.stop = True
    assert controller.next_row() is None
    assert controller.state == Paused()
    assert "form 2" not in roles.done


def test_a_failure_while_stopping_pauses(tmp_path: Path) -> None:
    controller, roles, mailbox = trial(tmp_path, [HELD, None, RoleLost("worker 0 died")])
    for _ in range(3):
        controller.advance()
    mailbox.stop = True
    assert controller.next_row() is None
    assert controller.state == Paused()
    assert roles.done[-1] == "end"


def test_loops_that_ask_for_different_things_are_told_so(tmp_path: Path) -> None:
    controller, _, _ = trial(tmp_path, [[Event("total", 0, {}), Event("rate", 0, 0.1)]])
    controller.advance()
    with pytest.raises(TrainingError, match="worker 0 at 'total', worker 1 at 'rate'"):
        controller.advance()


def test_a_loop_of_the_users_own_is_finished_when_it_returns(tmp_path: Path) -> None:
    controller, _, _ = trial(tmp_path, [report(1), all_of("end", 4)])
    assert controller.next_row() is not None
    assert controller.next_row() is None
    assert controller.state == Finished()


def test_a_restore_forms_the_next_generation(tmp_path: Path) -> None:
    controller, roles, _ = trial(tmp_path, [report(1)], [report(1)])
    controller.next_row()
    with pytest.raises(Exception, match="no checkpoint to go on from"):
        controller.restore(str(tmp_path / "nothing"))
    assert "dissolve" in roles.done


def test_a_question_about_no_generation_is_an_error_of_ours(tmp_path: Path) -> None:
    controller, _, _ = trial(tmp_path)
    with pytest.raises(KVStoreError, match="no KVStore generation is formed"):
        assert controller._generation


def test_a_loop_that_ends_without_a_report_has_failed_at_once(tmp_path: Path) -> None:
    controller, _, mailbox = trial(tmp_path, [HELD, all_of("end", 4)])
    with pytest.raises(LoopError, match=r"training\.loop default ended without a report: call ctx\.report") as failed:
        controller.next_row()
    assert controller.state == Failed()
    assert mailbox.ended
    assert "\n" not in str(failed.value)


def test_loops_that_cannot_meet_any_more_have_failed_at_once(tmp_path: Path) -> None:
    """Worker 1 has ended; worker 0 pushes once more, and waits in MXNet for ever."""
    controller, roles, _ = trial(tmp_path, [report(1), None])
    assert controller.next_row() is not None
    controller.advance()
    loops = roles.group.generation
    loops._waiting, loops.progress = {1: Event("end", 4, met=3)}, {0: BEAT | {"met": 4}, 1: BEAT | {"met": 3}}
    with pytest.raises(LoopError, match=r"worker 1's loop has ended after 3 updates .* worker 0's is in number 4"):
        controller.next_row()
    assert controller.state == Failed()


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            [Event("report", 4, REPORT, met=3), Event("end", 4, met=3)],
            "worker 1's loop has ended, and worker 0's has not",
        ),
        (
            [Event("report", 4, REPORT, met=3), Event("report", 4, REPORT, met=2)],
            "worker 1's loop is at 'report' after 2",
        ),
    ],
)
def test_loops_that_made_other_calls_are_told_which(tmp_path: Path, events: list[Event], said: str) -> None:
    controller, _, _ = trial(tmp_path, [report(1), events])
    assert controller.next_row() is not None
    with pytest.raises(LoopError, match=said):
        controller.next_row()


def test_a_loop_that_still_works_after_another_has_ended_is_waited_for(tmp_path: Path) -> None:
    controller, roles, _ = trial(tmp_path, [report(1), None, all_of("end", 4)])
    assert controller.next_row() is not None
    controller.advance()
    loops = roles.group.generation
    loops._waiting, loops.progress = {1: Event("end", 4, met=3)}, {0: BEAT | {"met": 3}, 1: BEAT | {"met": 3}}
    assert controller.next_row() is None
    assert controller.state == Finished()


NAN = REPORT | {"metrics": {"train_loss": math.nan, "validation_accuracy": 0.1}}


def test_a_loss_that_is_nan_ends_the_trial_with_its_row(tmp_path: Path) -> None:
    controller, _, mailbox = trial(tmp_path, [all_of("report", 3, NAN)])
    row = controller.next_row()
    assert row is not None
    assert (row["epoch"], row["done"], math.isnan(row["train_loss"])) == (1, True, True)
    assert controller.state == Failed()
    assert controller._progress._warnings == [rows.divergence(row)]
    assert not mailbox.ended  # Tune is told by the row


def test_a_loss_that_is_nan_is_trained_on_with_where_one_asks_for_it(tmp_path: Path) -> None:
    controller, _, _ = trial(tmp_path, [all_of("report", 3, NAN), report(2)])
    controller._experiment = controller._experiment.model_copy(
        update={"failures": controller._experiment.failures.model_copy(update={"nan": "go_on"})}
    )
    row = controller.next_row()
    assert row is not None
    assert not row["done"]
    assert controller.state == Holding()
    assert len(controller._progress._warnings) == 1


def test_a_loss_that_is_nan_within_an_epoch_is_told_at_once_and_once(tmp_path: Path) -> None:
    controller, roles, _ = trial(tmp_path, [HELD, all_of("report", 3, NAN)])
    controller.advance()
    roles.group.generation.progress = {0: BEAT | {"loss": math.nan, "epoch": 0, "step": 2, "steps": 9}}
    controller.advance()
    while controller.next_row() is None:
        pass
    assert controller._progress._warnings == ["the loss is nan in epoch 1, step 2"]
