"""A client that shares nothing with the cluster but the address of its dashboard and the token."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import EXPERIMENTS
from here import SMALL
from ray_hosts import TOKEN, ClusterOfHosts

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

PATH = {"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
SUBMIT = [sys.executable, "-m", "raymx.submit"]


@pytest.mark.long
def test_through_the_dashboard_alone(cluster_of_hosts: ClusterOfHosts) -> None:
    head, client = cluster_of_hosts.nodes[0], cluster_of_hosts.client
    (client.home / ".ray").mkdir()
    address = f"http://{head.address}:8265"
    experiment = [EXPERIMENTS / "fashion_mnist.yaml", *SMALL, "--num-epochs", "2"]
    refused = client.run([*SUBMIT, *experiment, "--address", address], 60, PATH, check=False)
    assert refused.returncode == 1
    assert "the cluster asks for a token: copy its ~/.ray/auth_token here" in refused.stderr

    (client.home / ".ray" / "auth_token").write_text((head.home / ".ray" / "auth_token").read_text())
    environment = {**TOKEN, **PATH}
    relative = client.run(
        [*SUBMIT, *experiment, "--address", address, "--storage-path", "runs"], 60, environment, check=False
    )
    assert "--storage-path runs is relative, and the cluster" in relative.stderr
    done = client.run([*SUBMIT, *experiment, "--address", address, "--follow"], 200, environment)
    run_id = re.findall(r"submitted (\S+)", done.stdout)[0]
    assert "epoch 2/2  train_loss" in done.stdout
    assert (head.home / "ray_results" / run_id / "summary.json").exists()
    assert not (client.home / "ray_results").exists()
    shown = client.run([*SUBMIT, "results", run_id, "--address", address], 60, environment).stdout
    assert "validation_accuracy" in shown
    assert len(shown.splitlines()) == 3
    code = (
        f"import raymx, raymx.errors\nrun = raymx.attach({run_id!r}, {address!r})\n"
        "print(run.result()['best']['epoch'], run.path)\n"
        "try:\n    run.best()\nexcept raymx.errors.JobError as error:\n    print(error)"
    )
    seen = client.run([sys.executable, "-c", code], 60, environment).stdout
    assert f"/ray_results/{run_id} on the cluster" in seen
    assert "cannot be read from here: submit with a storage_path that both can read" in seen
