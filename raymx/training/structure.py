"""What a net gives where that is several arrays: lists, tuples and dictionaries of arrays, in each other too. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def leaves(value: Any) -> list[Any]:
    """The arrays in a value, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The value with ``function`` of each of its arrays in its place."""
    return filled(value, [function(leaf) for leaf in leaves(value)])


def filled(form: Any, arrays: Sequence[Any]) -> Any:
    """What has the form of ``form``, and these arrays in order."""
    return _filled(form, iter(arrays))


def form_of(value: Any) -> Any:
    """The value without its arrays, for `filled`: it keeps none of them."""
    return mapped(lambda _: None, value)


def _filled(form: Any, arrays: Iterator[Any]) -> Any:
    if isinstance(form, dict):
        return {key: _filled(item, arrays) for key, item in form.items()}
    if isinstance(form, tuple) and hasattr(form, "_fields"):
        return type(form)(*(_filled(item, arrays) for item in form))
    if isinstance(form, (list, tuple)):
        return type(form)(_filled(item, arrays) for item in form)
    return next(arrays)
