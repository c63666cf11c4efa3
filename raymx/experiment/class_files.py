"""``PREFIX.classes.txt`` beside record files: which label is which class, as ``python -m raymx.pack`` writes it.

Files that number classes differently cannot be trained and validated together. No Ray, no mxnet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from raymx.errors import DataError
from raymx.storage import is_uri, names_in, text

ENDING = ".classes.txt"
_CHUNK = re.compile(r"_\d+$")
_PART = re.compile(r"_(train|val|test)$")


def names_beside(path: str) -> list[str]:
    """Where the classes of a record file may be said, the nearest first: PREFIX_train_0.rec has PREFIX.classes.txt."""
    base, mark, options = path.partition("?") if is_uri(path) else (path, "", "")
    stem = base.removesuffix(".rec")
    whole = _CHUNK.sub("", stem)
    stems = dict.fromkeys((stem, whole, _PART.sub("", stem), _PART.sub("", whole)))
    return [f"{each}{ENDING}{mark}{options}" for each in stems]


def parse(content: str) -> dict[int, str]:
    """Label -> name, of lines of both; lines of anything else are none."""
    found = (line.rstrip("\r").partition("\t") for line in content.split("\n"))
    return {int(label): name for label, tab, name in found if tab and label.isdecimal()}


def conflict(one: Mapping[int, str], other: Mapping[int, str]) -> str | None:
    """How two files number a class differently; None where one only has more of them than the other."""
    for label in sorted(one.keys() & other.keys()):
        if one[label] != other[label]:
            return f"label {label} is {one[label]} in the one and {other[label]} in the other"
    numbers = {name: label for label, name in one.items()}
    for label, name in other.items():
        if numbers.get(name, label) != label:
            return f"{name} is label {numbers[name]} in the one and {label} in the other"
    return None


def check(files: Mapping[str, Sequence[str]]) -> None:
    """Raise DataError when record files, by split, lie beside classes that are numbered differently; both are named."""
    first: tuple[str, str, dict[int, str]] | None = None
    for split, place, classes in _found(files):
        if first is None:
            first = split, place, classes
        elif reason := conflict(first[2], classes):
            raise DataError(
                f"data.{first[0]} has {first[1]} and data.{split} {place}, which number classes differently: {reason}; "
                "pack both with the same list of names (python -m raymx.pack --classes FILE)"
            )


def _found(files: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, dict[int, str]]]:
    """(split, path, label -> name) of each file of classes that is there, once."""
    seen: set[str] = set()
    listed: dict[str, list[str]] = {}
    for split, paths in files.items():
        for path in paths:
            place = next((place for place in names_beside(path) if _is_there(place, listed)), None)
            if place is not None and place not in seen:
                seen.add(place)
                yield split, place, parse(_read(place))


def _is_there(place: str, listed: dict[str, list[str]]) -> bool:
    """Whether there is such a file. Of a URI the folder is listed once: a thousand files are one request."""
    if not is_uri(place):
        return os.path.isfile(place)
    folder, _, name = place.partition("?")[0].rpartition("/")
    if folder not in listed:
        try:
            listed[folder] = names_in(folder + place.removeprefix(f"{folder}/{name}"))[1]
        except DataError:  # a store that lets files be read, and not be listed
            listed[folder] = []
    return name in listed[folder]


def _read(place: str) -> str:
    if is_uri(place):
        return text(place) or ""
    with open(place, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()
