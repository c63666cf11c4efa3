"""Small messages between a trial and whoever watches its run, through Ray's own key-value store.

A trial cannot be called while it is in a step, and an actor only for this would cost every run a process. So the
trial posts where it is and looks whether it was asked to stop; every driver that is connected can read and ask.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from raymx import _ray

_NAMESPACE = b"raymx"
END_TIMEOUT_S = 5.0


class Mailbox:
    """The messages of one run, by its id."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def name_of(self, trial_id: str) -> str:
        """A trial's name among all trials of all runs."""
        return f"{self._run_id}/{trial_id}"

    def post(self, trial_id: str, progress: Mapping[str, Any]) -> None:
        self._put(f"progress/{trial_id}", json.dumps(progress))

    def read(self, trial_id: str) -> dict[str, Any]:
        """The newest progress of a trial; {} when there is none."""
        return json.loads(self._get(f"progress/{trial_id}") or "{}")

    def request_stop(self) -> None:
        """Ask the run's trials to save and pause at their next step."""
        self._put("stop", "1")

    def stop_requested(self) -> bool:
        return self._get("stop") is not None

    def say_over(self) -> None:
        """Tune takes no more results."""
        self._put("over", "1")

    def wait_over(self) -> None:
        """Until Tune takes no more results; with no limit, since Tune, or its death, ends the process that waits."""
        while self._get("over") is None:
            time.sleep(0.05)

    def watch(self) -> None:
        """Say that somebody looks at this run: `end` then waits for an answer."""
        self._put("watched", "1")

    def end(self, trial_id: str) -> None:
        """Say that this trial is about to fail for good, and wait until the driver knows: it would start it again."""
        self._put(f"end/{trial_id}", "1")
        deadline = time.monotonic() + END_TIMEOUT_S
        while self._get("watched") and self._get(f"end/{trial_id}") and time.monotonic() < deadline:
            time.sleep(0.05)

    def take_end(self, trial_id: str) -> bool:
        """Whether the trial has said so; once."""
        ended = self._get(f"end/{trial_id}") is not None
        if ended:
            _ray.remove_values(_NAMESPACE, self._key(f"end/{trial_id}"))
        return ended

    def clear(self) -> None:
        _ray.remove_values(_NAMESPACE, self._key(""), below=True)

    def _key(self, name: str) -> bytes:
        return f"{self._run_id}/{name}".encode()

    def _put(self, name: str, value: str) -> None:
        _ray.put_value(_NAMESPACE, self._key(name), value.encode())

    def _get(self, name: str) -> str | None:
        value = _ray.get_value(_NAMESPACE, self._key(name))
        return None if value is None else value.decode()
