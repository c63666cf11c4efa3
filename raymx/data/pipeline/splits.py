"""The splits of an experiment as one worker sees them: their records, and how these become rows of a batch.

    splits = Splits(experiment, opened)
    splits.records("train"), splits.decoding("train"), splits.label_width, splits.floats

No Ray and no mxnet, but for what a transform of the user's imports.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from raymx.data.pipeline.decoding import Decoding, TransformFailed, gives_floats
from raymx.data.pipeline.first_look import BadCount, Say, look
from raymx.data.pipeline.image import Pixels
from raymx.data.pipeline.sample import Sample
from raymx.data.pipeline.samples import SampleSource
from raymx.data.pipeline.source import Source
from raymx.data.recordio.framing import read_payload
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError
from raymx.experiment import class_files, data_rules, label_rules
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.user_code import code_folder
from raymx.storage import open_reader

_NO_PIXELS = Pixels((1, 1, 1))  # of arrays


class Splits:
    """``train`` and, where the experiment has them, ``validation`` records. Each is opened when first asked for."""

    def __init__(
        self, experiment: ExperimentConfig, opened: Callable[[Source], None], say: Say = lambda sentence: None
    ) -> None:
        """``opened`` is told of each split once, ``say`` in a sentence each what is worth one."""
        self._experiment, self._when_opened, self._say = experiment, opened, say
        self._records: dict[str, Source] = {}
        self._decodings: dict[str, Decoding] = {}

    @property
    def names(self) -> list[str]:
        """The names of the splits that the experiment has."""
        return [split for split in ("train", "validation") if getattr(self._experiment.data, split)]

    def require(self, split: str) -> None:
        """Raise DataError where the experiment does not have ``split``."""
        if split not in self.names:
            raise DataError(f"data.{split} is not set; name a .rec file")

    def records(self, split: str) -> Source:
        """The ``train`` or the ``validation`` records. Raises DataError when they cannot be had."""
        if split not in self._records:
            records = self._open(split)
            self._when_opened(records)
            self._records[split] = records
        return self._records[split]

    def _open(self, split: str) -> Source:
        data = self._experiment.data
        given = getattr(data, split)
        self.require(split)
        if name := data_rules.function_of(given):
            return SampleSource.open(
                f"data.{split}", name, code_folder(self._experiment.directory), self._experiment.directory
            )
        paths = [self._experiment.resolve(path) for path in data_rules.listed(given)]
        return RecordSet.open(paths, data.on_bad_record)

    @property
    def num_opened(self) -> int:
        """The records of the splits that were opened, damaged ones too."""
        return sum(records.num_records + records.damaged for records in self._records.values())

    def fingerprint(self) -> list[tuple[str, str]]:
        """(file name, digest) of every file: equal wherever the data are. The folder may differ between nodes."""
        return [
            (os.path.basename(path), digest)
            for split in self.names
            for path, digest in self.records(split).fingerprint().items()
        ]

    @cached_property
    def label_width(self) -> int:
        """Labels a record: ``data.label_width``, or for ``auto`` the most that any record with an image has.

        Raises DataError where the experiment's loss or metric cannot take what ``auto`` comes to.
        """
        if self._sample is not None and self._sample.labels:
            return self._sample.label_width
        width = self._experiment.data.label_width
        if width != "auto":
            return width
        found: Counter[int] = Counter()
        for split in self.names:
            found.update(_record_set(self.records(split)).label_widths(with_image=True))
        label_rules.check_widths(self._experiment, found)
        most = max(found, default=1)
        if found:
            self._say(f"data.label_width auto is {most}: records have {label_rules.in_words(found)}")
        return most

    def check(self) -> None:
        """Look at the records before the first step. Raises DataError for what cannot be used, and would end the run.

        A loop of the user's may not use the validation records: what is wrong with those is met when they are read.
        """
        of_users = self._experiment.training.loop != "default"
        for split in ["train"] if of_users else self.names:
            look(self.records(split), split, self._experiment.data, self._decoding_but_floats(split), self._say)
        class_files.check(
            {split: source.paths for split, source in self._records.items() if isinstance(source, RecordSet)}
        )

    def count_bad(self, split: str) -> BadCount:
        """What is allowed of the bad records of a split."""
        return BadCount(split, self.records(split), self._experiment.data.max_bad)

    @cached_property
    def floats(self) -> bool:
        """Whether images are float32 (C, H, W) of the user's transforms, and not uint8 (H, W, C)."""
        floats = {split: self._try_transform(split) for split in self.names}
        if len(set(floats.values())) > 1:
            raise DataError(
                "data.transform and data.validation_transform must agree: one makes float32 images, the "
                "other uint8 ones (raymx's own makes uint8): set both, or have both return uint8"
            )
        return floats["train"]

    def decoding(self, split: str) -> Decoding:
        """How records of a split are decoded."""
        if split not in self._decodings:
            self._decodings[split] = replace(self._decoding_but_floats(split), floats=self.floats)
        return self._decodings[split]

    @cached_property
    def _sample(self) -> Sample | None:
        return Sample.of(self._experiment.data)

    def _decoding_but_floats(self, split: str) -> Decoding:
        """All but ``floats``, which is found with it."""
        data, training = self._experiment.data, split == "train"
        common = Decoding(
            _NO_PIXELS,
            self.label_width,
            seed=self._experiment.training.seed,
            skip_bad=data.on_bad_record == "skip",
            directory=code_folder(self._experiment.directory),  # read tasks are other processes
            folder=self._experiment.directory,
            label_range=label_rules.label_range(self._experiment, self.label_width),
            sample=self._sample,
        )
        if data.kind == "image":
            return replace(
                common,
                pixels=Pixels(data.picture_shape, data.resize, data.exif, data.augment if training else None),
                pad_labels=data.label_width == "auto",
                transform=data.transform if training else data.validation_transform,
            )
        source = self.records(split)
        of_function = isinstance(source, SampleSource)
        changes = data.decode is not None or (isinstance(source, SampleSource) and not source.in_memory)
        return replace(common, decode=data.decode, draws=training and changes, function=of_function)

    def _try_transform(self, split: str) -> bool:
        """Whether its images are float32, by the first record that can be used."""
        decoding = self._decoding_but_floats(split)
        if decoding.transform is None:
            return False
        records = _record_set(self.records(split))
        for record in range(records.num_records):
            try:
                return _floats_of(records, record, decoding)
            except TransformFailed:
                raise
            except DataError:
                if not decoding.skip_bad or record + 1 == records.num_records:
                    raise
        return False


def _record_set(source: Source) -> RecordSet:
    """Of pictures, which are in record files."""
    assert isinstance(source, RecordSet)
    return source


def _floats_of(records: RecordSet, record: int, decoding: Decoding) -> bool:
    (file,), (offset,), (size,) = records.locate(np.array([record]))
    path = records.paths[int(file)]
    with open_reader(path) as reader:
        payload = read_payload(reader, int(offset), size=int(size))
    return gives_floats(payload, f"{path}, record at byte {offset}", decoding)
