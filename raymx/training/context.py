"""What a training loop gets: where it is, its store, trainer and data, and `report`.

    def train(ctx):
        net = ctx.hybridize(ctx.build_net())
        trainer = ctx.trainer(net)
        for epoch in ctx.epochs():
            for batch in ctx.train_batches(epoch):
                ...                                     # forward and backward, scaled by batch.parts[i].scale
                trainer.step()
                ctx.show(losses)                        # for the live display; bounds what is queued ahead
                ctx.report()                            # a step boundary
            ctx.settle(net)
            ctx.report({"train_loss": ..., "validation_accuracy": ...})

raymx's own loop (raymx.training.loop) is written against this object too. `raymx.training.sums.Sums` makes the figures.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mxnet as mx
from mxnet import gluon

from raymx.checkpoint.files import Saved
from raymx.data.pipeline import store_use
from raymx.errors import LoopError, TrainingError
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.user_code import code_folder
from raymx.kvstore.trainer import Trainer
from raymx.training import nets
from raymx.training.batches import DeviceBatch, DeviceBatches, Part
from raymx.training.channel import Channel
from raymx.training.host_waits import HostWaits
from raymx.training.membership import Membership
from raymx.training.parameters import average_statistics
from raymx.training.position import LoopPosition
from raymx.training.registered import parameters_of
from raymx.training.snapshots import Snapshots, numbers
from raymx.training.timeline import Parts
from raymx.training.trainers import make_schedule, make_trainer
from raymx.training.usage import Usage

log = logging.getLogger(__name__)

__all__ = ["DeviceBatch", "Part", "WorkerContext"]


class WorkerContext:
    """The one object that a loop needs. Everything here is called from the loop's thread.

    Attributes: ``experiment``; ``rank``, ``num_workers``, ``generation``; ``devices`` (mx.Context list); after a
    restore ``state`` and ``sums`` (what the loop gave to `report` when it was saved; ``sums`` in rank 0 alone, added
    over the workers of then), else {}.
    """

    def __init__(
        self,
        experiment: ExperimentConfig,
        membership: Membership,
        store: Any,
        devices: list[mx.Context],
        saved: Saved | None,
    ) -> None:
        self.experiment, self.devices, self._store = experiment, devices, store
        self.rank, self.num_workers, self.generation = membership.rank, membership.num_workers, membership.generation
        self.state: Mapping[str, Any] = saved.state if saved else {}
        self.sums: Mapping[str, float] = saved.sums if saved and membership.rank == 0 else {}
        self._membership, self._saved = membership, saved
        self._position = LoopPosition(saved.epoch, saved.step, saved.records) if saved else LoopPosition()
        self._trainer: Trainer | None = None
        self._has_stepped = False
        self._batches = DeviceBatches(
            experiment,
            membership,
            devices,
            self._position,
            lambda: self._trainer.loss_scale_to_come() if self._trainer else 1.0,
        )
        self.clock = self._batches.clock  # entered while the loop runs
        self._snapshots = Snapshots(membership, self._position, saved, self.asynchronous)
        meter = self._batches.meter  # the first step waits for what no later one does
        self.host_waits = HostWaits(lambda: meter.runs and meter.first_step_s is not None, self._batches.clock.begins)
        self._usage = Usage(sum(device.device_type == "gpu" for device in devices))
        self.channel = Channel(self._snapshots.commands)
        self.progress = self._batches.progress

    # What to train

    def build_net(self) -> gluon.Block:
        """The experiment's net on this worker's devices, the same weights in every worker."""
        return nets.build_net(self.experiment, self.devices, goes_on=self._saved is not None)

    def hybridize(self, net: gluon.Block) -> gluon.Block:
        """``net`` itself, which becomes a static graph with its first batch, as ``model.hybridize`` says.

        For ``auto`` that batch is computed both ways: a net that cannot be hybridized, or then gives something else,
        stays as it is, and a warning names why. Call it for the outermost block, before the first batch.
        """
        mode = self.experiment.model.hybridize
        return net if mode is False else nets.hybridize_on_first_batch(net, self.experiment)

    def trainer(self, net: gluon.Block) -> Trainer:
        """A trainer over the store, by the experiment's optimizer, schedule, precision and compression.

        All workers call it at the same point. Restored parameters and optimizer state are in it when it returns.
        """
        if self._trainer:
            raise TrainingError("a loop has one trainer, since the store's keys are its own: put all nets in one block")
        data = self._batches.data
        if self.num_workers > 1:
            self.channel.ask("data", (os.uname().nodename, data.fingerprint()))
        params = parameters_of(net)
        rates = make_schedule(self.experiment, data.plan, self._saved)
        self._trainer = make_trainer(
            self.experiment,
            self._membership,
            self._store,
            params,
            rates,
            self._saved,
            self.channel.ask,
            self._step_begins,
            self._batches.clock,
        )
        self._batches.clock.exchanges(self._trainer.exchanges)
        self._snapshots.train(params, self._trainer, rates.shift)
        return self._trainer

    @property
    def store(self) -> Any:
        """Not for loops: its keys, and the optimizer in it, are the trainer's. Raises LoopError."""
        raise LoopError("ctx.store is not for loops; use  trainer = ctx.trainer(net)  in place of gluon.Trainer")

    def _step_begins(self) -> None:
        self._has_stepped = True
        self.channel.met += self._membership.distributed and not self.asynchronous
        self._batches.step_begins()

    # Where it is

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, step) that the loop is in."""
        return self._position.epoch, self._position.step

    @property
    def heartbeat(self) -> int:
        """A number that grows as long as the loop does not stand still."""
        return self.channel.heartbeat + self._batches.num_given

    @property
    def asynchronous(self) -> bool:
        """Whether every worker's push is an update of its own."""
        return rules.is_async(self.experiment)

    def epochs(self) -> range:
        """The epochs still to do. With data of one's own, not from `train_batches`, each report of metrics is one."""
        return range(self._position.epoch, self.experiment.training.epochs)

    @property
    def steps_per_epoch(self) -> int:
        """Updates in a whole epoch."""
        return self._batches.data.plan.steps

    @property
    def label_width(self) -> int:
        """Labels a record; for ``auto`` the most of one with an image, fewer are filled up with -1."""
        return self._batches.data.label_width

    @property
    def images_are_ready(self) -> bool:
        """Whether images are float32 (rows, C, H, W) of a transform of the user's, and not uint8 (rows, H, W, C)."""
        return self._batches.data.floats

    # Data

    def train_batches(self, epoch: int) -> Iterator[DeviceBatch]:
        """This worker's batches of an epoch, from the step where a restored run stopped.

        ``part.scale`` is what to give ``backward`` as the gradient of a loss a row: weight * B / (real records of this
        global batch), so that the sum of all workers' gradients, times the optimizer's 1/B, is the mean over the real
        records; bad ones that are skipped count as real there. In async it is weight * B / (this worker's usable
        records). The loss scale is in it too, and the trainer divides by it. All workers have as many batches, of one
        size: an epoch's last one is filled up with rows of weight 0, which ``part.real`` leaves out.
        """
        return self._batches.train(epoch)

    def validation_batches(self, *, padded: bool = False) -> Iterator[DeviceBatch]:
        """This worker's part of the validation records, each once over all workers, and no other row.

        A worker may have a batch less than others. ``padded`` gives all of them as many batches, of one size, filled up
        with rows whose ``part.weights`` are 0, as raymx's own loop takes them; ``part.real`` leaves those out.
        """
        return self._batches.validation(padded=padded)

    def show(self, losses: mx.nd.NDArray) -> None:
        """Once in a step: its losses, an NDArray of any shape, which need not be computed yet.

        Returns at once. The next batch but one is given out when they are: so MXNet's engine always has a step to go on
        with, and the loop cannot run ahead of it without bound. In rank 0 their mean is shown now and then
        (``report.disp_batches``) in the live display.
        """
        self._batches.queued(losses)

    # Over all workers

    def total(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Numbers and arrays added over all workers, by name; every worker calls it with the same names."""
        if self.num_workers == 1:
            return dict(values)
        return self.channel.ask("total", dict(values))

    def settle(self, net: gluon.Block) -> None:
        """Make all workers hold one set of weights: before validation and before a checkpoint.

        Async workers wait for each other and pull; batch norm's running statistics are averaged.
        """
        mx.nd.waitall()
        self._batches.pause()
        if self.asynchronous and self._membership.distributed:
            self.channel.met += 1
            self._store._barrier()
            assert self._trainer is not None
            self._trainer.pull()
            mx.nd.waitall()
            self._store._barrier()
        if self.num_workers * len(self.devices) > 1:
            average_statistics(parameters_of(net), self.total, self.num_workers)

    def report(
        self,
        metrics: Mapping[str, float] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        sums: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Say where the loop is; here a run may be checkpointed or stopped.

        Without ``metrics`` it is a boundary between two steps, and costs nothing. With them (rank 0's count; see
        `total`) it ends a step of the trial: a row of results. After a restore ``ctx.state`` gives ``state`` back
        (plain data, the same in every worker), and ``ctx.sums`` what ``sums`` returned, added over all workers: it is
        called only when a checkpoint is made here, so it may wait for the engine.

        At the boundary after an epoch's last step nothing waits: what is saved there is saved with the metrics, which
        come next. So an epoch that goes on after a restore has a step left at least, and ``train_batches`` a batch.
        """
        if self._trainer is None:
            raise LoopError(
                "report() came before ctx.trainer(net), so there is no net to save: use  trainer = ctx.trainer(net)  "
                "in place of gluon.Trainer, which knows nothing of the other workers"
            )
        self._snapshots.keep(state, sums)
        if metrics is None:
            may_wait, began = not self._position.at_end, time.perf_counter()
            if self.channel.boundary((*self.position, self._position.steps), may_wait=may_wait):
                self._batches.clock.held(began)
                self._batches.seed()  # a run that goes on from the checkpoint that was made here does so too
            return
        if not self._has_stepped:
            log.warning(
                "no step() of ctx.trainer(net) came before the report in epoch %d: what another trainer does stays in "
                "its worker",
                self._position.epoch,
            )
        self._batches.pause()
        self._batches.count_epoch()
        figures = self._batches.meter.take()
        parts = self._batches.clock.take()
        self.channel.report(
            {
                "metrics": numbers("metrics", metrics),
                "meter": figures,
                "parts": _parts(parts),
                "traced": self._batches.clock.take_traced(),
                "held_s": self._batches.clock.take_held_s(),
                "sync_s": self.host_waits.take_seconds(),
                "host_waits": self.host_waits.take(code_folder(self.experiment.directory)),
                "input": self._batches.input.take(),
                "store": (os.uname().nodename, store_use.take_mib()),
                "usage": self._usage.take(),
                "epoch": self._position.epoch,
                "bad_records": self._batches.data.take_skipped(),
                "records": self._batches.data.num_records,
                "scaling": _scaling(self._trainer, self.rank == 0 or self.asynchronous),
                "bytes": self._trainer.bytes_a_step(),
                "arrays": _arrays_on_servers(self._trainer) if self._membership.distributed and not self.rank else [],
            }
        )
        self._batches.go_on()

    def close(self) -> None:
        """Let go of the store: the generation ends when nothing refers to it any more."""
        self._store = None
        if self._trainer:
            self._trainer.close()
        self._usage.close()
        self._batches.data.close()


def _arrays_on_servers(trainer: Trainer) -> list[tuple[str, int]]:
    """(name, elements) of each key."""
    return list(zip(trainer.names, trainer.sizes.values(), strict=True))


def _parts(parts: Parts) -> dict[str, Any]:
    """Where the measured steps' time went, as plain data; times of day, since workers may be on several hosts."""
    offset = time.time() - time.perf_counter()
    return {
        "steps": parts.steps,
        "seconds": parts.seconds,
        "own": parts.own,
        "host_bound": parts.host_bound,
        "queueing": parts.queueing,
        "alone_s": parts.alone_s,
        "backward": {number: at + offset for number, at in parts.backward.items()},
    }


def _scaling(trainer: Trainer | None, counts_skipped: bool) -> dict[str, float]:
    """The loss scale, and the updates skipped: a step that all workers skip together is one, which rank 0 counts."""
    figures = trainer.take_scaling() if trainer else {}
    return figures if not figures or counts_skipped else {**figures, "skipped_steps": 0}
