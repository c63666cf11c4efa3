"""Images into RecordIO files: decode, resize, encode in several processes, and write in order.

    listing = from_folder(Path("photos"))
    pack_listing(listing, Path("data/photos"), split=Split(train=0.9, validation=0.1), images=Images(resize=256))
    pack_arrays(pixels, labels, "data/digits.rec")

All files of one call are written in a hidden folder beside them, and moved when every one is whole: after an error or
Ctrl-C nothing is left. Which bytes are written does not depend on the number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from raymx.data.recordio import record
from raymx.data.tools import listing as listings
from raymx.data.tools.encoding import Encoded, Images, Result, encode_file, encoded
from raymx.data.tools.listing import Entry, Listing, Skipped, Split
from raymx.errors import DataError
from raymx.experiment.label_rules import float32_problem

_NOTES = (".classes.txt", ".skipped.txt")
FILES = {
    "PREFIX.rec": "The records, for raymx and for MXNet's readers.",
    "PREFIX.idx": "Where each record begins.",
    "PREFIX.lst": "What is in the file, in its order.",
    "PREFIX.classes.txt": "Label and name of each class, of a folder of class folders.",
    "PREFIX.skipped.txt": "What could not be packed, and why.",
}
"""What `pack_listing` writes. PREFIX is PREFIX_train, PREFIX_val, PREFIX_test where the records are split, in the first
three; with chunks a number follows."""
_GROUP = 8  # images a task: passing a task costs as much as encoding a tiny image
_GROUPS_IN_FLIGHT = 3  # a process, so that all have work while the parent writes

Encode = Callable[[Iterable[str]], Iterator[Result]]


@dataclass
class Packed:
    """What was written, and what was not."""

    records: dict[str, int] = field(default_factory=dict)  # by file
    bytes: int = 0  # of all .rec files
    unused: int = 0  # entries that the ratios leave over
    deep: int = 0  # images with 16 bits a channel
    skipped: list[Skipped] = field(default_factory=list)


def pack_listing(
    listing: Listing,
    prefix: str | Path,
    *,
    split: Split | None = None,
    images: Images | None = None,
    workers: int = 1,
    strict: bool = False,
    list_only: bool = False,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda left: None,
) -> Packed:
    """Write ``prefix``.rec, .idx and .lst (one set a file of ``split``), .classes.txt and .skipped.txt.

    ``workers`` above 1 are processes, so the caller's script needs ``if __name__ == "__main__"``. ``list_only`` reads
    no image and writes no .rec. ``progress`` is called after each image with how many are left. Raises DataError when a
    file exists (unless ``overwrite``) or cannot be written, when one would have no record, and, with ``strict``, when
    anything is skipped; then nothing is written.
    """
    prefix = Path(prefix)
    outputs, unused = listings.plan(listing.entries, split or Split())
    notes = [Path(f"{prefix}{end}") for end in _NOTES]
    ends = (".lst",) if list_only else (".rec", ".idx", ".lst")
    _check_paths(listing, [Path(f"{prefix}{name}{end}") for name in outputs for end in ends] + notes, overwrite)
    packed = Packed(unused=unused, skipped=list(listing.skipped))
    left = iter(reversed(range(len(listing.entries) - unused)))

    def advance() -> None:
        progress(next(left))

    with _into_place(prefix, notes) as folder, _encoder(images or Images(), 1 if list_only else workers) as encode:
        for name, entries in outputs.items():
            stem = folder / f"{prefix.name}{name}"
            kept = entries if list_only else _write_records(stem, listing.root, entries, encode, packed, advance)
            _write_text(f"{stem}.lst", listings.lines(kept))
            packed.records[f"{prefix}{name}{'.lst' if list_only else '.rec'}"] = len(kept)
        _check_packed(packed, strict)
        _write_notes(folder / prefix.name, listing, packed)
    return packed


def pack_arrays(
    images: NDArray[np.uint8],
    labels: Sequence[float] | NDArray[Any],
    path: str | Path,
    *,
    encoding: str = ".png",
    quality: int | None = None,
    ids: Sequence[int] | NDArray[Any] | None = None,
    overwrite: bool = False,
) -> int:
    """Write images that are in memory to ``path`` and, beside it, its .idx file. Returns the number of records.

    ``images`` is uint8 (n, H, W), (n, H, W, 1) or (n, H, W, 3), the last RGB. ``labels`` is (n,) or (n, width).
    ``ids`` are (n,) whole numbers for the records' headers and keys (default: 0 to n-1). The order is kept. Raises
    DataError for other shapes or types, for labels that are not finite, and when the file exists, unless ``overwrite``.
    """
    path, options, values = Path(path), Images(encoding, quality), np.asarray(labels, np.float64)
    _check_arrays(images, values)
    _refuse_existing([path, path.with_suffix(".idx")], overwrite)
    numbers = range(len(images)) if ids is None else [int(number) for number in ids]
    unique = len(set(numbers)) == len(numbers)  # else keys are positions
    with (
        _into_place(path.with_suffix("")) as folder,
        record.RecordIOWriter(folder / path.name, folder / f"{path.stem}.idx") as writer,
    ):
        for number, label, pixels in zip(numbers, values.reshape(len(images), -1), images, strict=True):
            image = pixels[..., ::-1] if pixels.ndim == 3 and pixels.shape[2] == 3 else pixels
            payload = record.pack(_in_header(label.tolist()), encoded(image, options), id=number)
            writer.write(payload, number if unique else None)
    return len(images)


def _check_arrays(images: NDArray[np.uint8], labels: NDArray[np.float64]) -> None:
    if images.dtype != np.uint8 or not (images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))):
        raise DataError(
            f"images are {images.dtype} {images.shape}; they must be uint8 (n, H, W), (n, H, W, 1) or (n, H, W, 3)"
        )
    if not images.size:
        raise DataError(f"images of shape {images.shape} have no pixels; there must be at least one")
    if labels.ndim not in (1, 2) or len(labels) != len(images) or not labels.size:
        raise DataError(
            f"labels have the shape {labels.shape}; for these images it must be ({len(images)},) or "
            f"({len(images)}, width)"
        )
    if wrong := next(filter(None, map(float32_problem, labels.ravel().tolist())), None):
        raise DataError(f"labels: {wrong}")


def _in_header(labels: Sequence[float]) -> float | Sequence[float]:
    """A single label as a number, which the record's header itself can hold."""
    return labels[0] if len(labels) == 1 else labels


# ---- files: written in a hidden folder, then moved


@contextmanager
def _into_place(prefix: Path, notes: Sequence[Path] = ()) -> Iterator[Path]:
    """A folder beside ``prefix`` for files that are moved there at the end; on an error they are gone, with the folder.

    Those of ``notes`` that are not new go, since they speak of files that are replaced. Raises DataError for a folder
    or disk that cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{prefix.name}.", dir=prefix.parent) as folder:
            yield Path(folder)
            for note in notes:
                note.unlink(missing_ok=True)
            for file in sorted(Path(folder).iterdir()):
                file.replace(prefix.parent / file.name)
    except OSError as error:
        raise DataError(f"{prefix}: cannot be written ({error.strerror or error})") from None
    except DataError as error:  # the writer names its file as it is; for the user it is where it was to be
        raise DataError(str(error).replace(folder, str(prefix.parent))) from None


def _check_paths(listing: Listing, paths: Sequence[Path], overwrite: bool) -> None:
    """Refuse to write over files, and in any case over the list that is read."""
    if listing.source.resolve() in (path.resolve() for path in paths):
        raise DataError(
            f"{listing.source} is the list to read, and a list of what is packed would get that name "
            f"too; choose another PREFIX, such as {listing.source.with_suffix('')}_packed"
        )
    _refuse_existing(paths, overwrite)


def _refuse_existing(paths: Sequence[Path], overwrite: bool) -> None:
    there = [path for path in paths if path.exists()]
    if there and not overwrite:
        raise DataError(
            f"{there[0]} exists{f' (and {len(there) - 1} more)' if there[1:] else ''}; give --overwrite "
            "(overwrite=True) to replace it, or another name"
        )
    if not paths[0].parent.is_dir():
        raise DataError(f"the folder {paths[0].parent} does not exist; create it, or name another")


def _write_records(
    stem: Path,
    root: Path,
    entries: list[Entry],
    encode: Encode,
    packed: Packed,
    advance: Callable[[], None],
) -> list[Entry]:
    """Write ``stem``.rec and .idx. Returns the entries in them, in order; the others go to ``packed.skipped``."""
    kept = []
    unique = len({entry.index for entry in entries}) == len(entries)  # keys are the list's, unless it repeats one
    with record.RecordIOWriter(f"{stem}.rec", f"{stem}.idx") as writer:
        for entry, image in zip(entries, encode(os.path.join(root, entry.path) for entry in entries), strict=True):
            if isinstance(image, Encoded):
                packed.deep += image.deep
                payload = record.pack(_in_header(entry.labels), image.data, id=entry.index)
                writer.write(payload, entry.index if unique else None)
                kept.append(entry)
            else:
                packed.skipped.append(Skipped(entry.path, image))
            advance()
    packed.bytes += os.path.getsize(f"{stem}.rec")
    return kept


def _check_packed(packed: Packed, strict: bool) -> None:
    """Refuse files without records, and with ``strict`` everything skipped; the first ten are named."""
    shown = [f"\n  {item.path}: {item.reason}" for item in packed.skipped[:10]]
    text = "".join(shown) + ("\n  ..." if packed.skipped[10:] else "")
    for name, count in packed.records.items():
        if not count:
            raise DataError(f"{name} would have no record: all its images are skipped; nothing was written:{text}")
    if strict and packed.skipped:
        raise DataError(f"{len(packed.skipped)} skipped, and --strict allows none; nothing was written:{text}")


def _write_notes(stem: Path, listing: Listing, packed: Packed) -> None:
    if listing.classes:
        _write_text(f"{stem}{_NOTES[0]}", (f"{label}\t{name}\n" for label, name in enumerate(listing.classes)))
    if packed.skipped:
        _write_text(f"{stem}{_NOTES[1]}", (f"{item.path}\t{item.reason}\n" for item in packed.skipped))


def _write_text(path: str, lines: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(lines)


# ---- processes


@contextmanager
def _encoder(options: Images, workers: int) -> Iterator[Encode]:
    """A function from paths to results, in order, that reads ahead only a little. With one worker, in this process."""
    if workers == 1:
        yield lambda paths: (encode_file(path, options) for path in paths)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker)
    try:
        yield lambda paths: _in_order(pool, paths, options, _GROUPS_IN_FLIGHT * workers)
    except BrokenProcessPool:
        raise DataError(
            "a process that encodes images was ended from outside, perhaps for lack of memory; "
            f"try fewer than {workers} --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, paths: Iterable[str], options: Images, in_flight: int) -> Iterator[Result]:
    waiting: deque[Future[list[Result]]] = deque()
    paths = iter(paths)
    while group := list(islice(paths, _GROUP)):
        waiting.append(_submit(pool, group, options))
        if len(waiting) == in_flight:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()


def _submit(pool: ProcessPoolExecutor, group: list[str], options: Images) -> Future[list[Result]]:
    """Submit with Ctrl-C held back: a process that starts here inherits that, so only the parent hears of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_encode_group, group, options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    cv2.setNumThreads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libjpeg's warnings name no file, and would break the progress bar
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its processes, and they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_group(paths: list[str], options: Images) -> list[Result]:
    return [encode_file(path, options) for path in paths]
