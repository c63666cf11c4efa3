"""What a read task does, without Ray: records of several files -> one worker's batches of pixels, or of arrays.

    for batch in decode_batches(paths, locations, decoding):
        batch.images, batch.labels, batch.mirror, batch.bad

A record that cannot be used is raised as a DataError that names its file and offset, or, where the experiment says
``on_bad_record: skip``, becomes a row of zeros that is named in ``bad``.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raymx.data.pipeline.augment import generator
from raymx.data.pipeline.image import Pixels, decode_full, decode_into
from raymx.data.pipeline.sample import PADDING_LABEL, Sample
from raymx.data.pipeline.samples import SampleFailed, load_samples
from raymx.data.recordio.reading import read_payloads
from raymx.data.recordio.record import Record, require_image, unpack
from raymx.errors import DataError, ExperimentError
from raymx.experiment.label_rules import LabelRange
from raymx.experiment.references import DECODE, TRANSFORM
from raymx.experiment.user_code import load_function, require_call
from raymx.storage import Reader, is_uri, open_reader

# An object store answers one request for a megabyte about as soon as one for nothing.
URI_GAP_BYTES = 1 << 20
# A read task covers whole batches of at least this many records and at least this many decoded bytes: starting a task
# costs about as much as decoding a dozen photographs or some thousands of 28x28 images.
TASK_RECORDS = 256
TASK_BYTES = 4 << 20

Payload = bytes | memoryview | DataError
Transform = Callable[[NDArray[np.uint8], NDArray[np.float32], "np.random.Generator | None"], Any]


@dataclass(frozen=True)
class Decoding:
    """How records become rows of a batch; all that a read task is told beside which records."""

    pixels: Pixels
    label_width: int = 1
    pad_labels: bool = False  # narrower labels are filled up with -1
    seed: int = 0
    skip_bad: bool = False
    transform: str | None = None  # module:function, looked for in `directory` first
    directory: str = ""
    folder: str = ""  # the experiment's, where its data are
    floats: bool = False  # the transform gives float32 (C, H, W), and not uint8 (H, W, C)
    label_range: LabelRange | None = None  # what labels may be, once the transform has changed them
    sample: Sample | None = None  # what arrays, or named labels, there are
    decode: str | None = None  # module:function that makes them of a record
    draws: bool = False  # whether that, or a dataset of the user's, may give other arrays in each epoch
    function: bool = False  # whether the path is a module:function of the user's that gives samples

    @property
    def is_picture(self) -> bool:
        """Whether a row is a picture, and not a sample's arrays."""
        return self.sample is None or not self.sample.inputs

    @property
    def image_dtype(self) -> np.dtype[Any]:
        """Of a row: of arrays a structured type, a field an input."""
        if self.sample is not None and self.sample.inputs:
            return self.sample.row_dtype
        return np.dtype(np.float32 if self.floats else np.uint8)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(H, W, C) of uint8 images, (C, H, W) of a transform's float32 ones; () of arrays."""
        if not self.is_picture:
            return ()
        channels, height, width = self.pixels.shape
        return (channels, height, width) if self.floats else (height, width, channels)

    @property
    def unit(self) -> str:
        """What the number is by which a record is named."""
        return "sample" if self.function else "record at byte"

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.image_shape)) * self.image_dtype.itemsize + 4 * self.label_width

    @property
    def repeats(self) -> bool:
        """Whether a record gives the same pixels in every epoch (mirroring apart, which the net's graph does)."""
        if not self.is_picture:
            return not self.draws
        augment = self.pixels.augment
        changed = (
            augment.model_dump(exclude={"rand_mirror", "mixup", "cutmix"}, exclude_defaults=True) if augment else {}
        )
        return not changed and self.transform is None


def task_batches(rows: int, row_bytes: int) -> int:
    """Batches of one read task, for batches of ``rows`` rows of so many bytes."""
    return max(1, max(TASK_RECORDS, TASK_BYTES // row_bytes) // rows)


def tasks_in_flight(num_cpus: float) -> int:
    """Read tasks that run or wait on the node for a CPU of the bundle.

    Ray Data looks about ten times a second what has ended. With others waiting, a CPU has its next task at once.
    """
    return 2 * int(num_cpus) + 1


@dataclass(frozen=True)
class RecordLocations:
    """Where the records of one batch lie; each int64 (rows,)."""

    ids: NDArray[np.int64]
    files: NDArray[np.int64]  # index into the paths
    offsets: NDArray[np.int64]  # bytes
    sizes: NDArray[np.int64]  # bytes on disk
    epoch: int = 0

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """int64 (rows,): the first row with the same record. Padding repeats records, and each is decoded once."""
        _, first, inverse = np.unique(self.ids, return_index=True, return_inverse=True)
        return first[inverse]


@dataclass(frozen=True)
class BadRecord:
    """A record that was skipped."""

    path: str
    offset: int
    reason: str
    unit: str = "record at byte"  # what the offset is

    @property
    def place(self) -> str:
        """Where it is in its file, or among the samples."""
        return f"{self.unit} {self.offset}"


@dataclass(frozen=True, eq=False)
class Decoded:
    """One batch."""

    images: NDArray[Any]  # (rows, *Decoding.image_shape) of Decoding.image_dtype
    labels: NDArray[np.float32]  # float32 (rows, label_width)
    mirror: NDArray[np.uint8]  # uint8 (rows,): 1 where the picture is to be mirrored
    usable: NDArray[np.uint8]  # uint8 (rows,): 0 for a bad record
    bad: list[BadRecord]
    # Seconds by stage, in their order: "read", "decode", "transform"; and when that began, by ``time.time``.
    spent: dict[str, float] = field(default_factory=dict)
    began: float = 0.0

    def spend(self, stage: str, since: float) -> float:
        """Add the seconds since then, by ``time.perf_counter``, to a stage; what the clock says now."""
        now = time.perf_counter()
        self.spent[stage] = self.spent.get(stage, 0.0) + now - since
        return now


def decode_batches(paths: Sequence[str], locations: Sequence[RecordLocations], decoding: Decoding) -> Iterator[Decoded]:
    """Read and decode batch after batch. Raises DataError unless ``decoding.skip_bad``."""
    with ExitStack() as stack:
        payloads = _samples(locations, decoding) if decoding.function else _payloads(paths, locations, stack)
        for batch in locations:
            yield _decode_batch(paths, batch, payloads, decoding)


def _payloads(
    paths: Sequence[str], locations: Sequence[RecordLocations], stack: ExitStack
) -> Mapping[int, Iterator[Payload]]:
    """By file, the payloads of its records in the order in which the batches need them."""
    files = np.concatenate([batch.files[_decoded_rows(batch)] for batch in locations])
    offsets = np.concatenate([batch.offsets[_decoded_rows(batch)] for batch in locations])
    sizes = np.concatenate([batch.sizes[_decoded_rows(batch)] for batch in locations])
    by_file: dict[int, Iterator[Payload]] = {}
    for file in np.unique(files).tolist():
        reader: Reader = stack.enter_context(open_reader(paths[file]))
        mine = files == file
        by_file[file] = read_payloads(reader, offsets[mine], sizes[mine], URI_GAP_BYTES if is_uri(paths[file]) else 0)
    return by_file


def _samples(locations: Sequence[RecordLocations], decoding: Decoding) -> Mapping[int, Iterator[Payload]]:
    """Nothing is read ahead of a sample of the user's function: it is asked for when its random numbers are known."""
    return {0: (b"" for batch in locations for _ in range(len(batch.ids)))}


def _decoded_rows(batch: RecordLocations) -> NDArray[np.bool_]:
    return np.asarray(batch.first_rows == np.arange(len(batch.ids)))


def _decode_batch(
    paths: Sequence[str], batch: RecordLocations, payloads: Mapping[int, Iterator[Payload]], decoding: Decoding
) -> Decoded:
    rows = len(batch.ids)
    out = Decoded(
        np.empty((rows, *decoding.image_shape), decoding.image_dtype),
        np.empty((rows, decoding.label_width), np.float32),
        np.zeros(rows, np.uint8),
        np.ones(rows, np.uint8),
        [],
        began=time.time(),
    )
    # Python numbers: an index into a NumPy array for every record is slower than decoding a small image.
    columns = (batch.ids, batch.files, batch.offsets, batch.first_rows)
    listed = zip(*(column.tolist() for column in columns), strict=True)
    for row, (record, file, offset, first) in enumerate(listed):
        if first < row:
            for array in (out.images, out.labels, out.mirror, out.usable):
                array[row] = array[first]
            continue
        began = time.perf_counter()
        payload = next(payloads[file])  # raises where the file itself cannot be read: no record is to blame then
        out.spend("read", began)
        try:
            out.mirror[row] = _decode_row(
                out, row, payload, (decoding.seed, batch.epoch, record), (paths[file], offset), decoding
            )
        except DataError as error:
            if not decoding.skip_bad or isinstance(error, TransformFailed):
                raise
            out.images[row], out.labels[row], out.usable[row] = 0, 0, 0
            unit = decoding.unit
            out.bad.append(BadRecord(paths[file], offset, _reason(error, f"{paths[file]}, {unit} {offset}"), unit))
    return out


def _decode_row(
    out: Decoded, row: int, payload: Payload, seeds: tuple[int, int, int], location: tuple[str, int], decoding: Decoding
) -> bool:
    """Fill one row; whether its picture is to be mirrored. ``seeds`` are for `augment.generator`."""
    if isinstance(payload, DataError):
        raise payload
    if not decoding.is_picture:
        _write_sample(out, row, payload, seeds, location, decoding)
        return False
    where = f"{location[0]}, record at byte {location[1]}"
    began = time.perf_counter()
    content, out.labels[row] = read_record(payload, where, decoding)
    pixels = decoding.pixels
    rng = generator(*seeds) if pixels.random or decoding.transform else None
    if decoding.transform is None:
        mirror = decode_into(out.images[row], content.image, pixels, where, rng)
        out.spend("decode", began)
        return mirror
    _transform(out, row, content.image, rng, where, decoding)
    _check_range(out.labels[row], decoding, where)
    return False


def read_record(payload: bytes | memoryview, where: str, decoding: Decoding) -> tuple[Record, NDArray[np.float32]]:
    """The record of a payload, and its labels as they go into a batch, or to the transform.

    Raises DataError that names ``where`` for one that cannot be used, whatever its image is.
    """
    content = unpack(payload, where)
    require_image(content, where)
    if decoding.sample is not None:
        return content, _picture_labels(content.label, decoding.sample, decoding, where)
    labels = _labels(content.label, decoding, where)
    if decoding.transform is None:
        _check_range(labels, decoding, where)
    return content, labels


def _check_range(labels: NDArray[np.float32], decoding: Decoding, where: str) -> None:
    if decoding.label_range is not None and (problem := decoding.label_range.problem(labels.tolist())):
        raise DataError(f"{where}: {problem}")


def _labels(labels: NDArray[np.float32], decoding: Decoding, where: str) -> NDArray[np.float32]:
    width = decoding.label_width
    if len(labels) == width:
        return labels
    if decoding.pad_labels and len(labels) < width:
        return np.pad(labels, (0, width - len(labels)), constant_values=PADDING_LABEL)
    raise DataError(
        f"{where}: it has {len(labels)} labels; data.label_width is {width}, and both must agree "
        "(auto fills narrower labels up with -1)"
    )


def _reason(error: DataError, where: str) -> str:
    return str(error).removeprefix(f"{where}: ")


# ---- arrays ----


class Header(NamedTuple):
    """What a record says beside its payload; the first argument of ``data.decode``."""

    label: NDArray[np.float32]  # float32 (width,)
    id: int
    id2: int


def _write_sample(
    out: Decoded, row: int, payload: bytes | memoryview, seeds: tuple[int, int, int], at: tuple[str, int], of: Decoding
) -> None:
    """Fill one row with a sample's arrays and labels. ``seeds`` are for `augment.generator`."""
    sample, where = of.sample, f"{at[0]}, {of.unit} {at[1]}"
    assert sample is not None
    if of.function:
        content, given = None, _sample_of_function(at, seeds, of, where)
    else:
        content = unpack(payload, where)
        given = sample.read(content.image, where) if of.decode is None else _decoded(content, seeds, of, where)
    inputs, labels = given
    length = sample.write(out.images, row, inputs, where)
    out.labels[row] = _sample_labels(content, labels, length, of, where)


def _sample_of_function(at: tuple[str, int], seeds: tuple[int, int, int], of: Decoding, where: str) -> Any:
    assert of.sample is not None
    try:
        given = load_samples(at[0], of.directory, of.folder).get(at[1], seeds)
    except (ExperimentError, SampleFailed) as error:
        raise TransformFailed(f"{where}: {error}") from None
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    return of.sample.parted(given, where)


def _decoded(content: Record, seeds: tuple[int, int, int], of: Decoding, where: str) -> Any:
    """What ``data.decode`` makes of a record. What it raises is an error of the experiment, but for a DataError."""
    assert of.decode is not None
    assert of.sample is not None
    decode = load_decode(of.decode, of.directory)
    header = Header(content.label, content.id, content.id2)
    try:
        given = decode(header, content.image, generator(*seeds) if of.draws else None)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except Exception as error:
        raise TransformFailed(f"{where}: data.decode {of.decode} failed: {_traced(error)}") from None
    try:
        return of.sample.parted(given, where)
    except DataError as error:
        raise TransformFailed(f"{error} (data.decode {of.decode})") from None


@lru_cache(maxsize=8)
def load_decode(name: str, directory: str) -> Any:
    """The user's function of (header, payload, rng). Raises TransformFailed when it is none."""
    try:
        return load_function("data.decode", name, directory, DECODE.wanted, *DECODE.arguments)
    except ExperimentError as error:
        raise TransformFailed(str(error)) from None


def _sample_labels(
    content: Record | None, labels: list[NDArray[Any]] | None, length: int, of: Decoding, where: str
) -> NDArray[np.float32]:
    """The labels of a sample in one row: those that came with its arrays, else those of its record's header."""
    sample = of.sample
    assert sample is not None
    if labels is None and content is None:
        raise DataError(f"{where}: it has no label: give one behind the inputs")
    if not sample.labels:
        flat = content.label if labels is None and content else np.ravel(labels[0]).astype(np.float32)  # type: ignore[index]
        row = _labels(flat, of, where)
        _check_range(row, of, where)
        return row
    if labels is None:
        assert content is not None
        labels = sample.header_labels(content.label, where)
    row, real = sample.label_row(labels, length, where)
    _check_range(row[:real], of, where)
    return row


def _picture_labels(labels: NDArray[np.float32], sample: Sample, decoding: Decoding, where: str) -> NDArray[np.float32]:
    """The named labels of a picture."""
    row, real = sample.label_row(sample.header_labels(labels, where), 0, where)
    _check_range(row[:real], decoding, where)
    return row


# ---- a transform of the user's own ----


class TransformFailed(DataError):
    """The user's transform raised: an error of the experiment, whatever is said of bad records."""


@lru_cache(maxsize=8)
def load_transform(name: str, directory: str) -> Transform:
    """The user's function of (image, label, rng); a Gluon transform, which takes the image alone, is wrapped.

    Raises TransformFailed when it is none: no record is to blame for that.
    """
    try:
        transform = load_function("data.transform", name, directory, TRANSFORM.wanted)
        if isinstance(transform, type):
            raise ExperimentError(f"data.transform: {name} is a class; name {TRANSFORM.wanted}")
        if hasattr(transform, "collect_params"):
            return _gluon_transform(transform)
        require_call(f"data.transform: {name}", transform, TRANSFORM.wanted, *TRANSFORM.arguments)
    except ExperimentError as error:
        raise TransformFailed(str(error)) from None
    return transform  # type: ignore[no-any-return]


def _gluon_transform(block: Any) -> Transform:
    import random

    import mxnet as mx

    def transform(image: NDArray[np.uint8], label: NDArray[np.float32], rng: np.random.Generator | None) -> Any:
        if rng is not None:  # Gluon's transforms draw from these three
            seed = int(rng.integers(1 << 31))
            mx.random.seed(seed)
            random.seed(seed)
            np.random.seed(seed)
        return block(mx.nd.array(image, dtype="uint8")).asnumpy()

    return transform


def _transform(
    out: Decoded, row: int, image: bytes | memoryview, rng: np.random.Generator | None, where: str, decoding: Decoding
) -> None:
    """Fill one row with what the user's transform makes of it. Raises TransformFailed that names ``where``."""
    began = time.perf_counter()
    pixels = decode_full(image, decoding.pixels.shape[0], where, decoding.pixels.exif)
    began = out.spend("decode", began)
    changed, label = _call_transform(pixels, out.labels[row].copy(), rng, where, decoding)
    out.spend("transform", began)
    for what, returned, due in (("an image", changed, out.images), ("a label", label, out.labels)):
        if returned.shape != due.shape[1:] or returned.dtype != due.dtype:
            channels, height, width = decoding.pixels.shape
            raise TransformFailed(
                f"{where}: the transform {decoding.transform} returned {what} of {returned.dtype} {returned.shape}, "
                f"where {due.dtype} {due.shape[1:]} is due: images are uint8 {(height, width, channels)} or float32 "
                f"{(channels, height, width)} (see data.image_shape), the same for every record"
            )
    out.images[row], out.labels[row] = changed, label


def _call_transform(
    pixels: NDArray[np.uint8],
    label: NDArray[np.float32],
    rng: np.random.Generator | None,
    where: str,
    decoding: Decoding,
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    assert decoding.transform is not None
    transform = load_transform(decoding.transform, decoding.directory)
    try:
        result = transform(pixels, label, rng)
        changed, label = result if isinstance(result, tuple) else (result, label)
        return np.asarray(changed), np.atleast_1d(np.asarray(label, np.float32))
    except Exception as error:
        hint = "; it must return the image, or (image, label)"
        raise TransformFailed(f"{where}: the transform {decoding.transform} failed: {_traced(error, hint)}") from None


def _traced(error: Exception, hint: str = "") -> str:
    """An exception of the user's code with its frames; ``hint`` where it has none there, so is of what it returned."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    trace = "".join(f"\n{line.rstrip()}" for line in traceback.format_list(frames))
    return f"{type(error).__name__}: {error}{'' if frames else hint}{trace}"


def gives_floats(payload: bytes, where: str, decoding: Decoding) -> bool:
    """Whether the experiment's transform makes float32 images, tried on one record."""
    content, labels = read_record(payload, where, decoding)
    rng = generator(decoding.seed, 0, 0)
    pixels = decode_full(content.image, decoding.pixels.shape[0], where, decoding.pixels.exif)
    return _call_transform(pixels, labels.copy(), rng, where, decoding)[0].dtype == np.float32
