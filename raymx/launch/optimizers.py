"""An optimizer as plain JSON, from a worker to servers that unpickle nothing.

MXNet sends an optimizer as a pickle, with which anybody who reaches a server's port can run code there. Here the
servers get the name of one of MXNet's own classes, its numbers and words, and those of its learning-rate schedule; so
an optimizer or a schedule that a script defines itself cannot travel, and is refused in the worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

_NOT_VALUES = frozenset(
    (
        *("sym_info", "param_dict", "lr_scheduler", "lr_mult", "wd_mult", "idx2name"),
        *("_all_index_update_counts", "_index_update_count"),
    )
)
_BY_KEY = ("lr_mult", "wd_mult", "idx2name")


def as_text(optimizer: Any, mxnet: Any) -> dict[str, Any]:
    """An optimizer's class, values, multipliers and schedule. Raises TypeError for what cannot travel.

    Gluon's parameters hold their multipliers themselves, and MXNet drops those on the way: here they go along by key.
    """
    name = type(optimizer).__name__.lower()
    if mxnet.optimizer.Optimizer.opt_registry.get(name) is not type(optimizer) or not _is_mxnets(optimizer):
        raise _own("optimizer", optimizer)
    schedule = optimizer.lr_scheduler
    if schedule is not None and not _is_mxnets(schedule):
        raise _own("learning-rate schedule", schedule)
    return {
        "optimizer": name,
        "values": _values(optimizer),
        "schedule": None if schedule is None else [type(schedule).__name__, _values(schedule)],
        **{key: [list(pair) for pair in dict(getattr(optimizer, key)).items()] for key in _BY_KEY},
        **multipliers(optimizer),
    }


def multipliers(optimizer: Any) -> dict[str, list[list[Any]]]:
    """``lr_mult`` and ``wd_mult`` by key, of an optimizer that has Gluon's parameters; else {}."""
    if not optimizer.param_dict:
        return {}
    return {
        name: [[key, float(getattr(parameter, name))] for key, parameter in optimizer.param_dict.items()]
        for name in ("lr_mult", "wd_mult")
    }


def of_text(text: Mapping[str, Any], mxnet: Any) -> Any:
    """The optimizer again. Raises ValueError, KeyError or TypeError for what is none."""
    kind = mxnet.optimizer.Optimizer.opt_registry[text["optimizer"]]
    optimizer = kind()
    _set(optimizer, text["values"])
    if text["schedule"] is not None:
        name, values = text["schedule"]
        schedules = {one.__name__: one for one in _schedules(mxnet)}
        optimizer.lr_scheduler = object.__new__(schedules[name])
        vars(optimizer.lr_scheduler).update(_checked(values))
    for key in _BY_KEY:
        setattr(optimizer, key, dict(map(tuple, text[key])))
    return optimizer


def _schedules(mxnet: Any) -> Iterable[type]:
    base = mxnet.lr_scheduler.LRScheduler
    found = vars(mxnet.lr_scheduler).values()
    return [one for one in found if isinstance(one, type) and issubclass(one, base)]


def _set(target: Any, values: Mapping[str, Any]) -> None:
    unknown = [name for name in values if name not in vars(target)]
    if unknown:
        raise ValueError(f"{type(target).__name__} has no {', '.join(unknown)}")
    vars(target).update(_checked(values))


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    bad = [name for name, value in values.items() if not _is_plain(value)]
    if bad:
        raise ValueError(f"{', '.join(bad)} are not numbers or words")
    return dict(values)


def _values(thing: Any) -> dict[str, Any]:
    found = {
        name: _plain(value)
        for name, value in vars(thing).items()
        if name not in _NOT_VALUES and value != {}  # what some gather while they update: the server begins with none
    }
    for name, value in found.items():
        if not _is_plain(value):
            raise TypeError(
                f"raymx: {type(thing).__name__}.{name} is {value!r}, and only numbers and words travel to servers that "
                "unpickle nothing: leave --guard (or import raymx.mx) out to send it as MXNet does"
            )
    return found


def _plain(value: Any) -> Any:
    """Numbers of numpy's as Python's."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and not math.isnan(value))


def _is_mxnets(thing: Any) -> bool:
    return type(thing).__module__.split(".")[0] == "mxnet"


def _own(what: str, thing: Any) -> TypeError:
    return TypeError(
        f"raymx: the {what} {type(thing).__name__} is not one of MXNet's own, and its code cannot travel to servers "
        "that unpickle nothing: use one of MXNet's, or leave --guard (or import raymx.mx) out"
    )
