"""Which images to pack, with which labels, and into which file: class folders, ``.lst`` files, and the split.

A line of a ``.lst`` file is ``index<TAB>label<TAB>path``, with more labels between the first and the path if there are.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random

from raymx.errors import DataError, ExperimentError
from raymx.experiment.label_rules import float32_problem
from raymx.storage import HEAD_BYTES, placeholder_of
from raymx.text.words import some

EXTENSIONS = (".jpeg", ".jpg", ".png")
_MAX_INDEX = 2**64 - 1  # the record header's id


@dataclass(frozen=True, slots=True)
class Entry:
    """One image to pack."""

    index: int  # becomes the record header's id
    labels: tuple[float, ...]
    path: str  # relative to the listing's root
    line: int = 0  # in the .lst file, from 1; 0 when there is none


@dataclass(frozen=True, slots=True)
class Skipped:
    """What is not packed, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """What a source holds."""

    source: Path
    root: Path
    entries: list[Entry]
    skipped: list[Skipped] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)  # names by label; none for a .lst file
    others: Counter[str] = field(default_factory=Counter)  # files that were not taken, by extension
    twice: list[str] = field(default_factory=list)  # what is an image of two classes, in words

    def empty_classes(self) -> list[str]:
        """Names of the class folders that hold no image."""
        used = {entry.labels[0] for entry in self.entries}
        return [name for label, name in enumerate(self.classes) if label not in used]


def from_folder(source: Path, extensions: Sequence[str] = EXTENSIONS, classes: Sequence[str] | None = None) -> Listing:
    """All images below ``source``/CLASS/, labelled with the class's number in ``classes``, or the sorted folder names.

    Names that begin with a dot are not looked at. Raises DataError for a folder that cannot be read, without class
    folders or images, or with one that ``classes`` has not or whose name has no place in a file of classes.
    """
    try:
        inside = sorted(item.name for item in source.iterdir() if not item.name.startswith("."))
    except OSError as error:
        raise _unreadable(source, error) from None
    folders = [name for name in inside if (source / name).is_dir()]
    _check_classes(source, folders, classes)
    listing = Listing(source, source, [], classes=list(folders if classes is None else classes))
    for name in folders:
        label = listing.classes.index(name)
        for path in _files(source, name):
            _take(listing, path, (float(label),), extensions)
    listing.twice.extend(_of_two_classes(listing))
    beside = [name for name in inside if (source / name).is_file() and _extension(name) in extensions]
    _check_folder(listing, beside, extensions)
    listing.skipped.extend(Skipped(name, "it lies beside the class folders, so it has no label") for name in beside)
    return listing


def _check_classes(source: Path, folders: Sequence[str], classes: Sequence[str] | None) -> None:
    for name in folders:
        if any(mark in name for mark in "\t\r\n"):
            raise DataError(
                f"{source}: the class folder {name!r} has a TAB or line break in its name, which has no place in "
                "PREFIX.classes.txt: rename it"
            )
    unknown = [name for name in folders if classes is not None and name not in classes]
    if unknown:
        raise DataError(
            f"{source}: the class folder{'s' * (len(unknown) != 1)} {some(unknown, 5)} "
            f"{'is' if len(unknown) == 1 else 'are'} not among the {len(classes or ())} names of --classes: add "
            "them at its end, so that the others keep their labels, or take the folders away"
        )


def read_classes(path: Path) -> list[str]:
    """The names of a list of classes, a name a line, or of a PREFIX.classes.txt (label<TAB>name), in the labels' order.

    Raises DataError for a list that cannot be read, is empty, has a name twice or labels that do not count from 0.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None
    if kind := placeholder_of(content[:HEAD_BYTES]):
        raise DataError(f"{path} is no list of classes, but {kind}")
    lines = content.decode("utf-8-sig", errors="surrogateescape").split("\n")
    names = [line.rstrip("\r") for line in lines if line.strip()]
    if names and all("\t" in name for name in names):
        labels, _, names = zip(*(name.partition("\t") for name in names), strict=True)  # type: ignore[assignment]
        if list(labels) != [str(number) for number in range(len(names))]:
            raise DataError(f"{path}: the labels {some(labels, 5)} do not count from 0, a line a class; correct it")
    twice = [name for name, count in Counter(names).items() if count > 1]
    odd = [name for name in names if "\t" in name or "\r" in name]
    if not names or twice or odd:
        reason = f"{twice[0]} is there twice" if twice else f"{odd[0]!r} has a TAB" if odd else "it has no name"
        raise DataError(f"{path} is no list of classes: {reason}; give a name a line, in the order of their labels")
    return list(names)


def _of_two_classes(listing: Listing) -> Iterator[str]:
    """What links make an image of two classes: a folder or a file, and the classes."""
    owners: dict[str, tuple[float, str]] = {}
    real_folders: dict[str, str] = {}
    said: set[tuple[str, str]] = set()
    for entry in listing.entries:
        folder = os.path.dirname(os.path.join(listing.root, entry.path))
        if folder not in real_folders:
            real_folders[folder] = os.path.realpath(folder)
        real = os.path.join(real_folders[folder], os.path.basename(entry.path))
        if os.path.islink(real):
            real = os.path.realpath(real)
        label, path = owners.setdefault(real, (entry.labels[0], entry.path))
        pair = (os.path.dirname(path), os.path.dirname(entry.path))
        if label != entry.labels[0] and pair not in said:
            said.add(pair)
            yield f"{entry.path} and {path} are one file"


def _files(source: Path, name: str) -> Iterator[str]:
    """Paths relative to ``source`` of all files below its folder ``name``, sorted folder by folder. Follows links."""

    def fail(error: OSError) -> None:
        raise _unreadable(error.filename, error)

    for folder, folders, files in os.walk(source / name, followlinks=True, onerror=fail):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and not _is_above(f"{folder}/{f}", folder))
        for file in sorted(files):
            if not file.startswith("."):
                yield os.path.relpath(os.path.join(folder, file), source)


def _is_above(link: str, folder: str) -> bool:
    """Whether a link leads back to a folder that it lies in: walking it would never end."""
    return os.path.islink(link) and f"{os.path.realpath(folder)}/".startswith(f"{os.path.realpath(link)}/")


def _take(listing: Listing, path: str, labels: tuple[float, ...], extensions: Sequence[str]) -> None:
    if _extension(path) not in extensions:
        listing.others[_extension(path)] += 1
    elif any(mark in path for mark in "\t\r\n"):
        listing.skipped.append(Skipped(repr(path), "a TAB or line break in the name has no place in a .lst file"))
    else:
        listing.entries.append(Entry(len(listing.entries), labels, path))


def _extension(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _check_folder(listing: Listing, beside: list[str], extensions: Sequence[str]) -> None:
    if listing.entries:
        return
    if beside:
        raise DataError(
            f"{listing.source}: {len(beside)} images but none in a class folder, so they have no labels; "
            "put them into one folder a class, or name a .lst file (index<TAB>label<TAB>path a line)"
        )
    others = ", ".join(f"{count} {name or 'without'}" for name, count in listing.others.most_common(5))
    raise DataError(
        f"{listing.source}: no images ({' '.join(extensions)}) in class folders; "
        f"other files there: {others or 'none'}. --extensions takes other ones"
    )


def _unreadable(path: object, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error.strerror or error})")


def from_list(source: Path, root: Path | None = None) -> Listing:
    """The entries of a .lst file, its paths relative to ``root`` (default: the file's folder).

    A malformed line is skipped, with its number. Raises DataError when the file cannot be read or no line is good.
    """
    listing = Listing(source, root or source.parent, [])
    try:
        with source.open("rb") as head:
            kind = placeholder_of(head.read(HEAD_BYTES))
        if kind:
            raise DataError(f"{source} is no list of images, but {kind}")
        with source.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    _add_line(listing, line, number)
    except OSError as error:
        raise _unreadable(source, error) from None
    if not listing.entries:
        first = f"; {listing.skipped[0].path}: {listing.skipped[0].reason}" if listing.skipped else ""
        raise DataError(f"{source}: no line is index<TAB>label<TAB>path{first}")
    return listing


def _add_line(listing: Listing, line: str, number: int) -> None:
    try:
        listing.entries.append(_parse(line, number))
    except ValueError as error:
        listing.skipped.append(Skipped(f"{listing.source.name} line {number}", str(error)))


def _parse(line: str, number: int) -> Entry:
    """The entry of a line; a ValueError says what is wrong."""
    fields = [text.strip() for text in line.strip().split("\t")]
    if len(fields) < 3:
        raise ValueError(f"{len(fields)} field(s) between TABs; needed: index, label (or more), path")
    if not fields[0].isdecimal() or int(fields[0]) > _MAX_INDEX:
        raise ValueError(f"the index {fields[0]} is not a whole number from 0 to 2**64 - 1")
    return Entry(int(fields[0]), tuple(map(_label, fields[1:-1])), fields[-1], number)


def _label(text: str) -> float:
    try:
        label = float(text)
    except ValueError:
        raise ValueError(f"the label {text} is not a number") from None
    if problem := float32_problem(label):
        raise ValueError(problem)
    return label


def check_widths(listing: Listing, width: int | None = None) -> None:
    """Raise a DataError that names the first entry whose labels are not ``width`` (default: as many as the first's)."""
    wanted = width or len(listing.entries[0].labels)
    for entry in listing.entries:
        if len(entry.labels) != wanted:
            where = f"line {entry.line}" if entry.line else entry.path
            expected = f"--label-width is {width}" if width else f"line {listing.entries[0].line} has {wanted}"
            raise DataError(
                f"{listing.source}, {where}: {len(entry.labels)} label(s), but {expected}; correct it, or "
                "give --variable-labels if labels differ in number, as for detection"
            )


def lines(entries: Sequence[Entry]) -> Iterator[str]:
    """The entries as lines of a .lst file."""
    for entry in entries:
        yield "\t".join([str(entry.index), *(f"{label:.9g}" for label in entry.labels), entry.path]) + "\n"


@dataclass(frozen=True)
class Split:
    """How entries are put into files."""

    train: float = 1.0
    validation: float = 0.0
    test: float = 0.0
    chunks: int = 1  # files a part
    shuffle: bool = True  # the order inside a part; which part an entry goes to is always drawn
    seed: int = 1


def plan(entries: Sequence[Entry], how: Split) -> tuple[dict[str, list[Entry]], int]:
    """The entries of each output file by what its name adds ("", "_train", "_train_0", ...), and the count in none.

    Raises ExperimentError for impossible ratios, and DataError when a part would get fewer entries than it has files.
    """
    ratios = {"_train": how.train, "_val": how.validation, "_test": how.test}
    *parts, unused = split([entry.labels for entry in entries], list(ratios.values()), how.seed)
    outputs: dict[str, list[Entry]] = {}
    for (name, ratio), part in zip(ratios.items(), parts, strict=True):
        if ratio:
            if how.shuffle:
                Random(how.seed).shuffle(part)
            chosen = [entries[position] for position in part]
            outputs.update(_chunks("" if how.train == 1 else name, chosen, how.chunks))
    return outputs, len(unused)


def _chunks(name: str, entries: list[Entry], count: int) -> Mapping[str, list[Entry]]:
    """Contiguous pieces that differ by at most one in length."""
    if len(entries) < count:
        raise DataError(
            f"{name.lstrip('_') or 'the output'}: {len(entries)} image(s) for {count} file(s); "
            "choose a larger ratio or fewer --chunks"
        )
    if count == 1:
        return {name: entries}
    cuts = [number * len(entries) // count for number in range(count + 1)]
    return {f"{name}_{number}": entries[cuts[number] : cuts[number + 1]] for number in range(count)}


def split(labels: Sequence[Hashable], ratios: Sequence[float], seed: int) -> list[list[int]]:
    """Positions of each part, ascending, and last those in no part. Every position is in exactly one of the lists.

    Of each label a part gets its ratio, to within one position; what rounding keeps from a part at one label it gets at
    the next, so that the ratios also hold when every label is rare. Raises ExperimentError for ratios that cannot be.
    """
    shares = _shares(ratios)
    random = Random(seed)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position, label in enumerate(labels):
        groups[label].append(position)
    parts: list[list[int]] = [[] for _ in shares]
    owed = [0] * len(shares)
    for group in random.sample(list(groups.values()), len(groups)):
        random.shuffle(group)
        for part, count in zip(parts, _counts(len(group), shares, owed), strict=True):
            part.extend(group[:count])
            del group[:count]
    return [sorted(part) for part in parts]


def _shares(ratios: Sequence[float]) -> list[int]:
    """The ratios, and what they leave, as whole numbers: 0.7 and 0.2 are 7, 2 and 1. Decimals are exact here."""
    if not all(0 <= ratio <= 1 for ratio in ratios):
        raise ExperimentError(f"the ratios {_text(ratios)} are not all from 0 to 1")
    exact = [Fraction(str(ratio)) for ratio in ratios]
    if not 0 < sum(exact) <= 1:
        raise ExperimentError(
            f"the ratios {_text(ratios)} of training, validation and test add up to "
            f"{float(sum(exact)):g}; it must be above 0 and at most 1"
        )
    exact.append(1 - sum(exact, Fraction()))
    whole = math.lcm(*(share.denominator for share in exact))
    return [int(share * whole) for share in exact]


def _text(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:g}" for ratio in ratios)


def _counts(size: int, shares: list[int], owed: list[int]) -> list[int]:
    """How many of ``size`` positions each part gets: its share rounded down, or one more for those owed most.

    ``owed`` is in positions times the sum of the shares, and is brought up to date.
    """
    whole = sum(shares)
    counts = [size * share // whole for share in shares]
    fractions = [size * share % whole for share in shares]
    for part, fraction in enumerate(fractions):
        owed[part] += fraction
    due = sorted((part for part, fraction in enumerate(fractions) if fraction), key=lambda part: -owed[part])
    for part in due[: size - sum(counts)]:
        counts[part] += 1
        owed[part] -= whole
    return counts
