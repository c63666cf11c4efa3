"""Submitting without a cluster: what travels, experiments in Python, and what is made of what a run writes."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from conftest import EXPERIMENTS

import raymx
from raymx.errors import ClusterUnreachable, ExperimentError, JobError
from raymx.experiment import loading, source_files
from raymx.jobs import by_value, cli, clusters, dashboard, packing, status
from raymx.jobs.dashboard import Dashboard
from raymx.jobs.experiment import Experiment
from raymx.jobs.run import Run
from raymx.jobs.source import RunSource
from raymx.results import reports
from raymx.results.view import TrialView, View

FASHION_MNIST = EXPERIMENTS / "fashion_mnist.yaml"


def folder(tmp_path: Path, **files: bytes | str) -> Path:
    """An experiment's folder, with more files in it; ``__`` in a name is a ``/``, and ``_dot_`` a dot."""
    for name, content in {
        "e.yaml": FASHION_MNIST.read_text(),
        "nets.py": (EXPERIMENTS / "nets.py").read_text(),
        "data__fashion_mnist_train_dot_rec": b"train",
        "data__fashion_mnist_train_dot_idx": b"0\t0\n",
        "data__fashion_mnist_val_dot_rec": b"val",
        **files,
    }.items():
        path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def sent(experiment: Any, objects: Any = None, **options: Any) -> tuple[list[str], Any]:
    """The names in the parcel, and the experiment in it."""
    with packing.pack(experiment, objects or {}, **options) as parcel, zipfile.ZipFile(parcel.path) as archive:
        import yaml

        return sorted(archive.namelist()), yaml.safe_load(archive.read(packing.EXPERIMENT))


class TestPacking:
    def test_modules_and_named_data_travel(self, tmp_path: Path) -> None:
        there = folder(tmp_path, sub__more_dot_py="x = 1", weights_dot_params=b"p")
        names, experiment = sent(loading.load_experiment(there / "e.yaml"))
        assert names == [
            "data/fashion_mnist_train.idx",
            "data/fashion_mnist_train.rec",
            "data/fashion_mnist_val.rec",
            "e.yaml",
            "nets.py",
            "raymx_experiment.yaml",
            "sub/more.py",
            "weights.params",
        ]
        assert experiment["data"]["train"] in ("data/fashion_mnist_train.rec", ["data/fashion_mnist_train.rec"])

    def test_what_is_left_out(self, tmp_path: Path) -> None:
        there = folder(
            tmp_path,
            _dot_git__HEAD="x",
            env__pyvenv_dot_cfg="",
            env__big_dot_py="",
            other_dot_rec=b"",
            __pycache____a_dot_pyc="",
            runs__r1__run_dot_yaml="",
            runs__r1__x_dot_py="",
            _dot_gitignore="*.log\n",
            a_dot_log="",
            sub___dot_rayignore="secret*\n",
            sub__secret_dot_txt="",
        )
        names, _ = sent(loading.load_experiment(there / "e.yaml"))
        assert not [name for name in names if name.startswith((".git/", "env", "other", "__pyc", "runs", "a.log"))]
        assert "sub/secret.txt" not in names
        assert "nets.py" in names

    def test_ignored_data_that_is_named_travels(self, tmp_path: Path) -> None:
        names, _ = sent(loading.load_experiment(folder(tmp_path, _dot_gitignore="data/\n") / "e.yaml"))
        assert "data/fashion_mnist_train.rec" in names

    def test_a_linked_folder_travels(self, tmp_path: Path) -> None:
        there = folder(tmp_path / "here")
        (tmp_path / "lib" / "deep").mkdir(parents=True)
        (tmp_path / "lib" / "deep" / "layers.py").write_text("x = 1")
        (there / "shared").symlink_to(tmp_path / "lib")
        (there / "shared2").symlink_to("../lib")
        (there / "round").symlink_to(tmp_path)  # in which the folder itself lies
        (tmp_path / "lib" / "deep" / "up").symlink_to(tmp_path / "lib")
        names, _ = sent(loading.load_experiment(there / "e.yaml"))
        assert [name for name in names if name.endswith("layers.py")] == [
            "shared/deep/layers.py",
            "shared2/deep/layers.py",
        ]

    def test_what_the_experiment_names_travels_though_it_is_ignored(self, tmp_path: Path) -> None:
        there = folder(
            tmp_path,
            _dot_gitignore="*.params\nown/\nnets.py\nwork/\n",
            start_dot_params=b"p",
            other_dot_params=b"p",
            own__loops_dot_py="def loop(ctx): pass",
            own____init___dot_py="",
        )
        given = {"model.options": {"start": "start.params", "layers": 3}, "training.loop": "own.loops:loop"}
        experiment = loading.load_experiment(there / "e.yaml", given)
        names, _ = sent(experiment)
        assert {"start.params", "nets.py", "own/loops.py"} <= set(names)
        assert "other.params" not in names
        ignored = source_files.named_but_ignored(experiment)
        assert ignored == ["nets.py", "own/loops.py", "start.params"]

    def test_what_stays_behind_is_named(self, tmp_path: Path) -> None:
        there = folder(tmp_path / "here", _dot_gitignore="*.params\n", start_dot_params=b"p")
        (there / "gone").symlink_to("nowhere")
        (there / "round").symlink_to(tmp_path)
        with packing.pack(loading.load_experiment(there / "e.yaml"), {}) as parcel:
            assert parcel.left_out == (
                "left behind: gone (a link to nowhere, which does not exist), "
                f"round (a link to {tmp_path}, in which this folder lies), "
                "start.params (as a .gitignore or .rayignore says)",
            )

    def test_a_function_that_brings_a_large_array_is_named(self, tmp_path: Path) -> None:
        table = os.urandom(300_000)
        objects = {"net": lambda classes: table}
        experiment = loading.load_experiment(folder(tmp_path) / "e.yaml", {"model.net": f"{by_value.MODULE}:net"})
        with pytest.raises(ExperimentError) as error:
            sent(experiment, objects, limit_bytes=200_000)
        assert str(error.value) == (
            "model.net net brings 0 MB by value, and Ray takes 0 MB (zipped): pass it as a file, which the function "
            "loads: beside the experiment, or where every node can read it"
        )

    def test_data_elsewhere_becomes_absolute(self, tmp_path: Path) -> None:
        there = folder(tmp_path / "one")
        other = tmp_path / "two" / "t.rec"
        other.parent.mkdir()
        other.write_bytes(b"x")
        experiment = loading.load_experiment(
            there / "e.yaml",
            {"data.train": ["../two/t.rec", "data/fashion_mnist_train.rec"], "data.validation": "s3://bucket/v.rec"},
        )
        names, written = sent(experiment)
        assert written["data"]["train"] == [str(other), "data/fashion_mnist_train.rec"]
        assert written["data"]["validation"] in ("s3://bucket/v.rec", ["s3://bucket/v.rec"])
        assert not any("t.rec" in name and "two" in name for name in names)

    def test_too_large_names_the_largest(self, tmp_path: Path) -> None:
        there = folder(tmp_path, model_dot_bin=os.urandom(300_000), small_dot_bin=os.urandom(1000))
        with (
            pytest.raises(ExperimentError) as error,
            packing.pack(loading.load_experiment(there / "e.yaml"), {}, limit_bytes=200_000),
        ):
            pass
        lines = str(error.value).splitlines()
        assert "above the 0 MiB" in lines[0]
        assert lines[1].endswith("0.3 MiB  model.bin")
        assert ".rayignore" in lines[-1]

    def test_large_data_stays_where_the_cluster_is_this_machine(self, tmp_path: Path) -> None:
        there = folder(tmp_path, data__fashion_mnist_train_dot_rec=os.urandom(300_000))
        experiment = loading.load_experiment(there / "e.yaml")
        with pytest.raises(ExperimentError, match=r"every node can read"):
            sent(experiment, limit_bytes=200_000)
        names, written = sent(experiment, limit_bytes=200_000, data_stays=True)
        assert not any(name.endswith(".rec") for name in names)
        assert written["data"]["train"] in (
            str(there / "data/fashion_mnist_train.rec"),
            [str(there / "data/fashion_mnist_train.rec")],
        )

    def test_nothing_is_left_of_the_parcel(self, tmp_path: Path) -> None:
        with packing.pack(loading.load_experiment(folder(tmp_path) / "e.yaml"), {}) as parcel:
            assert os.path.getsize(parcel.path) == parcel.size
        assert not os.path.exists(os.path.dirname(parcel.path))


class TestSource:
    def test_the_best_is_asked_for_too_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        source = RunSource("r1", None, "/nowhere")
        monkeypatch.setattr(source, "view", lambda: View("r1", state="running", trials=(TrialView("t", epoch=0.5),)))
        with pytest.raises(JobError) as error:
            source.folder("its checkpoints")
        assert str(error.value) == (
            "its checkpoints are not there yet: r1 is running, and writes the first after an epoch; ask again then, or "
            "after run.result(), which waits for its end"
        )


def a_net(classes: int) -> Any:
    return ("net", classes, math.pi)


class Metric:
    """Stands for a class of a notebook."""


class TestByValue:
    def test_round_trip_in_another_process(self, tmp_path: Path) -> None:
        """As a worker does it: the module of the object is not there."""
        script = (
            "import math\ndef net(classes):\n    return math.floor(classes + offset)\noffset = 0.5\n"
            "from raymx.jobs import by_value\nimport sys, pathlib\n"
            "for name, content in by_value.files({'net': net, 'other': lambda: 7}).items():\n"
            "    pathlib.Path(sys.argv[1], name).write_bytes(content)\n"
        )
        subprocess.run([sys.executable, "-c", script, tmp_path], check=True, timeout=60)
        code = "import raymx_objects as o; print(o.net(3), o.other())"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.split() == ["3", "7"]

    def test_what_is_of_no_installed_module_travels_whole(self, tmp_path: Path) -> None:
        for name, content in by_value.files({"a_net": a_net}).items():
            (tmp_path / name).write_bytes(content)
        code = "import raymx_objects as o; print(o.a_net(3)[1])"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout.strip() == "3", done.stderr

    def test_another_python(self, tmp_path: Path) -> None:
        (tmp_path / by_value.VALUES_FILE).write_bytes(pickle.dumps(("2.7", {"net": b""})))
        with pytest.raises(ExperimentError, match=r"net was defined in a notebook with Python 2\.7"):
            by_value.load(str(tmp_path / by_value.MODULE_FILE), "net")

    def test_what_cannot_travel(self) -> None:
        lock = __import__("threading").Lock()
        with pytest.raises(ExperimentError, match="net cannot travel by value: TypeError"):
            by_value.files({"net": lambda classes: lock})

    def test_names(self) -> None:
        assert by_value.name_of(a_net, {}) == "a_net"
        assert by_value.name_of(a_net, {"a_net": a_net}) == "a_net"
        assert by_value.name_of(a_net, {"a_net": Metric}) == "a_net_2"
        assert by_value.name_of(lambda: 0, {}) == "own"


class TestExperiment:
    def test_override_keeps_the_rest_of_a_section(self) -> None:
        experiment = Experiment.from_yaml(FASHION_MNIST)
        changed = experiment.override({"kvstore.type": "dist_async"}, training={"epochs": 2})
        assert (changed.spec.training.epochs, changed.spec.training.base_lr) == (2, experiment.spec.training.base_lr)
        assert changed.spec.kvstore.type == "dist_async"
        assert experiment.spec.training.epochs == 5

    def test_wrong_settings(self) -> None:
        experiment = Experiment.from_yaml(FASHION_MNIST)
        with pytest.raises(ExperimentError, match="trainings is not a section"):
            experiment.override(trainings={"epochs": 2})
        with pytest.raises(ExperimentError, match=r"training\.epoch is not a key; did you mean training\.epochs"):
            experiment.override(training={"epoch": 2})

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({"name": "x"}, "Experiment.from_dict(raw, directory)"),
            ("e.yaml", "Experiment.from_yaml(path)"),
            (7, "Experiment.from_yaml(path) or Experiment.from_dict(raw, directory)"),
        ],
    )
    def test_what_is_no_experiment_yet(self, given: Any, wanted: str) -> None:
        with pytest.raises(ExperimentError) as error:
            Experiment(given)
        assert wanted in str(error.value)

    def test_in_python_no_flag_is_named(self) -> None:
        with pytest.raises(ExperimentError) as error:
            Experiment.from_yaml(FASHION_MNIST).override(training={"epochs": 0})
        assert str(error.value) == "training.epochs is 0: it must be a whole number, at least 1"

    def test_own_objects_get_names(self) -> None:
        experiment = Experiment.from_yaml(FASHION_MNIST).override(model={"net": a_net, "metric": Metric})
        assert experiment.spec.model.net == "raymx_objects:a_net"
        assert experiment.objects == {"a_net": a_net, "Metric": Metric}
        assert experiment.override(training={"epochs": 1}).objects == experiment.objects

    def test_a_net_that_exists_is_refused(self) -> None:
        class Net:
            def __call__(self) -> None: ...
            def collect_params(self) -> None: ...

        with pytest.raises(ExperimentError, match=r"model\.net is a Net that exists already"):
            Experiment.from_yaml(FASHION_MNIST).override(model={"net": Net()})

    def test_a_loss_that_exists_is_refused_with_what_is_wanted(self) -> None:
        class L2Loss:
            def __call__(self) -> None: ...
            def collect_params(self) -> None: ...

        experiment = Experiment.from_yaml(FASHION_MNIST)
        with pytest.raises(
            ExperimentError, match=r"model\.loss is a L2Loss .* give the class L2Loss itself, or f\(out"
        ):
            experiment.override({"model.loss": L2Loss()})
        with pytest.raises(ExperimentError, match=r"^model\.loss is a L2Loss"):
            experiment.sweep({"model.loss": [L2Loss(), "l2"]})

    def test_sweep(self) -> None:
        experiment = Experiment.from_yaml(FASHION_MNIST).sweep(
            {
                "kvstore.type": ["dist_sync", "dist_async"],
                "training.base_lr": {"uniform": [0.01, 0.1]},
                "kvstore.compression": {"type": "2bit", "threshold": 0.5},
                "model.net": [a_net],
            },
            repeats=2,
        )
        assert experiment.spec.sweep.repeats == 2
        assert dict(experiment.spec.sweep.space["training.base_lr"]) == {"uniform": [0.01, 0.1]}
        assert dict(experiment.spec.sweep.space["model.net"]) == {"grid": ["raymx_objects:a_net"]}
        assert dict(experiment.spec.sweep.space["kvstore.compression"]) == {
            "grid": [{"type": "2bit", "threshold": 0.5}]
        }

    def test_from_dict_and_text(self, tmp_path: Path) -> None:
        raw = {
            "name": "own",
            "model": {"net": a_net, "classes": 2},
            "data": {"train": "t.rec", "image_shape": [1, 4, 4]},
        }
        experiment = Experiment.from_dict(raw, tmp_path)
        assert experiment.spec.resolve("t.rec") == str(tmp_path / "t.rec")
        assert "own: raymx_objects:a_net, 1 epochs" in repr(experiment)
        assert "base_lr" in experiment.to_yaml()

    def test_importing_raymx_is_light(self) -> None:
        code = (
            "import raymx, sys; assert not {'ray', 'mxnet', 'numpy', 'pandas'} & set(sys.modules); "
            "raymx.submit; assert 'mxnet' not in sys.modules; print(raymx.submit.__name__)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.strip() == "submit", done.stderr
        assert {"Experiment", "Run", "attach", "runs", "submit"} <= set(dir(raymx))


class TestView:
    view = View(
        "r",
        "n",
        "running",
        is_sweep=True,
        axes=("a.b",),
        metric="m",
        mode="min",
        planned=4,
        skipped=1,
        trials=(TrialView("t1", "b 1", curve=((1.0, 0.5), (2.0, 0.25)), objective=0.25), TrialView("t2")),
        messages=("note",),
        summary={"best": {"value": 1.0}},
    )

    def test_round_trip(self) -> None:
        again = View.from_dict(json.loads(json.dumps(self.view.as_dict())))
        assert again.as_dict() == self.view.as_dict()
        assert again.trials[0].curve == self.view.trials[0].curve
        assert (again.axes, again.messages) == (self.view.axes, self.view.messages)
        assert math.isnan(again.trials[1].loss)

    def test_of_another_version(self) -> None:
        raw = {"run_id": "r", "new": 1, "trials": [{"trial_id": "t", "newer": 2}]}
        assert View.from_dict(raw).trials[0].epochs == 1

    @pytest.mark.parametrize(
        ("written", "job_status", "state"),
        [
            ("pending", "PENDING", "pending"),
            ("pending", "RUNNING", "starting"),
            ("running", "RUNNING", "running"),
            ("running", "FAILED", "failed"),
            ("running", "STOPPED", "interrupted"),
            ("finished", "RUNNING", "finished"),
            ("failed", "FAILED", "failed"),
            ("starting", "SUCCEEDED", "finished"),
            ("interrupted", "STOPPED", "interrupted"),
        ],
    )
    def test_joined(self, written: str, job_status: str, state: str) -> None:
        found = status.joined(
            View("r", state=written, error="own" if written == "failed" else ""), job_status, "of Ray"
        )
        assert found.state == state
        assert found.error == ("own" if written == "failed" else "of Ray" if state == "failed" else "")


class TestReports:
    row: dict[str, Any] = {  # noqa: RUF012
        "epoch": 1,
        "train_loss": 0.5,
        "trial_id": "t",
        "pid": 7,
        "done": False,
        "worker_samples_per_sec": [1.0, 2.0],
        "config": {"point": {"axes": {"kvstore.type": "dist_sync"}}, "experiment": "{}"},
    }

    def test_lean(self) -> None:
        assert list(reports.lean(self.row)) == [
            "trial_id",
            "epoch",
            "kvstore.type",
            "train_loss",
            "worker_samples_per_sec",
        ]

    def test_of_text_leaves_out_what_is_cut(self) -> None:
        rows = list(reports.of_text('{"a": 1}\n\n{"a": NaN}\n{"a": '))
        assert rows[0] == {"a": 1}
        assert len(rows) == 2

    def test_frame_has_the_newest_row_of_an_epoch(self) -> None:
        frame = reports.frame(
            [
                {"trial_id": "t", "epoch": 1, "loss": 2.0},
                {"trial_id": "t", "epoch": 1, "loss": 1.0},
                {"trial_id": "u", "epoch": 1, "loss": 3.0},
            ]
        )
        assert frame["loss"].tolist() == [1.0, 3.0]
        assert reports.frame([]).empty

    def test_by_trial(self) -> None:
        view = View(
            "r",
            is_sweep=True,
            axes=("kvstore.type",),
            metric="acc",
            trials=(TrialView("t", state="finished", objective=0.9, samples_per_sec=5.0), TrialView("u")),
        )
        frame = reports.by_trial(reports.frame([reports.lean(self.row)]), view)
        assert frame["acc"].tolist()[0] == 0.9
        assert frame["kvstore.type"].tolist() == ["dist_sync", None]
        assert reports.by_trial(reports.frame([]), view)["state"].tolist() == ["finished", "running"]


class FakeClient:
    """Ray's client of a job whose connection breaks: ``connections`` are the pieces that each one gives."""

    def __init__(self, whole: str, connections: list[list[str] | None]) -> None:
        self.whole, self.connections = whole, connections

    async def tail_job_logs(self, run_id: str) -> Any:
        pieces = self.connections.pop(0) if self.connections else [self.whole]
        for piece in pieces or []:
            yield piece
        if self.connections:
            raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")

    def get_job_info(self, run_id: str) -> Any:
        return SimpleNamespace(status="RUNNING" if self.connections else "SUCCEEDED")

    def get_job_logs(self, run_id: str) -> str:
        return self.whole


def fake_dashboard(client: Any) -> Dashboard:
    made = Dashboard.__new__(Dashboard)
    made._client, made.address, made.is_here = client, "http://head:8265", False
    return made


class TestDashboard:
    def test_follow_goes_on_where_it_broke(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dashboard, "RETRY_S", 0.0)
        client = FakeClient("one\ntwo\nthree\nend\n", [["one\n", "tw"], None, ["one\ntwo\n", "thr"], ["one\n"]])
        assert "".join(fake_dashboard(client).follow("r")) == client.whole

    def test_follow_gives_up_in_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Gone(FakeClient):
            def get_job_info(self, run_id: str) -> Any:
                raise ConnectionError("refused")

        monkeypatch.setattr(dashboard, "RETRY_S", 0.0)
        monkeypatch.setattr(dashboard, "UNREACHABLE_S", 0.0)
        with pytest.raises(JobError, match=r"http://head:8265 has not answered for 0 s\. The job goes on"):
            list(fake_dashboard(Gone("", [["a"], ["b"]])).follow("r"))

    def test_a_cluster_that_goes_away(self) -> None:
        class Gone:
            def get_job_info(self, run_id: str) -> Any:
                raise requests.exceptions.ConnectionError("refused")

        with pytest.raises(ClusterUnreachable, match=r"http://head:8265 does not answer: refused\. The run may go on"):
            Run("r", fake_dashboard(Gone())).view()

    def test_nobody_there(self) -> None:
        with pytest.raises(JobError, match=r"no Ray dashboard answers at http://127\.0\.0\.1:9.*ray dashboard"):
            clusters.find_dashboard("http://127.0.0.1:9")
        with pytest.raises(JobError, match=r"no Ray dashboard answers at 127\.0\.0\.1:9"):
            clusters.find_dashboard("127.0.0.1:9")

    def test_no_cluster_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        assert clusters.find_dashboard(None) is None
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")  # one that was killed
        assert clusters.find_dashboard("auto") is None

    def test_relative_storage_path_of_another_machine(self) -> None:
        with pytest.raises(ExperimentError, match="--storage-path runs is relative"):
            clusters.check_storage(fake_dashboard(None), "runs")
        for path in (None, "/nfs/runs", "~/runs", "s3://bucket/runs"):
            clusters.check_storage(fake_dashboard(None), path)


class TestCommandLine:
    def test_help_names_the_commands(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            cli.main(["--help"])
        shown = capsys.readouterr().out
        assert all(f"\n  {name} " in shown for name in ("status", "logs", "stop", "list", "results"))

    def test_errors_are_one_message(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["list", "--address", "http://127.0.0.1:9"]) == 1
        assert capsys.readouterr().err.startswith("raymx: error: no Ray dashboard answers at http://127.0.0.1:9")
        assert cli.main([str(FASHION_MNIST), "--set", "training.epochs=0", "--address", "http://127.0.0.1:9"]) == 1
        assert "training.epochs is 0" in capsys.readouterr().err
        assert cli.main([str(FASHION_MNIST), "--resume", "--address", "http://127.0.0.1:9"]) == 1
        assert "--resume needs the RUN_FOLDER" in capsys.readouterr().err
