"""What a sample of arrays is, and how it becomes a row of a batch. Pure: no Ray, no mxnet, no file.

    sample = Sample.of(experiment.data)
    inputs, labels = sample.parted({"tokens": tokens, "next": following}, where)
    sample.write(rows, 0, inputs, where)           # rows: (batch,) of sample.row_dtype
    columns = sample.columns(rows)                 # {"tokens": (batch, longest), "lengths": (batch,)}

A row of a batch is one element of a structured array, whose fields are the inputs: so rows of whatever inputs travel,
are kept and are repeated as those of pictures. A sample whose length differs has the place of the longest, and what is
too long in all rows is cut off before the rows go to a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.npy import is_npy, read_npy
from raymx.errors import DataError
from raymx.experiment.sample_schema import LENGTHS
from raymx.experiment.schema import Data

PADDING_LABEL = -1.0
LABEL = "label"
"""What a mapping that a function of the user's returns calls a label, where ``data.labels`` has no names."""


@dataclass(frozen=True)
class Field:
    """One array of a sample."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of the place that it has; its first size is the longest where the length differs
    differs: bool = False  # whether the first size differs from sample to sample

    @cached_property
    def size(self) -> int:
        """Numbers in its place."""
        return int(np.prod(self.shape))

    @property
    def shown(self) -> str:
        """Its type and shape as the experiment file has them."""
        sizes = [None, *self.shape[1:]] if self.differs else list(self.shape)
        return f"{self.dtype} {sizes}".replace("None", "null")

    def problem(self, array: NDArray[Any]) -> str | None:
        """Why an array cannot be this, in words, or None."""
        fits = len(array.shape) == len(self.shape) and array.shape[self.differs :] == self.shape[self.differs :]
        if not fits or not np.can_cast(array.dtype, self.dtype, "same_kind"):
            return f"is {array.dtype} {list(array.shape)}, where {self.shown} is due"
        if self.dtype.kind in "iu" and array.dtype != self.dtype and array.size:
            limits = np.iinfo(self.dtype)
            for value in (array.min(), array.max()):
                if not limits.min <= value <= limits.max:
                    return f"has the value {value}, which {self.dtype} cannot hold"
        return None


@dataclass(frozen=True)
class Sample:
    """The arrays of a sample: ``inputs`` of the net ((): it is a picture), and ``labels`` ((): numbers in one row)."""

    inputs: tuple[Field, ...]
    labels: tuple[Field, ...]
    buckets: tuple[int, ...] = ()  # lengths that rows are cut to; (): to the longest of them
    value: float = 0.0  # of padding
    cuts: bool = False  # what is longer than the longest
    gives_lengths: bool = False

    @classmethod
    def of(cls, data: Data) -> Sample | None:
        """What ``data`` says; None of pictures with ``label_width`` labels."""
        if data.kind == "image" and not data.labels:
            return None
        most = data.pad.most
        inputs = tuple(_field(name, each.dtype, each.shape, most) for name, each in data.inputs.items())
        return cls(
            inputs,
            tuple(_field(name, "float32", each.shape, most) for name, each in data.labels.items()),
            () if data.pad.to == "batch" else data.pad.to,
            data.pad.value,
            data.pad.longer == "cut",
            data.lengths_differ and data.pad.lengths,
        )

    @cached_property
    def differs(self) -> bool:
        """Whether the inputs' length differs."""
        return any(field.differs for field in self.inputs)

    @cached_property
    def longest(self) -> int:
        """The most that a length may be; 0 where none differs."""
        return next((field.shape[0] for field in (*self.inputs, *self.labels) if field.differs), 0)

    @cached_property
    def row_dtype(self) -> np.dtype[Any]:
        """Of a row: a field an input and, where the length differs, one of the lengths."""
        fields: list[Any] = [(field.name, field.dtype, field.shape) for field in self.inputs]
        return np.dtype([*fields, (LENGTHS, np.int32)] if self.differs else fields)

    @cached_property
    def label_width(self) -> int:
        """Numbers in the place of the named labels; 0 without names."""
        return sum(field.size for field in self.labels)

    # From arrays to a row

    def parted(self, given: Any, where: str) -> tuple[list[NDArray[Any]], list[NDArray[Any]] | None]:
        """(inputs, labels) of what a function of the user's gave: a mapping by name, or a tuple in the order of
        ``data.inputs`` and ``data.labels``; labels are None where none came.

        Raises DataError that names ``where`` for others than these.
        """
        names = [field.name for field in self.inputs]
        label_names = [field.name for field in self.labels] or [LABEL]
        if isinstance(given, Mapping):
            return self._by_name(given, names, label_names, where)
        arrays = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(arrays) not in (len(names), len(names) + len(label_names)):
            raise DataError(
                f"{where}: it has {len(arrays)} arrays, where {len(names)} are due ({', '.join(names)}), or "
                f"{len(names) + len(label_names)} with labels ({', '.join(label_names)})"
            )
        made = [as_array(one, where) for one in arrays]
        return made[: len(names)], made[len(names) :] or None

    def _by_name(
        self, given: Mapping[Any, Any], names: Sequence[str], label_names: Sequence[str], where: str
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]] | None]:
        labelled = any(name in given for name in label_names)
        wanted = [*names, *(label_names if labelled else ())]
        if set(given) != set(wanted):
            due = ", ".join([*names, *label_names])
            raise DataError(f"{where}: it has {', '.join(map(str, given))}, where {due} are due")
        return (
            [as_array(given[name], where) for name in names],
            [as_array(given[name], where) for name in label_names] if labelled else None,
        )

    def read(self, payload: bytes | memoryview, where: str) -> tuple[list[NDArray[Any]], list[NDArray[Any]] | None]:
        """(inputs, labels) of an array record: arrays in the npy format, or the inputs' bare bytes (little-endian)."""
        if is_npy(payload):
            return self.parted(read_npy(payload, where), where)
        return self._bare(payload, where), None

    def _bare(self, payload: bytes | memoryview, where: str) -> list[NDArray[Any]]:
        per_length = sum(field.size // field.shape[0] * field.dtype.itemsize for field in self.inputs if field.differs)
        fixed = sum(field.size * field.dtype.itemsize for field in self.inputs if not field.differs)
        length, left = divmod(len(payload) - fixed, per_length) if self.differs else (0, len(payload) - fixed)
        if left or length < 0:
            more = f" and {per_length} more for each step of its length" if self.differs else ""
            raise DataError(
                f"{where}: its payload has {len(payload)} bytes; bare arrays of data.inputs have {fixed}{more}, and "
                "others must be in NumPy's npy format (raymx.data.tools.arrays packs them)"
            )
        arrays, at = [], 0
        for field in self.inputs:
            shape = (length, *field.shape[1:]) if field.differs else field.shape
            count = int(np.prod(shape))
            arrays.append(np.frombuffer(payload, field.dtype.newbyteorder("<"), count, at).reshape(shape))
            at += count * field.dtype.itemsize
        return arrays

    def write(self, rows: NDArray[Any], row: int, inputs: Sequence[NDArray[Any]], where: str) -> int:
        """Fill one row with a sample's inputs, and return its length; 0 where none differs.

        Raises DataError that names ``where`` for arrays of other shapes and types.
        """
        length = self._length(inputs, where) if self.differs else 0
        for field, array in zip(self.inputs, inputs, strict=True):
            if problem := field.problem(array):
                raise DataError(f"{where}: {field.name} {problem}")
            if field.differs:
                rows[field.name][row, :length] = array[:length]
                rows[field.name][row, length:] = self.value
            else:
                rows[field.name][row] = array
        if self.differs:
            rows[LENGTHS][row] = length
        return length

    def _length(self, inputs: Sequence[NDArray[Any]], where: str) -> int:
        found = {
            field.name: len(array)
            for field, array in zip(self.inputs, inputs, strict=True)
            if field.differs and array.ndim
        }
        lengths = set(found.values())
        if len(lengths) != 1:
            shown = ", ".join(f"{name} {length}" for name, length in found.items()) or "none"
            raise DataError(f"{where}: a sample has one length, and its arrays have {shown}")
        (length,) = lengths
        if not length:
            raise DataError(f"{where}: its length is 0; leave empty samples out")
        if length > self.longest and not self.cuts:
            raise DataError(
                f"{where}: its length is {length}, and data.pad allows {self.longest}: allow more, or cut such samples "
                "(data.pad.longer: cut)"
            )
        return min(length, self.longest)

    def label_row(self, labels: Sequence[NDArray[Any]], length: int, where: str) -> tuple[NDArray[np.float32], int]:
        """The named labels of a sample in one row, float32 (label_width,), and how many of its numbers are real.

        ``length`` is that of the inputs, 0 where theirs does not differ. What is padded comes last in each label.
        """
        row, at, real = np.full(self.label_width, PADDING_LABEL, np.float32), 0, 0
        for field, label in zip(self.labels, labels, strict=True):
            if (problem := field.problem(label)) and not _is_number_in_a_row(label, field):
                raise DataError(f"{where}: the label {field.name} {problem}")
            label = label.reshape(label.shape if field.differs else field.shape)
            if field.differs:
                label = self._fitting(label, length, f"{where}: the label {field.name}")
            row[at : at + label.size] = label.ravel()
            at, real = at + field.size, real + label.size
        return row, real

    def _fitting(self, label: NDArray[Any], length: int, what: str) -> NDArray[Any]:
        """A label of the sample's own length, and no longer than the longest."""
        if len(label) > self.longest and self.cuts:
            label = label[: self.longest]
        if len(label) > self.longest or (length and len(label) != length):
            allowed = f"the inputs have {length}" if length else f"data.pad allows {self.longest}"
            raise DataError(f"{what} has the length {len(label)}, and {allowed}")
        return label

    def header_labels(self, flat: NDArray[np.float32], where: str) -> list[NDArray[Any]]:
        """The named labels of a record's header, which has them one after the other."""
        fixed = sum(field.size for field in self.labels if not field.differs)
        per_length = sum(field.size // field.shape[0] for field in self.labels if field.differs)
        length, left = divmod(len(flat) - fixed, per_length) if per_length else (0, len(flat) - fixed)
        if left or length < 0:
            more = f" and {per_length} more for each step of a length" if per_length else ""
            raise DataError(f"{where}: it has {len(flat)} labels; data.labels are {fixed}{more}")
        labels, at = [], 0
        for field in self.labels:
            shape = (length, *field.shape[1:]) if field.differs else field.shape
            count = int(np.prod(shape))
            labels.append(flat[at : at + count].reshape(shape))
            at += count
        return labels

    # From rows to arrays

    def columns(self, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The net's inputs of rows, (rows,) of `row_dtype`, by name; those whose length differs are cut to what the
        longest of them needs."""
        length = self.common_length(rows)
        found = {
            field.name: np.ascontiguousarray(rows[field.name][:, :length] if field.differs else rows[field.name])
            for field in self.inputs
        }
        if self.gives_lengths:
            found[LENGTHS] = np.maximum(rows[LENGTHS], 1)  # rows of bad records are empty: no net may divide by 0
        return found

    def common_length(self, rows: NDArray[Any]) -> int:
        """What rows are filled up to; 0 where the length of inputs does not differ."""
        if not self.differs:
            return 0
        longest = max(1, int(rows[LENGTHS].max(initial=1)))
        return next((bucket for bucket in self.buckets if bucket >= longest), longest)

    def label_columns(self, labels: NDArray[np.float32], length: int) -> tuple[NDArray[np.float32], ...]:
        """The named labels, (rows, ...) each, of rows (rows, label_width); ``length`` as `common_length` gave it."""
        found, at = [], 0
        for field in self.labels:
            one = labels[:, at : at + field.size].reshape(len(labels), *field.shape)
            found.append(np.ascontiguousarray(one[:, :length] if field.differs and length else one))
            at += field.size
        return tuple(found)


def as_array(value: Any, where: str) -> NDArray[Any]:
    """An array of whatever has numbers: NumPy's, MXNet's, lists. Raises DataError for others."""
    if hasattr(value, "asnumpy"):
        return cast(NDArray[Any], value.asnumpy())
    array = np.asarray(value)
    if array.dtype == bool:
        return array.astype(np.uint8)
    if array.dtype.kind not in "iuf":
        raise DataError(f"{where}: it has a {type(value).__name__} ({array.dtype}), where an array of numbers is due")
    return array


def _field(name: str, dtype: str, shape: tuple[int | None, ...], most: int) -> Field:
    sizes = tuple(most if size is None else size for size in shape)
    return Field(name, np.dtype(dtype), sizes, shape[:1] == (None,))


def _is_number_in_a_row(label: NDArray[Any], field: Field) -> bool:
    """Whether a label of one number is given as an array of one."""
    return field.size == 1 and label.size == 1 and not field.differs and label.dtype.kind in "iuf"
