"""What the sections of the experiment file are made of: types of values, and a section.

The description of a type is what a message says is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from raymx.experiment import names
from raymx.text.nearest import did_you_mean

RESERVED_ENV = {
    "DMLC_ROLE": "raymx gives every role its own",
    "DMLC_PS_ROOT_URI": "raymx takes the address of the KVStore scheduler's node",
    "DMLC_PS_ROOT_PORT": "raymx takes a free port on the KVStore scheduler's node",
    "DMLC_NUM_WORKER": "set resources.workers",
    "DMLC_NUM_SERVER": "set kvstore.servers",
    "DMLC_NODE_HOST": "raymx takes the address of each role's node; choose a network with kvstore.interface",
    "DMLC_LOCAL": "set kvstore.unix_sockets",
    "DMLC_RANK": "ps-lite writes it when a generation forms",
    "PORT": "raymx and ps-lite pick a free port for each role",
}
"""Environment variables that ``kvstore.env`` may not set, and what decides them."""

AUTO_CACHE_BYTES = 512 << 20
"""What ``data.cache: auto`` stands for: a worker keeps decoded images up to this size."""

ENV_PREFIXES = ("DMLC_", "PS_", "MXNET_", "OMP_")


def show(value: object) -> str:
    """A value as a reader of YAML would write it, on one line, cut to 60 characters."""
    if value is None or isinstance(value, bool | str):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else text[:57] + "..."


# Types of values: the description is what a message says is allowed.


def as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class NameIn:
    """``Annotated[str, NameIn(TABLE)]``: the name of a row of a table; ``first`` are allowed too, such as ``auto``.

    The table is looked at when a value is, so that a row more is a name more.
    """

    def __init__(self, table: Collection[str], *first: str) -> None:
        self._table, self._first = table, first

    @property
    def names(self) -> tuple[str, ...]:
        """All that are allowed, in the order of a message."""
        return (*self._first, *self._table)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: str) -> str:
        if value not in self.names:
            raise PydanticCustomError("name_in", "it is no name of the table")
        return value


def one_of(known: Collection[str], provider: str) -> AfterValidator:
    """A name out of ``known``, or ``module:name`` for the user's own."""

    def check(value: str) -> str:
        if value in known or names.REFERENCE.fullmatch(value):
            return value
        raise ValueError(
            f"{provider} has no such name{did_you_mean(value, known) or '.'}"
            f" Use module:name for one of your own, or one of {', '.join(known)}"
        )

    return AfterValidator(check)


def _reference(value: str | None) -> str | None:
    if value is None or names.REFERENCE.fullmatch(value):
        return value
    raise ValueError("it must be module:name of a function of your own, or null")


Reference = Annotated[str | None, AfterValidator(_reference), Field(description="module:name of your own, or null")]


def own_or(known: Collection[str]) -> Any:
    return Field(description=f"module:name of your own, or one of {', '.join(known)}")


Count = Annotated[int, Field(ge=1, description="a whole number, at least 1")]
Positive = Annotated[float, Field(gt=0, description="a number above 0")]
NotNegative = Annotated[float, Field(ge=0, description="a number, at least 0")]
Fraction = Annotated[float, Field(ge=0, le=1, description="a number from 0 to 1")]
Number = Annotated[float, Field(description="a number")]
Text = Annotated[str, Field(min_length=1, description="text")]
Flag = Annotated[bool, Field(description="true or false")]
AutoFlag = Annotated[Literal["auto"] | bool, Field(description="auto, true or false")]
Paths = Annotated[
    Text | Annotated[tuple[Text, ...], Field(min_length=1)],
    BeforeValidator(as_tuple),
    Field(description="a path, or a list of paths"),
]
PerChannel = Annotated[
    float | tuple[float, ...],
    BeforeValidator(as_tuple),
    Field(description="a number, or a list with one number a channel"),
]


def _env_text(name: str, value: object) -> object:
    """Text for the environment; YAML's true is 1 for atoi in ps-lite and MXNet, but ``true`` for OpenMP."""
    if isinstance(value, bool):
        return str(value).lower() if str(name).startswith("OMP_") else str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else value


def _env_texts(value: object) -> object:
    return {name: _env_text(name, item) for name, item in value.items()} if isinstance(value, dict) else value


def _check_env(value: dict[str, str]) -> dict[str, str]:
    for name, item in value.items():
        if name in RESERVED_ENV:
            raise ValueError(f"{name} is not yours to set: {RESERVED_ENV[name]}")
        if not name.startswith(ENV_PREFIXES):
            raise ValueError(f"{name} cannot be set here: names begin with {', '.join(ENV_PREFIXES)}")
        if name == "MXNET_KVSTORE_BIGARRAY_BOUND" and not re.fullmatch("[1-9][0-9]*", item):
            raise ValueError(f"{name} must be a whole number of elements, at least 1")
    return value


EnvVars = Annotated[
    dict[str, str],
    BeforeValidator(_env_texts),
    AfterValidator(_check_env),
    Field(description="a mapping of environment variables to their values"),
]


class Section(BaseModel):
    """One section of the experiment file: frozen, no unknown keys, no conversion of types."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)
