"""Pack Fashion-MNIST into the RecordIO files of this folder's experiments.

    python experiments/pack_fashion_mnist.py --source FOLDER            # a class-balanced part: a few MB
    python experiments/pack_fashion_mnist.py --source FOLDER --whole    # all 70,000 images

FOLDER has the four ``*-ubyte.gz`` files of https://github.com/zalandoresearch/fashion-mnist. A record's label is the
class (0 to 9), its image a PNG of 28x28 gray pixels, its id the image's position in the source. The order is the
source's: shuffling is the reader's work.
"""

from __future__ import annotations

import argparse
import gzip
import struct
from pathlib import Path

import numpy as np

from raymx.data.tools.packing import pack_arrays

CLASSES = 10


def read_idx(path: Path) -> np.ndarray:
    """An idx file as uint8, in its own shape: (images, 28, 28) or (labels,)."""
    data = gzip.decompress(path.read_bytes())
    zero, kind, dimensions = struct.unpack_from(">HBB", data)
    if (zero, kind) != (0, 8):
        raise SystemExit(f"{path}: not an idx file of unsigned bytes")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def balanced(labels: np.ndarray, per_class: int) -> np.ndarray:
    """Positions of the first ``per_class`` images of each class, ascending."""
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in range(CLASSES)]))


def write(prefix: Path, images: np.ndarray, labels: np.ndarray, positions: np.ndarray) -> None:
    """Write ``prefix``.rec and .idx with the images at these positions."""
    path = Path(f"{prefix}.rec")
    pack_arrays(images[positions], labels[positions], path, ids=positions, quality=9, overwrite=True)
    print(f"{path}: {len(positions)} images, {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="folder with the four idx files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data", help="default: %(default)s")
    parser.add_argument("--per-class-train", type=int, default=600)
    parser.add_argument("--per-class-validation", type=int, default=100)
    parser.add_argument("--whole", action="store_true", help="all images, into fashion_mnist_full_*.rec")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    name = "fashion_mnist_full" if args.whole else "fashion_mnist"
    parts = (("train", "train", args.per_class_train), ("val", "t10k", args.per_class_validation))
    for part, source, per_class in parts:
        images = read_idx(args.source / f"{source}-images-idx3-ubyte.gz")
        labels = read_idx(args.source / f"{source}-labels-idx1-ubyte.gz")
        positions = np.arange(len(labels)) if args.whole else balanced(labels, per_class)
        write(args.out / f"{name}_{part}", images, labels, positions)


if __name__ == "__main__":
    main()
