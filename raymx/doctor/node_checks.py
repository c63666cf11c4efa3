"""The facts of one node -> findings. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from raymx.doctor.facts import NodeFacts, Space
from raymx.doctor.findings import Finding, Level
from raymx.doctor.gpus import check_gpus
from raymx.doctor.needs import Needs, builds, fits, version_of

INSTALL = "in raymx's folder: pip install -e '.[cpu]', or '.[cu112]' for NVIDIA GPUs"
REINSTALL = "pip uninstall -y mxnet mxnet-cu112, then " + INSTALL

# Other versions of these stop a run; of what else raymx needs they may not.
_STOPPING = ("ray", "numpy", "pandas", "pyarrow", "pydantic", "PyYAML", "opencv-python-headless", "simplejpeg")

_FULL = 0.95  # from here on Ray keeps no more objects on a disk (local_fs_capacity_threshold)
_LOW, _OUT = 2e9, 100e6  # bytes: soon full; nothing can be written
# Ray's object store, when nothing says how large: a part of the memory, and the most where /dev/shm is small.
_DEFAULT_STORE, _MOST_STORE = 0.3, 10e9


def check_node(facts: NodeFacts, needs: Needs | None, *, resources: Mapping[str, float] | None = None) -> list[Finding]:
    """All that can be told of a node by itself. ``resources`` are Ray's, None where no Ray was asked.

    Without ``needs`` no versions can be compared.
    """
    found = [*check_python(facts, needs), *check_raymx(facts, on_cluster=resources is not None)]
    if needs is not None:
        found += [*check_packages(facts, needs), *check_cuda_libraries(facts, needs)]
    found += [*check_mxnet(facts, needs), *check_gpus(facts, None if resources is None else resources.get("GPU", 0.0))]
    store = None if resources is None else resources.get("object_store_memory")
    return [
        *found,
        check_shm(facts, store),
        check_disk("Ray's files", facts["temp"], "RAY_TMPDIR, or ray start --temp-dir, names another folder"),
    ]


def check_python(facts: NodeFacts, needs: Needs | None) -> list[Finding]:
    wanted = needs.python if needs else ""
    if not fits(facts["python"], wanted):
        python = Finding(
            "problem",
            "Python",
            f"{facts['python']}, and raymx needs {wanted}",
            "make a virtual environment with Python 3.11 and install raymx in it",
        )
    else:
        python = Finding("ok", "Python", facts["python"])
    if facts["platform"] == "Linux x86_64":
        return [python]
    return [
        python,
        Finding(
            "problem",
            "system",
            f"{facts['platform']}: MXNet 1.9.1 is built for Linux x86_64",
            "use such a machine, or a container of that kind",
        ),
    ]


def check_raymx(facts: NodeFacts, *, on_cluster: bool) -> list[Finding]:
    """On one machine Ray's processes find raymx in the current folder too, so there it need not be installed."""
    found = facts["child"]["raymx"]
    if "error" not in found:
        return [Finding("ok", "raymx", found["version"])]
    level: Level = "problem" if on_cluster else "warning"
    return [Finding(level, "raymx", f"cannot be imported by {facts['executable']} ({found['error']})", INSTALL)]


def check_packages(facts: NodeFacts, needs: Needs) -> list[Finding]:
    """Each package by its version; those that are not there in one finding, which one command installs."""
    versions = {name: version_of(name, facts["packages"]) for name in needs.packages}
    missing = [name for name, version in versions.items() if version is None]
    found = [_package(name, version, needs) for name, version in versions.items() if version is not None]
    if missing:
        found.append(Finding("problem", "packages", f"not installed: {', '.join(missing)}", INSTALL))
    return found


def _package(name: str, version: str, needs: Needs) -> Finding:
    wanted = needs.packages[name]
    if fits(version, wanted):
        return Finding("ok", name, version)
    held = "" if name == "numpy" else f" {needs.exactly('numpy')}"  # or pip takes a newer one along
    return Finding(
        "problem" if name in _STOPPING else "warning",
        name,
        f"{version}, and raymx needs {wanted}",
        f"pip install {needs.exactly(name)}{held}",
    )


def check_mxnet(facts: NodeFacts, needs: Needs | None) -> list[Finding]:
    """Which build there is, and whether it can be imported."""
    there, found = builds(facts["packages"]), facts["child"]["mxnet"]
    findings = []
    if len(there) > 1:
        findings.append(
            Finding(
                "problem",
                "MXNet",
                f"{' and '.join(there)} are installed, and each has overwritten files of the other",
                REINSTALL,
            )
        )
    if "error" in found:
        return [
            *findings,
            Finding("problem", "MXNet", f"cannot be imported ({found['error']})", _import_fix(found["error"], facts)),
        ]
    wanted = needs.mxnet.get(next(iter(there), ""), "") if needs else ""
    if not fits(found["version"], wanted):
        findings.append(Finding("problem", "MXNet", f"{found['version']}, and raymx needs {wanted}", REINSTALL))
    return findings or [Finding("ok", "MXNet", f"{found['version']}, {'GPU' if found['cuda'] else 'CPU'} build")]


def _import_fix(error: str, facts: NodeFacts) -> str:
    """What to do about the words with which ``import mxnet`` ends."""
    if "No module named 'mxnet'" in error:
        return INSTALL
    if "'numpy'" in error and "has no attribute" in error:  # np.bool went with 1.24
        return "pip install numpy==1.23.5: it is the last NumPy that MXNet 1.9.1 can be imported with"
    if "libgomp" in error or "error" in facts["child"]["libgomp"]:
        return "apt-get install libgomp1 (dnf install libgomp): a library of the system that MXNet needs"
    if "libcuda" in error:
        return (
            "this is the GPU build, and there is no NVIDIA driver: install one (in a container, start it with the "
            "NVIDIA runtime: docker run --gpus all), or for the CPU " + REINSTALL
        )
    if "cannot open shared object file" in error:
        return "the CUDA libraries come with raymx's extra: in raymx's folder: pip install -e '.[cu112]'"
    if "No module named" in error:
        return INSTALL
    return f"see what {facts['executable']} -c 'import mxnet' prints; to install anew: {REINSTALL}"


def check_cuda_libraries(facts: NodeFacts, needs: Needs) -> list[Finding]:
    """Of the GPU build only; where it can be imported, libraries of the system's own do as well."""
    if "mxnet-cu112" not in facts["packages"]:
        return []
    versions = {name: version_of(name, facts["packages"]) for name in needs.cuda}
    wrong = [
        f"{name} {version or 'is missing'} (needs {needs.cuda[name]})"
        for name, version in versions.items()
        if version is None or not fits(version, needs.cuda[name])
    ]
    if not wrong:
        return [Finding("ok", "CUDA libraries", f"all {len(versions)} are installed")]
    return [
        Finding(
            "problem" if "error" in facts["child"]["mxnet"] else "note",
            "CUDA libraries",
            "; ".join(wrong),
            "in raymx's folder: pip install -e '.[cu112]'",
        )
    ]


def check_shm(facts: NodeFacts, store: float | None) -> Finding:
    """``store``: bytes of Ray's object store on this node, None before there is one."""
    wanted = store or min(_DEFAULT_STORE * facts["memory"], _MOST_STORE)
    total, free = facts["shm"]["total"], facts["shm"]["free"]
    if total < wanted:
        gigabytes = math.ceil(wanted / 1e9)
        return Finding(
            "warning",
            "/dev/shm",
            f"{size(total)}, and Ray's object store wants {size(wanted)}: it lies on disk then, and data come slowly",
            f"in Docker: docker run --shm-size={gigabytes}g; in "
            "Kubernetes: mount an emptyDir of medium Memory there; else: "
            f"mount -o remount,size={gigabytes}G /dev/shm",
        )
    if free < 0.1 * total:
        return Finding(
            "warning",
            "/dev/shm",
            f"{size(free)} of {size(total)} are free",
            "remove what ended programs have left in /dev/shm (ls -l /dev/shm)",
        )
    return Finding("ok", "/dev/shm", f"{size(free)} free", amount=free)


def check_disk(what: str, disk: Space, else_where: str) -> Finding:
    """``else_where``: how another place is named."""
    free, where = disk["free"], f"{size(disk['free'])} free in {disk['path']}"
    full = 1 - free / disk["total"] if disk["total"] else 0.0
    fix = f"make room there; {else_where}"
    if free < _OUT:
        return Finding("problem", what, f"only {where}", fix)
    if free < _LOW:
        return Finding("warning", what, f"only {where}", fix)
    if full > _FULL:
        return Finding("warning", what, f"{where}: {full:.0%} is full, and Ray keeps no objects beyond 95%", fix)
    return Finding("ok", what, where, amount=free)


def size(number: float) -> str:
    """Bytes in words: ``12.3 GB``, ``64 MB``."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def check_storage(path: str, error: str, user: str, disk: Space | None) -> list[Finding]:
    """The storage path as one node has it. ``disk`` is None for a URI, ``error`` "" where it can be written."""
    if error.startswith("No module named"):  # pyarrow, through which runs write
        return [Finding("problem", "storage path", f"{path} cannot be tried ({error})", INSTALL)]
    if error:
        return [
            Finding(
                "problem",
                "storage path",
                f"{path} cannot be written by {user} ({error})",
                f"give {user} the right to write there, or give another --storage-path",
            )
        ]
    return [
        Finding("ok", "storage path", f"{path} can be written")
        if disk is None
        else check_disk("storage path", disk, "--storage-path names another folder")
    ]


def not_installed() -> Finding:
    """raymx runs out of a folder that has no metadata."""
    return Finding("warning", "raymx", "is not installed, so versions cannot be compared", INSTALL)
