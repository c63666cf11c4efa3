"""One Tune trial owns one role group, and turns its loops' events into rows of results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray import tune
from ray.tune.result import DONE, RESULT_DUPLICATE, SHOULD_CHECKPOINT

from raymx.cluster import placement
from raymx.cluster.board import Board
from raymx.cluster.generation import Generation
from raymx.cluster.group import Interrupted, RoleGroup
from raymx.config import Experiment, parse_experiment
from raymx.errors import DataError, KVStoreError, TrainingError
from raymx.kvstore import env
from raymx.kvstore.state import Layout, OptimizerState, cut, join, rekey
from raymx.training import checkpoint
from raymx.training.channel import Event

POLL_S = 0.25
FINISH_TIMEOUT_S = 5.0      # for what a loop still does after its last report


class Trial(tune.Trainable):
    """Trains one experiment. Its config: ``experiment`` and ``directory`` (see raymx.config), ``gpus_per_worker``
    (a number) and ``run_id`` (of the run's `Board`).

    A step ends where the loops report: for raymx's own loop, at an epoch's end.
    """

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
        """All of the trial's resources as one placement group, which Tune schedules whole."""
        plan = placement.plan(parse_experiment(config["experiment"], config["directory"]), config["gpus_per_worker"])
        return tune.PlacementGroupFactory([dict(bundle) for bundle in plan.bundles], strategy=plan.strategy)

    def setup(self, config: dict[str, Any]) -> None:
        """Start the role processes; the generation is formed by the first step, once it is known what to restore."""
        self._configure(config)
        self._group = RoleGroup(ray.util.get_current_placement_group(), self._plan)
        self._group.start(self._experiment, self._gpus)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """End this generation in good order; the next one is formed in the same warm processes."""
        begun = time.monotonic()
        self._group.dissolve()
        self._configure(new_config)
        self._group.plan = self._plan
        self._form_s = time.monotonic() - begun
        return True

    def _configure(self, config: Mapping[str, Any]) -> None:
        self._experiment: Experiment = parse_experiment(config["experiment"], config["directory"])
        self._gpus: int = config["gpus_per_worker"]
        self._plan = placement.plan(self._experiment, self._gpus)
        self._board = Board(config["run_id"])
        self._saved: checkpoint.Saved | None = None
        self._names: list[str] = []             # of the servers' keys
        self._sizes: dict[int, int] = {}        # elements of each of them
        self._metrics: dict[str, float] = {}    # the last of each: Tune expects its objective in every row
        self._warnings: list[str] = []
        self._pausing = self._finished = False
        self._form_s = 0.0                      # to dissolve the last generation and form this one
        self._seen = (0, 0.0, 0)                # epoch, time and step of the first look since this epoch's first step
        self._watched_at, self._more_steps = 0.0, 1

    @property
    def _generation(self) -> Generation:
        if self._group.generation is None:
            raise KVStoreError("no KVStore generation is formed")
        return self._group.generation

    # Steps

    def step(self) -> dict[str, Any]:
        """Go on until the loops' next report, and give its row."""
        if self._pausing:       # saved already; Tune is about to end this process
            return {**(self._last_result or {}), RESULT_DUPLICATE: True}
        try:
            return self._advance()
        except Interrupted:         # nothing was trained yet, and Tune is about to end this process
            return {**(self._last_result or {}), RESULT_DUPLICATE: True}
        except BaseException:
            self._group.kill()
            raise

    def _advance(self) -> dict[str, Any]:
        if self._group.generation is None:
            self._post("forming", {})
            begun = time.monotonic()
            self._group.form(self._experiment, self._gpus, self._saved, self._board.stop_requested)
            self._form_s += time.monotonic() - begun
        else:
            self._generation.answer_all()
        while True:
            events = self._generation.poll(POLL_S)
            if time.monotonic() - self._watched_at > POLL_S:
                self._watch()
            if events is None:
                self._let_on()
                continue
            row = self._handle(events)
            if row is not None:
                return row

    def _let_on(self) -> None:
        """Let held loops do some more steps while another loop posts nothing.

        That one may be past its last boundary and wait inside MXNet for what the held ones have not pushed yet, or, in
        async, at the barrier of an epoch's end. The steps double each time, so however far apart they are, they meet.
        """
        held = {rank: event for rank, event in self._generation.waiting().items() if event.kind == "held"}
        if held:
            self._more_steps *= 2
            self._generation.answer({rank: event.count + self._more_steps for rank, event in held.items()})

    def _watch(self) -> None:
        """Show where the loops are, and look whether somebody wants the run to stop."""
        self._watched_at = time.monotonic()
        progress = self._generation.progress()
        for report in progress:
            self._warnings += [text for text in report.pop("warnings") if text not in self._warnings]
        if progress:
            self._post("training", progress[0] | {"samples_per_sec": self._speed(progress)})
        if not self._pausing and self._board.stop_requested():
            self._pausing, self._more_steps = True, 1
            self._generation.hold()

    def _post(self, phase: str, progress: Mapping[str, Any]) -> None:
        self._board.post(self.trial_id, {"phase": phase, "warnings": self._warnings, **progress})

    def _speed(self, progress: list[dict[str, Any]]) -> float | None:
        """Samples a second since this epoch's first step was seen, all workers together."""
        epoch, step, now = progress[0].get("epoch", 0), progress[0].get("step", 0), time.monotonic()
        last_epoch, last_time, last_step = self._seen
        if epoch != last_epoch or step < last_step or last_step == 0:
            self._seen = (epoch, now, step)
            return None
        return (step - last_step) * self._experiment.training.global_batch_size / max(now - last_time, 1e-6)

    def _handle(self, events: list[Event]) -> dict[str, Any] | None:
        """Serve what all workers ask for; the row when it is a report."""
        kinds = {event.kind for event in events}
        if "held" in kinds:
            return self._held(events)
        if len(kinds) > 1:
            raise TrainingError("the workers' loops are not at the same place: "
                                + ", ".join(f"worker {rank} at {e.kind!r}" for rank, e in enumerate(events))
                                + "; every worker must make the same calls of its context in the same order")
        payloads = [event.payload for event in events]
        kind = kinds.pop()
        if kind == "report":
            return self._row(payloads)
        if kind == "end":
            self._finished = True
            return {**(self._last_result or {}), RESULT_DUPLICATE: True}
        answers: dict[str, Callable[[list[Any]], Any]] = {
            "total": self._total, "install": self._install, "rate": self._set_rate, "data": _check_same_data}
        self._generation.answer_all(answers[kind](payloads))
        return None

    def _held(self, events: list[Event]) -> dict[str, Any] | None:
        """Bring all loops to one boundary: those behind go on to where the furthest one is."""
        furthest = max(event.count for event in events)
        elsewhere = any(event.kind != "held" for event in events)
        behind = {rank: furthest + elsewhere for rank, event in enumerate(events)
                  if event.kind == "held" and (elsewhere or event.count < furthest)}
        if behind:
            self._generation.answer(behind)
            return None
        validation = {name: value for name, value in self._metrics.items() if name.startswith("validation_")}
        return {"epoch": self._position(events), **validation, "num_workers": len(events), SHOULD_CHECKPOINT: True}

    @staticmethod
    def _position(events: list[Event]) -> float:
        """Epochs done, with the part of the current one."""
        epoch, step, steps = events[0].payload
        return round(epoch + step / steps, 4)

    # What the loops ask for

    @staticmethod
    def _total(payloads: list[dict[str, Any]]) -> dict[str, Any]:
        if any(payload.keys() != payloads[0].keys() for payload in payloads):
            raise TrainingError("total() got different names in different workers: "
                                + " / ".join(str(sorted(payload)) for payload in payloads))
        return {name: sum(payload[name] for payload in payloads[1:]) + payloads[0][name] for name in payloads[0]}

    def _install(self, payloads: list[Any]) -> None:
        spec, self._sizes, self._names = payloads[0]
        if any(sizes != self._sizes for _, sizes, _ in payloads):
            raise TrainingError("the workers' nets differ in their parameters; a net must not depend on the rank")
        restored: list[OptimizerState | None] = [None] * len(self._plan.server_bundles)
        if self._saved:
            keys = {name: key for key, name in enumerate(self._names)}
            restored = list(cut(rekey(self._saved.optimizer, keys), self._layout(), self._sizes))
        self._generation.on_servers("install", [spec] * len(restored), restored)

    def _set_rate(self, payloads: list[float]) -> None:
        self._generation.on_servers("set_learning_rate", [payloads[0]] * len(self._plan.server_bundles))

    def _layout(self) -> Layout:
        kvstore = self._experiment.kvstore
        return Layout(len(self._plan.server_bundles), env.bigarray_bound(kvstore.env.model_dump()),
                      compressed=kvstore.compression.type != "none")

    # Results

    def _row(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """A row of results out of all workers' reports."""
        self._warn_of_refused_commands()
        self._watch()
        metrics, meters = reports[0]["metrics"], [report["meter"] for report in reports]
        self._metrics |= metrics
        train_s = max(meter["train_s"] for meter in meters)
        epoch = reports[0]["epoch"]
        # A loop of the user's may have more to report; it is finished when it returns.
        self._finished = epoch >= self._experiment.training.epochs and self._experiment.training.loop == "default"
        return {
            "epoch": epoch, **self._metrics, "num_workers": len(reports),
            "samples_per_sec": sum(meter["samples"] for meter in meters) / train_s if train_s else math.nan,
            "form_s": self._form_s, "first_step_s": max(meter["first_step_s"] for meter in meters),
            "data_wait_fraction": max(meter["data_wait_s"] / meter["train_s"] if meter["train_s"] else 0.0
                                      for meter in meters),
            "learning_rate": self._learning_rate(),
            "bytes_pushed": sum(report["bytes"][0] for report in reports),
            "bytes_pulled": sum(report["bytes"][1] for report in reports),
            "bad_records": sum(report["bad_records"] for report in reports),
            "steps": meters[0]["steps"], "train_s": train_s, DONE: self._finished}

    def _warn_of_refused_commands(self) -> None:
        for rank, commands in enumerate(self._generation.on_servers("refused")):
            text = (f"server {rank} refused commands {commands} from the network, which nobody in this run sends: is "
                    "its port open to others?")
            if commands and text not in self._warnings:
                self._warnings.append(text)

    def _learning_rate(self) -> float:
        """The rate that the optimizer used in its last update, from where the optimizer is."""
        if self._names:
            return float(max(self._generation.on_servers("last_update"))[1])
        rate = self._generation.command("learning_rate")[0]
        return math.nan if rate is None else float(rate)

    # Checkpoints and the end

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Parameters, optimizer state and position, while all loops wait at one place."""
        statistics = self._generation.command("statistics")
        mean = {name: total / len(statistics) for name, total in self._total(statistics).items()}
        snapshots = self._generation.command("snapshot", mean)
        first = snapshots[0]
        optimizer = first["optimizer"]
        if optimizer is None:
            whole = join(self._generation.on_servers("state"), self._layout(), self._sizes)
            optimizer = rekey(whole, dict(enumerate(self._names)))
        checkpoint.write(checkpoint_dir, checkpoint.Saved(
            first["parameters"], optimizer, first["epoch"], first["step"], first["state"],
            self._total([snapshot["sums"] for snapshot in snapshots]), self._metrics))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Go on from a checkpoint: the next step forms a generation with it."""
        self._group.dissolve()
        self._saved = checkpoint.read(checkpoint_dir)
        self._metrics = dict(self._saved.metrics)

    def cleanup(self) -> None:
        """Leave nothing running; a loop that has done its last report may finish what it does after it."""
        try:
            if self._finished and self._group.generation:
                self._group.finish(FINISH_TIMEOUT_S)
        finally:
            self._group.kill()


def _check_same_data(payloads: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """Raise DataError unless all workers found the same files: (node, [(file, digest)]) of each worker."""
    node, files = payloads[0]
    for rank, (other_node, other_files) in enumerate(payloads):
        if files != other_files:
            names = sorted({name for name, _ in set(files) ^ set(other_files)}) or ["the order of the files"]
            raise DataError(f"worker 0 on node {node} and worker {rank} on node {other_node} read different data "
                            f"({', '.join(names)}): copy the same files to every node, or name a folder that all nodes "
                            "share")
