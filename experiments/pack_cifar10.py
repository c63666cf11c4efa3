"""Pack CIFAR-10 into the RecordIO files of this folder's experiments.

    python experiments/pack_cifar10.py --source FOLDER      # 50,000 and 10,000 images: 120 MB

FOLDER is ``cifar-10-batches-bin``: what cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html unpacks
to. (The python version of the archive is pickled, and to read it would be to run code out of it.) A record's label is
the class (0 to 9), its image a PNG of 32x32 RGB pixels, its id the image's position in the source. The order is the
source's: shuffling is the reader's work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from raymx.cli.exit import EXIT_ERROR, EXIT_OK
from raymx.data.tools.packing import pack_arrays
from raymx.errors import DataError

CLASSES, SIDE = 10, 32
IMAGE_BYTES = 3 * SIDE * SIDE
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
VALIDATION = ("test_batch.bin",)


def read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A .bin file as images, uint8 (n, 32, 32, 3) RGB, and labels, uint8 (n,). Raises DataError when it is none."""
    try:
        data = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}; --source must be the folder with "
            f"{', '.join((*TRAIN, *VALIDATION))}, unpacked from cifar-10-binary.tar.gz"
        ) from None
    if not data.size or data.size % (1 + IMAGE_BYTES):
        raise DataError(
            f"{path} has {data.size} bytes: a file of CIFAR-10's binary version has {1 + IMAGE_BYTES} an "
            "image; unpack cifar-10-binary.tar.gz anew"
        )
    rows = data.reshape(-1, 1 + IMAGE_BYTES)
    labels = rows[:, 0]
    if labels.max() >= CLASSES:
        raise DataError(f"{path} has the label {labels.max()}: those of CIFAR-10 are 0 to {CLASSES - 1}")
    return rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels


def pack(source: Path, names: Sequence[str], path: Path) -> int:
    """Write the images of these files, one after the other, to ``path`` and its .idx; the number of records."""
    images, labels = zip(*(read_batch(source / name) for name in names), strict=True)
    return pack_arrays(np.concatenate(images), np.concatenate(labels), path, overwrite=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="folder with the six .bin files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data", help="default: %(default)s")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        for part, names in (("train", TRAIN), ("val", VALIDATION)):
            path = args.out / f"cifar10_{part}.rec"
            print(f"{path}: {pack(args.source, names, path)} images, {path.stat().st_size / 1e6:.1f} MB")
    except DataError as error:
        print(f"pack_cifar10: error: {error}", file=sys.stderr)
        return EXIT_ERROR
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
