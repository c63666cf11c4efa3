"""Experiments in Python: what an experiment file is, with objects of one's own in place of names.

exp = Experiment.from_yaml("experiments/fashion_mnist.yaml").override(training={"epochs": 5})
exp = exp.override(model={"net": my_net})               # a function of the notebook: it travels by value
many = exp.sweep({"kvstore.type": ["dist_sync", "dist_async"]}, repeats=2)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment import loading
from raymx.experiment.axis_kinds import AXIS_KINDS
from raymx.experiment.references import SIGNATURES
from raymx.experiment.schema import ExperimentConfig
from raymx.jobs import by_value


class Experiment:
    """An experiment that can be changed and submitted; each change gives a new one. It is checked at once."""

    def __init__(self, spec: ExperimentConfig, objects: Mapping[str, Any] | None = None) -> None:
        """``spec`` is the typed, frozen experiment; ``objects`` are those that it names in `raymx.jobs.by_value`.

        Raises ExperimentError for anything else, which ``from_yaml`` and ``from_dict`` take.
        """
        if not isinstance(spec, ExperimentConfig):
            raise ExperimentError(_not_a_spec(spec))
        self.spec = spec
        self.objects = dict(objects or {})

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Experiment:
        """The experiment in a file. Raises ExperimentError with all that is wrong in it."""
        return cls(loading.load_experiment(path))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], directory: str | os.PathLike[str] = ".") -> Experiment:
        """The experiment of plain data, as an experiment file has it; relative paths start from ``directory``."""
        objects: dict[str, Any] = {}
        return cls(loading.parse_experiment(_named(raw, objects), os.fspath(directory)), objects)

    def override(self, settings: Mapping[str, Any] | None = None, /, **sections: Any) -> Experiment:
        """With other settings: ``override(training={"epochs": 5})`` or ``override({"training.epochs": 5})``.

        Functions and classes in place of a ``module:name`` travel by value. Raises ExperimentError.
        """
        objects = dict(self.objects)
        flat = _named({**dict(settings or {}), **dict(_flat(sections))}, objects)
        changed = loading.parse_experiment(self.spec.to_dict(), self.spec.directory, flat, by_flags=False)
        return Experiment(changed, objects)

    def sweep(self, space: Mapping[str, Any], /, **options: Any) -> Experiment:
        """A sweep over ``space``: for each dotted key a list of values (a grid), or such as {"uniform": [0, 1]}.

        ``options`` are the other keys of an experiment file's sweep section: repeats, samples, search and so on.
        """
        axes = {
            key: value
            if isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in AXIS_KINDS
            else {"grid": list(value) if isinstance(value, (list, tuple)) else [value]}
            for key, value in space.items()
        }
        return self.override({f"sweep.{key}": value for key, value in {"space": axes, **options}.items()})

    def to_yaml(self) -> str:
        """Every key with its value, as an experiment file."""
        return loading.to_yaml(self.spec)

    def __repr__(self) -> str:
        one = self.spec
        return (
            f"<raymx.Experiment {one.name}: {one.model.net}, {one.training.epochs} epochs, global_batch_size "
            f"{one.training.global_batch_size}, {one.kvstore.type}, {one.precision.dtype}"
            + (f"; a sweep over {', '.join(one.sweep.space)}" if one.sweep.space else "")
            + "; all settings: print(exp.to_yaml())>"
        )


def _not_a_spec(given: object) -> str:
    """What is said of what ``Experiment`` was called with."""
    if isinstance(given, Mapping):
        return "Experiment got a mapping: Experiment.from_dict(raw, directory) takes one, with the keys of a file"
    if isinstance(given, (str, os.PathLike)):
        return f"Experiment got {os.fspath(given)}: Experiment.from_yaml(path) takes an experiment file"
    return (
        f"Experiment got {type(given).__name__}: use Experiment.from_yaml(path) or Experiment.from_dict(raw, directory)"
    )


def _flat(sections: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys of whole sections, so that what is not named in one stays as it is."""
    for section, value in sections.items():
        if section not in ExperimentConfig.model_fields:
            raise ExperimentError(
                f"{section} is not a section of an experiment: it has "
                f"{', '.join(name for name in ExperimentConfig.model_fields if name != 'directory')}"
            )
        if isinstance(value, Mapping):
            yield from ((f"{section}.{key}", one) for key, one in value.items())
        else:
            yield section, value


def _named(value: Any, objects: dict[str, Any], key: str = "") -> Any:
    """``value`` with the name of each function or class in its place; those are added to ``objects``. ``key``: its
    dotted key."""
    if isinstance(value, Mapping):
        return {inner: _named(one, objects, f"{key}.{inner}" if key else str(inner)) for inner, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(one, objects, key) for one in value]
    if not callable(value):
        return value
    if hasattr(value, "collect_params") and not isinstance(value, type):
        raise ExperimentError(_not_an_instance(key, type(value).__name__))
    name = by_value.name_of(value, objects)
    objects[name] = value
    return f"{by_value.MODULE}:{name}"


def _not_an_instance(key: str, kind: str) -> str:
    """What is said of a Gluon block in place of what makes it, which every worker does for itself."""
    key = key.removeprefix("sweep.space.").removesuffix(".grid")
    wanted = {
        "model.net": "a function or a class that makes it, which every worker calls with classes=",
        "model.loss": f"the class {kind} itself, or f(outputs, labels), which returns a loss a row",
        "model.metric": SIGNATURES["model.metric"].shown,
        "data.transform": SIGNATURES["data.transform"].shown,
        "data.validation_transform": SIGNATURES["data.transform"].shown,
    }.get(key, "a function or a class that makes it")
    return f"{key} is a {kind} that exists already, and does not travel: give {wanted}"
