"""The weights that a net begins with: those of a file, and of the model zoo."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import mxnet as mx
from mxnet import gluon

from raymx import storage
from raymx.errors import DataError, TrainingError
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.weights_file import weights_file
from raymx.text.words import some

_MOST_NAMED = 3
Arrays = Mapping[str, mx.nd.NDArray]


def begin_with(net: gluon.Block, experiment: ExperimentConfig, anew: Collection[str]) -> None:
    """Give the net, whose shapes are known, the weights of ``model.parameters``, all but the parameters ``anew``.

    Raises TrainingError when the file has others than the net, and DataError when it cannot be read.
    """
    path = weights_file(experiment.resolve(experiment.model.parameters or ""))
    params: Mapping[str, gluon.Parameter] = net._collect_params_with_prefix()
    found = by_structure(_read(path), params, net.prefix)
    _check_names(path, found, params, anew, experiment)
    for name, param in params.items():
        if name in found and name not in anew:
            _check_shape(path, name, found[name], param)
            param.set_data(found[name].astype(param.dtype, copy=False))


def _read(path: str) -> Arrays:
    data = storage.content(path)
    if data is None:
        raise DataError(f"model.parameters: {path} is not there on node {os.uname().nodename}")
    try:
        found = mx.nd.load_frombuffer(data)
    except mx.MXNetError as error:
        raise DataError(
            f"model.parameters: {path} is no file of parameters of MXNet's, or damaged "
            f"({str(error).strip().splitlines()[-1]})"
        ) from None
    if not isinstance(found, dict):
        raise DataError(f"model.parameters: {path} has arrays without names: save them with net.save_parameters")
    return found


def by_structure(found: Arrays, params: Mapping[str, gluon.Parameter], prefix: str) -> dict[str, mx.nd.NDArray]:
    """The arrays of a file by the net's structural names, such as ``features.0.weight``.

    ``save_parameters`` writes those. ``export``, a Module's checkpoint and MXNet's older files have names as
    ``arg:resnetv10_dense0_weight`` in which the net's own prefix is counted up with each net that a process makes: so
    it does not count. What is of no name of the net's stays as it is.
    """
    found = {name.partition(":")[2] if name[:4] in ("arg:", "aux:") else name: array for name, array in found.items()}
    if any("." in name for name in found) or set(found) & set(params):
        return dict(found)
    structural = {param.name: name for name, param in params.items()}
    short = {param.name.removeprefix(prefix): name for name, param in params.items()}
    ways = (
        {name: structural.get(name, name) for name in found},
        {name: short.get(name, name) for name in found},
        {name: short.get(name.partition("_")[2], name) for name in found},
    )
    best = max(ways, key=lambda way: len(set(way.values()) & set(params)))
    return {best[name]: array for name, array in found.items()}


def _check_names(
    path: str,
    found: Arrays,
    params: Mapping[str, gluon.Parameter],
    anew: Collection[str],
    experiment: ExperimentConfig,
) -> None:
    missing = [name for name in params if name not in found and name not in anew and not _is_constant(params[name])]
    extra = [name for name in found if name not in params]
    if not set(found) & set(params):
        raise TrainingError(
            f"model.parameters: {path} is of another net than model.net {experiment.model.net}: it has "
            f"{_shown(extra, found)}, and the net {_shown(list(params), params)}"
        )
    if missing and not experiment.model.allow_missing:
        raise TrainingError(
            f"model.parameters: {path} lacks {_shown(missing, params)}, which model.net {experiment.model.net} has; "
            "set model.allow_missing to true to begin those as model.initializer says"
        )
    cut_off = bool(experiment.model.features)  # what came behind them in the file
    if extra and not experiment.model.ignore_extra and not cut_off:
        raise TrainingError(
            f"model.parameters: {path} has {_shown(extra, found)}, which model.net {experiment.model.net} has not; set "
            "model.ignore_extra to true to leave those out"
        )


def _is_constant(param: gluon.Parameter) -> bool:
    return isinstance(param, gluon.Constant)


def _shown(names: list[str], of: Mapping[str, mx.nd.NDArray | gluon.Parameter]) -> str:
    return some([f"{name} {_shape(of[name])}" for name in names], _MOST_NAMED)


def _shape(array: mx.nd.NDArray | gluon.Parameter) -> tuple[int, ...]:
    """Of a SymbolBlock a parameter may know none, whose data do."""
    return tuple(array.shape if array.shape is not None else array.list_data()[0].shape)


def _check_shape(path: str, name: str, array: mx.nd.NDArray, param: gluon.Parameter) -> None:
    here, there = _shape(param), _shape(array)
    if here == there:
        return
    layer = name.rpartition(".")[0]
    if here[1:] == there[1:]:
        rows = here[0]
        fix = (
            f"set model.classes to {there[0]}, as when the file was written, and for {rows} outputs model.head to "
            f"{{name: {layer}, classes: {rows}}}, which makes that layer anew"
        )
    else:
        fix = "make the net as it was then: look at model.classes, model.options and data.image_shape"
    raise TrainingError(f"model.parameters: {name} is {here} in the net and {there} in {path}; {fix}")


@contextmanager
def zoo_file_at_hand(name: str, root: str | None) -> Iterator[None]:
    """While a net of the model zoo is made with ``pretrained``: its file is in ``root``, or is fetched."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # requests' own are OSErrors
        folder = os.path.expanduser(root or os.path.join(mx.base.data_dir(), "models"))
        told = f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[-1]}"
        raise TrainingError(
            f"model.options has pretrained: true, and the weights of {name} are not in {folder} on node "
            f"{os.uname().nodename}, nor can they be fetched ({told}): put the file there ({_zoo_file(name)}), or name "
            "another one in model.parameters"
        ) from None


def _zoo_file(name: str) -> str:
    from mxnet.gluon.model_zoo import model_store

    try:
        return f"{name}-{model_store.short_hash(name)}.params"
    except ValueError:
        return "MXNet knows none for this net"
