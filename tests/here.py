"""A cluster of this machine for one test module, in a temporary folder of Ray's own, and clients that come and go."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from conftest import EXPERIMENTS, marked

FASHION_MNIST = EXPERIMENTS / "fashion_mnist.yaml"
ROLES = ("ray::Worker", "ray::Server", "ray::KVScheduler", "ray::Trial")
SMALL = ["--num-workers", "1", "--kv-store", "local", "--set", "model.net=nets:mlp", "--set", "data.cpus=1"]
SMALL += ["--set", "resources.standby=false"]  # processes that nothing here waits for


class Here:
    """A temporary folder of Ray's own, so that no other cluster of this machine is found or touched."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"RAYMX_TEST={uuid.uuid4().hex}"
        self.ray = tempfile.mkdtemp(prefix="rmx", dir="/tmp")  # short: Ray has sockets in it
        self.storage = folder / "runs"
        self.storage.mkdir()
        clean = {key: text for key, text in os.environ.items() if not key.startswith("RAY")}
        name, value = self.mark.split("=")
        self.environment = {**clean, name: value, "RAY_TMPDIR": self.ray}

    def python(self, code: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            **more,
        )

    def run(self, code: str, timeout_s: float = 200) -> str:
        """What the code prints; each piece of code is a process of its own."""
        process = self.python(code)
        out, err = process.communicate(timeout=timeout_s)
        assert process.returncode == 0, err
        return out

    def submit(self, *arguments: object, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "raymx.submit", *map(str, arguments)],
            env=self.environment,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )

    def submitted(self, *arguments: object) -> str:
        """The id of a run of the small experiment."""
        done = self.submit(FASHION_MNIST, *SMALL, "--storage-path", self.storage, *arguments)
        assert done.returncode == 0, done.stderr
        return re.findall(r"submitted (\S+)", done.stdout)[0]

    def view(self, run_id: str) -> dict[str, Any]:
        code = f"import raymx, json; view = raymx.attach({run_id!r}).view(); print(json.dumps(view.as_dict()))"
        return dict(json.loads(self.run(code)))

    def until(self, run_id: str, reached: str) -> dict[str, Any]:
        """The view of a run once ``reached``, an expression of ``view``, is true. One process looks again and again."""
        code = f"""
import json, raymx, time
run, deadline = raymx.attach({run_id!r}), time.monotonic() + 150
while True:
    view = run.view()
    if {reached}:
        break
    assert view.state not in ("failed", "lost") and time.monotonic() < deadline, view
    time.sleep(0.2)
print(json.dumps(view.as_dict()))
"""
        return dict(json.loads(self.run(code)))

    def roles(self) -> dict[int, str]:
        return marked(self.mark, *ROLES)

    def end(self) -> None:
        """End the cluster, if one was started, as a power cut would."""
        for _ in range(3):
            for pid in marked(self.mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)
        shutil.rmtree(self.ray)
