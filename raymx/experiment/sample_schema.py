"""The sections of the experiment file that say what a sample is, where it is no picture with a class."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from raymx.experiment.values import Count, Flag, Number, Section, as_tuple

LENGTHS = "lengths"
"""The input that has each sample's length, where that differs."""

Shape = Annotated[
    tuple[Count | None, ...],
    BeforeValidator(as_tuple),
    Field(description="a list of sizes such as [32] or [null, 8]; null, which comes first, is a length that differs"),
]


def _null_comes_first(value: tuple[int | None, ...]) -> tuple[int | None, ...]:
    if None in value[1:]:
        raise ValueError("null, a length that differs from sample to sample, can only be the first size")
    return value


class Input(Section):
    """One array of a sample, which the net takes."""

    shape: Shape
    """Of one sample, without the batch: ``[32]``, ``[28, 28, 1]``, ``[]`` for one number, ``[null, 8]`` where the
    first size differs from sample to sample (see ``data.pad``).
    """
    dtype: Literal["float32", "float64", "float16", "uint8", "int8", "int32", "int64"] = "float32"
    """What the sample has. The net gets floats in its own type (``precision.dtype``), and whole numbers as they are."""

    _shape = field_validator("shape")(_null_comes_first)


class Label(Section):
    """One label of a sample, float32."""

    shape: Shape = ()
    """Of one sample: ``[]`` is one number, ``[null]`` as long as the sample's inputs of that shape."""

    _shape = field_validator("shape")(_null_comes_first)


class Pad(Section):
    """How samples whose length differs, of the shape ``[null, ...]``, are filled up."""

    to: Annotated[
        Literal["batch"] | tuple[Count, ...],
        BeforeValidator(as_tuple),
        Field(description="batch, or a list of lengths such as [32, 64, 128]"),
    ] = "batch"
    """``batch``: to the longest among a worker's rows; a list: to the shortest of these lengths that is long enough,
    so that there are few shapes.
    """
    longest: Annotated[Count | None, Field(description="a whole number, at least 1, or null")] = None
    """The longest that a sample may be, where ``to`` is ``batch``; of a list it is the last."""
    value: Number = 0.0
    """What fills inputs up; labels are filled up with -1."""
    longer: Literal["fail", "cut"] = "fail"
    """``fail``: a longer sample is a bad record; ``cut`` takes its beginning."""
    lengths: Flag = True
    """Whether the net gets the samples' lengths too, int32 (rows,), as its last input."""

    @model_validator(mode="after")
    def _ordered(self) -> Pad:
        if self.to == "batch":
            return self
        if not self.to or any(one >= other for one, other in pairwise(self.to)):
            raise ValueError(f"data.pad.to is {list(self.to)}: give lengths, each larger than the one before")
        if self.longest is not None:
            raise ValueError(f"data.pad.longest is {self.longest}: data.pad.to ends with the longest; leave it out")
        return self

    @property
    def most(self) -> int:
        """The longest that a sample may be; 0 where that is not said."""
        return (self.longest or 0) if self.to == "batch" else self.to[-1]
