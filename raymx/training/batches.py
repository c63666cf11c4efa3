"""A worker's batches on its devices, and what is known from giving them out: how far the loop is, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.batch import Batch, Stream
from raymx.data.pipeline.decoding import Decoding
from raymx.data.pipeline.order import Rows
from raymx.data.pipeline.planning import Share
from raymx.data.pipeline.sample import Sample
from raymx.data.pipeline.source import Source
from raymx.data.pipeline.warmup import decode_here
from raymx.data.pipeline.worker_data import WorkerData
from raymx.errors import TrainingError
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.training.ahead import StepsAhead
from raymx.training.input_use import InputUse
from raymx.training.membership import Membership
from raymx.training.meter import Meter
from raymx.training.position import LoopPosition
from raymx.training.profiled_clock import clock_of


@dataclass(frozen=True)
class Part:
    """The rows of a batch on one device."""

    inputs: tuple[mx.nd.NDArray, ...]  # what raymx's own net takes (`nets.as_input_net`): images, and flags to mirror;
    # or data.inputs in their order, and the lengths
    labels: Any  # float32 NDArray (rows,) or (rows, label_width); of data.labels (rows, ...), of several a tuple
    weights: mx.nd.NDArray  # float32 (rows,): 1 a real record, 0 a row of padding or a bad record
    scale: mx.nd.NDArray  # float32 (rows,): the gradient of the loss of each row, see WorkerContext.train_batches
    real_rows: tuple[int, ...] | None = None  # the rows with weight 1, where there are others
    names: tuple[str, ...] = ()  # of the inputs, of data.inputs

    @property
    def arrays(self) -> dict[str, mx.nd.NDArray]:
        """The inputs by their names in ``data.inputs``, with ``lengths`` where these differ."""
        return dict(zip(self.names, self.inputs, strict=True))

    @property
    def images(self) -> mx.nd.NDArray:
        """uint8 (rows, H, W, C), mirrored where the augmentation says so; or what a transform of the user's made."""
        if self.names:
            raise TrainingError("these samples are no images: part.arrays has them by name, part.inputs in their order")
        images, *mirror = self.inputs
        return mx.nd.where(mirror[0], images.flip(axis=2), images) if mirror else images

    def real(self, values: Any) -> Any:
        """The rows of ``values`` (labels, outputs, losses; (rows, ...)) that are of real records, with no wait.

        For whatever counts rows, such as ``mx.metric``: a batch may be filled up with rows that repeat records.
        """
        if isinstance(values, tuple):
            return tuple(self.real(each) for each in values)
        if self.real_rows is None:
            return values
        if not self.real_rows:
            raise TrainingError("this part of a batch has no real row: look at batch.samples, or leave it out")
        return mx.nd.take(values, mx.nd.array(self.real_rows, ctx=values.context, dtype="int32"))

    def without_padding(self) -> Part | None:
        """With the rows of real records alone; None where there is none."""
        if self.real_rows is None or not self.real_rows:
            return self if self.real_rows is None else None
        inputs = tuple(self.real(values) for values in self.inputs)
        rows = (self.real(self.labels), self.real(self.weights), self.real(self.scale))
        return Part(inputs, *rows, names=self.names)


@dataclass(frozen=True)
class DeviceBatch:
    """One worker's rows of one step, over its devices."""

    parts: list[Part]
    samples: int  # real records in it


class DeviceBatches:
    """The batches of one worker in one generation. For the loop's thread, but for ``num_given`` and ``progress``."""

    def __init__(
        self,
        experiment: ExperimentConfig,
        membership: Membership,
        devices: Sequence[mx.Context],
        position: LoopPosition,
        loss_scale: Callable[[], float | mx.nd.NDArray],
    ) -> None:
        """``loss_scale``: what the losses of the next step are multiplied by; an NDArray (1,) need not be computed."""
        self._experiment, self._membership, self._devices = experiment, membership, devices
        self._position, self._loss_scale = position, loss_scale
        share = Share(membership.rank, membership.num_workers, len(devices))
        self.data = WorkerData(experiment, share, self._open_stream)
        self.meter = Meter()
        self.input = InputUse()
        self.clock = clock_of(experiment, membership)
        self.progress: dict[str, Any] = {}
        self.num_given = 0
        self._own_steps = 0  # made since the last report, by a loop that takes no batches from here
        self._trains_here = False
        self._sample = Sample.of(experiment.data)
        show = self._show_loss if membership.rank == 0 else None
        self._ahead = StepsAhead(experiment.report.disp_batches, show)

    def train(self, epoch: int) -> Iterator[DeviceBatch]:
        """The batches of an epoch from where the position is, which goes on with each."""
        position, self._trains_here = self._position, True
        position.enter(epoch)
        position.steps = steps = self.data.plan.steps_from(position.step, position.records)
        self.seed()
        for number, batch in enumerate(self._measured(self.data.train(epoch, position.step, position.records))):
            position.step_done(batch.records_done)  # before the loop has it: its report after it is already past it
            self.num_given += 1
            began = time.perf_counter()
            on_devices = self._on_devices(batch)
            self.input.took(batch, time.perf_counter() - began)
            self.clock.took(batch)
            self._ahead.wait(number)
            self.clock.queued()
            yield on_devices
            self.meter.step_done(batch.real_local, mx.nd.waitall)
            self.progress.update(
                epoch=epoch, step=position.step, steps=steps, samples=self.meter.samples, train_s=self.meter.train_s
            )
        position.epoch_done(epoch)

    def validation(self, *, padded: bool) -> Iterator[DeviceBatch]:
        """This worker's part of the validation records; with ``padded`` in batches of one size."""
        for batch in self.data.validation():
            self.num_given += 1
            on_devices = self._on_devices(batch)
            parts = [part for each in on_devices.parts if (part := each if padded else each.without_padding())]
            if parts:
                yield DeviceBatch(parts, on_devices.samples)

    def queued(self, losses: mx.nd.NDArray) -> None:
        """The losses of the step of the last batch, which need not be computed yet."""
        if not isinstance(losses, mx.nd.NDArray):
            raise TrainingError(
                f"show() got a {type(losses).__name__}: give it one NDArray, the losses of one device of this step"
            )
        self.clock.losses(losses)
        self._ahead.add(self.num_given, losses)

    def step_begins(self) -> None:
        """The loop makes an update. With data of its own that tells its speed and where it is."""
        if self._trains_here:
            return
        self.num_given += 1
        self._own_steps += 1
        self.meter.start()
        rows = self._experiment.training.global_batch_size / self._membership.num_workers
        self.meter.step_done(rows, mx.nd.waitall)
        self.progress.update(epoch=self._position.epoch, step=self._own_steps)

    def pause(self) -> None:
        """Validation begins, or a report: the speed of a loop with data of its own is not told by it."""
        if not self._trains_here:
            mx.nd.waitall()
            self.meter.stop()

    def count_epoch(self) -> None:
        """Before a report: it ends an epoch of a loop that has trained on data of its own."""
        if self._own_steps and not self._trains_here:
            self._position.epoch_done(self._position.epoch)

    def go_on(self) -> None:
        """After a report."""
        if self._own_steps and not self._trains_here:
            self.meter.start()
        self._own_steps = 0

    def seed(self) -> None:
        """Random numbers of MXNet (dropout) are a function of the position: the same when a run goes on from here."""
        numbers = (self._experiment.training.seed, self._position.epoch, self._position.step, self._membership.rank)
        mx.random.seed(_mix(*numbers))

    def _show_loss(self, loss: float) -> None:
        self.progress["loss"] = loss

    def _measured(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        """Count the time that the loop waits for data; end the clock when the engine has done the last step."""
        self.meter.start()
        try:
            while True:
                asked = time.perf_counter()
                batch = next(stream, None)
                self.clock.data(asked, got := time.perf_counter())
                self.meter.batch_came(got)
                if batch is None:
                    return
                yield batch
        finally:
            mx.nd.waitall()
            self.meter.stop()

    def _open_stream(self, records: Source, rows: Sequence[Rows], decoding: Decoding) -> Stream:
        if self._membership.placement_group is None:  # nobody reads for a process that has no bundle
            return decode_here(records, rows, decoding)
        from raymx.data.pipeline.stream import batches  # here, since importing ray.data takes more than a second

        return batches(
            records,
            rows,
            decoding,
            placement_group=self._membership.placement_group,
            bundle_index=self._membership.bundle_index,
            num_cpus=self._experiment.data.read_cpus,
        )

    def _on_devices(self, batch: Batch) -> DeviceBatch:
        """A row of padding, or a bad record, has weight 0 here, and so the scale 0."""
        experiment = self._experiment
        real = batch.real_local if rules.is_async(experiment) else batch.real_global
        to_come = self._loss_scale()
        known = 1.0 if isinstance(to_come, mx.nd.NDArray) else to_come
        scale = batch.weights * (known * experiment.training.global_batch_size / max(real, 1))
        names, inputs = self._inputs(batch)
        labels = self._labels(batch)
        cuts = [np.array_split(array, len(self._devices)) for array in (batch.weights, scale, *labels, *inputs)]
        parts = []
        for i, device in enumerate(self._devices):
            real_rows = None if cuts[0][i].all() else tuple(np.flatnonzero(cuts[0][i]).tolist())
            weights, scales, *others = (_array(cut[i], device) for cut in cuts)
            if isinstance(to_come, mx.nd.NDArray):
                scales = scales * to_come.as_in_context(device)
            label = others[0] if len(labels) == 1 else tuple(others[: len(labels)])
            parts.append(Part(tuple(others[len(labels) :]), label, weights, scales, real_rows, names))
        return DeviceBatch(parts=parts, samples=batch.real_local)

    def _inputs(self, batch: Batch) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
        """Names of the inputs, () of pictures, and their arrays."""
        if self._sample is None or not self._sample.inputs:
            mirrors = self._experiment.data.augment.rand_mirror
            return (), [batch.images, batch.mirror] if mirrors else [batch.images]
        columns = self._sample.columns(batch.images)
        return tuple(columns), list(columns.values())

    def _labels(self, batch: Batch) -> Sequence[NDArray[Any]]:
        if self._sample is None or not self._sample.labels:
            return (batch.labels,)
        rows = batch.labels.reshape(len(batch.weights), -1)
        return self._sample.label_columns(rows, self._sample.common_length(batch.images))


def _array(values: NDArray[Any], device: mx.Context) -> mx.nd.NDArray:
    """An NDArray over the same memory: mx.nd.array would wait for the engine, and leave it idle after every step."""
    return mx.nd.from_numpy(np.ascontiguousarray(values)).as_in_context(device)


def _mix(*numbers: int) -> int:
    """One seed below 2**31 out of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)
