"""The experiment file: what to train, on what, with which KVStore and how many workers.

    experiment = load_experiment("experiments/fashion_mnist.yaml", {"training.base_lr": 0.1})
    experiment.training.global_batch_size       # frozen, typed sections
    check_files(experiment)                     # the data and the user's own modules are there
    print(to_yaml(experiment))                  # every key with its value

Everything that is wrong comes in one ExperimentError, one line a problem, in the file's own terms.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from raymx.errors import DataError, ExperimentError
from raymx.experiment import class_files, data_rules, hidden, weights_file, yaml_text
from raymx.experiment.keys import NOT_A_KEY, allowed, choices, is_mapping, keys_of, section_among, section_of
from raymx.experiment.references import call_problem, data_problem, reference_problem
from raymx.experiment.schema import ExperimentConfig, Training
from raymx.experiment.values import Section, show
from raymx.storage import is_uri, local_matches
from raymx.text.nearest import did_you_mean, nearest

__all__ = [
    "BATCH_LR",
    "FLAGS",
    "ExperimentConfig",
    "batch_with_rate",
    "check_files",
    "load_experiment",
    "parse_experiment",
    "to_yaml",
]

BATCH_LR = "batch_lr"
"""In overrides and a sweep's space: the batch, with the learning rate that the rule makes of it (`batch_with_rate`)."""

FLAGS = {
    "--name": "name",
    "--kv-store": "kvstore.type",
    "--num-workers": "resources.workers",
    "--num-servers": "kvstore.servers",
    "--gpus": "resources.gpus_per_worker",
    "--batch-size": BATCH_LR,
    "--lr": "training.base_lr",
    "--num-epochs": "training.epochs",
    "--dtype": "precision.dtype",
    "--gc-type": "kvstore.compression.type",
    "--gc-threshold": "kvstore.compression.threshold",
    "--disp-batches": "report.disp_batches",
    "--profile": "profile.steps",
}
"""Flags of the command line and the keys that they set."""

_SPACE = "sweep.space."

# Sections that may be given as the value of one key: {compression: 2bit} is {compression: {type: 2bit}}.
SHORT_FORMS = {
    "kvstore.compression": "type",
    "training.decay": "type",
    "training.optimizer": "name",
    "sweep.scheduler": "name",
}


def load_experiment(path: str | os.PathLike[str], overrides: Mapping[str, object] | None = None) -> ExperimentConfig:
    """The experiment in the YAML file ``path``, with ``overrides`` (dotted keys) in place of the file's values."""
    file = Path(path)
    if file.suffix in (".py", ".ipynb"):
        raise ExperimentError(
            f"{file} is Python, not an experiment file: an experiment file is YAML, and names functions of a module "
            f'beside it, such as model: {{net: "{file.stem}:net"}} and training: {{loop: "{file.stem}:train"}}'
        )
    raw = yaml_text.parse(_read(file), str(file))
    if raw is None:
        raise ExperimentError(f"{file} is empty: an experiment has {keys_of(ExperimentConfig)}")
    if not isinstance(raw, dict):
        raise ExperimentError(f"{file} holds {show(raw)}: an experiment is a mapping with {keys_of(ExperimentConfig)}")
    if raw.keys() == {"directory", "experiment"}:
        raise ExperimentError(
            f"{file} is the record of a run, not an experiment file: to go on with it give --resume {file.parent}; "
            "for a new one, give the experiment file that it was made of"
        )
    try:
        return parse_experiment(raw, str(file.resolve().parent), overrides)
    except ExperimentError as error:
        lines = str(error).splitlines()
        text = lines[0] if len(lines) == 1 else f"{len(lines)} problems\n" + "\n".join(f"  {line}" for line in lines)
        raise ExperimentError(f"{file}: {text}") from None


def parse_experiment(
    raw: Mapping[str, object],
    directory: str,
    overrides: Mapping[str, object] | None = None,
    *,
    by_flags: bool = True,
) -> ExperimentConfig:
    """The experiment of plain data; relative paths in it start from ``directory``.

    An override of a whole section replaces that section; overrides apply in their order. ``by_flags``: they came from a
    command line, whose flags messages name.
    """
    overrides = overrides or {}
    merged = _merge(raw, overrides)
    problems: dict[str, str] = {}
    if "directory" in merged:
        del merged["directory"]
        problems["directory"] = "directory is not a key: relative paths start from the experiment file's own folder"
    try:
        experiment = ExperimentConfig.model_validate({**merged, "directory": os.path.abspath(directory)})
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            for key, text in _explain(merged, detail):
                problems.setdefault(key, text + (_origin(key, overrides) if by_flags else ""))
    for key, text in data_rules.missing(merged).items():
        problems.setdefault(key, text)
    if problems:
        raise ExperimentError("\n".join(problems.values()))
    return experiment


def to_yaml(experiment: ExperimentConfig) -> str:
    """The experiment with every key, defaults too, as YAML that ``load_experiment`` reads."""
    return yaml_text.dump(experiment.to_dict())


def check_files(experiment: ExperimentConfig, known: str = "", *, resumed: bool = False) -> None:
    """Raise an ExperimentError that lists data files and ``module:name`` references that are not there, or no such, and
    modules beside the experiment that hide others.

    Looks at local files only, of data at the first bytes, and imports nothing. What is of module ``known`` is there. A
    run that is ``resumed`` has its weights in a checkpoint.
    """
    data, problems = experiment.data, []
    for key, paths in (("data.train", data.train), ("data.validation", data.validation)):
        for path in data_rules.listed(paths):
            skips = data.on_bad_record == "skip"
            problems.append((key, path, data_problem(experiment.resolve(path), skips=skips)))
    if (where := experiment.model.parameters) and not resumed:
        problems.append(("model.parameters", where, weights_file.local_problem(experiment.resolve(where))))
    if where := experiment.model.symbol:
        problems.append(("model.symbol", where, weights_file.symbol_problem(experiment.resolve(where))))
    for key, value in references(experiment):
        if value.partition(":")[0] != known:
            problem = reference_problem(value, experiment.directory)
            problems.append((key, value, problem or call_problem(key, value, experiment.directory)))
    lines = hidden.problems(experiment.directory)
    lines += [f"{key} is {show(value)}: {problem}" for key, value, problem in problems if problem]
    lines += _class_problems(experiment)
    if lines:
        raise ExperimentError("\n".join(lines))


def references(experiment: ExperimentConfig) -> list[tuple[str, str]]:
    """(key, ``module:name``) of all that is the user's own in an experiment."""
    model, training, data = experiment.model, experiment.training, experiment.data
    given = (
        ("model.net", model.net),
        ("model.loss", model.loss),
        ("model.metric", model.metric),
        ("training.optimizer.name", training.optimizer.name),
        ("training.loop", training.loop),
        ("data.train", data_rules.function_of(data.train)),
        ("data.validation", data_rules.function_of(data.validation)),
        ("data.decode", data.decode),
        ("data.transform", data.transform),
        ("data.validation_transform", data.validation_transform),
    )
    return [(key, value) for key, value in given if value and ":" in value]


def _class_problems(experiment: ExperimentConfig) -> list[str]:
    """Whether local files of training and validation number classes differently."""
    data = experiment.data
    paths = {"train": data_rules.listed(data.train), "validation": data_rules.listed(data.validation)}
    places = {split: [experiment.resolve(path) for path in each] for split, each in paths.items()}
    try:
        class_files.check(
            {
                split: [file for path in each if not is_uri(path) for file in local_matches(path)]
                for split, each in places.items()
            }
        )
    except (DataError, OSError) as error:
        return [str(error)]
    return []


def _read(file: Path) -> str:
    if file.is_dir():
        raise ExperimentError(f"{file} is a folder, not an experiment file{_yaml_files(file, file.name)}")
    try:
        return file.read_text(encoding="utf-8-sig")  # without what some editors begin a text with
    except FileNotFoundError:
        raise ExperimentError(f"{file} does not exist{_yaml_files(file.parent, file.name)}") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{file} is not text in UTF-8, so it is no experiment file") from None
    except OSError as error:
        raise ExperimentError(f"{file} cannot be read: {error.strerror}") from None


def _yaml_files(folder: Path, name: str) -> str:
    found = sorted(path.name for pattern in ("*.yaml", "*.yml") for path in folder.glob(pattern))
    ordered = dict.fromkeys(nearest(name, found, count=3) + found)
    return f"; {folder} has {', '.join(ordered)}" if found else f"; there is no *.yaml in {folder}"


def _merge(raw: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, Any]:
    merged: dict[str, Any] = copy.deepcopy(dict(raw))
    _expand_short_forms(merged)
    for dotted, value in overrides.items():
        for key, one in (
            batch_with_rate(merged.get("training"), value).items() if dotted == BATCH_LR else [(dotted, value)]
        ):
            _set(merged, key, one)
    return merged


def batch_with_rate(training: object, batch: object) -> dict[str, object]:
    """What `BATCH_LR` sets: ``base_lr`` is meant for the batch that there was, unless another base is given."""
    there = training if isinstance(training, dict) else {}
    before = there.get("global_batch_size") or Training.model_fields["global_batch_size"].default
    rule = {"training.lr_rule": "linear"} if there.get("lr_rule") == "none" else {}
    base = there.get("base_batch_size") or before
    return {"training.global_batch_size": batch, "training.base_batch_size": base, **rule}


def _set(raw: dict[str, Any], dotted: str, value: object) -> None:
    *sections, last = _path(dotted)
    node = raw
    for section in sections:
        if not isinstance(node.get(section), dict):
            node[section] = {}
        node = node[section]
    node[last] = copy.deepcopy(value)
    _expand_short_forms(raw)


def _path(dotted: str) -> list[str]:
    """The keys from the top; one of ``sweep.space`` is dotted itself."""
    return ["sweep", "space", dotted[len(_SPACE) :]] if dotted.startswith(_SPACE) else dotted.split(".")


def _expand_short_forms(raw: dict[str, Any]) -> None:
    for dotted, key in SHORT_FORMS.items():
        section, last = dotted.split(".")
        parent = raw.get(section)
        if isinstance(parent, dict) and isinstance(parent.get(last), str):
            parent[last] = {key: parent[last]}


# Messages: where pydantic found something wrong, said in the file's terms.


def _explain(raw: dict[str, Any], detail: Any) -> Iterator[tuple[str, str]]:
    """(dotted key, message) of what one of pydantic's errors found."""
    key, section, field, value = _locate(raw, detail["loc"])
    kind = detail["type"]
    if field is None:
        yield key, _unknown_key(key, section)
    elif kind == "value_error" and section_of(field):
        yield from ((line.partition(" ")[0], line) for line in str(detail["ctx"]["error"]).splitlines())
    elif kind == "value_error":
        yield key, f"{key} is {show(value)}: {detail['ctx']['error']}"
    elif kind == "missing":
        yield key, f"{key} is missing: it must be {allowed(field)}"
    else:
        quoted = " (text)" if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type") else ""
        hint = did_you_mean(value, choices(field))
        yield key, f"{key} is {show(value)}{quoted}: it must be {allowed(field)}{hint}"


def _locate(raw: Any, location: tuple[str | int, ...]) -> tuple[str, type[Section], FieldInfo | None, Any]:
    """Dotted key, the section it is in, its field (None: there is no such key) and the value given.

    What lies below a key (an item of its list, a branch of its union) counts as that key, but for a mapping where a
    section is one of the branches.
    """
    section: type[Section] = ExperimentConfig
    field: FieldInfo | None = None
    path: list[str] = []
    parts = iter(location)
    for part in parts:
        path.append(str(part))
        field = section.model_fields.get(str(part))
        raw = raw.get(part) if isinstance(raw, dict) else None
        inner = section_of(field)
        if inner is None and isinstance(raw, dict):
            inner = section_among(field)
            branch = next(parts, None)
            if inner and is_mapping(field) and branch is not None:  # of names of the user's to sections
                path.append(str(branch))
                raw = raw.get(branch)
        if inner is None:
            break
        section = inner
    return ".".join(path), section, field, raw


def _unknown_key(key: str, section: type[Section]) -> str:
    outer, _, last = key.rpartition(".")
    keys = [name for name in section.model_fields if name != NOT_A_KEY]
    elsewhere = [dotted for dotted in _dotted_keys(ExperimentConfig) if dotted.rpartition(".")[2] == last]
    near = [f"{outer}.{name}" if outer else name for name in nearest(last, keys)]
    guess = [*near, *elsewhere] or nearest(key, _dotted_keys(ExperimentConfig))
    hint = f"; did you mean {guess[0]}?" if guess else "."
    return f"{key} is not a key{hint} {outer or 'An experiment'} has {keys_of(section)}"


def _dotted_keys(section: type[Section], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, field in section.model_fields.items():
        inner = section_of(field)
        found += [] if inner else [prefix + name]
        inner = inner or section_among(field)
        found += _dotted_keys(inner, f"{prefix}{name}.") if inner else []
    return [key for key in found if key != NOT_A_KEY]


def _origin(key: str, overrides: Mapping[str, object]) -> str:
    """Where a wrong value came from, when not from the file."""
    if BATCH_LR in overrides and key == "training.global_batch_size":
        return " (given by --batch-size)"
    given = next((k for k in overrides if k == key or k.startswith(f"{key}.") or key.startswith(f"{k}.")), None)
    if given is None:
        return ""
    flag = next((f" or {flag}" for flag, dotted in FLAGS.items() if dotted == given), "")
    return f" (given by --set {given}{flag})"
