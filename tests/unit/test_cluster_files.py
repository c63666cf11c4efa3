"""The cluster files: what Ray would refuse, what would leave a node open or without raymx, before any cloud is asked.

Each check is a function of a file's text, so that wrong edits can be tried on it too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AWS, ONPREM, KUBERAY = "cluster.yaml", "cluster-onprem.yaml", "cluster-kuberay.yaml"
LAUNCHED = (AWS, ONPREM)
# (vCPUs, GPUs) of instance types whose GPUs MXNet has code for, and of some without.
INSTANCES = {
    "m5.xlarge": (4, 0),
    "m5.2xlarge": (8, 0),
    "m5.4xlarge": (16, 0),
    "g4dn.2xlarge": (8, 1),
    "g4dn.12xlarge": (48, 4),
    "g5.2xlarge": (8, 1),
    "g5.12xlarge": (48, 4),
    "p4d.24xlarge": (96, 8),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
(RAY,) = (Requirement(one) for one in PROJECT["dependencies"] if one.startswith("ray["))


def prepared(text: str) -> dict[str, Any]:
    """What `ray up` makes of a file before it talks to a cloud. Raises what it would raise."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(text))
    validate_config(config)
    return dict(config)


def strings(value: Any) -> Iterator[str]:
    """All keys and values of a parsed file, as text."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from strings(key)
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    else:
        yield str(value)


def setups(config: dict[str, Any]) -> dict[str, list[str]]:
    """The setup commands of each node type, put together as Ray does; those of its head under ``head``."""
    workers = {
        name: kind.get("worker_setup_commands", config["worker_setup_commands"])
        for name, kind in config["available_node_types"].items()
        if kind["max_workers"]
    }
    return {**workers, "head": config["head_setup_commands"]}


def extras(commands: list[str]) -> list[str]:
    """The names in [...] after the checkout in what pip installs."""
    pattern = re.compile(r"pip install .*~/checkout['\"]*\[([$\w]+)\]")
    return [found for command in commands for found in pattern.findall(command)]


# What is checked


def check_ray_accepts_it(text: str) -> None:
    config = prepared(text)
    assert config["cluster_name"] == "raymx"


def check_five_lines_are_marked(text: str) -> None:
    assert sorted(re.findall(r"# CHANGE (\d)/5", text)) == list("12345")
    for line in text.splitlines():
        if re.search(r"-CHANGE\b|REGISTRY/", line.partition("#")[0]):
            assert re.search(r"# CHANGE \d/5", line), f"a placeholder that is not marked: {line}"


def check_nothing_is_open(text: str) -> None:
    config = prepared(text)
    for value in strings(config):
        assert "0.0.0.0" not in value
        assert "::/0" not in value
        assert "--dashboard-host" not in value
    for kind in config["available_node_types"].values():
        # Ray opens ssh to everybody in a group that it makes itself.
        assert config["provider"]["type"] != "aws" or kind["node_config"]["SecurityGroupIds"]
    assert "security_group" not in config["provider"]
    assert all(cidr.endswith("/32") for cidr in re.findall(r"--cidr (\S+)", text))


def check_tokens(text: str) -> None:
    config = prepared(text)
    assert config["cluster_synced_files"] == ["~/.ray/auth_token"]
    (made,) = (one for one in config["head_setup_commands"] if "get-auth-token --generate" in one)
    assert made.startswith("umask 077;")
    assert made.endswith("> /dev/null"), "the token would be on the screen"
    assert not any("get-auth-token" in one for one in config["worker_setup_commands"]), "each node would have its own"


def check_start_commands(text: str) -> None:
    config = prepared(text)
    for role, how in (
        ("head", "--head --port=6379 --autoscaling-config=~/ray_bootstrap_config.yaml"),
        ("worker", "--address=$RAY_HEAD_IP:6379"),
    ):
        stop, start = config[f"{role}_start_ray_commands"]
        assert stop == "ray stop"
        assert how in start
        shown = subprocess.run(
            [
                "bash",
                "-c",
                start.partition("ray start")[0].partition("setsid")[0]
                + 'echo "$RAY_AUTH_MODE $RAY_num_workers_soft_limit"',
            ],
            text=True,
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        assert shown.stdout.split() == ["token", str(4 * (os.cpu_count() or 1))]


def check_commands_as_ray_gives_them(text: str) -> None:
    """Ray puts each into ( ), in a login shell."""
    config = prepared(text)
    for commands in [
        config["initialization_commands"],
        *setups(config).values(),
        config["head_start_ray_commands"],
        config["worker_start_ray_commands"],
    ]:
        for command in commands:
            assert not command.startswith("("), f"(( begins arithmetic: {command}"
            subprocess.run(["bash", "-n", "-c", f"({command})"], check=True)


def check_the_right_extra(text: str) -> None:
    config = prepared(text)
    assert list(config["file_mounts"].items()) == [("~/checkout", ".")], (
        "with a folder ~/raymx Python would find that one in place of the package"
    )
    for name, commands in setups(config).items():
        (extra,) = extras(commands)
        environment, path, install = (
            next((i for i, one in enumerate(commands) if word in one), -1)
            for word in ("-m venv ", "sed -i", "~/checkout")
        )
        if config["provider"]["type"] == "aws":
            gpu = config["available_node_types"][name]["resources"].get("GPU", 0)
            assert extra == ("cu112" if gpu else "cpu")
            environment = next(i for i, one in enumerate(commands) if "uv venv" in one)
            assert any("libgomp1" in one for one in commands[:install])
        else:
            assert extra == "$extra"
            assert {"extra=cu112", "extra=cpu"} <= set(re.findall(r"extra=\w+", commands[install]))
        assert 0 <= environment < path < install
        (python,) = re.findall(r"python ?(3\.\d+)", commands[environment])
        assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    assert {"cpu", "cu112"} <= set(PROJECT["optional-dependencies"])


def check_node_types(text: str) -> None:
    config = prepared(text)
    kinds = config["available_node_types"]
    for name, kind in kinds.items():
        cpus, gpus = INSTANCES[kind["node_config"]["InstanceType"]]
        if name == config["head_node_type"]:
            assert (kind["resources"], kind["max_workers"]) == ({"CPU": 0}, 0)
        else:
            assert (kind["resources"]["CPU"], kind["resources"].get("GPU", 0)) == (cpus, gpus)
            assert 0 <= kind["min_workers"] <= kind["max_workers"] <= config["max_workers"]
    with_gpu = [kind for kind in kinds.values() if kind["resources"].get("GPU")]
    spot = [kind for kind in with_gpu if "InstanceMarketOptions" in kind["node_config"]]
    assert 0 < len(spot) < len(with_gpu)
    assert not any(kind["min_workers"] for kind in kinds.values()), "it would cost money at rest"
    assert min(kind["priority"] for kind in spot) > max(kind["priority"] for kind in with_gpu if kind not in spot)
    assert any(not kind["resources"].get("GPU") and kind["max_workers"] for kind in kinds.values())
    assert (
        len(
            {
                (str(kind["node_config"]["ImageId"]), str(kind["node_config"]["SecurityGroupIds"]))
                for kind in kinds.values()
            }
        )
        == 1
    )
    assert config["provider"]["cache_stopped_nodes"] is False
    assert 0 < config["idle_timeout_minutes"] <= 30


def check_the_hosts(text: str) -> None:
    config = prepared(text)
    kind = config["available_node_types"]["local.cluster.node"]
    hosts = config["provider"]["worker_ips"]
    assert kind["min_workers"] == kind["max_workers"] == len(hosts) > 0
    assert config["provider"]["head_ip"] not in hosts
    # Ray's second autoscaler, its default, starts no worker of a list. `ray up` sets it before this command.
    assert "export RAY_enable_autoscaler_v2=0; ray start" in config["head_start_ray_commands"][1]
    assert "ray start --block " in config["worker_start_ray_commands"][1], "`ray down` would leave processes"


def check_kubernetes(text: str) -> None:
    cluster, policy = yaml.safe_load_all(text)
    spec = cluster["spec"]
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert RAY.specifier.contains(spec["rayVersion"])
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["enableInTreeAutoscaling"]
    assert spec["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        check_pod(group["template"]["spec"], spec["rayVersion"])
    for group in spec["workerGroupSpecs"]:
        assert 1 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert {group["groupName"] for group in spec["workerGroupSpecs"]} == {"gpu", "cpu"}
    words = set(strings([cluster, policy]))
    assert not words & {"hostPort", "hostNetwork", "NodePort", "LoadBalancer"}
    own = {"matchLabels": {"ray.io/cluster": cluster["metadata"]["name"]}}
    assert policy["spec"] == {
        "podSelector": own,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": own}]}],
    }


def check_pod(pod: dict[str, Any], ray_version: str) -> None:
    (container,) = pod["containers"]
    gpu = container["resources"]["limits"].get("nvidia.com/gpu")
    assert container["image"].rpartition(":")[2] == f"ray{ray_version}-{'cu112' if gpu else 'cpu'}"
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    (limit,) = (int(one["value"]) for one in container["env"] if one["name"] == "RAY_num_workers_soft_limit")
    assert limit >= 4 * int(container["resources"]["limits"]["cpu"])


def check_the_image(text: str) -> None:
    """The Dockerfile in the comments."""
    lines = re.findall(r"(?m)^#   (.*)$", text)
    dockerfile = "\n".join(lines[lines.index("FROM python:3.11-slim") :])
    assert SpecifierSet(PROJECT["requires-python"]).contains("3.11")
    assert "libgomp1" in dockerfile
    assert f'"ray[default,tune]=={yaml.safe_load(text.partition("---")[0])["spec"]["rayVersion"]}"' in dockerfile
    for copied in re.findall(r"COPY --chown=ray (.*) \S+\n", dockerfile):
        assert all((ROOT / name).exists() for name in copied.split())
    assert set(re.findall(r"EXTRA=(\w+)", dockerfile)) == {"cpu", "cu112"}


COMMON = [
    check_ray_accepts_it,
    check_five_lines_are_marked,
    check_nothing_is_open,
    check_tokens,
    check_start_commands,
    check_commands_as_ray_gives_them,
    check_the_right_extra,
]
CHECKS: dict[str, list[Callable[[str], None]]] = {
    AWS: [*COMMON, check_node_types],
    ONPREM: [*COMMON, check_the_hosts],
    KUBERAY: [check_five_lines_are_marked, check_kubernetes, check_the_image],
}


@pytest.mark.parametrize(("file", "check"), [(file, one) for file, checks in CHECKS.items() for one in checks])
def test_the_files(file: str, check: Callable[[str], None]) -> None:
    check((ROOT / file).read_text())


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (AWS, "max_workers: 4  ", "most_workers: 4  "),
        (AWS, "SecurityGroupIds: *group", "SubnetIds: [subnet-1]"),
        (AWS, "YOUR_ADDRESS/32", "0.0.0.0/0"),
        (AWS, "ray start --head", "ray start --dashboard-host=0.0.0.0 --head"),
        (AWS, "RAY_AUTH_MODE=token RAY_num", "RAY_num"),
        (AWS, "nproc --all", "nproc"),
        (AWS, "umask 077; ray", "(umask 077; ray"),
        (AWS, "umask 077; ", ""),
        (AWS, "cluster_synced_files: [~/.ray/auth_token]", "cluster_synced_files: []"),
        (AWS, "~/checkout'[cu112]'", "~/checkout'[cpu]'"),
        (AWS, "worker_setup_commands: *gpu_setup", ""),
        (AWS, "            - *path\n", ""),
        (AWS, "InstanceType: g5.2xlarge", "InstanceType: p5.48xlarge"),
        (AWS, "{CPU: 8, GPU: 1}     #", "{CPU: 8}     #"),
        (AWS, "max_workers: 2", "max_workers: 20"),
        (AWS, "min_workers: 0", "min_workers: 1"),
        (AWS, "priority: 1", "priority: 0"),
        (AWS, "--python 3.11", "--python 3.12"),
        (AWS, "# CHANGE 2/5", "#"),
        (ONPREM, "~/checkout: .", "~/raymx: ."),
        (ONPREM, "RAY_enable_autoscaler_v2=0; ray", "RAY_enable_autoscaler_v2=1; ray"),
        (ONPREM, "ray start --block", "ray start"),
        (ONPREM, "worker_ips: [10.0.0.2", "workers: [10.0.0.2"),
        (ONPREM, "extra=cu112", "extra=gpu"),
        (KUBERAY, 'rayVersion: "2.60.0"', 'rayVersion: "2.61.0"'),
        (KUBERAY, "raymx:ray2.60.0-cu112               #", "raymx:ray2.60.0-cpu               #"),
        (KUBERAY, "mode: token", "mode: disabled"),
        (KUBERAY, "volumes: &volumes", "hostNetwork: true\n                volumes: &volumes"),
        (KUBERAY, "policyTypes: [Ingress]", "policyTypes: []"),
        (KUBERAY, "    name: raymx\nspec:\n    rayVersion", "    name: other\nspec:\n    rayVersion"),
    ],
)
def test_a_wrong_edit_is_seen(file: str, old: str, new: str) -> None:
    text = (ROOT / file).read_text()
    assert old in text
    assert any(_fails(check, text.replace(old, new)) for check in CHECKS[file])


def _fails(check: Callable[[str], None], text: str) -> bool:
    try:
        check(text)
    except (Exception, SystemExit):  # Ray's own, those of the file's format, and assertions
        return True
    return False


@pytest.mark.parametrize("file", LAUNCHED)
def test_raymx_is_on_the_path_of_every_shell(file: str, tmp_path: Path) -> None:
    """Else `ray exec` and `ray down` do not find `ray`; Ray's shells are login shells, those of ssh may be none."""
    (command,) = {
        one for commands in setups(prepared((ROOT / file).read_text())).values() for one in commands if "sed -i" in one
    }
    program = tmp_path / "raymx-env" / "bin" / "ray"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho found $RAY_AUTH_MODE\n")
    program.chmod(0o755)
    (tmp_path / ".bashrc").write_text("case $- in *i*) ;; *) return ;; esac\nalias ll='ls -l'\n")  # as Ubuntu's
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for _ in range(2):  # `ray up` runs it each time
        subprocess.run(["bash", "--login", "-c", command], env=environment, check=True)
    for shell in (["bash", "--login", "-c", "-i"], ["bash", "-c"]):
        done = subprocess.run([*shell, "source ~/.bashrc; ray"], env=environment, text=True, capture_output=True)
        assert done.stdout == "found token\n"
    written = (tmp_path / ".bashrc").read_text().splitlines()
    assert len(written) == 3
    assert written[2] == "alias ll='ls -l'"


def test_a_home_without_a_bashrc_gets_one(tmp_path: Path) -> None:
    (command,) = (one for one in prepared((ROOT / ONPREM).read_text())["setup_commands"] if "sed -i" in one)
    subprocess.run(["bash", "-c", command], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True)
    assert "raymx-env/bin" in (tmp_path / ".bashrc").read_text()
