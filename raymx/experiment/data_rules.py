"""What an experiment must say of its data, by their kind, and what says nothing there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raymx.experiment.keys import allowed
from raymx.experiment.names import LOSSES, METRICS, MODEL_ZOO, REFERENCE, TAKE_A_CLASS
from raymx.experiment.problem import Problem
from raymx.experiment.schema import Data, ExperimentConfig

_OF_PICTURES = (*("image_shape", "mean", "std", "resize", "exif", "augment", "transform", "validation_transform"),)
_OF_ARRAYS = ("inputs",)


def function_of(paths: str | tuple[str, ...] | None) -> str | None:
    """The ``module:function`` that ``data.train`` or ``data.validation`` names, or None where it names files."""
    return paths if isinstance(paths, str) and REFERENCE.fullmatch(paths) else None


def listed(paths: str | tuple[str, ...] | None) -> list[str]:
    """The files, folders, patterns and URIs that ``data.train`` or ``data.validation`` names; none of a function."""
    if paths is None or function_of(paths):
        return []
    return [paths] if isinstance(paths, str) else list(paths)


def missing(raw: Mapping[str, Any]) -> dict[str, str]:
    """Message by key of what an experiment, as plain data, must say of its data and does not.

    A loop of one's own may read data of its own.
    """
    data, training = (raw.get(key) or {} for key in ("data", "training"))
    if not isinstance(data, Mapping) or not isinstance(training, Mapping):
        return {}
    own_loop = training.get("loop", "default") != "default"
    has = {key: data.get(key) is not None for key in ("train", "validation", "image_shape")}
    wanted = {
        "train": not has["train"] and (not own_loop or has["validation"]),
        "image_shape": not has["image_shape"]
        and data.get("kind", "image") == "image"
        and (not own_loop or has["train"]),
    }
    found = {
        f"data.{key}": f"data.{key} is missing: it must be {allowed(Data.model_fields[key])}"
        for key, is_missing in wanted.items()
        if is_missing
    }
    if "data.image_shape" in found:
        found["data.image_shape"] += "; for other samples than pictures set data.kind"
    return found


def problems(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What does not go with the kind of data."""
    data = experiment.data
    yield from _of_another_kind(data)
    yield from _inputs(experiment)
    yield from _lengths(data)
    yield from _labels(data)
    yield from _labels_of_raymx(experiment)
    yield from _functions(data)


def _of_another_kind(data: Data) -> Iterator[Problem]:
    kind = data.kind
    other, fix = (
        (_OF_ARRAYS, "set data.kind array or custom")
        if kind == "image"
        else (_OF_PICTURES, "leave it out; change arrays in the net, or in data.decode of data.kind custom")
    )
    for key in other:
        value = getattr(data, key)
        if value != Data.model_fields[key].get_default():
            shown = sorted(value) if key == "inputs" else value
            yield Problem(f"data.{key}", shown, f"data.kind is {kind}, which has no use for it", fix)
    if data.decode and kind != "custom":
        yield Problem("data.decode", data.decode, f"data.kind is {kind}", "set data.kind custom, or leave it out")
    if kind == "custom" and not data.decode:
        wanted = "def decode(header, payload, rng): ... return {name: array}"
        yield Problem("data.kind", kind, "nothing says how a record becomes arrays", f"set data.decode to a {wanted}")


def _inputs(experiment: ExperimentConfig) -> Iterator[Problem]:
    data = experiment.data
    if data.kind == "image":
        return
    if not data.inputs and (data.train is not None or experiment.training.loop == "default"):
        example = "data.inputs: {tokens: {dtype: int32, shape: [32]}}"
        yield Problem("data.kind", data.kind, "the net's inputs are not known", f"name them, such as {example}")
    if experiment.model.net in MODEL_ZOO and data.inputs and not _is_picture_like(data):
        yield Problem(
            "model.net",
            experiment.model.net,
            f"nets of the model zoo take pictures, and data.inputs has {', '.join(data.inputs)}",
            "name one array of the shape [channels, height, width], or use module:function of your own",
        )


def _is_picture_like(data: Data) -> bool:
    shapes = [each.shape for each in data.inputs.values()]
    return len(shapes) == 1 and len(shapes[0]) == 3


def _lengths(data: Data) -> Iterator[Problem]:
    differ = data.lengths_differ or any(each.shape[:1] == (None,) for each in data.labels.values())
    if not differ and data.pad != type(data.pad)():
        fix = "write the first size of what is padded as null: shape: [null]"
        yield Problem("data.pad", data.pad.to, "no input and no label has a length that differs", fix)
    if differ and not data.pad.most:
        reason = "a shape of data.inputs or data.labels begins with null, and nothing says how long a sample may be"
        yield Problem("data.pad.longest", "null", reason, "give the longest, or data.pad.to with lengths")


def _labels(data: Data) -> Iterator[Problem]:
    if data.labels and data.label_width != 1:
        fix = "leave data.label_width out: the labels' shapes say it"
        yield Problem("data.label_width", data.label_width, "data.labels is given too", fix)
    if twice := sorted(data.labels.keys() & data.inputs.keys()):
        yield Problem("data.labels", twice[0], "data.inputs has that name too", "give each array a name of its own")
    if data.kind == "array" and data.label_width == "auto":
        fix = "give the number, or data.labels with a shape such as [null]"
        yield Problem("data.label_width", "auto", "it is for pictures", fix)


def _labels_of_raymx(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What raymx's own losses and metrics cannot do with named labels."""
    labels, model = experiment.data.labels, experiment.model
    if experiment.training.loop != "default":
        return
    differ = any(each.shape[:1] == (None,) for each in labels.values())
    for key, name, known in (("loss", model.loss, LOSSES), ("metric", model.metric, METRICS)):
        if name in known and len(labels) > 1:
            reason = f"it takes one label, and data.labels has {', '.join(labels)}"
            yield Problem(f"model.{key}", name, reason, "use module:name of your own, which gets a tuple of them")
        elif name in known and differ and name not in TAKE_A_CLASS:
            reason = "labels whose length differs are filled up with -1, which it would take for labels"
            yield Problem(f"model.{key}", name, reason, "use module:name of your own, which leaves those out")


def _functions(data: Data) -> Iterator[Problem]:
    """``module:function`` in place of files."""
    for key in ("train", "validation"):
        name = function_of(getattr(data, key))
        if name and data.kind != "array":
            reason = f"a function of your own gives arrays, and data.kind is {data.kind}"
            yield Problem(f"data.{key}", name, reason, "set data.kind array, with data.inputs, or name record files")
