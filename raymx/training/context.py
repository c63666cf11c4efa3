"""What a training loop gets: where it is, its store, trainer and data, and `report`.

    def train(ctx):
        net = ctx.build_net()
        trainer = ctx.trainer(net)
        for epoch in ctx.epochs():
            for batch in ctx.train_batches(epoch):
                ...                                     # forward and backward, scaled by batch.parts[i].scale
                trainer.step()
                ctx.report()                            # a step boundary
            ctx.report({"train_loss": ..., "validation_accuracy": ...})

raymx's own loop (raymx.training.loop) is written against this object too.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon
from numpy.typing import NDArray

from raymx.checkpoint.files import Saved
from raymx.data.pipeline.batch import Batch, Stream
from raymx.data.pipeline.decoding import Decoding
from raymx.data.pipeline.order import Rows
from raymx.data.pipeline.planning import Share
from raymx.data.pipeline.worker_data import WorkerData
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import CheckpointError, TrainingError
from raymx.experiment import rules
from raymx.experiment.loading import Experiment
from raymx.kvstore import loss_scale, schedule
from raymx.kvstore.spec import OptimizerSpec
from raymx.kvstore.state import OptimizerState, rekey
from raymx.kvstore.trainer import StoreSettings, Trainer, trained_parameters
from raymx.training import nets
from raymx.training.channel import Channel
from raymx.training.meter import Meter


@dataclass(frozen=True)
class Place:
    """Where a worker is in its generation."""

    rank: int
    num_workers: int
    generation: int
    distributed: bool
    placement_group: Any = None
    bundle_index: int = -1


@dataclass(frozen=True)
class Part:
    """The rows of a batch on one device."""

    inputs: tuple[mx.nd.NDArray, ...]  # what raymx's own net takes (`nets.as_input_net`): images, and flags to mirror
    labels: mx.nd.NDArray  # float32 (rows,) or (rows, label_width)
    weights: mx.nd.NDArray  # float32 (rows,): 1 a real record, 0 a row of padding or a bad record
    scale: mx.nd.NDArray  # float32 (rows,): the gradient of the loss of each row, see WorkerContext.train_batches

    @property
    def images(self) -> mx.nd.NDArray:
        """uint8 (rows, H, W, C), mirrored where the augmentation says so; or what a transform of the user's made."""
        images, *mirror = self.inputs
        return mx.nd.where(mirror[0], images.flip(axis=2), images) if mirror else images


@dataclass(frozen=True)
class DeviceBatch:
    """One worker's rows of one step, over its devices."""

    parts: list[Part]
    samples: int  # real records in it


class WorkerContext:
    """The one object that a loop needs. Everything here is called from the loop's thread.

    Attributes: ``experiment``; ``rank``, ``num_workers``, ``generation``; ``devices`` (mx.Context list); ``store``
    (the KVStore); after a restore ``state`` and ``sums`` (what the loop gave to `report` when it was saved; ``sums``
    in rank 0 alone, added over the workers of then), else {}.
    """

    def __init__(
        self, experiment: Experiment, place: Place, store: Any, devices: list[mx.Context], saved: Saved | None
    ) -> None:
        self.experiment, self.store, self.devices = experiment, store, devices
        self.rank, self.num_workers, self.generation = place.rank, place.num_workers, place.generation
        self.state: Mapping[str, Any] = saved.state if saved else {}
        self.sums: Mapping[str, float] = saved.sums if saved and place.rank == 0 else {}
        self.meter = Meter()
        self.progress: dict[str, Any] = {}
        self.channel = Channel(
            {"statistics": self._statistics, "snapshot": self._snapshot, "learning_rate": self._learning_rate}
        )
        self._place, self._saved = place, saved
        self._epoch, self._step = (saved.epoch, saved.step) if saved else (0, 0)
        self._records, self._steps = saved.records if saved else 0, 0  # done of this epoch; in it
        self._trainer: Trainer | None = None
        self._schedule: schedule.Schedule | None = None
        self._params: Mapping[str, gluon.Parameter] = {}
        self._data = WorkerData(experiment, Share(place.rank, place.num_workers, len(devices)), self._stream)
        self._batches = 0
        self._state: Mapping[str, Any] = self.state
        self._sums: Callable[[], Mapping[str, float]] = dict

    # What to train

    def build_net(self) -> gluon.Block:
        """The experiment's net on this worker's devices, the same weights in every worker."""
        return nets.build_net(self.experiment, self.devices)

    def trainer(self, net: gluon.Block) -> Trainer:
        """A trainer over the store, by the experiment's optimizer, schedule, precision and compression.

        All workers call it at the same place. Restored parameters and optimizer state are in it when it returns.
        """
        if self._trainer:
            raise TrainingError("a loop has one trainer, since the store's keys are its own: put all nets in one block")
        experiment, kvstore = self.experiment, self.experiment.kvstore
        if self.num_workers > 1:
            self.channel.ask("data", (os.uname().nodename, self._data.fingerprint()))
        self._params = net._collect_params_with_prefix()
        trained = trained_parameters(self._params)
        names = list(trained)
        keys = {name: key for key, name in enumerate(names)}
        if self._saved:
            _load_parameters(self._params, self._saved.parameters, self.devices)
        compression = kvstore.compression
        settings = StoreSettings(
            distributed=self._place.distributed,
            update_on_kvstore=rules.update_on_kvstore(experiment),
            asynchronous=self.asynchronous,
            half=rules.is_half_on_wire(experiment),
            compression={"type": compression.type, "threshold": compression.threshold}
            if compression.type != "none"
            else None,
        )
        scale = loss_scale.loss_scale(
            rules.loss_scale(experiment), self._saved.optimizer.scalars if self._saved else {}
        )
        self._trainer = Trainer(
            trained,
            self.store,
            self._optimizer_spec(),
            settings,
            scale=scale,
            restored=rekey(self._saved.optimizer, keys) if self._saved else None,
            install=lambda spec, sizes: self.channel.ask("install", (spec, sizes, names)),
            set_remote_rate=lambda rate: self.channel.ask("rate", rate),
        )
        return self._trainer

    def _optimizer_spec(self) -> OptimizerSpec:
        training = self.experiment.training
        options = dict(training.optimizer.arguments)
        if self.experiment.precision.dtype == "float16" or rules.is_half_on_wire(self.experiment):
            options.setdefault("multi_precision", True)
        self._schedule = self._make_schedule()
        return OptimizerSpec(
            name=training.optimizer.name,
            options=options,
            rescale_grad=1.0 / training.global_batch_size,
            schedule=self._schedule,
            updates_a_step=self.num_workers if self.asynchronous and self._place.distributed else 1,
            directory=self.experiment.directory,
        )

    def _make_schedule(self) -> schedule.Schedule:
        """Where it stands is the number of updates, but for those that were made with another batch size."""
        saved, batch_size = self._saved, self.experiment.training.global_batch_size
        if saved is None or saved.global_batch_size == batch_size:
            made = schedule.from_experiment(self.experiment, self.steps_per_epoch)
            return replace(made, shift=saved.schedule_shift if saved else 0.0)
        return schedule.from_experiment(
            self.experiment,
            self.steps_per_epoch,
            updates=max(saved.optimizer.counts.values(), default=0),
            position_epochs=saved.epoch + saved.records / self._data.plan.num_records,
        )

    # Where it is

    @property
    def place(self) -> tuple[int, int]:
        """(epoch, step) that the loop is in."""
        return self._epoch, self._step

    @property
    def moves(self) -> int:
        """A number that grows as long as the loop does not stand still."""
        return self.channel.moves + self._batches

    @property
    def asynchronous(self) -> bool:
        """Whether every worker's push is an update of its own."""
        return rules.is_async(self.experiment)

    def epochs(self) -> range:
        """The epochs still to do."""
        return range(self._epoch, self.experiment.training.epochs)

    @property
    def steps_per_epoch(self) -> int:
        return self._data.plan.steps

    @property
    def label_width(self) -> int:
        """Labels a record; for ``data.label_width: auto`` the most that any has, fewer are filled up with -1."""
        return self._data.label_width

    @property
    def images_are_ready(self) -> bool:
        """Whether images are float32 (rows, C, H, W) of a transform of the user's, and not uint8 (rows, H, W, C)."""
        return self._data.floats

    # Data

    def train_batches(self, epoch: int) -> Iterator[DeviceBatch]:
        """This worker's batches of an epoch, from the step where a restored run stopped.

        ``part.scale`` is what to give ``backward`` as the gradient of a loss a row: weight * B / (real records of this
        global batch), so that the sum of all workers' gradients, times the optimizer's 1/B, is the mean over the real
        records; bad ones that are skipped count as real there. In async it is weight * B / (this worker's usable
        records). The loss scale is in it too, and the trainer divides by it.
        """
        if epoch != self._epoch:
            self._epoch, self._step, self._records = epoch, 0, 0
        self._steps = steps = self._data.plan.steps_from(self._step, self._records)
        self._seed()
        for batch in self._measured(self._data.train(epoch, self._step, self._records)):
            self._step += 1  # before the loop has it: its report after this batch is already past it
            self._records = batch.records_done
            self._batches += 1
            yield self._on_devices(batch)
            self.meter.step_done(batch.real_local, mx.nd.waitall)
            self.progress.update(
                epoch=epoch, step=self._step, steps=steps, samples=self.meter.samples, train_s=self.meter.train_s
            )
        self._epoch, self._step, self._records = epoch + 1, 0, 0

    def _seed(self) -> None:
        """Random numbers of MXNet (dropout) are a function of the place: the same when a run goes on from here."""
        mx.random.seed(_mix(self.experiment.training.seed, self._epoch, self._step, self.rank))

    def validation_batches(self) -> Iterator[DeviceBatch]:
        """This worker's part of the validation records, each once over all workers; padding has weight 0."""
        for batch in self._data.validation():
            self._batches += 1
            yield self._on_devices(batch)

    def _measured(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        """Count the time that the loop waits for data; end the clock when the engine has done the last step."""
        self.meter.start()
        try:
            while True:
                asked = time.perf_counter()
                batch = next(stream, None)
                self.meter.waited(time.perf_counter() - asked)
                if batch is None:
                    return
                yield batch
        finally:
            mx.nd.waitall()
            self.meter.stop()

    def _stream(self, records: RecordSet, rows: Sequence[Rows], decoding: Decoding) -> Stream:
        from raymx.data.pipeline.stream import batches  # here, since importing ray.data takes more than a second

        return batches(
            records,
            rows,
            decoding,
            placement_group=self._place.placement_group,
            bundle_index=self._place.bundle_index,
            num_cpus=self.experiment.data.read_cpus,
        )

    def _on_devices(self, batch: Batch) -> DeviceBatch:
        real = batch.real_local if self.asynchronous else batch.real_global
        times = self._trainer.loss_scale if self._trainer else 1.0
        scale = batch.weights * (times * self.experiment.training.global_batch_size / max(real, 1))
        images = [batch.images, batch.mirror] if self.experiment.data.augment.rand_mirror else [batch.images]
        cuts = [np.array_split(array, len(self.devices)) for array in (batch.labels, batch.weights, scale, *images)]
        parts = []
        for i, device in enumerate(self.devices):
            labels, weights, scales, *inputs = (_array(cut[i], device) for cut in cuts)
            parts.append(Part(tuple(inputs), labels, weights, scales))
        return DeviceBatch(parts=parts, samples=batch.real_local)

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
        if self.asynchronous and self._place.distributed:
            self.store._barrier()
            assert self._trainer is not None
            self._trainer.pull()
            mx.nd.waitall()
            self.store._barrier()
        self._average_statistics(net)

    def _average_statistics(self, net: gluon.Block) -> None:
        params = _statistics(net._collect_params_with_prefix())
        if not params or self.num_workers * len(self.devices) == 1:
            return
        sums = self.total({name: _mean(param) for name, param in params.items()})
        for name, param in params.items():
            param.set_data(mx.nd.array(sums[name] / self.num_workers, dtype=param.dtype))

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
        """
        self._state = self._state if state is None else _plain("state", dict(state))
        self._sums = sums
        if metrics is None:
            if self.channel.boundary((self._epoch, self._step, self._steps)):
                self._seed()  # a run that goes on from the checkpoint that was made here does so too
            return
        figures = self.meter.take()
        self.channel.report(
            {
                "metrics": _numbers("metrics", metrics),
                "meter": figures,
                "epoch": self._epoch,
                "bad_records": self._data.take_skipped(),
                "scaling": self._scaling(),
                "bytes": self._trainer.bytes_a_step() if self._trainer else (0, 0),
            }
        )

    def _scaling(self) -> dict[str, float]:
        """The loss scale, and the updates skipped: a step that all workers skip together is one, which rank 0 tells."""
        figures = self._trainer.take_scaling() if self._trainer else {}
        if figures and self.rank > 0 and not self.asynchronous:
            figures["skipped_steps"] = 0
        return figures

    def close(self) -> None:
        """Let go of the store: the generation ends when nothing refers to it any more."""
        self.store = None
        if self._trainer:
            self._trainer.close()
        self._data.close()

    # For the trial, while the loop waits

    def _statistics(self, _: Any) -> dict[str, NDArray[Any]]:
        """Batch norm's running statistics here; and when all workers have answered, none has a push under way."""
        mx.nd.waitall()
        return {name: _mean(param) for name, param in _statistics(self._params).items()}

    def _snapshot(self, statistics: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Everything that a checkpoint has of this worker; parameters, with these statistics, from rank 0 alone."""
        if self.rank == 0 and self.asynchronous and self._trainer:
            self._trainer.pull()
            mx.nd.waitall()
        return {
            "epoch": self._epoch,
            "step": self._step,
            "state": dict(self._state),
            "schedule_shift": self._schedule.shift if self._schedule else 0.0,
            "records": self._records,
            "sums": _numbers("sums", self._sums()),
            "parameters": _dump_parameters(self._params, statistics) if self.rank == 0 else b"",
            "optimizer": self._optimizer_state() if self.rank == 0 else None,
        }

    def _optimizer_state(self) -> OptimizerState | None:
        """By structural name; None where the servers have it."""
        state = self._trainer.optimizer_state() if self._trainer else OptimizerState()
        return None if state is None else rekey(state, dict(enumerate(self._trainer.names if self._trainer else [])))

    def _learning_rate(self, _: Any) -> float | None:
        return self._trainer.learning_rate() if self._trainer else None


def _numbers(what: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Python floats: numpy's, which asscalar() gives, cannot be written as JSON."""
    try:
        return {name: float(value) for name, value in values.items()}
    except (TypeError, ValueError) as error:
        raise TrainingError(f"report() got {what} that are no numbers: {dict(values)} ({error})") from None


def _plain(what: str, values: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(values)
    except (TypeError, ValueError) as error:
        raise TrainingError(
            f"report() got a {what} that is not plain data (numbers, text, lists, dictionaries): {error}"
        ) from None
    return values


def _mean(param: gluon.Parameter) -> NDArray[Any]:
    """The mean over devices. In float64, where the mean of equal float32 numbers is that number to the bit."""
    return np.mean([data.asnumpy().astype("float64") for data in param.list_data()], axis=0)


def _statistics(params: Mapping[str, gluon.Parameter]) -> dict[str, gluon.Parameter]:
    """The parameters that training changes without a gradient: batch norm's running mean and variance."""
    return {
        name: param
        for name, param in params.items()
        if param.grad_req == "null" and not isinstance(param, gluon.Constant)
    }


def _dump_parameters(params: Mapping[str, gluon.Parameter], statistics: Mapping[str, NDArray[Any]]) -> bytes:
    """Gluon's parameter file; MXNet writes to a path only."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.params")
        mx.nd.save(
            path,
            {
                name: mx.nd.array(statistics[name], dtype=param.dtype)
                if name in statistics
                else param.list_data()[0].as_in_context(mx.cpu())
                for name, param in params.items()
            },
        )
        with open(path, "rb") as file:
            return file.read()


def _load_parameters(params: Mapping[str, gluon.Parameter], dump: bytes, devices: list[mx.Context]) -> None:
    saved = mx.nd.load_frombuffer(dump)
    if set(saved) != set(params):
        raise CheckpointError(
            "the checkpoint is of another net: it lacks "
            f"{sorted(set(params) - set(saved))[:5]} and has {sorted(set(saved) - set(params))[:5]}"
        )
    for name, param in params.items():
        if param.shape is not None and tuple(saved[name].shape) != tuple(param.shape):
            raise CheckpointError(
                f"the checkpoint is of another net: {name} is {saved[name].shape} in it and {param.shape} in the net"
            )
        param.set_data(saved[name])


def _array(values: NDArray[Any], device: mx.Context) -> mx.nd.NDArray:
    """An NDArray over the same memory: mx.nd.array would wait for the engine, and leave it idle after every step."""
    return mx.nd.from_numpy(np.ascontiguousarray(values)).as_in_context(device)


def _mix(*numbers: int) -> int:
    """One seed below 2**31 out of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)
