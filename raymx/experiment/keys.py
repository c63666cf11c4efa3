"""All keys of the experiment file, each with what it takes, its default and what it means, as the schema says it.

A key's meaning is the docstring below it in the schema; a section's is the docstring of its class.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from raymx.experiment.schema import ExperimentConfig
from raymx.experiment.values import NameIn, Section, show

NOT_A_KEY = "directory"
"""A field of the schema that is no key of the file."""

REQUIRED = "required"
"""In place of the default of a key that has none."""


@dataclass(frozen=True)
class Key:
    """A key of the experiment file. ``section`` is the dotted name of what it stands in, "" for the file itself."""

    section: str
    name: str
    allowed: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Group:
    """A section of the experiment file and its own keys; ``name`` is dotted, "" for the file itself."""

    name: str
    meaning: str
    keys: tuple[Key, ...]


def groups() -> list[Group]:
    """All sections in the schema's order, each before those in it."""
    return list(_groups(ExperimentConfig, ""))


def _groups(section: type[Section], name: str) -> Iterator[Group]:
    meanings, fields = meanings_of(section), section.model_fields
    keys = tuple(
        Key(name, key, allowed(field), _default(field), meanings.get(key, ""))
        for key, field in fields.items()
        if key != NOT_A_KEY and not section_of(field)
    )
    yield Group(name, _first_paragraph(section), keys)
    for key, field in fields.items():
        if inner := section_of(field) or section_among(field):
            of_each = ".NAME" if is_mapping(field) else ""
            yield from _groups(inner, f"{name}.{key}{of_each}" if name else key)


def section_of(field: FieldInfo | None) -> type[Section] | None:
    """The section that a key is."""
    annotation = field.annotation if field else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def section_among(field: FieldInfo | None) -> type[Section] | None:
    """The section that a key takes beside a plain value."""
    branches = (getattr(branch, "__origin__", branch) for branch in get_args(field.annotation if field else None))
    return next((kind for kind in branches if isinstance(kind, type) and issubclass(kind, Section)), None)


def is_mapping(field: FieldInfo | None) -> bool:
    """Whether a key takes names of the user's own, each with a value."""
    return get_origin(field.annotation if field else None) is dict


@cache
def meanings_of(section: type[Section]) -> dict[str, str]:
    """The docstring below each key of a section's class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(section))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        key.target.id: inspect.cleandoc(text.value.value).strip()
        for key, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(key, ast.AnnAssign)
        and isinstance(key.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def allowed(field: FieldInfo) -> str:
    """What a key takes, as a message says it."""
    section = section_of(field)
    if section:
        return f"a section with {keys_of(section)}"
    return field.description or f"one of {', '.join(choices(field))}"


def keys_of(section: type[Section]) -> str:
    """``the keys epochs, seed``"""
    return f"the keys {', '.join(name for name in section.model_fields if name != NOT_A_KEY)}"


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The names that a key takes: those of its table, or of its Literal; null where it may be left out."""
    tables = [each.names for each in field.metadata if isinstance(each, NameIn)]
    if tables:
        return tables[0]
    branches = get_args(field.annotation)
    if type(None) in branches:
        names = [name for branch in branches if get_origin(branch) is Literal for name in get_args(branch)]
        return (*names, "null") if names else ()
    return tuple(choice for choice in branches if isinstance(choice, str))


def _default(field: FieldInfo) -> str:
    """As YAML has it, or `REQUIRED`."""
    if field.is_required():
        return REQUIRED
    value: Any = field.get_default()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "[]" if value == () else value if isinstance(value, str) else show(value)


def _first_paragraph(section: type[Section]) -> str:
    return inspect.cleandoc(section.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
