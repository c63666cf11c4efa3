"""The doctor: what it makes of the facts of a machine or a cluster, and both for real."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from raymx.doctor import cluster_checks, facts, findings, needs, node_checks, storage_trial
from raymx.doctor.cluster_checks import Clock, ClusterFacts
from raymx.doctor.facts import NodeFacts, Space
from raymx.doctor.findings import Finding
from raymx.doctor.probe import Probe

GB = 10**9
CHILD = (ROOT / "raymx" / "doctor" / "child.py").read_text()
NEEDS = needs.parse(
    [
        "ray[default,tune]<2.61,>=2.60",
        "numpy==1.23.5",
        "pandas<3,>=1.5",
        "pyarrow<26,>=14",
        "PyYAML<7,>=6",
        "matplotlib<3.10,>=3.7",
        'mxnet==1.9.1; extra == "cpu"',
        'mxnet-cu112==1.9.1; extra == "cu112"',
        'nvidia-cudnn-cu11<9,>=8.9; extra == "cu112"',
        'nvidia-cublas-cu11<11.12,>=11.11; extra == "cu112"',
        'pytest<10,>=8; extra == "test"',
        'mxnet==1.9.1; extra == "test"',
    ],
    ">=3.10,<3.12",
)
PACKAGES = {
    "ray": "2.60.0",
    "numpy": "1.23.5",
    "pandas": "2.3.3",
    "pyarrow": "25.0.1",
    "pyyaml": "6.0.4",
    "matplotlib": "3.9.4",
    "mxnet": "1.9.1",
}
CUDA = {"mxnet-cu112": "1.9.1", "nvidia-cudnn-cu11": "8.9.6.50", "nvidia-cublas-cu11": "11.11.3.6"}
A100 = {"name": "NVIDIA A100", "capability": [8, 0]}
H200 = {"name": "NVIDIA H200", "capability": [9, 0]}
NO_DRIVER = {"error": "OSError: libcuda.so.1: cannot open shared object file: No such file or directory"}


def node(
    packages: dict[str, str | None] | None = None, child: dict[str, Any] | None = None, **changes: Any
) -> NodeFacts:
    """The facts of a node that is well, but for these changes; a package that is None is not installed."""
    all_packages = {**PACKAGES, **(packages or {})}
    stages = {
        "raymx": {"version": "0.1.0", "folder": "/raymx", "code": "c0de"},
        "libgomp": {},
        "driver": NO_DRIVER,
        "mxnet": {"version": "1.9.1", "cuda": False, "gpus": 0},
        **(child or {}),
    }
    return {
        "host": "a",
        "user": "me",
        "executable": "/env/bin/python",
        "platform": "Linux x86_64",
        "python": "3.11.7",
        "packages": {name: version for name, version in all_packages.items() if version},
        "child": stages,
        "gpu_files": 0,
        "memory": 16 * GB,
        "shm": Space(path="/dev/shm", total=8 * GB, free=8 * GB),
        "temp": Space(path="/tmp/ray", total=100 * GB, free=50 * GB),
        "environment": {},
        "token": True,
        **changes,
    }  # type: ignore


def gpu_node(
    devices: list[dict[str, Any]], *, seen: int, cuda: int = 12020, build: bool = True, **more: Any
) -> NodeFacts:
    packages: dict[str, str | None] = {"mxnet": None, **CUDA} if build else {}
    return node(
        packages,
        {
            "driver": {"cuda": cuda, "devices": devices},
            "mxnet": {"version": "1.9.1", "cuda": build, "gpus": seen},
            **more,
        },
        gpu_files=len(devices),
    )


def bad(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.level != "ok"]


def only(found: list[Finding]) -> Finding:
    """The one finding that is not well."""
    (one,) = bad(found)
    return one


# What raymx needs, out of its metadata


def test_needs_are_read_out_of_metadata() -> None:
    assert NEEDS.packages["pyarrow"] == "<26,>=14"
    assert NEEDS.mxnet == {"mxnet": "==1.9.1", "mxnet-cu112": "==1.9.1"}
    assert set(NEEDS.cuda) == {"nvidia-cudnn-cu11", "nvidia-cublas-cu11"}
    assert "pytest" not in NEEDS.packages
    assert NEEDS.exactly("numpy") == "numpy==1.23.5"
    assert NEEDS.exactly("pandas") == "'pandas<3,>=1.5'"


def test_needs_of_this_raymx() -> None:
    own = needs.installed()
    assert own is not None
    assert {"ray", "numpy", "pandas", "pyarrow", "opencv-python-headless", "simplejpeg"} <= set(own.packages)
    assert set(own.mxnet) == {"mxnet", "mxnet-cu112"}
    assert "nvidia-cudnn-cu11" in own.cuda


@pytest.mark.parametrize(
    ("version", "fits"), [("1.23.5", True), ("1.24.0", False), ("1.23.5rc1", False), ("of my own", False)]
)
def test_versions_are_compared(version: str, fits: bool) -> None:
    assert needs.fits(version, "==1.23.5") is fits


# One node


def test_a_node_that_is_well() -> None:
    found = node_checks.check_node(node(), NEEDS)
    assert not bad(found)
    assert {"Python", "raymx", "ray", "numpy", "MXNet", "GPUs", "/dev/shm"} <= {one.what for one in found}


@pytest.mark.parametrize(
    ("package", "version", "level"),
    [
        ("numpy", "2.1.0", "problem"),
        ("numpy", "1.22.0", "problem"),
        ("pyarrow", "26.0.0", "problem"),
        ("pandas", "3.0.1", "problem"),
        ("ray", "2.61.0", "problem"),
        ("matplotlib", "3.10.1", "warning"),
    ],
)
def test_a_package_that_does_not_fit(package: str, version: str, level: str) -> None:
    one = only(node_checks.check_node(node({package: version}), NEEDS))
    assert (one.level, one.what) == (level, package)
    assert one.value == f"{version}, and raymx needs {NEEDS.packages[package]}"
    assert one.fix.startswith(f"pip install {NEEDS.exactly(package)}")
    assert "numpy==1.23.5" in one.fix  # or pip would take a newer one along


def test_packages_that_are_missing_are_one_finding() -> None:
    one = only(node_checks.check_node(node({"pandas": None, "pyyaml": None}), NEEDS))
    assert (one.level, one.value) == ("problem", "not installed: pandas, PyYAML")
    assert "pip install -e '.[cpu]'" in one.fix


@pytest.mark.parametrize(("python", "fits"), [("3.10.13", True), ("3.11.7", True), ("3.12.1", False), ("3.9.2", False)])
def test_python(python: str, fits: bool) -> None:
    assert bool(bad(node_checks.check_python(node(python=python), NEEDS))) is not fits


def test_another_system() -> None:
    assert only(node_checks.check_python(node(platform="Linux aarch64"), NEEDS)).what == "system"


def test_raymx_that_ray_s_processes_do_not_find() -> None:
    lost = node(child={"raymx": {"error": "ModuleNotFoundError: No module named 'raymx'"}})
    one = only(node_checks.check_node(lost, NEEDS, resources={}))
    assert (one.level, one.what) == ("problem", "raymx")
    assert "/env/bin/python" in one.value
    assert "pip install" in one.fix
    assert only(node_checks.check_node(lost, NEEDS)).level == "warning"  # here they find it in the current folder


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("ModuleNotFoundError: No module named 'mxnet'", "pip install -e '.[cpu]'"),
        ("AttributeError: module 'numpy' has no attribute 'bool'", "numpy==1.23.5"),
        (
            "OSError: libgomp.so.1: cannot open shared object file: No such file or directory",
            "apt-get install libgomp1",
        ),
        ("OSError: libcuda.so.1: cannot open shared object file: No such file or directory", "no NVIDIA driver"),
        (
            "OSError: libcudnn.so.8: cannot open shared object file: No such file or directory",
            "pip install -e '.[cu112]'",
        ),
        ("ModuleNotFoundError: No module named 'requests'", "pip install -e '.[cpu]'"),
        ("the process was ended by SIGABRT: terminate called", "/env/bin/python -c 'import mxnet'"),
        ("it was not done after 60 s", "/env/bin/python -c 'import mxnet'"),
    ],
)
def test_mxnet_that_cannot_be_imported(error: str, fix: str) -> None:
    one = only(node_checks.check_mxnet(node(child={"mxnet": {"error": error}}), NEEDS))
    assert (one.level, one.what) == ("problem", "MXNet")
    assert error in one.value
    assert fix in one.fix


def test_both_builds_of_mxnet() -> None:
    one = only(node_checks.check_mxnet(node({"mxnet-cu112": "1.9.1"}), NEEDS))
    assert one.value.startswith("mxnet and mxnet-cu112 are installed")
    assert one.fix.startswith("pip uninstall -y mxnet mxnet-cu112")


def test_another_mxnet() -> None:
    one = only(node_checks.check_mxnet(node(child={"mxnet": {"version": "1.8.0", "cuda": False, "gpus": 0}}), NEEDS))
    assert one.value == "1.8.0, and raymx needs ==1.9.1"


def test_cuda_libraries() -> None:
    well = gpu_node([A100], seen=1)
    assert not bad(node_checks.check_cuda_libraries(well, NEEDS))
    assert node_checks.check_cuda_libraries(node(), NEEDS) == []  # the CPU build needs none
    newer = node(
        {**CUDA, "nvidia-cudnn-cu11": "9.1.0", "nvidia-cublas-cu11": None},
        {"mxnet": {"error": "OSError: libcudnn.so.8: ..."}},
    )
    one = only(node_checks.check_cuda_libraries(newer, NEEDS))
    assert one.level == "problem"
    assert one.value == (
        "nvidia-cudnn-cu11 9.1.0 (needs <9,>=8.9); nvidia-cublas-cu11 is missing (needs <11.12,>=11.11)"
    )
    newer["child"]["mxnet"] = {"version": "1.9.1", "cuda": True, "gpus": 1}  # the system has its own
    assert only(node_checks.check_cuda_libraries(newer, NEEDS)).level == "note"


# GPUs


def test_gpus_that_can_be_used() -> None:
    (one,) = node_checks.check_gpus(gpu_node([A100, A100], seen=2), 2)
    assert (one.level, one.value) == ("ok", "2 NVIDIA A100 (compute capability 8.0)")


@pytest.mark.parametrize(
    ("capability", "usable"),
    [
        ([3, 7], False),
        ([5, 0], True),
        ([7, 5], True),
        ([8, 6], True),
        ([8, 9], True),
        ([9, 0], False),
        ([12, 0], False),
    ],
)
def test_compute_capability(capability: list[int], usable: bool) -> None:
    found = node_checks.check_gpus(gpu_node([A100, {"name": "other", "capability": capability}], seen=2), 2)
    assert [one.level for one in found] == (["ok"] if usable else ["problem"])
    if not usable:
        assert "1 other (compute capability" in found[0].value
        assert "A100" not in found[0].value


def test_gpus_that_the_cpu_build_does_not_use() -> None:
    assert only(node_checks.check_gpus(gpu_node([A100], seen=0, build=False), 1)).level == "warning"
    one = only(node_checks.check_gpus(gpu_node([H200], seen=0, build=False), 1))
    assert one.level == "note"  # the GPU build could not use it either
    assert one.value.endswith("so they are not used")


def test_an_old_driver() -> None:
    assert "CUDA 10.2" in only(node_checks.check_gpus(gpu_node([A100], seen=0, cuda=10020), 1)).value


def test_gpus_that_mxnet_does_not_see() -> None:
    one = only(node_checks.check_gpus(gpu_node([A100, A100], seen=1), 2))
    assert one.value == "MXNet sees 1, the driver shows 2, Ray counts 2"
    assert (
        only(node_checks.check_gpus(gpu_node([A100, A100], seen=1), None)).value == "MXNet sees 1, the driver shows 2"
    )
    assert not bad(node_checks.check_gpus(gpu_node([A100, A100], seen=2), 1))


def test_gpus_that_ray_does_not_count() -> None:
    assert only(node_checks.check_gpus(gpu_node([A100], seen=1), 0)).level == "note"


def test_gpus_without_a_driver() -> None:
    assert only(node_checks.check_gpus(node(), 1)).value.startswith("Ray counts 1, the NVIDIA driver cannot be used")
    assert only(node_checks.check_gpus(node(gpu_files=2), 0)).level == "note"
    assert only(node_checks.check_gpus(node({"mxnet": None, **CUDA}, gpu_files=2), None)).level == "problem"
    assert not bad(node_checks.check_gpus(node(), 0))


# Room


def test_shm() -> None:
    small = node(shm=Space(path="/dev/shm", total=64 * 10**6, free=64 * 10**6))
    one = node_checks.check_shm(small, None)
    assert one.level == "warning"
    assert one.value.startswith("64 MB, and Ray's object store wants 4.8 GB")
    assert "--shm-size=5g" in one.fix
    assert node_checks.check_shm(small, 50e6).level == "ok"  # this Ray asks for so much only
    full = node(shm=Space(path="/dev/shm", total=8 * GB, free=10**6))
    assert node_checks.check_shm(full, None).value == "1 MB of 8.0 GB are free"


@pytest.mark.parametrize(
    ("free", "level"), [(50 * GB, "ok"), (4 * GB, "warning"), (1 * GB, "warning"), (10**7, "problem"), (0, "problem")]
)
def test_disk(free: int, level: str) -> None:
    one = node_checks.check_disk("Ray's files", Space(path="/tmp/ray", total=100 * GB, free=free), "name another")
    assert one.level == level
    assert bool(one.fix) is (level != "ok")


def test_storage_that_cannot_be_written() -> None:
    one = only(node_checks.check_storage("/results", "Permission denied", "me", None))
    assert one.value == "/results cannot be written by me (Permission denied)"
    assert "--storage-path" in one.fix
    assert "pip install" in only(node_checks.check_storage("/results", "No module named 'pyarrow'", "me", None)).fix
    assert not bad(node_checks.check_storage("s3://bucket/runs", "", "me", None))


# Several nodes


def cluster(**changes: Any) -> ClusterFacts:
    """Three nodes that are well, but for these changes."""
    nodes = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    disk = Space(path="/nfs", total=100 * GB, free=50 * GB)
    well = {
        "facts": {name: node(environment={"RAY_num_workers_soft_limit": "64"}) for name in nodes},
        "here": node(),
        "resources": {name: {"CPU": 4.0} for name in nodes},
        "clocks": {name: Clock(0.01 * i, 0.001) for i, name in enumerate(nodes)},
        "interfaces": dict.fromkeys(nodes, "eth0"),
        "links": {(one, other): "" for one in nodes for other in nodes if one != other},
        "storage_path": "/nfs/runs",
        "storage": dict.fromkeys(nodes, ("", disk)),
        "sees": {name: frozenset(nodes) for name in nodes},
        "token_asked": True,
    }
    return ClusterFacts(nodes, **{**well, **changes})


def findings_of(**changes: Any) -> list[Finding]:
    return cluster_checks.check_cluster(cluster(**changes), NEEDS)


def test_a_cluster_that_is_well() -> None:
    found = findings_of()
    assert not bad(found)
    assert {"nodes", "versions", "connections", "storage path", "clocks", "token"} <= {one.what for one in found}
    assert all(one.nodes == () for one in found)
    assert not findings.stops(found)


def test_a_node_that_does_not_answer() -> None:
    some = {name: node(environment={"RAY_num_workers_soft_limit": "64"}) for name in ("10.0.0.1", "10.0.0.3")}
    found = findings_of(silent={"10.0.0.2": "nothing within 90 s"}, facts=some)
    one = only(found)
    assert (one.level, one.value) == ("problem", "10.0.0.2 does not answer: nothing within 90 s")
    assert next(one.value for one in found if one.what == "nodes") == "2 nodes answered: 10.0.0.1, 10.0.0.3"


def test_no_node_answers() -> None:
    nodes = ("10.0.0.1",)
    found = cluster_checks.check_cluster(ClusterFacts(nodes, {"10.0.0.1": "it died"}), NEEDS)
    assert [one.what for one in found if one.level == "problem"] == ["nodes"]


@pytest.mark.parametrize(
    ("there", "what", "level"),
    [
        (node(python="3.11.2"), "Python", "problem"),
        (node({"ray": "2.60.1"}), "ray", "problem"),
        (node(child={"raymx": {"version": "0.2.0", "folder": "/raymx", "code": "c0de"}}), "raymx", "problem"),
        (node(child={"raymx": {"version": "0.1.0", "folder": "/raymx", "code": "01d"}}), "raymx's code", "warning"),
    ],
)
def test_versions_that_differ(there: NodeFacts, what: str, level: str) -> None:
    facts_of = {"10.0.0.1": node(), "10.0.0.2": there, "10.0.0.3": node()}
    one = only(cluster_checks.check_agreement(cluster(facts=facts_of)))
    assert (one.level, one.what) == (level, what)
    assert "on this command, 10.0.0.1, 10.0.0.3; " in one.value
    assert one.value.endswith("on 10.0.0.2")


def test_this_command_s_python_is_compared_too() -> None:
    assert "3.10.1 on this command" in only(cluster_checks.check_agreement(cluster(here=node(python="3.10.1")))).value


def test_a_package_of_one_node_names_the_node() -> None:
    facts_of = {"10.0.0.1": node(), "10.0.0.2": node({"pandas": "3.0.0"}), "10.0.0.3": node()}
    found = [one for one in findings_of(facts=facts_of) if one.what == "pandas"]
    assert [(one.level, one.nodes) for one in found] == [("ok", ("10.0.0.1", "10.0.0.3")), ("problem", ("10.0.0.2",))]


def test_nodes_that_cannot_connect() -> None:
    links = dict(cluster().links) | {
        ("10.0.0.1", "10.0.0.3"): "no answer within 5 s",
        ("10.0.0.2", "10.0.0.3"): "no answer within 5 s",
    }
    one = only(findings_of(links=links))
    assert one.value == "10.0.0.3 cannot be reached from 10.0.0.1, 10.0.0.2: no answer within 5 s"
    assert "security group" in one.fix


def test_the_other_way_is_a_finding_of_its_own() -> None:
    links = {("10.0.0.1", "10.0.0.2"): "Connection refused", ("10.0.0.2", "10.0.0.1"): "no answer within 5 s"}
    assert len(bad(findings_of(links=links))) == 2


def test_a_node_whose_address_is_not_its_own() -> None:
    one = only(findings_of(unbound={"10.0.0.2": "Cannot assign requested address; its interfaces are eth0 10.1.0.2"}))
    assert "eth0 10.1.0.2" in one.value
    assert "--node-ip-address" in one.fix


def test_storage_that_is_not_shared() -> None:
    sees = {
        "10.0.0.1": frozenset({"10.0.0.1"}),
        "10.0.0.2": frozenset({"10.0.0.2", "10.0.0.3"}),
        "10.0.0.3": frozenset({"10.0.0.2", "10.0.0.3"}),
    }
    one = only(findings_of(sees=sees))
    assert one.level == "problem"
    assert "10.0.0.1 and 10.0.0.2, 10.0.0.3 do not see each other's files" in one.value
    assert "s3://" in one.fix


def test_storage_that_one_node_cannot_write() -> None:
    disk = Space(path="/nfs", total=100 * GB, free=50 * GB)
    one = only(
        findings_of(
            storage={"10.0.0.1": ("", disk), "10.0.0.2": ("Read-only file system", disk), "10.0.0.3": ("", disk)},
            sees=dict.fromkeys(("10.0.0.1", "10.0.0.3"), frozenset({"10.0.0.1", "10.0.0.3"})),
        )
    )
    assert one.nodes == ("10.0.0.2",)


@pytest.mark.parametrize(
    ("ahead_s", "within_s", "level"),
    [(1.9, 0.01, "ok"), (2.5, 0.01, "warning"), (-7.0, 0.01, "warning"), (2.5, 1.0, "ok")],
)
def test_clocks(ahead_s: float, within_s: float, level: str) -> None:
    """One that may be right, by how long the answer took, is."""
    (one,) = cluster_checks.check_clocks({"a": Clock(0.0, 0.01), "b": Clock(ahead_s, within_s)})
    assert one.level == level
    if level == "warning":
        assert one.value.startswith("b is 2.5 s ahead of a" if ahead_s > 0 else "a is 7.0 s ahead of b")


def test_a_cluster_without_a_token() -> None:
    assert only(findings_of(token_asked=False)).what == "token"


def test_idle_processes_that_ray_ends() -> None:
    found = only(
        findings_of(
            facts={
                "10.0.0.1": node(),
                "10.0.0.2": node(),
                "10.0.0.3": node(environment={"RAY_num_workers_soft_limit": "8"}),
            }
        )
    )
    assert (found.level, found.nodes) == ("note", ("10.0.0.1", "10.0.0.2"))


@pytest.mark.parametrize(
    ("there", "mode", "here", "fix"),
    [
        (True, "", "was not sent", "RAY_AUTH_MODE=token"),
        (True, "disabled", "RAY_AUTH_MODE is disabled", "--address auto"),
        (False, "token", "no token here", "copy"),
        (True, "token", "another cluster's", "copy"),
    ],
)
def test_a_token_that_is_refused(there: bool, mode: str, here: str, fix: str) -> None:
    assert here in cluster_checks.token_here(there, mode)
    assert fix in cluster_checks.token_fix(there, mode)


# How it is shown


def test_lines_have_problems_last_and_their_fix_below() -> None:
    shown = findings.lines([Finding("problem", "b", "broken", "mend it", ("n1", "n2")), Finding("ok", "a", "fine")])
    assert shown == [
        "ok       a  fine",
        "problem  b  n1, n2: broken",
        "  mend it",
        "",
        "1 problem would stop a run: see above for what to do",
    ]


def test_a_fix_of_several_findings_is_shown_once() -> None:
    shown = findings.lines([Finding("problem", "a", str(i), "mend it") for i in range(2)])
    assert shown[:3] == ["problem  a  0", "problem  a  1", "  mend it"]


def test_lines_name_a_few_of_many_nodes() -> None:
    shown = findings.lines([Finding("note", "b", "so", nodes=tuple(f"n{i}" for i in range(9)))])
    assert shown[0] == "note  b  n0, n1, n2, n3 and 5 more: so"


def test_of_what_is_well_on_many_nodes_the_least_is_shown() -> None:
    found = findings.merged({f"n{free}": [Finding("ok", "disk", f"{free} GB free", amount=free)] for free in (7, 5, 9)})
    assert found == [Finding("ok", "disk", "at least 5 GB free", amount=5)]


def test_json_has_all_nodes() -> None:
    (plain,) = json.loads(findings.as_json([Finding("note", "b", "so", "do", ("n1",))]))
    assert plain == {"level": "note", "what": "b", "value": "so", "fix": "do", "nodes": ["n1"]}


# NodeFacts, really


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("child", "error"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import sys; print('x', file=sys.stderr); sys.exit(3)", "exit code 3: x"),
        ("import time; time.sleep(60)", "not done after 1 s"),
    ],
)
def test_a_child_that_ends_badly(child: str, error: str) -> None:
    first = 'print(\'{"stage": "raymx", "found": {"version": "7"}}\', flush=True); '
    found = facts.try_out(first + child, timeout_s=1.0 if "sleep" in child else 30.0)
    assert found["raymx"] == {"version": "7"}
    assert error in found["mxnet"]["error"]


@pytest.mark.timeout(60)
def test_the_child_names_what_is_wrong_with_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with NumPy 1.24 and later, which have no ``bool``."""
    (tmp_path / "mxnet.py").write_text("import numpy\nnumpy.no_such_bool\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("DMLC_ROLE", "server")  # it must not become one
    error = facts.try_out(CHILD, 30.0)["mxnet"]["error"]
    assert error == "AttributeError: module 'numpy' has no attribute 'no_such_bool'"
    assert "numpy==1.23.5" in only(node_checks.check_mxnet(node(child={"mxnet": {"error": error}}), NEEDS)).fix


def test_packages_have_canonical_names() -> None:
    assert "pyyaml" in facts.packages()
    assert facts.canonical("Py_YAML.x") == "py-yaml-x"


def test_space_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert facts.space(str(tmp_path / "a" / "b"))["path"] == str(tmp_path)


@pytest.mark.parametrize(
    ("settings", "there"), [({}, False), ({"RAY_AUTH_TOKEN": "x"}, True), ({"RAY_AUTH_TOKEN_PATH": __file__}, True)]
)
def test_tokens(settings: dict[str, str], there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert facts.has_token() is there


def test_a_storage_path_is_left_as_it_was(tmp_path: Path) -> None:
    error, disk = storage_trial.try_here(str(tmp_path / "new" / "runs"), "mark")
    assert error == ""
    assert disk is not None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    assert storage_trial.try_here((tmp_path / "kept").as_uri(), "mark") == ("", None)
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_storage_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error, _ = storage_trial.try_here(str(tmp_path / "file" / "runs"), "mark")
    assert "irectory" in error


@pytest.mark.timeout(60)
def test_ports_of_two_nodes() -> None:
    first, second = Probe("first", None), Probe("second", None)
    port, _ = first.listen("127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    targets = [("first", "127.0.0.1", port), ("third", "127.0.0.1", port), ("gone", "127.0.0.1", free)]
    assert second.connect(targets) == {
        "first": "",
        "third": "somebody else answered at this address",
        "gone": "Connection refused",
    }
    port, error = first.listen("203.0.113.1")  # nobody's address
    assert port == 0
    assert "lo 127.0.0.1" in error
