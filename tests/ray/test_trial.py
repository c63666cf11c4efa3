"""One trial, re-formed warm for each test: what reaches the optimizer, what comes back, how failures end."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from by_hand import TrialByHand
from factories import IMAGES, make_default, make_loop, make_trial
from ray.exceptions import RayTaskError

from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.errors import DataError, KVStoreError, TrainingError
from raymx.experiment.loading import ExperimentConfig
from raymx.results.trace import Span, nested
from raymx.trial.requests import check_same_data

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(180)]


def with_loop(loop: str, workers: int = 2, store: str = "dist_sync", **sections: Any) -> ExperimentConfig:
    """An experiment around a loop of tests/loops.py."""
    return make_loop(f"loops:{loop}", workers, store, **sections)


def default_loop(net: str, store: str = "dist_sync", epochs: int = 1, **model: str) -> ExperimentConfig:
    """The default loop with a net of tests/own_nets.py, and validation."""
    return make_loop(
        "default",
        store=store,
        model={"net": f"own_nets:{net}"} | model,
        data={"validation": IMAGES["train"]},
        training={"epochs": epochs, "global_batch_size": 64},
    )


def values(row: dict[str, Any]) -> list[float]:
    return [row[f"value_{i}"] for i in range(4)]


COMPRESSED = [[0.5, -0.5, 0.0, 0.0], [0.5, -0.5, 0.5, 0.0], [0.5, -0.5, 0.0, 0.0]]


# Tests with the same number of roles follow each other: processes that are not wanted are ended.


def test_two_bit_between_two_devices(trial: TrialByHand) -> None:
    trial.begin(
        with_loop(
            "push_fixed",
            workers=1,
            resources={"workers": 1, "cpu_devices_per_worker": 2},
            kvstore={"type": "device", "compression": {"type": "2bit", "threshold": 0.5}, "update_on_kvstore": False},
        )
    )
    for expected in COMPRESSED:
        np.testing.assert_allclose(values(trial.step()), 2 * np.array(expected), atol=1e-7)


def test_an_error_of_the_optimizer_in_the_store_of_a_worker_ends_the_trial(trial: TrialByHand) -> None:
    trial.begin(
        with_loop(
            "push_fixed",
            workers=1,
            store="device",
            training={"global_batch_size": 2, "optimizer": {"name": "loops:Exploding"}},
        )
    )
    with pytest.raises(TrainingError, match="this optimizer has a bug"):
        trial.run()


@pytest.mark.parametrize("store", ["dist_sync", pytest.param("dist_sync_device", marks=pytest.mark.long)])
def test_two_bit_gives_exact_values(trial: TrialByHand, store: str) -> None:
    """One worker pushes [.6, -.6, .3, -.01] three times at threshold 0.5; what is left is carried over."""
    trial.begin(
        with_loop(
            "push_fixed",
            workers=1,
            store=store,
            kvstore={"type": store, "compression": {"type": "2bit", "threshold": 0.5}, "update_on_kvstore": False},
        )
    )
    for expected in COMPRESSED:
        np.testing.assert_allclose(values(trial.step()), expected, atol=1e-7)


@pytest.mark.parametrize("store", ["dist_sync", "dist_async"])
def test_two_bit_reaches_the_servers_optimizer(trial: TrialByHand, store: str) -> None:
    """Weights start at 0, the rate is 0.1 (async 0.075), B is 1."""
    trial.begin(
        with_loop(
            "push_fixed",
            workers=1,
            store=store,
            kvstore={"type": store, "compression": {"type": "2bit", "threshold": 0.5}},
        )
    )
    rate = 0.1 * (0.75 if store == "dist_async" else 1.0)
    for step in range(3):
        expected = -rate * np.sum(COMPRESSED[: step + 1], axis=0)
        np.testing.assert_allclose(values(trial.step()), expected, atol=1e-6)


def test_two_bit_adds_up_over_workers(trial: TrialByHand) -> None:
    trial.begin(
        with_loop(
            "push_fixed",
            workers=2,
            kvstore={"compression": {"type": "2bit", "threshold": 0.5}, "update_on_kvstore": False},
        )
    )
    for expected in COMPRESSED:
        np.testing.assert_allclose(values(trial.step()), 2 * np.array(expected), atol=1e-7)


@pytest.mark.parametrize(
    ("store", "update_on_kvstore"), [("device", True), ("device", False), ("dist_sync", True), ("dist_sync", False)]
)
def test_rates_and_multipliers_reach_the_optimizer(trial: TrialByHand, store: str, update_on_kvstore: bool) -> None:
    """Warmup over four steps, lr_mult 2 and 0, wd_mult 3, and a rate by hand, on the servers and elsewhere.

    1,000 records at B = 250 are four steps an epoch, so one epoch of warmup is four; every worker pushes -1, and the
    optimizer divides by B.
    """
    workers = 1 if store == "device" else 2
    trial.begin(
        with_loop(
            "rates",
            workers=workers,
            store=store,
            training={
                "global_batch_size": 250,
                "base_lr": 100.0,
                "warmup_epochs": 1.0,
                "epochs": 9,
                "optimizer": {"name": "sgd", "wd": 0.0001},
            },
            kvstore={"type": store, "update_on_kvstore": update_on_kvstore},
        )
    )
    decayed = 1.0
    for rate in (25.0, 50.0, 75.0, 100.0, 100.0, 0.5):
        row = trial.step()
        assert row["learning_rate"] == pytest.approx(rate)
        assert row["moved_plain"] == pytest.approx(rate * workers / 250, rel=1e-4)
        assert row["moved_doubled"] == pytest.approx(2 * rate * workers / 250, rel=1e-4)
        assert row["moved_frozen"] == 0.0
        assert row["moved_decayed"] == pytest.approx(-rate * 3 * 0.0001 * decayed, rel=1e-3)
        decayed += row["moved_decayed"]


def test_a_users_own_loop_trains(trial: TrialByHand) -> None:
    trial.begin(
        with_loop(
            "plain_gluon",
            model={"net": "own_nets:small"},
            data={"validation": IMAGES["train"]},
            training={"epochs": 2, "global_batch_size": 64},
        )
    )
    rows = trial.run()
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[-1]["validation_accuracy"] > 0.5
    assert rows[-1]["validated"] == 1000  # every record once, over both workers
    assert [row["train_samples"] for row in rows] == [1000] * 2
    assert 0 < rows[1]["train_loss"] < rows[0]["train_loss"]
    assert rows[-1]["samples_per_sec"] > 0
    last = rows[-1]  # out of the cache
    assert 0 < last["server_update_fraction"] < 1
    assert len(last["server_updates"]) == 1
    assert last["server_updates"][0] % last["steps"] == 0  # each key once a step
    assert last["server_bytes_imbalance"] == 1.0
    assert (rows[0]["own_batches_fraction"], last["kept_batches_fraction"]) == (1.0, 1.0)
    assert {"read", "decode"} <= {stage for stage, _ in rows[0]["input_stages"]}
    assert 0 < last["node_memory_fraction"] < 1
    assert last["checkpoint_s"] == 0.0
    assert 0 <= last["sync_fraction"] < 1


def test_the_default_loop_with_a_users_net_loss_and_metric(trial: TrialByHand) -> None:
    trial.begin(default_loop("small", loss="own_nets:half_loss", metric="own_nets:confidence"))
    row = trial.step()
    assert 0.1 < row["validation_confidence"] < 1.0
    assert row["train_loss"] > 0


@pytest.mark.parametrize("store", ["dist_sync", pytest.param("dist_async", marks=pytest.mark.long)])
def test_weights_in_a_layout_of_onednns_own_reach_the_servers(trial: TrialByHand, store: str) -> None:
    """The net has run one image before its keys are made; each validation changes the layout again."""
    trial.begin(default_loop("convolution", store, epochs=2))
    rows = trial.run()
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[-1]["validation_accuracy"] > 0.3


def test_a_trace_has_all_roles_on_one_clock(trial: TrialByHand) -> None:
    """Every push has its update on the server and its pull; and read tasks, operators and the loop are there."""
    experiment = make_default({"profile.steps": [3, 5], "data.cache": "none", "training.epochs": 1})
    (row,) = trial.begin(experiment).run()
    (path,) = re.findall(r"a trace of 3 steps is in (.*): open it at ", "\n".join(trial.notes()))
    events = json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]
    process = {one["pid"]: one["args"]["name"].split(" (")[0] for one in events if one["name"] == "process_name"}
    roles = [name for name in process.values() if not name.startswith("read tasks of ")]
    assert roles == ["worker 0", "worker 1", "server 0"]
    number = {name: pid for pid, name in process.items()}
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert named == {(one["pid"], one["tid"]) for one in events if one["ph"] == "X"}
    assert {one["ph"] for one in events} == {"M", "X"}
    complete = [one for one in events if one["ph"] == "X"]
    assert {"forward", "backward", "Convolution", "wait for data", "read", "decode"} <= {
        one["name"] for one in complete
    }
    for thread in {(one["pid"], one["tid"]) for one in complete}:
        mine = [one for one in complete if (one["pid"], one["tid"]) == thread]
        assert nested([Span("", one["ts"], round(one["ts"] + one["dur"], 3)) for one in mine])
    updates = [one for one in complete if process[one["pid"]] == "server 0"]
    sizes = {"0.weight": 500, "0.bias": 20, "2.weight": 25_000, "2.bias": 50}
    sizes |= {"5.weight": 400_000, "5.bias": 500, "6.weight": 5_000, "6.bias": 10}
    assert {one["name"] for one in updates} == sizes.keys()
    for worker in (number["worker 0"], number["worker 1"]):
        for name, size in sizes.items():
            for step in (3, 4, 5):
                mine = [one for one in complete if one["pid"] == worker and one["args"].get("step") == step]
                (push,) = (one for one in mine if one["name"] == f"push {name}")
                (pull,) = (one for one in mine if one["name"] == f"pull {name}")
                assert push["args"]["bytes"] == pull["args"]["bytes"] == 4 * size
                (update,) = (one for one in updates if one["name"] == name and _within(one, push["ts"], pull))
                assert push["ts"] + push["dur"] == pytest.approx(update["ts"], abs=1)
                assert update["ts"] + update["dur"] <= pull["ts"] + 1000
    assert {"Convolution", "FullyConnected", "_backward_Convolution"} <= {name for name, _, _ in row["operators"]}


def _within(update: dict[str, Any], since: float, pull: dict[str, Any]) -> bool:
    return since <= update["ts"] and update["ts"] + update["dur"] <= pull["ts"] + pull["dur"] + 1000


@pytest.mark.parametrize(
    ("net", "reason"),
    [("not_hybrid", "it is a Block and no HybridBlock"), ("breaks_hybrid", "asnumpy"), ("cheats", "differ")],
)
def test_a_net_that_cannot_be_hybridized_trains_with_a_warning(trial: TrialByHand, net: str, reason: str) -> None:
    from raymx.trial.mailbox import Mailbox

    trial.begin(default_loop(net))
    assert trial.step()["validation_accuracy"] > 0.2
    warnings = Mailbox(trial.run_id).read("default")["warnings"]
    assert any("runs without hybridize" in text and reason in text for text in warnings), warnings


@pytest.mark.parametrize(
    ("store", "steps"),
    [
        ("dist_sync", (1, 46)),
        pytest.param("dist_async", (43,), marks=pytest.mark.long),
        pytest.param("dist_sync", (20, 43), marks=pytest.mark.long),
        pytest.param("dist_async", (1, 20, 46), marks=pytest.mark.long),
    ],
)
def test_stopped_anywhere_saves_that_place(
    trial: TrialByHand, tmp_path: Path, store: str, steps: tuple[int, ...]
) -> None:
    """Near an epoch's end too, where one loop may be past its last boundary and wait for a held one."""
    experiment = make_default({"training.epochs": 20, "kvstore.type": store})
    for number, step in enumerate(steps):
        trial.begin(experiment)
        row = trial.stop_in_the_middle(lambda progress, step=step: progress.get("step", 0) >= step)
        saved = trial.save(tmp_path / str(number))
        assert row["epoch"] > 0
        assert row["epoch"] == pytest.approx(saved.epoch + saved.step / 47, abs=1e-3)


def test_a_second_trainer_and_what_is_no_number_are_refused(trial: TrialByHand) -> None:
    trial.begin(with_loop("two_trainers", workers=1, store="device"))
    with pytest.raises(TrainingError, match="a loop has one trainer"):
        trial.step()
    trial.begin(with_loop("reports_text", workers=1, store="device"))
    with pytest.raises(TrainingError, match=r"report\(\) got metrics that are no numbers"):
        trial.step()


def test_numpy_numbers_can_be_reported_and_saved(trial: TrialByHand, tmp_path: Path) -> None:
    trial.begin(with_loop("reports_numpy", workers=1, store="device"))
    assert trial.step()["train_loss"] == 0.5
    assert trial.save(tmp_path).metrics == {"train_loss": 0.5}


@pytest.mark.long
def test_stopped_in_an_epoch_and_resumed_is_bitwise_the_same(trial: TrialByHand, tmp_path: Path) -> None:
    """The default experiment, stopped within its first epoch: the same figures as undisturbed."""
    experiment = make_default(
        {
            "data.train": IMAGES["train"],
            "training.epochs": 2,
            "training.global_batch_size": 32,
        },
    )
    undisturbed = trial.begin(experiment).run()
    stopped = trial.begin(experiment).stop_in_the_middle(lambda progress: progress.get("step", 0) >= 5)
    assert 0 < stopped["epoch"] < 1
    saved = trial.save(tmp_path / "middle")
    assert saved.epoch == 0
    assert 5 <= saved.step < 32
    trial.begin(experiment).restore(tmp_path / "middle")
    resumed = trial.run()
    for before, after in zip(undisturbed, resumed, strict=True):
        for name in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate"):
            assert after[name] == before[name], name


@pytest.mark.parametrize(
    ("update_on_kvstore", "optimizer"),
    [
        (True, {"name": "adam"}),
        (False, {"name": "sgd", "momentum": 0.9}),
        pytest.param(True, {"name": "sgd", "momentum": 0.9}, marks=pytest.mark.long),
        pytest.param(False, {"name": "adam"}, marks=pytest.mark.long),
    ],
)
def test_optimizer_state_survives_a_restore(
    trial: TrialByHand, tmp_path: Path, optimizer: dict[str, Any], update_on_kvstore: bool
) -> None:
    experiment = make_loop(
        "default",
        model={"net": "own_nets:small"},
        data={"validation": IMAGES["train"]},
        training={"epochs": 2, "global_batch_size": 250, "base_lr": 0.01, "optimizer": optimizer},
        kvstore={"servers": 2, "update_on_kvstore": update_on_kvstore},
    )
    trial.begin(experiment).step()
    trial.save(tmp_path)
    expected = trial.step()
    trial.begin(experiment).restore(tmp_path)
    assert trial.step()["train_loss"] == expected["train_loss"]


SAID = {"Worker": "worker [01] died", "Server": "server 0 died", "KVScheduler": "the KVStore scheduler died"}


@pytest.mark.parametrize("killed", [("Worker", "Server"), pytest.param(tuple(SAID), marks=pytest.mark.long)])
def test_killed_roles_are_replaced_and_nothing_else_changes(trial: TrialByHand, killed: tuple[str, ...]) -> None:
    """One after the other, each within an epoch: the same figures as undisturbed, to the bit."""
    experiment = make_default({"training.epochs": len(killed) + 1, "checkpoint.every_steps": 10}, net="mlp")
    undisturbed = trial.begin(experiment).run()
    rows = trial.begin(experiment).run({epoch: partial(trial.kill, role) for epoch, role in enumerate(killed, 1)})
    for note, (epoch, role) in zip(trial.notes(), enumerate(killed, 1), strict=True):
        assert re.match(
            f"{SAID[role]}: process .* was killed or crashed: went on with 2 workers in [0-9.]+ s, "
            f"from epoch {epoch} step [1-4]0",
            note,
        ), note
    assert [row["restarts"] for row in rows] == list(range(len(killed) + 1))
    for before, after in zip(undisturbed, rows, strict=True):
        for name in ("train_samples", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy"):
            assert after[name] == before[name], name


def test_a_standby_takes_the_part_of_a_killed_role_and_another_is_started(trial: TrialByHand) -> None:
    trial.begin(with_loop("slowly", workers=1, resources={"workers": 1, "standby": True}))
    first = step_until_all_stand_by(trial, 6)
    assert threads_that_wait_for_idle_cores(first) == set()
    trial.kill("Server")
    trial.step()
    trial.step()
    assert len(first & set(trial.roles())) == 3  # those that stood by: now they train
    assert len(step_until_all_stand_by(trial, 6) - first) == 3
    trial.begin(with_loop("push_fixed")).step()


def threads_that_wait_for_idle_cores(pids: set[int]) -> set[str]:
    """Imports must not leave such threads behind: they would train so. A memory allocator's own may stay."""
    threads = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    found = [task for task in threads if os.sched_getscheduler(int(task.name)) == os.SCHED_IDLE]
    return {(task / "comm").read_text().strip() for task in found} - {"jemalloc_bg_thd"}


def step_until_all_stand_by(trial: TrialByHand, count: int) -> set[int]:
    deadline = time.monotonic() + 90
    while len(trial.roles()) < count or trial.starting():
        trial.step()
        assert time.monotonic() < deadline
    return set(trial.roles())


def test_an_error_in_one_worker_names_the_users_line(trial: TrialByHand) -> None:
    trial.begin(
        with_loop(
            "fails_at_step_three",
            training={"global_batch_size": 64},
            model={"net": "own_nets:small"},
        )
    )
    with pytest.raises(TrainingError) as failure:
        trial.step()
    assert "worker 1 of 2: ValueError: the third step went wrong" in str(failure.value)
    assert "loops.py" in str(failure.value)
    assert "in fails_at_step_three" in str(failure.value)
    assert "(the same error came twice in a row at the same place: it will not get better)" in str(failure.value)


@pytest.mark.parametrize(
    ("loop", "note"),
    [
        ("fails_once", r"worker 1 of 2: OSError: the file server is away: went on with 2 workers in "),
        pytest.param(
            "hangs_once",
            r"worker 1 .*did not move for 3 s \(failures.stall_timeout_s\); the stacks of all workers are in ",
            marks=pytest.mark.long,
        ),
    ],
)
def test_an_error_or_a_stall_that_does_not_come_again_is_survived(
    trial: TrialByHand, tmp_path: Path, loop: str, note: str
) -> None:
    trial.begin(
        with_loop(
            loop,
            training={"epochs": 1, "global_batch_size": 250, "loop": f"loops:{loop}"},
            model={"options": {"mark": str(tmp_path / "mark")}},
            failures={"max": 1, "stall_timeout_s": 3.0},
        )
    )
    row = trial.step()
    assert row["restarts"] == 1
    assert row["moved"] == pytest.approx(4 * -0.1 * 2 / 250, rel=1e-4)  # four steps of two workers, none twice
    found = re.search(note, trial.notes()[-1].replace("worker 0 and ", ""))
    assert found, trial.notes()
    if loop == "hangs_once":
        stacks = Path(trial.notes()[-1].split("are in ")[1].split(": went on")[0]).read_text()
        assert "=== worker 0" in stacks
        assert "in hangs_once" in stacks.partition("=== worker 1")[2]


def test_masters_of_float16_weights_are_saved_and_restored(trial: TrialByHand, tmp_path: Path) -> None:
    """The weight moves by less than float16 can tell, but the master on the server knows."""
    experiment = with_loop(
        "push_half",
        training={
            "epochs": 1,
            "global_batch_size": 2,
            "base_lr": 0.1,
            "optimizer": {"name": "sgd", "momentum": 0.9, "multi_precision": True},
        },
    )
    trial.begin(experiment).step()
    saved = trial.save(tmp_path / "one")
    (master,) = saved.optimizer.masters.values()
    assert (master != master.astype("float16")).any()
    expected = [values(trial.step()) for _ in range(3)]
    trial.begin(experiment).restore(tmp_path / "one")
    assert [values(trial.step()) for _ in range(3)] == expected


def test_an_error_of_the_optimizer_on_a_server_ends_the_trial(trial: TrialByHand) -> None:
    trial.begin(
        with_loop(
            "push_fixed",
            training={"global_batch_size": 2, "optimizer": {"name": "loops:Exploding"}},
        )
    )
    with pytest.raises(TrainingError, match="this optimizer has a bug"):
        trial.run()


def test_servers_refuse_commands_from_the_network(trial: TrialByHand, tmp_path: Path) -> None:
    from raymx.trial.mailbox import Mailbox

    trial.begin(
        with_loop(
            "sends_a_command",
            model={"options": {"path": str(tmp_path / "executed")}},
        )
    )
    assert trial.step()["moved"] == pytest.approx(-0.1)  # the optimizer is the one that came through Ray
    assert not (tmp_path / "executed").exists()
    assert any("server 0 refused commands [0]" in text for text in Mailbox(trial.run_id).read("default")["warnings"])


def test_a_pickle_among_the_files_of_a_checkpoint_is_not_opened(trial: TrialByHand, tmp_path: Path) -> None:
    """Tune would load a file of that name, and run what is in it."""
    trial.begin(with_loop("push_fixed")).step()
    trial.save(tmp_path / "saved")
    payload = Payload(str(tmp_path / "executed"))
    (tmp_path / "saved" / "_dict_checkpoint.pkl").write_bytes(pickle.dumps(payload))
    trial.begin(with_loop("push_fixed"))
    with pytest.raises(RayTaskError, match="Tune would run code out of it"):
        trial.restore(tmp_path / "saved")
    assert not (tmp_path / "executed").exists()


class Payload:
    """What a stranger would write: unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def write_records(path: Path, bad: tuple[int, ...] = ()) -> str:
    """Twelve records whose label is their number; the second has three labels. Those of ``bad`` hold no image."""
    image = cv2.imencode(".png", np.zeros((28, 28, 1), np.uint8))[1].tobytes()
    with RecordIOWriter(path) as writer:
        for number in range(12):
            label = [float(number), 7.0, 8.0] if number == 1 else float(number)
            writer.write(pack(label, b"junk" if number in bad else image))
    return str(path)


def test_bad_records_are_skipped_counted_and_said(trial: TrialByHand, tmp_path: Path) -> None:
    from raymx.trial.mailbox import Mailbox

    data = {
        "train": write_records(tmp_path / "some.rec", bad=(3, 8)),
        "on_bad_record": "skip",
        "max_bad": 0.2,
        "label_width": "auto",
        "augment": {"rand_mirror": True},
    }
    trial.begin(with_loop("reads", data=data, training={"epochs": 2, "global_batch_size": 4}))
    for row in (trial.step(), trial.step()):
        assert (row["labels"], row["bad_records"], row["width"]) == (sum(range(12)) - 3 - 8, 2, 3)
        assert row["flags"] == 2 * 3  # each worker, each of three steps
    warnings = Mailbox(trial.run_id).read("default")["warnings"]
    assert sum("bad record" in text and "some.rec" in text for text in warnings) >= 1


def test_a_bad_record_ends_the_trial_and_is_named(trial: TrialByHand, tmp_path: Path) -> None:
    data = {"train": write_records(tmp_path / "some.rec", bad=(3,)), "label_width": "auto"}
    trial.begin(with_loop("reads", data=data))
    with pytest.raises(DataError, match=r"some\.rec, record at byte \d+: the image cannot be decoded"):
        trial.step()


def test_a_transform_of_ones_own(trial: TrialByHand, tmp_path: Path) -> None:
    data = {"train": write_records(tmp_path / "some.rec"), "label_width": "auto"}
    trial.begin(with_loop("reads", workers=1, store="device", data=data | {"transform": "loops:shifted"}))
    assert trial.step()["labels"] == sum(range(1, 13))


def test_a_failing_transform_ends_the_trial_with_its_traceback(trial: TrialByHand, tmp_path: Path) -> None:
    data = {"train": write_records(tmp_path / "some.rec"), "label_width": "auto"}
    trial.begin(
        with_loop(
            "reads",
            workers=1,
            store="device",
            data=data | {"transform": "loops:breaks_on_the_sixth"},
            failures={"max": 0},
        )
    )
    with pytest.raises(DataError) as caught:
        trial.step()
    text = str(caught.value)
    assert "some.rec, record at byte" in text
    assert "the transform loops:breaks_on_the_sixth failed: ZeroDivisionError" in text
    assert "in breaks_on_the_sixth" in text


def test_workers_that_find_different_files_are_named() -> None:
    same = [("a.rec", "1"), ("b.rec", "2")]
    check_same_data([("node1", same), ("node2", list(same))])
    with pytest.raises(DataError, match=r"worker 0 on node node1 and worker 1 on node node2 .* \(b\.rec\)"):
        check_same_data([("node1", same), ("node2", [("a.rec", "1"), ("b.rec", "3")])])
    with pytest.raises(DataError, match=r"\(b\.rec\)"):
        check_same_data([("node1", same), ("node2", same[:1])])


def test_tcp_and_servers_of_their_own(ray_cluster: None) -> None:
    """Where Unix sockets do not reach: ports, on the node's address; servers in bundles of their own."""
    by_hand = make_trial(1, 2, 2, 1, 1)
    kvstore = {
        "type": "dist_sync",
        "servers": 2,
        "server_placement": "dedicated",
        "unix_sockets": False,
        "env": {"all": {"PS_VERBOSE": 0}},
    }
    try:
        for _ in range(2):  # cold, then warm
            assert len(values(by_hand.begin(with_loop("push_fixed", kvstore=kvstore)).step())) == 4
    finally:
        by_hand.close()


@pytest.mark.long
def test_a_reference_kept_to_the_store_costs_a_cold_start_only(trial: TrialByHand) -> None:
    trial.begin(with_loop("keeps_store", workers=1)).step()
    trial.begin(with_loop("push_fixed", workers=1))
    assert len(values(trial.step())) == 4


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to tell apart")
def test_roles_are_bound_to_cores_of_their_own_where_there_are_enough(ray_cluster: None) -> None:
    import ray

    from raymx.cluster.roles import Process, Worker

    def settings(cpus_on_node: float) -> list[tuple[str | None, str]]:
        workers = [Worker.options(num_cpus=1).remote(Process(threads=1, cpus_on_node=cpus_on_node)) for _ in range(2)]
        found = ray.get(
            [
                worker.__ray_call__.remote(lambda _: (os.environ.get("OMP_PLACES"), os.environ["OMP_NUM_THREADS"]))
                for worker in workers
            ]
        )
        for worker in workers:
            ray.kill(worker)
        return found

    (first, threads), (second, _) = settings(cpus_on_node=2)
    assert threads == "1"
    assert {first, second} <= {f"{{{core}}}" for core in os.sched_getaffinity(0)}
    assert first != second
    assert settings(cpus_on_node=10_000) == [(None, "1"), (None, "1")]  # not enough for all roles: none is bound


def test_gpus_asked_for_and_none_there(trial: TrialByHand, ray_cluster: None) -> None:
    """Ray has logical GPUs, MXNet's CPU build sees none."""
    import ray

    from raymx.cluster.roles import Process, Worker

    worker = Worker.options(num_cpus=1).remote(Process())
    with pytest.raises(KVStoreError, match=r"resources.gpus_per_worker is 1, but MXNet sees 0 GPUs"):
        ray.get(worker.join.remote({}, "device", 1), timeout=60)
    ray.kill(worker)
