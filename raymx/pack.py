"""``python -m raymx.pack SOURCE PREFIX``: pack images into RecordIO files, as MXNet's im2rec does, on all CPUs."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from raymx.cli import machine
from raymx.cli.exit import EXIT_OK, exit_code
from raymx.data.tools import listing as listings
from raymx.data.tools.encoding import COLORS, Images
from raymx.data.tools.listing import EXTENSIONS, Listing, Split
from raymx.data.tools.packing import Packed, pack_listing
from raymx.errors import ExperimentError
from raymx.text.words import some

_COLOR_NUMBERS = {"1": "rgb", "0": "gray", "-1": "unchanged"}  # im2rec's

_DESCRIPTION = """\
Pack images into RecordIO files (.rec, .idx, and a .lst of what is in them).

SOURCE is one of
  a folder of class folders   the label is the class's place among the sorted folder names, from 0, or in --classes;
                              images are found in all folders below; PREFIX.classes.txt says which label is which class
  a .lst file                 a line an image: index<TAB>label<TAB>path, or several labels, all with TABs between

An EXIF orientation is applied, so that packed images are upright; --pass-through keeps each file's bytes, tag included.
Images that cannot be used are skipped, and listed in PREFIX.skipped.txt. The flags are im2rec's where it has them."""


def parser() -> argparse.ArgumentParser:
    """The parser of the command. Values that depend on each other are checked later."""
    top = argparse.ArgumentParser(
        prog="python -m raymx.pack",
        allow_abbrev=False,
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("source", metavar="SOURCE", type=Path, help="a folder of class folders, or a .lst file")
    top.add_argument("prefix", metavar="PREFIX", type=Path, help="the files to write, without ending: data/photos")
    _add_source(top.add_argument_group("what to read"))
    _add_images(top.add_argument_group("images"))
    _add_files(top.add_argument_group("files"))
    _add_running(top.add_argument_group("running"))
    return top


def _add_source(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--root", metavar="DIR", type=Path, help="folder of the paths in a .lst file (default: the .lst file's own)"
    )
    group.add_argument(
        "--extensions",
        "--exts",
        nargs="+",
        metavar="EXT",
        default=list(EXTENSIONS),
        type=_extension,
        help=f"endings of images in class folders (default: {' '.join(EXTENSIONS)})",
    )
    group.add_argument(
        "--classes",
        metavar="FILE",
        type=Path,
        help="names of the class folders in the order of their labels, a name a line, or another set's "
        "PREFIX.classes.txt: gives several sets the same labels (default: the sorted folder names)",
    )
    group.add_argument("--label-width", metavar="N", type=_positive, help="refuse entries that have not N labels")
    group.add_argument(
        "--variable-labels", action="store_true", help="let entries differ in their number of labels, as for detection"
    )
    for flag in ("--recursive", "--pack-label"):
        group.add_argument(flag, action="store_true", help="accepted for im2rec's sake: it is always so")


def _add_images(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--resize", metavar="N", type=_positive, help="make the shorter side N pixels")
    group.add_argument("--center-crop", action="store_true", help="crop to the square in the centre, before the resize")
    group.add_argument("--encoding", choices=(".jpg", ".png"), help="of the packed images (default: .jpg)")
    group.add_argument(
        "--quality",
        metavar="N",
        type=int,
        help="of .jpg, 1 to 100 (default: 95); compression of .png, 0 to 9 (default: 3)",
    )
    group.add_argument(
        "--color",
        type=lambda text: _COLOR_NUMBERS.get(text, text),
        choices=tuple(COLORS),
        help="rgb (or 1, the default), gray (or 0), or unchanged (or -1): gray stays gray, and alpha stays in .png",
    )
    group.add_argument("--pass-through", action="store_true", help="pack each file's bytes as they are")


def _add_files(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--train-ratio",
        metavar="R",
        type=float,
        help="part of each class in PREFIX_train (default: what the other two leave)",
    )
    group.add_argument(
        "--validation-ratio",
        "--val-ratio",
        metavar="R",
        type=float,
        default=0.0,
        help="part of each class in PREFIX_val (default: 0)",
    )
    group.add_argument(
        "--test-ratio", metavar="R", type=float, default=0.0, help="part of each class in PREFIX_test (default: 0)"
    )
    group.add_argument(
        "--chunks",
        metavar="N",
        type=_positive,
        default=1,
        help="files a part: PREFIX_train_0, PREFIX_train_1, ... (default: 1)",
    )
    group.add_argument("--no-shuffle", action="store_true", help="keep the source's order in each part")
    group.add_argument("--seed", metavar="N", type=int, default=1, help="of the order and the split (default: 1)")
    group.add_argument(
        "--list-only",
        "--list",
        action="store_true",
        help="read no image and write the .lst files only, to look at or to edit",
    )
    group.add_argument("--overwrite", action="store_true", help="replace files that exist")


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers",
        "--num-thread",
        metavar="N",
        type=_positive,
        default=machine.cores(),
        help="processes that decode and encode (default: one a CPU, here %(default)s); the files do not depend on it",
    )
    group.add_argument("--strict", action="store_true", help="write nothing when an image or line has to be skipped")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1")
    return int(text)


def _extension(text: str) -> str:
    return f".{text.lstrip('.').lower()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Errors of the user's are one message on stderr."""
    args = parser().parse_args([_hyphens(text) for text in (sys.argv[1:] if arguments is None else arguments)])
    return exit_code(lambda: _pack(args), "; nothing was written")


def _hyphens(text: str) -> str:
    """``--train_ratio=0.9`` as ``--train-ratio=0.9``: both forms are in use among MXNet's scripts."""
    flag, equals, value = text.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if text.startswith("--") else text


def _pack(args: argparse.Namespace) -> int:
    images, split, listing = _images(args), _split(args), _listing(args)
    begin = time.monotonic()
    with _progress(shown=sys.stderr.isatty() and not args.list_only) as progress:
        packed = pack_listing(
            listing,
            args.prefix,
            split=split,
            images=images,
            workers=args.workers,
            strict=args.strict,
            list_only=args.list_only,
            overwrite=args.overwrite,
            progress=progress,
        )
    for line in _summary(args, listing, packed, time.monotonic() - begin):
        print(line)
    return EXIT_OK


def _images(args: argparse.Namespace) -> Images:
    """The flags as Images; those that were not given have its defaults."""
    keys = ("encoding", "quality", "color", "resize", "center_crop")
    given = {key: getattr(args, key) for key in keys if getattr(args, key) not in (None, False)}
    if args.pass_through and given:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in given)
        raise ExperimentError(f"--pass-through packs each file as it is, so {flags} cannot apply; leave one out")
    return Images(pass_through=args.pass_through, **given)


def _split(args: argparse.Namespace) -> Split:
    rest = 1 - Decimal(str(args.validation_ratio)) - Decimal(str(args.test_ratio))  # exact, unlike floats
    train = max(float(rest), 0.0) if args.train_ratio is None else args.train_ratio
    return Split(train, args.validation_ratio, args.test_ratio, args.chunks, not args.no_shuffle, args.seed)


def _listing(args: argparse.Namespace) -> Listing:
    """What SOURCE holds, its labels checked."""
    source: Path = args.source
    if args.label_width and args.variable_labels:
        raise ExperimentError("--label-width and --variable-labels contradict each other; leave out one")
    if source.is_dir():
        if args.root:
            raise ExperimentError(f"--root is for .lst files, and {source} is a folder; leave it out")
        classes = listings.read_classes(args.classes) if args.classes else None
        listing = listings.from_folder(source, args.extensions, classes)
    elif args.classes and source.is_file():
        raise ExperimentError(
            f"--classes is for class folders, and {source} is a list, with labels of its own; leave it out"
        )
    elif source.suffix == ".lst" and source.is_file():
        listing = listings.from_list(source, args.root)
    else:
        turned = " (im2rec takes PREFIX first; here SOURCE is first)" if args.prefix.is_dir() else ""
        raise ExperimentError(f"SOURCE {source} is not a folder, nor a .lst file{turned}")
    if not args.variable_labels:
        listings.check_widths(listing, args.label_width)
    return listing


@contextmanager
def _progress(shown: bool) -> Iterator[Callable[[int], None]]:
    """A function to call after each image with how many are left; it moves a bar on stderr, if that is shown."""
    if not shown:
        yield lambda left: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("packing", BarColumn(), MofNCompleteColumn(), "{task.fields[rate]}", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")
        begin, done = time.monotonic(), 0

        def progress(left: int) -> None:
            nonlocal done
            done += 1
            rate = f"{done / (time.monotonic() - begin):,.0f} images/s"
            bar.update(task, completed=done, total=done + left, rate=rate)

        yield progress


def _summary(args: argparse.Namespace, listing: Listing, packed: Packed, seconds: float) -> Iterator[str]:
    for name, count in packed.records.items():
        yield f"{name}: {count:,} {'lines' if args.list_only else 'records'}"
    if listing.classes:
        yield f"{args.prefix}.classes.txt: {len(listing.classes)} classes"
    if empty := listing.empty_classes():
        yield f"class folders without images: {', '.join(empty)}"
    if listing.twice:
        yield f"packed with two labels, since they are linked: {some(listing.twice, 3)}; remove one of each"
    if listing.others:
        others = ", ".join(f"{count:,} {end or 'without ending'}" for end, count in sorted(listing.others.items()))
        yield f"not taken, for their endings: {others}; --extensions takes others"
    if packed.unused:
        yield f"unused: {packed.unused:,} images, since the ratios add up to less than 1"
    if packed.deep:
        yield f"{packed.deep:,} images have 16 bits a channel: {_DEEP[args.pass_through]}"
    records = sum(packed.records.values())
    speed = "" if args.list_only else f", {records / seconds:,.0f} images/s, {packed.bytes / 1e6:,.1f} MB"
    where = f" ({args.prefix}.skipped.txt)" if packed.skipped else ""
    yield f"{records:,} {'lines' if args.list_only else 'records'}{speed}, {len(packed.skipped):,} skipped{where}"


_DEEP = {
    False: "the records have the upper 8 of them; scale images first whose values do not fill 16",
    True: "they are in the records, and a run uses the upper 8",
}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it too leaves nothing half-written
    sys.exit(main())
