"""Samples that a function of the user's gives, ``data.train: "module:function"``: NumPy arrays, or a Gluon Dataset.

    source = SampleSource.open("data.train", "series:train", directory, folder)
    source.num_records, source.fingerprint()

Whatever has a length and can be asked for a sample by number is a dataset. The function is called once in each process
that reads. What a dataset draws of `random` and `numpy.random` for a sample is a function of (seed, epoch, sample), as
what `raymx.data.pipeline.augment` draws, so that a run that goes on, or has other workers, gets the same samples.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from raymx.data.pipeline.augment import generator
from raymx.errors import DataError, ExperimentError
from raymx.experiment.references import SAMPLES
from raymx.experiment.user_code import load_function

_SAMPLED = 64  # samples whose bytes tell one source from another
_SAMPLED_OF_DATASET = 4  # each of which may take a while


class SampleFailed(DataError):
    """The user's dataset raised: an error of the experiment, whatever is said of bad records."""


@dataclass(frozen=True, eq=False)
class SampleSource:
    """The samples of a ``module:function``, numbered from 0; beside `raymx.data.recordio.record_set.RecordSet`."""

    name: str
    num_records: int
    directory: str
    folder: str = ""
    problems: tuple[Any, ...] = ()
    damaged: int = 0

    @classmethod
    def open(cls, key: str, name: str, directory: str, folder: str) -> SampleSource:
        """Call the function of ``key``, whose module is in ``directory``; ``folder`` is the experiment's.

        Raises DataError for what has no samples.
        """
        samples = load_samples(name, directory, folder)
        if not len(samples):
            raise DataError(f"{key}: {name}() has no samples; it needs one or more")
        return cls(name, len(samples), directory, folder)

    @property
    def paths(self) -> tuple[str, ...]:
        """What samples are named by in messages."""
        return (self.name,)

    def locate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(0, the sample's number, 0), each int64 (rows,), of samples by number."""
        return np.zeros_like(ids), ids, np.zeros_like(ids)

    def fingerprint(self) -> dict[str, str]:
        """A digest of the number of samples and the bytes of some of them."""
        return {self.name: self._digest}

    @property
    def in_memory(self) -> bool:
        """Whether they are arrays, of which a sample costs nothing and is the same every time."""
        return isinstance(load_samples(self.name, self.directory, self.folder), Columns)

    @cached_property
    def _digest(self) -> str:
        """What a dataset draws otherwise than with `random` and `numpy.random` is no part of it."""
        first = self._digest_of(_SAMPLED if self.in_memory else _SAMPLED_OF_DATASET)
        if self.in_memory or first == self._digest_of(_SAMPLED_OF_DATASET):
            return first
        return self._digest_of(0)

    def _digest_of(self, count: int) -> str:
        digest, samples = hashlib.blake2b(digest_size=16), load_samples(self.name, self.directory, self.folder)
        digest.update(str(self.num_records).encode())
        for number in np.unique(np.linspace(0, self.num_records - 1, count).astype(np.int64)).tolist():
            _update(digest, samples.get(number, (0, 0, number)))
        return digest.hexdigest()


def _update(digest: Any, given: Any) -> None:
    """Add the bytes of a sample's arrays."""
    if isinstance(given, Mapping):
        given = [given[key] for key in sorted(given)]
    if isinstance(given, (tuple, list)):
        for each in given:
            _update(digest, each)
        return
    array = given.asnumpy() if hasattr(given, "asnumpy") else np.asarray(given)
    digest.update(f"{array.dtype} {array.shape}".encode())
    digest.update(b"" if array.dtype.hasobject else np.ascontiguousarray(array).tobytes())


@lru_cache(maxsize=8)
def load_samples(name: str, directory: str, folder: str) -> Columns | Dataset:
    """What the user's function gives, by the sample's number; it gets ``folder`` where it takes an argument.

    Raises ExperimentError when it is none.
    """
    function = load_function("data.train", name, directory, SAMPLES.wanted)
    given = function(folder) if _takes_folder(function) else function()
    if isinstance(given, Mapping):
        return Columns(name, dict(given))
    if isinstance(given, tuple) or _is_array(given):
        return Columns(name, dict(enumerate(given if isinstance(given, tuple) else (given,))))
    if type(given).__module__.partition(".")[0] == "ray":
        raise ExperimentError(
            f"data.train: {name}() gives a {type(given).__name__} of Ray Data, whose rows have no numbers by which a "
            "run could go on: write them to a file once (raymx.data.tools.arrays.pack_rows(dataset.iter_rows(), PATH, "
            "inputs=[...], labels=[...])), and name that"
        )
    if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        raise ExperimentError(f"data.train: {name}() gives a {type(given).__name__}; name {SAMPLES.wanted}")
    return Dataset(name, given)


def _takes_folder(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # of C's
        return False
    return False


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "asnumpy")


class Columns:
    """Arrays whose first axis is the samples; keys are names, or numbers from 0 where a tuple was given."""

    def __init__(self, name: str, columns: Mapping[Any, Any]) -> None:
        self._names = list(columns)
        self._columns = [
            one.asnumpy() if hasattr(one, "asnumpy") else np.asarray(one) if not isinstance(one, list) else one
            for one in columns.values()
        ]
        lengths = {key: len(one) for key, one in zip(self._names, self._columns, strict=True)}
        if len(set(lengths.values())) != 1:
            shown = ", ".join(f"{key}: {length:,}" for key, length in lengths.items()) or "none"
            raise ExperimentError(f"data.train: {name}() gives arrays of different lengths ({shown})")

    def __len__(self) -> int:
        return len(self._columns[0])

    def get(self, number: int, seeds: tuple[int, int, int]) -> Any:
        """A sample; nothing is drawn for it."""
        values = [one[number] for one in self._columns]
        return dict(zip(self._names, values, strict=True)) if isinstance(self._names[0], str) else tuple(values)


class Dataset:
    """A dataset of the user's, whose errors name it."""

    def __init__(self, name: str, samples: Any) -> None:
        self._name, self._samples = name, samples

    def __len__(self) -> int:
        return len(self._samples)

    def get(self, number: int, seeds: tuple[int, int, int]) -> Any:
        """A sample; ``seeds`` are for `augment.generator`. Raises SampleFailed where the dataset raises."""
        try:
            with drawn_from(generator(*seeds)):
                return self._samples[number]
        except DataError:
            raise
        except Exception as error:
            frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != __file__]
            trace = "".join(f"\n{line.rstrip()}" for line in traceback.format_list(frames))
            raise SampleFailed(f"the dataset of {self._name} failed: {type(error).__name__}: {error}{trace}") from None


@contextmanager
def drawn_from(rng: Generator) -> Iterator[None]:
    """What `random` and `numpy.random` give inside comes of ``rng``; afterwards they go on as before."""
    plain, of_numpy = random.getstate(), np.random.get_state()
    seed = int(rng.integers(1 << 31))
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(of_numpy)
