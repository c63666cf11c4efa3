"""Data that are not pictures, for text_classifier.yaml, series_lstm.yaml and tabular_mlp.yaml: a function a split.

Each is called once in a process that reads, with the experiment's folder where it takes one.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics  # the texts of Python's help(), which every Python carries
from typing import Any

import numpy as np

from raymx.data.pipeline.image import decode_full
from raymx.data.recordio.record import iter_payloads, unpack

# ---- text: which chapter of Python's reference is a sentence from?

CHAPTERS = ("class", "formatstrings", "import", "specialnames", "try", "typesseq")
WORDS = 2_000  # of the vocabulary; 0 is padding, 1 a word that is not in it
LONGEST = 48


class Sentences:
    """A dataset as Gluon has them: something with a length, that gives a sample by its number."""

    def __init__(self, sentences: list[tuple[list[str], int]], vocabulary: dict[str, int]) -> None:
        self._sentences, self._vocabulary = sentences, vocabulary

    def __len__(self) -> int:
        return len(self._sentences)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        words, chapter = self._sentences[number]
        return np.array([self._vocabulary.get(word, 1) for word in words], np.int32), chapter


@cache
def _sentences() -> list[tuple[list[str], int]]:
    """(words, chapter) of every sentence with four words or more."""
    found = []
    for chapter, name in enumerate(CHAPTERS):
        for sentence in re.split(r"[.:;]\s", topics[name]):
            words = re.findall(r"[a-z_]+|[^\sa-z_]", sentence.lower())
            if len(words) > 3:
                found.append((words[:LONGEST], chapter))
    return found


@cache
def _vocabulary() -> dict[str, int]:
    """The most frequent words of the training sentences, from 2 on."""
    counts: dict[str, int] = {}
    for words, _ in _of_split(validation=False):
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: WORDS - 2]
    return {word: number for number, word in enumerate(frequent, 2)}


def _of_split(*, validation: bool) -> list[tuple[list[str], int]]:
    return [one for number, one in enumerate(_sentences()) if (number % 5 == 0) == validation]


def text_train() -> Sentences:
    return Sentences(_of_split(validation=False), _vocabulary())


def text_validation() -> Sentences:
    return Sentences(_of_split(validation=True), _vocabulary())


# ---- a series: the passengers of next month

# Passengers of international airlines by month, 1949 to 1960, in thousands (Box and Jenkins, Time Series Analysis).
PASSENGERS = """
112 118 132 129 121 135 148 148 136 119 104 118 115 126 141 135 125 149 170 170 158 133 114 140
145 150 178 163 172 178 199 199 184 162 146 166 171 180 193 181 183 218 230 242 209 191 172 194
196 196 236 235 229 243 264 272 237 211 180 201 204 188 235 227 234 264 302 293 259 229 203 229
242 233 267 269 270 315 364 347 312 274 237 278 284 277 317 313 318 374 413 405 355 306 271 306
315 301 356 348 355 422 465 467 404 347 305 336 340 318 362 348 363 435 491 505 404 359 310 337
360 342 406 396 420 472 548 559 463 407 362 405 417 391 419 461 472 535 622 606 508 461 390 432
"""
MONTHS = 24  # that the net sees
YEARS_TRAINED = 9


def _growth() -> np.ndarray[Any, Any]:
    """By how much each month grew over the one before, of its logarithm, in units of 0.1."""
    logs = np.log(np.array(PASSENGERS.split(), np.float64))
    return np.diff(logs) * 10


def _windows(first: int, last: int) -> dict[str, np.ndarray[Any, Any]]:
    """The months before each month from ``first`` to ``last``, and that month."""
    growth = _growth()
    past = np.stack([growth[at - MONTHS : at] for at in range(first, last)])[:, :, None].astype(np.float32)
    return {"past": past, "label": growth[first:last].astype(np.float32)}


def series_train() -> dict[str, np.ndarray[Any, Any]]:
    return _windows(MONTHS, 12 * YEARS_TRAINED)


def series_validation() -> dict[str, np.ndarray[Any, Any]]:
    return _windows(12 * YEARS_TRAINED, len(_growth()))


# ---- a table: 49 measurements of each of some clothes, the brightness of parts of their pictures


def _table(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """float32 (rows, 49) and the classes, (rows,)."""
    records = [unpack(payload) for payload in iter_payloads(str(path))]
    pictures = np.stack([decode_full(record.image, 1, str(path))[..., 0] for record in records])
    parts = pictures.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49)
    return ((parts - 73) / 90).astype(np.float32), np.array([record.label[0] for record in records])


def table_train(folder: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return _table(Path(folder, "data", "fashion_mnist_train.rec"))


def table_validation(folder: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return _table(Path(folder, "data", "fashion_mnist_val.rec"))
