"""What a run has trained: its best checkpoint, and the net in it, ready to predict."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from raymx import storage
from raymx.checkpoint.files import PARAMETERS, STATE
from raymx.errors import CheckpointError, ExperimentError, JobError
from raymx.experiment.loading import ExperimentConfig, parse_experiment
from raymx.experiment.schema import Data
from raymx.experiment.source_files import SOURCE
from raymx.report import load
from raymx.report.model import TrialResult, number
from raymx.results import run_files, run_folder
from raymx.sweep.space import Space


@dataclass(frozen=True)
class Trained:
    """A checkpoint of a trial. ``parameters`` is the path or URI of Gluon's parameter file."""

    trial_id: str
    axes: Mapping[str, Any]
    epoch: float
    metrics: Mapping[str, float]
    parameters: str
    experiment: ExperimentConfig
    _source: str = field(repr=False, default="")

    def load_net(self, ctx: Any = None) -> Any:
        """The trained Gluon net on ``ctx`` (an MXNet context, mx.cpu() by default).

        It takes what it was trained with: arrays (rows, channels, height, width) of ``(pixel - data.mean) /
        data.std``; `predict` takes images as they are. On a CPU a float16 net is loaded as float32, which MXNet can
        compute there. Raises ExperimentError when the module of the net is not there any more.
        """
        import mxnet as mx

        from raymx.training import nets

        device = ctx or mx.cpu()
        experiment = self.experiment
        if device.device_type == "cpu" and experiment.precision.net_dtype == "float16":
            experiment = _in_float32(experiment)
        with _modules_of(self._source) as folder:
            there = experiment.model_copy(update={"directory": folder or experiment.directory})
            try:
                net = nets.build_net(there, [device], is_trained=True)
            except ModuleNotFoundError as error:
                raise ExperimentError(
                    f"model.net is {experiment.model.net}, and its module is not there any more "
                    f"({error}): it was in {experiment.directory}"
                ) from None
        with _local(self.parameters) as file:
            net.load_parameters(file, ctx=device, cast_dtype=True, dtype_source="current")
        return net

    def predict(self, images: Any, ctx: Any = None, rows_at_once: int = 256) -> Any:
        """The net's outputs for ``images``, uint8 or float pixels from 0 to 255, (rows, height, width, channels) or,
        with one channel, (rows, height, width); an array (rows, outputs) of float32, or lists, tuples and dictionaries
        of arrays as the net gives them.

        Raises ExperimentError when images are not of ``data.image_shape``.
        """
        import mxnet as mx

        from raymx.training.structure import filled, leaves

        pixels = self._checked(np.asarray(images))
        net, count = self.load_net(ctx), len(pixels)
        if not count:  # one, so that outputs have the shapes that they would have
            pixels = np.zeros((1, *pixels.shape[1:]), np.float32)
        parts: list[list[Any]] = []
        for at in range(0, len(pixels), rows_at_once):
            given = net(mx.nd.array(pixels[at : at + rows_at_once], ctx=ctx or mx.cpu()))
            parts.append([array.asnumpy().astype(np.float32) for array in leaves(given)])
        return filled(given, [np.concatenate(arrays)[:count] for arrays in zip(*parts, strict=True)])

    def export(self, form: Literal["symbol", "onnx"] = "symbol", path: str | None = None) -> list[str]:
        """Write the net for others, in float32; the paths of the files. It takes what `load_net` says.

        ``symbol``: ``PATH-symbol.json`` and ``PATH-0000.params``, which MXNet loads in all of its languages (in Python
        ``gluon.SymbolBlock.imports``). ``onnx``: ``PATH.onnx``, of opset 13. ``path`` is local, the experiment's name
        by default. Of several outputs a graph gives a list. Raises TrainingError for a net that cannot be written so.
        """
        from raymx.training import deploy

        if form not in _FORMS:
            raise ExperimentError(f"export({form!r}): it must be one of {', '.join(_FORMS)}")
        path = _local_path(path or self.experiment.name)
        with self.opened() as (net, experiment):
            example = _blank(experiment)
            if form == "symbol":
                return list(deploy.save_graph(net, example, path))
            return [deploy.save_onnx(net, example, f"{path.removesuffix('.onnx')}.onnx")]

    def quantize(self, images: Any = None, path: str | None = None, records: int = 256) -> Any:
        """The net in int8 for CPUs, by MXNet's own quantization: a function of what `load_net` says.

        Its ranges of numbers are those that the layers give for ``images``, as `predict` takes them; by default for so
        many of the validation ``records``, or of the training ones where there are none. With ``path`` its graph is
        written, as by `export`. Raises TrainingError for a net that cannot be quantized.
        """
        import mxnet as mx

        from raymx.training import deploy, held_out

        with self.opened() as (net, experiment):
            if images is None:
                examples = held_out.first(experiment, records)
            else:
                examples = [mx.nd.array(self._checked(np.asarray(images)))]
            quantized = deploy.quantized(net, examples)
            if path:
                quantized.block.export(_local_path(path))
        return quantized

    @contextlib.contextmanager
    def opened(self) -> Iterator[tuple[Any, ExperimentConfig]]:
        """A context: the net on the CPU in float32, and its experiment with modules and data where they are now."""
        require_pictures(self.experiment)
        experiment = _in_float32(self.experiment)
        net = replace(self, experiment=experiment).load_net()
        with _modules_of(self._source) as folder:
            yield (
                net,
                experiment.model_copy(
                    update={"directory": folder or experiment.directory, "data": _where_they_are(experiment)}
                ),
            )

    def _checked(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Images as the net takes them: (rows, channels, height, width), normalised."""
        require_pictures(self.experiment)
        data = self.experiment.data
        channels, height, width = data.picture_shape
        if images.ndim == 3 and channels == 1:
            images = images[..., None]
        if images.ndim != 4 or images.shape[1:] != (height, width, channels):
            raise ExperimentError(
                f"images are {images.shape}: they must be (rows, {height}, {width}, {channels}), the "
                f"net's data.image_shape"
            )
        mean, std = (np.asarray(value, np.float32).reshape(1, -1, 1, 1) for value in (data.mean, data.std))
        return np.asarray((images.transpose(0, 3, 1, 2).astype(np.float32) - mean) / std, np.float32)


_FORMS = ("symbol", "onnx")


def _in_float32(experiment: ExperimentConfig) -> ExperimentConfig:
    return parse_experiment(experiment.to_dict(), experiment.directory, {"precision.dtype": "float32"})


def _where_they_are(experiment: ExperimentConfig) -> Data:
    """The data section with paths that do not depend on the experiment's folder."""

    def whole(paths: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if paths is None or isinstance(paths, str):
            return paths and experiment.resolve(paths)
        return tuple(experiment.resolve(path) for path in paths)

    data = experiment.data
    return data.model_copy(update={"train": whole(data.train), "validation": whole(data.validation)})


def require_pictures(experiment: ExperimentConfig) -> None:
    """Raise ExperimentError for a net that takes something else, of which only the net itself can be had."""
    if experiment.data.kind != "image" or experiment.data.image_shape is None:
        raise ExperimentError(
            f"data.kind is {experiment.data.kind}: predict, export, quantize and raymx.score are for nets that take "
            "pictures, of a data.image_shape; call the net of load_net() with arrays (rows, ...) of data.inputs"
        )


def _blank(experiment: ExperimentConfig) -> Any:
    """An input of the net."""
    import mxnet as mx

    return mx.nd.zeros((1, *experiment.data.picture_shape))


def _local_path(path: str) -> str:
    if storage.is_uri(path):
        raise ExperimentError(f"{path}: MXNet writes local files only; copy them there afterwards")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    return path


def best(path: str) -> Trained:
    """The best checkpoint in a run's folder. Raises JobError when there is none yet."""
    run = run_files.read_run(path)
    sweep = load.load(run, os.path.basename(path))
    trials = zip(sweep.trials, _folders(run, sweep.trials), strict=True)
    found = [
        (value, trial, name, state)
        for trial, folder in trials
        for name, state in _checkpoints(storage.child(run.path, folder))
        if (value := number(state["metrics"].get(sweep.objective.metric))) is not None
    ]
    if not found:
        raise JobError(
            f"{path} has no checkpoint with {sweep.objective.metric} yet: the first one is written after an epoch; ask "
            "again then, or after run.result(), which waits for the run's end"
        )
    sign = 1 if sweep.objective.mode == "max" else -1
    _, trial, name, state = max(found, key=lambda one: sign * one[0])
    experiment = _experiment(run, trial)
    return Trained(
        trial.trial_id,
        trial.axes,
        float(state["epoch"]),
        state["metrics"],
        storage.child(name, PARAMETERS),
        experiment,
        storage.child(run.path, SOURCE),
    )


def _folders(run: run_files.RunFiles, trials: Any) -> list[str]:
    """The folder of each trial."""
    by_id = {run_folder.mapping(one.trial or "").get("trial_id"): one.folder for one in run.trials}
    return [by_id.get(trial.trial_id, trial.trial_id) for trial in trials]


def _checkpoints(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, state) of a trial's checkpoints that are whole."""
    for name in storage.folders_in(folder):
        if not name.startswith("checkpoint_"):
            continue
        path = storage.child(folder, name)
        state = run_folder.mapping(storage.text(storage.child(path, STATE)) or "")
        if "metrics" in state:
            yield path, state


def _experiment(run: run_files.RunFiles, trial: TrialResult) -> ExperimentConfig:
    space = Space(parse_experiment(*run_folder.recorded(run.run, storage.child(run.path, run_folder.RUN))))
    labels = {axis.key: trial.axes[axis.key] for axis in space.axes}
    return space.at(labels, trial.repeat)


@contextlib.contextmanager
def _local(path: str) -> Iterator[str]:
    """A file that Gluon can open: a copy of one that is no local one."""
    if not storage.is_uri(path):
        if not os.path.exists(path):
            raise CheckpointError(
                f"{path} is not there any more: newer checkpoints take the place of older ones; ask "
                "again with run.best()"
            )
        yield path
        return
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, PARAMETERS)
        copy.write_bytes(storage.content(path) or b"")
        yield str(copy)


@contextlib.contextmanager
def _modules_of(source: str) -> Iterator[str]:
    """The folder of a run's own modules, in which they are found; "" when it kept none.

    Modules of the same names that this process has, of another run, are set aside meanwhile.
    """
    archive = storage.content(source) if source else None
    if archive is None:
        yield ""
        return
    folder = tempfile.mkdtemp(prefix="raymx_source_")  # stays: a net's code may import more later
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(folder)
    names = {path.stem for path in Path(folder).iterdir()}
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}
    path_before = list(sys.path)
    try:
        yield folder
    finally:
        sys.path[:] = path_before
        for name in [name for name in sys.modules if name.partition(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(aside)
