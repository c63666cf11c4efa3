"""One worker in this process, with no Ray: its loop in a thread, and the test where the trial is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mxnet as mx
import pytest

from raymx.checkpoint.files import Saved
from raymx.data.pipeline import stream, warmup
from raymx.experiment.loading import load_experiment
from raymx.kvstore.state import OptimizerState
from raymx.training.channel import Event, LoopEnded
from raymx.training.context import WorkerContext
from raymx.training.membership import Membership

ALONE = {"kvstore.type": "device", "resources.workers": 1, "resources.cpus_per_worker": 1}
TIMEOUT_S = 120.0


class InProcess:
    """A loop, run from its beginning or from ``saved``. `rows` are its reports; `saved` is taken when it is held."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        path: str,
        overrides: Mapping[str, object],
        loop: Callable[[WorkerContext], None],
        *,
        saved: Saved | None = None,
        hold_at: int | None = None,
    ) -> None:
        # Batches of Ray Data's tasks, decoded here.
        monkeypatch.setattr(stream, "batches", lambda records, rows, how, **_: warmup.decode_here(records, rows, how))
        self.experiment = load_experiment(path, {**ALONE, **overrides})
        devices = [mx.cpu(i) for i in range(self.experiment.resources.cpu_devices_per_worker)]
        self.context = WorkerContext(
            self.experiment, Membership(0, 1, 0, False), mx.kv.create("device"), devices, saved
        )
        self.rows: list[dict[str, float]] = []
        self.payloads: list[dict[str, Any]] = []
        self.saved: Saved | None = None
        self._loop, self._error = loop, list[BaseException]()
        if hold_at is not None:
            self.context.channel.hold(hold_at)
        self._run()

    def _run(self) -> None:
        thread = threading.Thread(target=self._train, daemon=True)
        thread.start()
        channel = self.context.channel
        while (event := channel._events.get(timeout=TIMEOUT_S)).kind not in ("end", "failed"):
            if event.kind == "report":
                self.payloads.append(event.payload)
                self.rows.append(event.payload["metrics"])
            if event.kind == "held":
                self.saved = self._take()
            channel.command("answer")
        if not self._error:
            self.end = self._take()
            channel.command("end")
        thread.join(TIMEOUT_S)
        if self._error:
            raise self._error[0]

    def _train(self) -> None:
        try:
            self._loop(self.context)
            self.context.channel.ask("end")
        except LoopEnded:
            pass
        except BaseException as error:
            self._error.append(error)
            self.context.channel._events.put(Event("failed", 0))

    def _take(self) -> Saved:
        """A checkpoint, as the trial makes one of what a single worker gives."""
        channel = self.context.channel
        taken: dict[str, Any] = channel.command("snapshot", channel.command("statistics"))
        assert isinstance(taken["optimizer"], OptimizerState)
        return Saved(num_workers=1, global_batch_size=self.experiment.training.global_batch_size, **taken)


def parameters(saved: Saved) -> dict[str, Sequence[float]]:
    """By name, of a checkpoint."""
    return {name: array.asnumpy().ravel().tolist() for name, array in mx.nd.load_frombuffer(saved.parameters).items()}
