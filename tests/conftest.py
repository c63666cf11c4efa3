"""Shared by all tests: where things are, one Ray for many tests, and how this session's processes are known."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from by_hand import TrialByHand

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
EXPERIMENTS = ROOT / "experiments"

MARK = f"RAYMX_TEST={uuid.uuid4().hex}"
"""In the environment of all processes that this one starts; commands that a test starts have marks of their own."""
os.environ.update([MARK.split("=")])
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # no processes before they are wanted


def pytest_configure(config: pytest.Config) -> None:
    """Have the token of this machine's Rays before the first one starts."""
    token = Path.home() / ".ray" / "auth_token"
    if not token.exists():
        token.parent.mkdir(exist_ok=True)
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the long forms unless they are asked for. Tests that share something run one after the other, and those
    that share nothing, which are fast, before them.
    """
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get("RAYMX_LONG"):
            item.add_marker(pytest.mark.skip(reason="a long form of another test: RAYMX_LONG=1"))
    order = {group: place for place, group in enumerate(SLOW)}
    items.sort(key=lambda item: (order.get(_group(item), -1), _turn(item)))


SLOW = (
    "shared Ray",
    *("three CPUs", "test_run", "cluster of hosts", "test_submit", "test_notebooks", "data Ray", "test_chaos"),
    *("test_elastic_runs", "test_doctor_command", "test_ray_up", "test_old_runs", "test_autoscaler_run", "test_hosts"),
)
_SHARED = {
    "trial": "shared Ray",
    "ray_cluster": "shared Ray",
    "data_ray": "data Ray",
    "three_cpus": "three CPUs",
    "cluster_of_hosts": "cluster of hosts",
}


def _group(item: pytest.Item) -> str:
    """What a test shares with others: a Ray, or its file."""
    fixtures = getattr(item, "fixturenames", ())
    if "no_ray" in fixtures:
        return item.path.stem
    return next((group for name, group in _SHARED.items() if name in fixtures), item.path.stem)


def _turn(item: pytest.Item) -> bool:
    """Those that share the warm trial before those that share its Ray alone."""
    return "trial" not in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    shared.is_broken |= report.failed and "trial" in getattr(item, "fixturenames", ())
    return report


def start_ray(num_cpus: int) -> None:
    """Ray gives its processes half a minute to come up, which is short where much else runs: it may try again."""
    import ray

    os.environ.setdefault("RAY_num_workers_soft_limit", "64")
    quiet: dict[str, Any] = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    for tries_left in (2, 1, 0):
        try:
            ray.init("local", num_cpus=num_cpus, **quiet)
            return
        except Exception:
            ray.shutdown()
            if not tries_left:
                raise


def _ask_for_token() -> None:
    """All Rays that this process starts ask for a token: Ray reads that when it is imported, and when told to."""
    from ray._raylet import Config

    if os.environ.get("RAY_AUTH_MODE") != "token":
        os.environ["RAY_AUTH_MODE"] = "token"
        Config.initialize("")


class _Shared:
    """The Ray that tests of this process share, and a warm trial in it: each is started when first asked for."""

    def __init__(self) -> None:
        self._cpus = 0
        self._trial: TrialByHand | None = None
        self.is_broken = False

    def ray(self, num_cpus: int) -> None:
        """Be connected to a Ray with so many logical CPUs; 0: to none."""
        _ask_for_token()
        if self._cpus == num_cpus:
            return
        self.end_trial()
        if self._cpus:
            import ray

            ray.shutdown()
        self._cpus = 0
        if num_cpus:
            start_ray(num_cpus)
        self._cpus = num_cpus

    def trial(self) -> TrialByHand:
        from factories import make_trial

        self.ray(RAY_CPUS)
        if self.is_broken:
            self.end_trial()
        if self._trial is None:
            self._trial = make_trial(1, 3, 3, 2, 2)
        return self._trial

    def end_trial(self) -> None:
        ended, self._trial = self._trial, None
        if ended is not None:
            with contextlib.suppress(*[Exception] * self.is_broken):
                ended.close()
        self.is_broken = False


RAY_CPUS, DATA_RAY_CPUS = 24, 4
shared = _Shared()


@pytest.fixture(scope="session", autouse=True)
def _end_of_ray() -> Iterator[None]:
    yield
    shared.ray(0)


@pytest.fixture
def ray_cluster() -> None:
    """Ray with many logical CPUs, shared by all tests that want nothing special of it."""
    shared.ray(RAY_CPUS)


@pytest.fixture
def data_ray() -> None:
    """Ray with four logical CPUs, none of which anybody else uses: for Ray Data."""
    shared.ray(DATA_RAY_CPUS)


@pytest.fixture(scope="module")
def no_ray() -> None:
    """This process is connected to no Ray: the test starts one of its own."""
    shared.ray(0)


@pytest.fixture(scope="session")
def three_cpus() -> Iterator[dict[str, str]]:
    """A node with room for one small trial, shared by commands: what these have in their environment to find it."""
    shared.ray(0)
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
    yield {"RAY_AUTH_MODE": "token", "RAY_ADDRESS": made.address}
    made.shutdown()


@pytest.fixture(scope="module")
def trial() -> TrialByHand:
    """A warm trial with room for four workers, shared by all tests: each begins it with an experiment of its own."""
    return shared.trial()


@pytest.fixture(scope="session")
def _database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite file of MLflow's: it takes seconds to make one."""
    mlflow = pytest.importorskip("mlflow")
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return Path(path)


@pytest.fixture
def store(_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of MLflow's SQLite file in a working directory, which must stay empty but for it."""
    shutil.copy(_database, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return "sqlite:///mlflow.db"


@pytest.fixture(scope="session")
def cluster_of_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A `ray_hosts.ClusterOfHosts` for all tests."""
    import ray_hosts
    from hosts import lan, why_not

    if reason := why_not():
        pytest.skip(reason)
    shared = tmp_path_factory.mktemp("shared")
    with lan(tmp_path_factory.mktemp("hosts"), 3, shared=shared) as (head, other, client):
        ray_hosts.start([head, other], [ray_hosts.HEAD_CPUS, ray_hosts.OTHER_CPUS], dashboard=True)
        yield ray_hosts.ClusterOfHosts([head, other], client, shared)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A `here.Here` for one module."""
    from here import Here

    made = Here(tmp_path_factory.mktemp("here"))
    yield made
    made.end()


def marked(mark: str, *titles: str) -> dict[int, str]:
    """Processes that have ``mark`` in their environment, with their titles; those that begin with one of ``titles``."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if title and (not titles or title.startswith(titles)):
                    found[int(folder.name)] = title
    return found


def kill_node(cluster: Any, node: Any) -> None:
    """End a node of a `ray.cluster_utils.Cluster` as a power cut would: all of its processes, its agents too."""
    (raylet,) = node.all_processes["raylet"]
    children = _children(raylet.process.pid)
    cluster.remove_node(node, allow_graceful=False)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(_stat(int(folder.name))[1]) == pid:
                found.append(int(folder.name))
    return found


def is_there(pid: int) -> bool:
    """Whether a process still runs; one that has ended may wait for its parent."""
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def started_at(pid: int) -> int:
    """When a process was started, in ticks of the system's."""
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: the second is the parent, the twentieth when it was started."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
