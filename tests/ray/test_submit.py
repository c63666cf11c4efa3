"""Runs on a cluster of this machine that `raymx.submit` started, from processes that come and go."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest
from conftest import marked
from here import FASHION_MNIST, SMALL, Here

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def run_id(here: Here) -> str:
    """A run of two epochs, on a cluster that is started for it; its client is killed as soon as it has submitted."""
    code = (
        f"import raymx, os, signal\n"
        f"exp = raymx.Experiment.from_yaml({str(FASHION_MNIST)!r}).override(training={{'epochs': 2}},\n"
        f"    resources={{'workers': 1, 'standby': False}}, data={{'cpus': 1}})\n"
        f"print('id', raymx.submit(exp, storage_path={str(here.storage)!r}).id, flush=True)\n"
        f"os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = here.python(code, start_new_session=True)
    out, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, err
    assert re.search(r"started Ray on this machine with \d+ logical CPUs; it stays until  \S+/ray stop", out)
    return re.findall(r"^id (\S+)", out, re.M)[0]


def test_the_run_outlives_its_client(here: Here, run_id: str) -> None:
    code = f"""
import raymx, numpy, json
run = raymx.attach({run_id!r})
summary = run.result(timeout_s=150)
assert run.done() and not run.running() and run.cancel() is False, run.state
frame = run.results()
best = run.best()
outputs = best.predict(numpy.zeros((5, 28, 28), numpy.uint8))
print(json.dumps([summary["best"], frame["epoch"].tolist(), frame["validation_accuracy"].max(), best.epoch,
                  best.parameters, list(outputs.shape), len(best.load_net().collect_params().keys()), run.plot(),
                  str(run)]))
"""
    best, epochs, highest, epoch, parameters, shape, params, plots, card = json.loads(here.run(code))
    assert epochs == [1, 2]
    assert highest == best["value"] > 0.6
    assert epoch == best["epoch"]
    assert Path(parameters).parents[3] == here.storage
    assert shape == [5, 10]
    assert params == 8
    assert all(Path(path).exists() for path in plots)
    assert "finished" in card
    assert not here.roles()


def test_the_command_line(here: Here, run_id: str) -> None:
    """Of a run that has ended."""
    assert re.search(rf"^{run_id}  finished", here.submit("list").stdout, re.M)
    assert "validation_accuracy" in here.submit("results", run_id).stdout
    assert here.submit("results", run_id, "--csv").stdout.count("\n") == 3
    said = here.submit("logs", run_id, "-f").stdout
    assert said.count("epoch 2/2  train_loss") == 1
    assert said.rstrip().splitlines()[-2].startswith("results ")

    # When its cluster is gone:
    code = (
        f"import raymx; run = raymx.attach({str(here.storage / run_id)!r}, address='http://127.0.0.1:9')\n"
        "print(run.state, len(run.results()))"
    )
    assert here.run(code).split() == ["finished", "2"]


def test_stop_saves_and_leaves_nothing(here: Here) -> None:
    run_id = here.submitted("--num-epochs", 500)
    here.until(run_id, "view.rows >= 2")
    assert here.roles()
    assert here.submit("status").stdout.startswith("fashion_mnist  running")
    done = here.submit("stop", run_id)
    assert done.returncode == 0, done.stderr
    assert f"{run_id} is stopped: interrupted; results in {here.storage}" in done.stdout
    assert not here.roles()
    assert not marked(here.mark, f"{sys.executable} -m raymx.run")
    view = here.view(run_id)
    assert view["summary"]["state"] == "interrupted"
    assert Path(view["summary"]["parameters"]).exists()
    assert "had ended before" in here.submit("stop", run_id).stdout


@pytest.mark.long
def test_a_stopped_run_is_resumed_as_another_job(here: Here) -> None:
    run_id = here.submitted("--num-epochs", 500)
    here.until(run_id, "view.rows >= 2")
    here.submit("stop", run_id)
    view = here.view(run_id)
    before = max(row["epoch"] for row in map(json.loads, results_file(view["path"]).read_text().splitlines()))
    again = here.submitted("--num-epochs", 500, "--resume", view["path"])
    more = here.until(again, f"view.trials and view.trials[0].epoch > {before} + 1")
    assert more["path"] == view["path"]
    assert more["rows"] > 2  # those of before too
    here.submit("stop", again)


def results_file(path: str) -> Path:
    (file,) = Path(path).glob("Trial_*/result.json")
    return file


@pytest.mark.long
def test_a_run_that_fails(here: Here, tmp_path: Path) -> None:
    """Where it is known only on the cluster: the exit code, the message, and that of result()."""
    done = here.submit(
        FASHION_MNIST, *SMALL, "--set", "resources.cpus_per_worker=99", "--storage-path", here.storage, "-f"
    )
    assert done.returncode == 1
    run_id = re.findall(r"submitted (\S+)", done.stdout)[0]
    error = here.view(run_id)["error"]
    assert error.startswith("The cluster cannot hold this experiment.")
    assert "lower resources.cpus_per_worker" in error
    code = (
        f"import raymx\ntry:\n    raymx.attach({run_id!r}).result()\n"
        "except raymx.errors.TrainingError as error:\n    print(error)"
    )
    assert here.run("import raymx.errors\n" + code).strip() == error
    assert here.submit("logs", "nonsense").stderr.startswith("raymx: error: nonsense is not a job of http://")
    assert not here.roles()


@pytest.mark.long
def test_objects_of_a_notebook_travel(here: Here) -> None:
    """A net, a loss, a transform and a sweep over nets, none of which is in a module."""
    code = f"""
import raymx
SCALE = 16

def small(classes):
    from mxnet.gluon import nn
    net = nn.HybridSequential()
    net.add(nn.Flatten(), nn.Dense(SCALE, activation="relu"), nn.Dense(classes))
    return net

def large(classes):
    from mxnet.gluon import nn
    net = small(classes)
    net.add(nn.Dense(classes))
    return net

def loss(outputs, labels):
    from mxnet import gluon
    return gluon.loss.SoftmaxCrossEntropyLoss()(outputs, labels)

def inverted(image, label, rng):
    return 255 - image

exp = raymx.Experiment.from_yaml({str(FASHION_MNIST)!r}).override(
    training={{"epochs": 1}}, resources={{"workers": 1, "standby": False}}, model={{"loss": loss}},
    kvstore={{"type": "local"}},  # the cluster has room for the runs of the other tests
    data={{"cpus": 1, "transform": inverted, "validation_transform": inverted}})
run = raymx.submit(exp.sweep({{"model.net": [small, large]}}), storage_path={str(here.storage)!r})
view = run.wait(timeout_s=150)
assert view.state == "finished", view
frame = run.results()
best = run.best()
net = best.load_net()
print(frame.to_json(orient="records"), best.axes["model.net"], len(net))
assert len(run.results(by="epoch")) == 2
"""
    rows, name, layers = here.run(code).rsplit("\n", 2)[-2].rsplit(" ", 2)
    rows = {row["model.net"]: row for row in json.loads(rows)}
    assert rows.keys() == {"small", "large"}
    assert all(row["validation_accuracy"] > 0.2 for row in rows.values())
    assert int(layers) == {"small": 3, "large": 4}[name]
