"""Scripts under `raymx.launch`, without Ray: commands, environments, outcomes, log lines, rows, sweeps, flags."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from raymx.cluster.placement import NodeResources
from raymx.errors import ExperimentError, PlacementError
from raymx.kvstore.env import Topology
from raymx.launch import bundles, commands, environment, log_lines, options, outcome, points, resume, table
from raymx.launch.bundles import Seat
from raymx.launch.epochs import SILENT_S, Epochs
from raymx.launch.log_lines import Reading
from raymx.launch.outcome import Ended
from raymx.launch.script import Script

TRAIN = ("python", "train.py", "--lr", "0.1")


# ---- commands ----


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("train.py --lr 0.1", ("python", "train.py", "--lr", "0.1")),
        ("python -u train.py", ("python", "-u", "train.py")),
        (["./run.sh", "a b"], ("./run.sh", "a b")),
        ("", ()),
    ],
)
def test_a_script_alone_is_run_by_python(given: Any, words: tuple[str, ...]) -> None:
    assert commands.as_words(given) == words


@pytest.mark.parametrize(
    ("command", "at"),
    [
        (TRAIN, 1),
        (("python", "-u", "a/train.py"), 2),
        (("bash", "run.sh"), 1),
        (("python", "-m", "train.py"), None),
        (("python", "-c", "x.py"), None),
        (("train",), None),
    ],
)
def test_the_script_is_found_in_its_command(command: tuple[str, ...], at: int | None) -> None:
    assert commands.script_at(command) == at


@pytest.mark.parametrize(
    ("script", "folder", "relative"),
    [
        ("train.py", "/home/me", "train.py"),
        ("code/train.py", "/home/me", "code/train.py"),
        ("/home/me/code/train.py", "/home/me", "code/train.py"),
        ("/elsewhere/train.py", "/elsewhere", "train.py"),
        ("../train.py", "/home", "train.py"),
    ],
)
def test_a_script_elsewhere_runs_in_its_own_folder(script: str, folder: str, relative: str) -> None:
    command = ("python", script, "--lr", "0.1")
    assert commands.folder_of(command, "/home/me") == folder
    assert commands.relative(command, "/home/me", folder) == ("python", relative, "--lr", "0.1")


def test_a_shell_script_is_not_looked_for_in_path() -> None:
    assert commands.relative(("./run.sh",), "/home/me", "/home/me") == ("./run.sh",)


@pytest.mark.parametrize(
    ("command", "name", "value", "changed"),
    [
        ("python t.py --lr 0.1 --x", "lr", "1", "python t.py --lr 1 --x"),
        ("python t.py --lr=0.1", "lr", "1", "python t.py --lr=1"),
        ("python t.py --lr -0.1", "lr", "1", "python t.py --lr 1"),
        ("python t.py --x", "lr", "1", "python t.py --x --lr 1"),
        ("python t.py --kv_store a", "kv-store", "b", "python t.py --kv_store b"),
        ("python t.py -b 5", "b", "6", "python t.py -b 6"),
        ("python -u t.py", "u", "1", "python -u t.py --u 1"),
    ],
)
def test_a_flag_is_replaced_or_added(command: str, name: str, value: str, changed: str) -> None:
    assert " ".join(commands.with_flag(command.split(), name, value)) == changed
    assert commands.flag_value(changed.split(), name) == value


@pytest.mark.parametrize("command", ["python t.py --quiet", "python t.py --quiet --lr 1"])
def test_a_flag_without_a_value_is_not_swept(command: str) -> None:
    with pytest.raises(ExperimentError, match="--quiet with no value behind it"):
        commands.with_flag(command.split(), "quiet", "1")


def test_servers_import_mxnet_alone() -> None:
    assert commands.server_command(TRAIN, guard=False, run_script=False) == ("python", "-c", "import mxnet")
    below = commands.server_command(("python3.8", "a/train.py"), guard=False, run_script=False)
    assert below == ("python3.8", "-c", "import sys; sys.path.insert(0, 'a'); import mxnet")
    assert commands.server_command(TRAIN, guard=False, run_script=True) == TRAIN
    assert commands.server_command(("bash", "run.sh"), guard=False, run_script=False) == ("bash", "run.sh")
    assert commands.server_command(TRAIN, guard=True, run_script=True)[0] == commands.PYTHON


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("import raymx.mx\n", True),
        ("import sys\n  import raymx.mx as mx", True),
        ("from raymx import mx\n", True),
        ("# import raymx.mx\n", False),
        ("import raymx.mxx\n", False),
        ("import mxnet as mx\n", False),
    ],
)
def test_a_line_of_the_script_asks_for_the_guard(text: str, asks: bool) -> None:
    assert commands.asks_for_guard(text) is asks


# ---- environment ----


def test_variables_come_with_a_value_or_from_the_shell() -> None:
    shell = {"TOKEN": "of the shell"}
    given = ["A:1", "B=2:3", "TOKEN", "URL:http://x=y"]
    assert environment.pairs(given, "--env", shell) == {
        "A": "1",
        "B": "2:3",
        "TOKEN": "of the shell",
        "URL": "http://x=y",
    }
    with pytest.raises(ExperimentError, match=r"--env NOPE: NOPE is not set here.*--env NOPE:VALUE"):
        environment.pairs(["NOPE"], "--env", shell)


def test_what_each_role_is_told() -> None:
    topology = Topology(3, 2, "10.0.0.1", 9091)
    worker = environment.of_role("worker", topology, "10.0.0.2", {"A": "1"})
    assert worker["DMLC_ROLE"] == "worker"
    assert worker["DMLC_PS_ROOT_URI"] == "10.0.0.1"
    assert worker["DMLC_PS_ROOT_PORT"] == "9091"
    assert (worker["DMLC_NUM_WORKER"], worker["DMLC_NUM_SERVER"]) == ("3", "2")
    assert worker["DMLC_NODE_HOST"] == "10.0.0.2"
    assert worker["A"] == "1"
    fixed = json.loads(worker[environment.FIXED])
    assert fixed.keys() == set(environment.RESERVED)
    assert all(worker[name] == value for name, value in fixed.items())
    assert environment.FIXED not in environment.of_role("server", topology, "10.0.0.2", {})


def test_a_bound_of_the_users_reaches_the_roles() -> None:
    topology = Topology(1, 1, "h", 1)
    name = "MXNET_KVSTORE_BIGARRAY_BOUND"
    assert environment.of_role("server", topology, "h", {name: "5"})[name] == "5"
    assert environment.of_role("server", topology, "h", {})[name] == "1000000"
    with pytest.raises(ExperimentError, match="give a whole number of elements"):
        environment.of_role("server", topology, "h", {name: "many"})


def test_variables_of_a_role_win_over_those_of_all() -> None:
    everyone, worker, server = {"A": "0", "B": "0"}, {"A": "w"}, {"A": "s"}
    assert environment.own_settings("worker", everyone, worker, server) == {"A": "w", "B": "0"}
    assert environment.own_settings("server", everyone, worker, server) == {"A": "s", "B": "0"}
    assert environment.own_settings("scheduler", everyone, worker, server) == everyone


def test_a_command_finds_the_environment_of_who_gave_it() -> None:
    node = {"PATH": "/ray", "CUDA_VISIBLE_DEVICES": "1", "RAYMX_STARTED_BY": "me"}
    client = {"PATH": "/mine", "CUDA_VISIBLE_DEVICES": "0,1", "PORT": "8080", "DMLC_INTERFACE": "eth9"}
    child = environment.child(node, client, 2, {"DMLC_ROLE": "worker"}, "/hook")
    assert child == {
        "PATH": "/mine",
        "CUDA_VISIBLE_DEVICES": "1",
        "RAYMX_STARTED_BY": "me",
        "OMP_NUM_THREADS": "2",
        "DMLC_ROLE": "worker",
        "PYTHONPATH": "/hook",
    }


def test_threads_and_modules_of_the_users_stay() -> None:
    child = environment.child({}, {"OMP_NUM_THREADS": "7", "PYTHONPATH": "/a"}, 2, {}, "/hook")
    assert child == {"OMP_NUM_THREADS": "7", "PYTHONPATH": "/hook:/a"}
    assert environment.child({"OMP_NUM_THREADS": "1"}, None, 2, {}, "")["OMP_NUM_THREADS"] == "2"
    assert environment.child({}, None, 2, {"OMP_NUM_THREADS": "4"}, "")["OMP_NUM_THREADS"] == "4"


# ---- bundles ----


def test_servers_sit_beside_the_workers() -> None:
    script = Script(TRAIN, workers=2, servers=3, cpus_per_worker=2, gpus_per_worker=1, cpus_per_server=0.5)
    assert bundles.bundles(script) == ({"CPU": 3.0, "GPU": 1}, {"CPU": 2.5, "GPU": 1})
    assert [seat.name for seat in bundles.seats(script)] == [
        *("KVStore scheduler", "server 0", "server 1", "server 2", "worker 0", "worker 1"),
    ]
    assert (bundles.cpus(script), bundles.gpus(script)) == (5.5, 2.0)


def test_without_servers_there_is_no_kvstore_scheduler() -> None:
    assert [seat.kind for seat in bundles.seats(Script(TRAIN, workers=2, servers=0))] == ["worker", "worker"]


def test_what_does_not_fit_is_told_with_what_would() -> None:
    script = Script(TRAIN, workers=3, servers=0)
    bundles.check_fit(script, [NodeResources("a", 3, 0)])
    with pytest.raises(
        PlacementError, match=r"cannot hold 3 workers with 1 CPU each; it has 2 CPU.*give -n 2, or lower"
    ):
        bundles.check_fit(script, [NodeResources("a", 2, 0)])


# ---- outcome ----

WORKERS = [Seat("worker", at, at, 1.0) for at in range(2)]
SERVER, SCHEDULER = Seat("server", 0, 0, 1.0), Seat("scheduler", 0, 0, 0.0)
SEATS = [SCHEDULER, SERVER, *WORKERS]


def test_a_generation_goes_on_while_a_worker_does() -> None:
    assert outcome.verdict([], SEATS, 100.0) is None
    assert outcome.verdict([Ended(WORKERS[0], 0, 1.0)], SEATS, 100.0) is None
    assert outcome.verdict([Ended(SERVER, 0, 1.0), Ended(SCHEDULER, 0, 1.0)], SEATS, 100.0) is None


def test_it_has_ended_well_when_all_have() -> None:
    ended = [Ended(seat, 0, 1.0) for seat in SEATS]
    assert outcome.verdict(ended, SEATS, 1.0) == outcome.Verdict(0)


def test_servers_that_go_on_are_waited_for_a_while() -> None:
    """As of a script that never made a store."""
    ended = [Ended(seat, 0, 1.0) for seat in WORKERS]
    assert outcome.verdict(ended, SEATS, 1.0 + outcome.SERVERS_GRACE_S - 0.1) is None
    assert outcome.verdict(ended, SEATS, 1.0 + outcome.SERVERS_GRACE_S) == outcome.Verdict(0)


@pytest.mark.parametrize("seat", SEATS)
def test_the_first_role_that_fails_ends_all(seat: Seat) -> None:
    found = outcome.verdict([Ended(seat, 3, 1.0)], SEATS, 1.0)
    assert found == outcome.Verdict(3, f"{seat.name} ended with exit code 3", seat)


def test_of_several_that_fail_the_first_counts_and_then_a_worker() -> None:
    ended = [Ended(SERVER, 134, 2.0), Ended(WORKERS[1], 137, 2.0), Ended(WORKERS[0], 1, 3.0)]
    assert outcome.verdict(ended, SEATS, 3.0) == outcome.Verdict(137, "worker 1 was ended by signal 9", WORKERS[1])


def test_a_lost_role_is_told_with_its_reason() -> None:
    found = outcome.verdict([Ended(WORKERS[0], 1, 1.0, lost="its node died")], SEATS, 1.0)
    assert found is not None
    assert found.reason == "worker 0 is lost: its node died"


def test_workers_that_may_wait_for_ever_are_told_of() -> None:
    ended = [Ended(WORKERS[0], 0, 1.0)]
    assert outcome.lone(ended, SEATS, 1.0 + outcome.LONE_S - 1) == ""
    told = outcome.lone(ended, SEATS, 1.0 + outcome.LONE_S)
    assert told.startswith("worker 0 ended with exit code 0")
    assert "worker 1 still run" in told
    assert outcome.lone([Ended(seat, 0, 1.0) for seat in WORKERS], SEATS, 1000.0) == ""


# ---- resume ----


def test_the_newest_parameters_that_all_have() -> None:
    names = ["m-0001.params", "m-0012.params", "m-0003.params.tmp", "m-symbol.json", "mm-0050.params", "m-99999.params"]
    assert resume.epochs_of(names, "models/m") == {1, 12, 99999}
    assert resume.newest([{1, 2, 3}, {1, 2}]) == 2
    assert resume.newest([{1}, set()]) is None
    assert resume.newest([]) is None


def test_the_resume_flag_comes_last() -> None:
    flag = "--load-epoch {epoch} --begin {epoch}"
    assert resume.with_resume(TRAIN, flag, 7) == (*TRAIN, "--load-epoch", "7", "--begin", "7")
    assert resume.with_resume(TRAIN, flag, None) == TRAIN


# ---- log lines ----


@pytest.mark.parametrize(
    ("line", "readings"),
    [
        (
            "Epoch[0] Batch [20]\tSpeed: 1234.56 samples/sec\taccuracy=0.5",
            [Reading(0, {"train_accuracy": 0.5}, 1234.56, interim=True)],
        ),
        (
            "INFO:root:Epoch[3] Batch [20-40]\tSpeed: 1e3 samples/sec\taccuracy=0.500000\tcross-entropy=1.25",
            [Reading(3, {"train_accuracy": 0.5, "train_cross_entropy": 1.25}, 1000.0, interim=True)],
        ),
        (
            "2020-01-01 10:00:00,123 Node[1] Epoch[1] Batch [10] Speed: 12.5 samples/sec  Train-accuracy=0.25",
            [Reading(1, {"train_accuracy": 0.25}, 12.5, interim=True)],
        ),
        ("Iter[0] Batch [50]\tSpeed: 10.00 samples/sec", [Reading(0, {}, 10.0, interim=True)]),
        ("INFO:root:Epoch[0] Train-accuracy=0.75", [Reading(0, {"train_accuracy": 0.75})]),
        ("Epoch[2] Train-top_k_accuracy_5=0.9", [Reading(2, {"train_top_k_accuracy_5": 0.9})]),
        ("Epoch[0] Time cost=5.678", [Reading(0, {"train_s": 5.678})]),
        ("INFO:root:Epoch[1] Validation-accuracy=0.875000", [Reading(1, {"validation_accuracy": 0.875})]),
        ("Epoch[4] Validation-perplexity=inf", [Reading(4, {"validation_perplexity": math.inf})]),
        ("[Epoch 3] training: accuracy=0.125000", [Reading(3, {"train_accuracy": 0.125})]),
        (
            "[Epoch 3] validation: accuracy=0.5, loss=1.5",
            [Reading(3, {"validation_accuracy": 0.5, "validation_loss": 1.5})],
        ),
        ("[Epoch 3] time cost: 12.5", [Reading(3, {"train_s": 12.5})]),
        (
            "[Epoch 3] speed: 100 samples/s\ttime cost: 12.500000",
            [Reading(3, {}, 100.0), Reading(3, {"train_s": 12.5})],
        ),
        ('Saved checkpoint to "m-0001.params"', []),
        ("Epoch 3 begins", []),
        ("Speed: 5 samples/sec", []),
        ("", []),
    ],
)
def test_lines_of_speedometer_and_fit(line: str, readings: list[Reading]) -> None:
    assert log_lines.read(line) == readings


def test_a_nan_is_read_as_one() -> None:
    (found,) = log_lines.read("Epoch[0] Train-cross-entropy=nan")
    assert math.isnan(found.values["train_cross_entropy"])


@pytest.mark.parametrize(
    ("pattern", "line", "reading"),
    [
        (r"images/sec: (?P<samples_per_sec>[\d.]+)", "step 5 images/sec: 99.5", Reading(None, {}, 99.5)),
        (
            r"epoch (?P<epoch>\d+) loss (?P<train_loss>\S+)",
            "epoch 4 loss 0.25",
            Reading(4, {"train_loss": 0.25}),
        ),
        (
            r"bleu=(?P<validation_bleu>\S+)( at (?P<note>\w+))?",
            "bleu=31.5 at night",
            Reading(None, {"validation_bleu": 31.5}),
        ),
    ],
)
def test_a_pattern_of_the_users(pattern: str, line: str, reading: Reading) -> None:
    assert log_lines.read(line, log_lines.compiled([pattern])) == [reading]


def test_a_pattern_goes_before_what_is_known() -> None:
    line = "Epoch[0] Train-accuracy=0.75"
    own = log_lines.compiled([r"Train-accuracy=(?P<train_top1>\S+)", r"(?P<never>\d{9})"])
    assert log_lines.read(line, own) == [Reading(None, {"train_top1": 0.75})]
    assert log_lines.read("Epoch[0] Time cost=1.5", own) == [Reading(0, {"train_s": 1.5})]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"loss ([", "it is no regular expression"),
        (r"loss (\d+)", "it names no group"),
        (r"(?P<num_workers>\d+)", "num_workers is a column of raymx's own"),
    ],
)
def test_a_wrong_pattern_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        log_lines.compiled([pattern])


# ---- rows ----


def told(epochs: Epochs, worker: int, *lines: str, at: float = 0.0) -> None:
    for line in lines:
        for reading in log_lines.read(line):
            epochs.add(worker, reading, at)


def test_a_row_waits_for_all_workers() -> None:
    epochs = Epochs(2)
    told(epochs, 0, "Epoch[0] Batch [0-2]\tSpeed: 100 samples/sec\taccuracy=0.1", "Epoch[0] Train-accuracy=0.5")
    told(epochs, 0, "Epoch[0] Time cost=4", "Epoch[0] Validation-accuracy=0.6", "Epoch[1] Train-accuracy=0.9")
    assert epochs.ready(1.0) == []
    told(epochs, 1, "Epoch[0] Batch [0-2]\tSpeed: 50 samples/sec", "Epoch[0] Batch [2-4]\tSpeed: 70 samples/sec")
    told(epochs, 1, "Epoch[0] Train-accuracy=0.7", "Epoch[0] Time cost=5", "Epoch[0] Validation-accuracy=0.8")
    assert epochs.ready(1.0) == []
    told(epochs, 1, "Epoch[1] Time cost=1")
    (row,) = epochs.ready(1.0)
    assert row == {
        "epoch": 1,
        "train_accuracy": pytest.approx(0.6),
        "validation_accuracy": pytest.approx(0.7),
        "num_workers": 2,
        "samples_per_sec": 160.0,
        "worker_samples_per_sec": [100.0, 60.0],
        "train_s": 5.0,
    }
    assert epochs.ready(100.0) == []


def test_the_last_epoch_is_whole_when_all_have_ended() -> None:
    epochs = Epochs(2)
    for worker in (0, 1):
        told(epochs, worker, "Epoch[0] Train-accuracy=0.5")
        assert epochs.ready(0.0) == []
        epochs.end(worker)
    assert [row["epoch"] for row in epochs.ready(0.0)] == [1]


def test_a_worker_that_prints_nothing_is_waited_for_a_while() -> None:
    epochs = Epochs(3)
    told(epochs, 0, "Epoch[0] Batch [2]\tSpeed: 5 samples/sec", "Epoch[1] Time cost=1", at=10.0)
    assert epochs.ready(10.0 + SILENT_S - 0.1) == []
    assert [row["epoch"] for row in epochs.ready(10.0 + SILENT_S)] == [1]
    assert epochs.silent == 2


def test_no_worker_that_prints_is_silent() -> None:
    assert Epochs(3).silent == 0


def test_an_epoch_without_its_end_is_not_a_row_until_nobody_adds_to_it() -> None:
    epochs = Epochs(1)
    told(epochs, 0, "Epoch[4] Train-accuracy=0.5", "Epoch[5] Batch [2]\tSpeed: 5 samples/sec")
    assert [row["epoch"] for row in epochs.ready(0.0)] == [5]
    assert epochs.ready(1e9) == []
    assert epochs.before(5) == []
    assert [row["epoch"] for row in epochs.before(6)] == [6]


def test_a_line_without_an_epoch_is_of_the_one_that_the_worker_is_in() -> None:
    epochs = Epochs(1)
    epochs.add(0, Reading(None, {"train_loss": 2.0}), 0.0)
    told(epochs, 0, "Epoch[1] Train-accuracy=0.5")
    epochs.add(0, Reading(None, {"train_loss": 1.0}), 0.0)
    epochs.end(0)
    assert [(row["epoch"], row["train_loss"]) for row in epochs.ready(0.0)] == [(1, 2.0), (2, 1.0)]


def test_a_speed_that_is_no_number_is_left_out() -> None:
    epochs = Epochs(1)
    told(epochs, 0, "Epoch[0] Batch [2]\tSpeed: inf samples/sec", "Epoch[0] Batch [4]\tSpeed: 7 samples/sec")
    epochs.end(0)
    assert epochs.ready(0.0)[0]["samples_per_sec"] == 7.0


# ---- sweeps ----


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("lr=0.1,0.05", "lr", ("0.1", "0.05")),
        ("--kv-store=dist_sync", "kv-store", ("dist_sync",)),
        ('layers="64,64",32', "layers", ("64,64", "32")),
    ],
)
def test_an_axis_of_a_script(text: str, name: str, values: tuple[str, ...]) -> None:
    assert points.axis(text) == (name, values)


@pytest.mark.parametrize("text", ["lr", "lr=", "=1", 'lr="1'])
def test_an_axis_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="write FLAG=VALUE,VALUE"):
        points.axis(text)


def test_every_combination_is_run_as_often_as_wished() -> None:
    script = Script(TRAIN, sweep={"lr": ["1", "2"], "kv-store": ["a", "b"]}, repeats=2)
    planned = points.trials(script)
    assert [(one.cell, one.repeat) for one in planned] == [(cell, repeat) for cell in range(4) for repeat in range(2)]
    assert planned[3].point == {"lr": "1", "kv-store": "b"}
    assert planned[3].command == ("python", "train.py", "--lr", "1", "--kv-store", "b")
    assert planned[3].folder == "Trial_00003"


def test_without_a_sweep_the_command_stays() -> None:
    (only,) = points.trials(Script(TRAIN))
    assert (only.command, only.point) == (TRAIN, {})


def test_the_table_has_mean_and_spread() -> None:
    def trial(lr: str, speed: float, score: float, state: str = "finished") -> table.Told:
        rows = [{"samples_per_sec": 1.0, "validation_accuracy": 0.1}] + [
            {"samples_per_sec": speed, "validation_accuracy": score}
        ] * 2
        return table.Told(int(lr), {"lr": lr}, state, rows)

    lines = table.lines(
        [trial("1", 100, 0.5), trial("1", 110, 0.7), trial("2", 50, 0.9, "failed")], "validation_accuracy"
    )
    assert lines[0].split() == ["lr", "samples/s", "validation_accuracy", "trials"]
    assert lines[1].split() == ["1", "105.0", "±", "7.1", "0.6", "±", "0.1414", "2"]
    assert lines[2].split() == ["2", "50.0", "0.9", "1,", "1", "failure"]


def test_a_trial_that_printed_nothing_is_a_dash() -> None:
    assert table.lines([table.Told(0, {}, "failed")], "x")[1].split() == ["-", "-", "1,", "1", "failure"]


@pytest.mark.parametrize(
    ("given", "names", "found"),
    [
        ("", ["train_accuracy", "validation_mse"], ("validation_mse", "min")),
        ("", ["validation_top5", "validation_accuracy"], ("validation_accuracy", "max")),
        ("", ["train_cross_entropy", "train_s"], ("train_cross_entropy", "min")),
        ("", ["epoch"], ("samples_per_sec", "max")),
        ("bleu", [], ("bleu", "max")),
        ("bleu:min", [], ("bleu", "min")),
    ],
)
def test_what_trials_are_compared_by(given: str, names: list[str], found: tuple[str, str]) -> None:
    assert table.objective(given, names) == found


# ---- the script and its flags ----


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": ""}, "no command was given"),
        ({"workers": 0}, r"-n \(workers\) is 0: give a whole number, at least 1"),
        ({"servers": -1}, r"-s \(servers\) is -1"),
        ({"cpus_per_worker": 0}, "--cpus-per-worker is 0: give a number above 0"),
        ({"gpus_per_worker": -1}, "--gpus-per-worker is -1"),
        ({"port": 70000}, "--port is 70000"),
        ({"restarts": -1}, "--restarts is -1"),
        ({"resume_flag": "--load {epoch}"}, "--resume-flag needs --resume-prefix"),
        ({"resume_prefix": "m"}, "--resume-prefix needs --resume-flag"),
        ({"resume_flag": "--load", "resume_prefix": "m"}, "has no {epoch} in it"),
        ({"env": {"DMLC_ROLE": "worker"}}, "--env DMLC_ROLE: raymx.launch sets it"),
        ({"sweep": {"lr": []}}, "--sweep lr has no values"),
        ({"sweep": {"lr": ["1", "1"]}}, "--sweep lr has the value 1 twice"),
        ({"patterns": ["("]}, "no regular expression"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        Script(**{"command": TRAIN, **changes})


@pytest.mark.parametrize(
    ("command", "name"),
    [("python a/train.py", "train"), ("bash my run.sh", "run"), ("python -m pkg.train", "python")],
)
def test_a_run_is_named_after_its_script(command: str, name: str) -> None:
    assert Script(command).name == name


def script_of(*words: str) -> Script:
    return options.script_of(options.parser().parse_args(words), {"HOME": "/home/me"})


def test_a_command_line_of_mxnets_launcher() -> None:
    line = "-n 3 -s 2 --launcher local --env HOME --env-worker A:1 --env-server A:2 python train.py -n 5 --lr 0.1"
    script = script_of(*line.split())
    assert (script.workers, script.num_servers) == (3, 2)
    assert script.words == ("python", "train.py", "-n", "5", "--lr", "0.1")
    assert (script.env, script.env_worker, script.env_server) == ({"HOME": "/home/me"}, {"A": "1"}, {"A": "2"})


def test_servers_are_as_many_as_workers() -> None:
    assert script_of("-n", "3", "--", "python", "t.py").num_servers == 3
    assert script_of("-n", "3", "-s", "0", "python", "t.py").num_servers == 0


def test_p3_sets_its_variables() -> None:
    assert script_of("-n", "1", "--p3", "python", "t.py").env["DMLC_PS_VAN_TYPE"] == "p3"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("-H hosts", "-H: the nodes are those of a Ray cluster"),
        ("-SH hosts", "BytePS's"),
        ("--byteps-launch", "MXNet's own KVStore"),
        ("--scheduler-ip 1.2.3.4", "leave it out"),
        ("--scheduler-port 5", "--port"),
        ("--launcher mpi", "start Ray in the allocation"),
        ("--launcher yarn", "--address"),
        ("--launcher sge", "--address"),
    ],
)
def test_flags_that_cannot_be_had_are_refused_with_the_reason(flags: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        script_of("-n", "1", *flags.split(), "python", "t.py")


def test_flags_that_change_nothing_are_told_of() -> None:
    args = options.parser().parse_args(["-n", "1", "--launcher", "ssh", "--sync-dst-dir", "/tmp/x", "python", "t.py"])
    assert [note.split(":")[0] for note in options.notes(args)] == ["--launcher ssh", "--sync-dst-dir /tmp/x"]


def test_sweep_flags_are_gathered() -> None:
    line = "-n 1 --sweep lr=1,2 --sweep lr=3 --sweep bs=4 --repeats 2 python t.py"
    script = script_of(*line.split())
    assert script.sweep == {"lr": ("1", "2", "3"), "bs": ("4",)}
    assert script.repeats == 2


def test_the_flags_of_a_script_make_the_same_script() -> None:
    script = Script(
        TRAIN,
        workers=2,
        servers=1,
        cpus_per_worker=2,
        gpus_per_worker=0.5,
        restarts=3,
        resume_flag="--load-epoch {epoch}",
        resume_prefix="m",
        patterns=(r"(?P<x>\d)",),
        guard=True,
    )
    assert script_of(*script.flags(), *script.words) == script


def test_the_record_of_a_script_has_no_values_of_variables() -> None:
    assert Script(TRAIN, env={"TOKEN": "secret"}).as_dict()["env"] == ["TOKEN"]
