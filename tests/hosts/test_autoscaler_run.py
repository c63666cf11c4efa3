"""A run for which Ray's autoscaler starts a node."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import EXPERIMENTS, ROOT
from hosts import lan, why_not

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

HEAD_ID = "f" * 51 + "00000"  # what Ray's provider takes for the head
CLOUD = {  # Ray's own pretended one: nodes are processes of this host
    "cluster_name": "pretended",
    "max_workers": 1,
    "upscaling_speed": 1.0,
    "idle_timeout_minutes": 1,
    "provider": {
        "type": "external",
        "launch_multiple": True,
        "head_node_id": HEAD_ID,  # Ray's type lacks a file
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
    },
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": {"CPU": 8}, "node_config": {}, "min_workers": 0, "max_workers": 1},
    },
    "auth": {},
    "file_mounts": {},
    "cluster_synced_files": [],
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
}


@pytest.mark.long
def test_a_run_makes_the_cluster_grow(tmp_path: Path) -> None:
    """The head cannot hold the default experiment; Ray's own pretended cloud has the node that can."""
    if reason := why_not():
        pytest.skip(reason)
    python = sys.executable
    with lan(tmp_path, 1, shared=tmp_path) as (host,):
        environment = {"PATH": f"{Path(python).parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
        (tmp_path / "cloud.json").write_text(json.dumps(CLOUD))
        cloud = {
            "RAY_FAKE_CLUSTER": "1",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
        }
        host.run(
            ["ray", "start", "--head", "--num-cpus=1", f"--autoscaling-config={tmp_path / 'cloud.json'}"],
            120,
            environment | cloud,
        )
        run = [
            python,
            "-m",
            "raymx.run",
            EXPERIMENTS / "fashion_mnist.yaml",
            "--address",
            "auto",
            "--num-epochs",
            "1",
            "--set",
            "model.net=nets:mlp",
            "--storage-path",
            tmp_path / "runs",
        ]
        done = host.run(run, 200, {**environment, "PYTHONPATH": str(ROOT)})
        assert "so its autoscaler starts more: the run needs 8 CPU" in done.stdout
        assert "finished after" in done.stdout
        refused = host.run([*run, "-n", "9"], 100, environment, check=False)
        assert refused.returncode == 1
        assert "raymx: error: The cluster cannot hold this experiment." in refused.stderr
        assert "There: 9 CPU and 0 GPU on 2 nodes" in refused.stderr
    (summary,) = (tmp_path / "runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["state"] == "finished"
