"""The command that packs images: sources, split, images, files, and what is skipped or refused."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymx.data.recordio.record import Record, read_payload, unpack
from raymx.data.tools.listing import split
from raymx.data.tools.packing import pack_arrays
from raymx.data.tools.verify import verify
from raymx.errors import DataError
from raymx.pack import main

JPEGS = Path(__file__).parents[3] / "shared" / "data" / "jpeg"


def picture(height: int = 40, width: int = 60, seed: int = 0, channels: int = 3) -> np.ndarray:
    small = np.random.default_rng(seed).integers(0, 256, (4, 6, channels), np.uint8)
    return cv2.resize(small, (width, height))


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Folders cat, dog and elk with 10, 20 and 10 images; half of the dogs in a folder below."""
    for number in range(10):
        save(tmp_path / f"photos/cat/{number}.jpg", picture(seed=number))
        save(tmp_path / f"photos/dog/{number}.png", picture(seed=100 + number))
        save(tmp_path / f"photos/dog/old/{number}.JPG", picture(seed=200 + number))
        save(tmp_path / f"photos/elk/{number}.jpeg", picture(seed=300 + number))
    return tmp_path / "photos"


def run(*arguments: object) -> int:
    return main([*map(str, arguments), *([] if "--workers" in arguments else ["--workers", "1"])])


def records(prefix: Path) -> list[Record]:
    """All records, found through the .idx file, whose keys must be the list's, which are the headers' ids."""
    index = [line.split("\t") for line in Path(f"{prefix}.idx").read_text().splitlines()]
    with open(f"{prefix}.rec", "rb") as file:
        found = [unpack(read_payload(file, int(offset))) for _, offset in index]
    keys = [int(key) for key, _ in index]
    assert keys == [record.id for record in found] or len({record.id for record in found}) < len(found)
    return found


def listed(prefix: Path) -> list[list[str]]:
    return [line.split("\t") for line in Path(f"{prefix}.lst").read_text().splitlines()]


def pixels(record: Record) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(record.image, np.uint8), cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file() or path.name.startswith(".")}


# ---- sources


def test_class_folders(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "cat" / "note.txt").touch()
    (photos / "cat" / "._1.jpg").touch()
    (photos / "fox").mkdir()
    save(photos / "beside.jpg", picture())
    assert run(photos, tmp_path / "all") == 0
    found, lines = records(tmp_path / "all"), listed(tmp_path / "all")
    assert Counter(float(record.label[0]) for record in found) == {0: 10, 1: 20, 2: 10}
    assert sorted(record.id for record in found) == list(range(40))
    assert {record.flag for record in found} == {0}
    classes = {"cat": "0", "dog": "1", "elk": "2"}
    for record, (index, label, path) in zip(found, lines, strict=True):
        assert (record.id, f"{record.label[0]:g}", label) == (int(index), label, classes[path.split("/")[0]])
    labels = [line[1] for line in lines]
    assert labels != sorted(labels)
    assert (tmp_path / "all.classes.txt").read_text() == "0\tcat\n1\tdog\n2\telk\n3\tfox\n"
    assert (tmp_path / "all.skipped.txt").read_text().startswith("beside.jpg\t")
    printed = capsys.readouterr().out
    assert "class folders without images: fox" in printed
    assert "1 .txt" in printed
    assert "40 records" in printed


def test_order_of_the_source(photos: Path, tmp_path: Path) -> None:
    assert run(photos, tmp_path / "all", "--no-shuffle", "--extensions", "jpg") == 0
    assert [record.id for record in records(tmp_path / "all")] == list(range(20))
    assert [line[2] for line in listed(tmp_path / "all")][9:11] == ["cat/9.jpg", "dog/old/0.JPG"]


def test_a_link_to_a_folder_above_ends(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "loop").symlink_to(photos)
    (photos / "fox").symlink_to(photos / "dog")
    assert run(photos, tmp_path / "all") == 0
    assert len(records(tmp_path / "all")) == 60


@pytest.mark.parametrize("linked", ["folder", "folder inside", "file", "outside"])
def test_links_that_make_an_image_of_two_classes_are_said(
    photos: Path, tmp_path: Path, linked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if linked == "folder":
        (photos / "fox").symlink_to(photos / "dog")
    elif linked == "folder inside":
        (photos / "cat" / "more").symlink_to(photos / "elk")
    elif linked == "file":
        (photos / "cat" / "x.png").symlink_to(photos / "dog" / "1.png")
    else:
        save(tmp_path / "elsewhere" / "1.png", picture())
        for name in ("fox", "gnu"):
            (photos / name).symlink_to(tmp_path / "elsewhere")
    assert run(photos, tmp_path / "out") == 0
    said = "".join(line for line in capsys.readouterr().out.splitlines() if "two labels" in line)
    pair = {
        "folder": "fox/0.png and dog/0.png are one file",
        "folder inside": "elk/0.jpeg and cat/more/0.jpeg are one file",
        "file": "dog/1.png and cat/x.png are one file",
        "outside": "gnu/1.png and fox/1.png are one file",
    }[linked]
    assert pair in said


def test_links_within_a_class_or_out_of_the_folder_are_fine(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "elsewhere" / "1.png", picture())
    (photos / "fox").symlink_to(tmp_path / "elsewhere")
    (photos / "dog" / "again").symlink_to(photos / "dog" / "old")
    assert run(photos, tmp_path / "out") == 0
    assert "two labels" not in capsys.readouterr().out


@pytest.mark.parametrize("mark", ["\t", "\n", "\r"])
def test_a_class_whose_name_breaks_the_file_of_classes_is_refused(
    photos: Path, tmp_path: Path, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(photos / f"x{mark}y" / "1.jpg", picture())
    assert run(photos, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert f"the class folder {f'x{mark}y'!r} has a TAB or line break in its name" in error
    assert "rename it" in error


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["1.jpg", "2.jpg"], "2 images but none in a class folder"),
        (["cat/1.bmp"], "1 .bmp"),
        ([], "no images"),
    ],
)
def test_folders_without_classes(
    tmp_path: Path, files: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").mkdir()
    for name in files:
        save(tmp_path / "source" / name, picture())
    assert run(tmp_path / "source", tmp_path / "out") == 1
    assert message in capsys.readouterr().err
    assert names(tmp_path) == set()


def test_list(photos: Path, tmp_path: Path) -> None:
    good = ["\ufeff7 \t 1.5 \t cat/0.jpg ", "", "9\t2\tcat/1.jpg"]
    bad = ["x\t2\tcat/2.jpg", "1\tcat/3.jpg", "1\tnan\tcat/4.jpg", "1\t1e39\tcat/4.jpg", "-1\t1\tcat/5.jpg"]
    lines = [*good, *bad, "3\t1\tcat/none.jpg"]
    (tmp_path / "in.lst").write_text("\n".join(lines), encoding="utf-8")
    assert run(tmp_path / "in.lst", tmp_path / "out", "--root", photos, "--no_shuffle") == 0
    assert [(record.id, record.label.tolist()) for record in records(tmp_path / "out")] == [(7, [1.5]), (9, [2])]
    assert listed(tmp_path / "out") == [["7", "1.5", "cat/0.jpg"], ["9", "2", "cat/1.jpg"]]
    skipped = [line.split("\t") for line in (tmp_path / "out.skipped.txt").read_text().splitlines()]
    assert [path for path, _ in skipped] == [f"in.lst line {n}" for n in (4, 5, 6, 7, 8)] + ["cat/none.jpg"]
    assert "2 field(s)" in skipped[1][1]
    assert "No such file" in skipped[5][1]
    assert not (tmp_path / "out.classes.txt").exists()


def test_a_list_with_windows_paths_says_what_to_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "a/1.png", picture())
    (tmp_path / "photos.lst").write_text("0\t0\ta\\1.png\n")
    assert run(tmp_path / "photos.lst", tmp_path / "out") == 1
    assert r"a\1.png: cannot be read (No such file or directory; its folders are to be divided by / and not by \)" in (
        capsys.readouterr().err
    )


def test_several_labels(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "in.lst").write_text("0\t1\t0.1\t-3\tcat/0.jpg\n1\t4\t5\t6\tcat/1.jpg\n")
    assert run(photos / "in.lst", photos / "out", "--no-shuffle", "--pack-label", "--label-width", 3) == 0
    first, second = records(photos / "out")
    assert (first.flag, second.flag) == (3, 3)
    np.testing.assert_array_equal(first.label, np.array([1, 0.1, -3], np.float32))
    assert np.float32(listed(photos / "out")[0][2]) == np.float32(0.1)
    assert run(photos / "in.lst", photos / "two", "--label-width", 2) == 1
    assert "line 1: 3 label(s), but --label-width is 2" in capsys.readouterr().err


def test_differing_labels(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "in.lst").write_text("0\t1\tcat/0.jpg\n1\t4\t5\tcat/1.jpg\n")
    assert run(photos / "in.lst", photos / "out") == 1
    assert "line 2: 2 label(s), but line 1 has 1" in capsys.readouterr().err
    assert run(photos / "in.lst", photos / "out", "--variable-labels", "--no-shuffle") == 0
    assert [record.label.tolist() for record in records(photos / "out")] == [[1], [4, 5]]


def test_list_only_then_pack(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "empty.jpg").touch()
    assert run(photos, tmp_path / "some", "--list", "--train-ratio", 0.5, "--val-ratio", 0.5) == 0
    assert names(tmp_path) == {"some_train.lst", "some_val.lst", "some.classes.txt"}
    assert run(tmp_path / "some_train.lst", tmp_path / "packed", "--root", photos) == 0
    packed, planned = ({line[0] for line in listed(tmp_path / name)} for name in ("packed", "some_train"))
    assert packed <= planned


# ---- split and chunks


@settings(deadline=None, max_examples=200)
@given(
    labels=st.lists(st.integers(0, 6), max_size=120),
    seed=st.integers(0, 9),
    hundredths=st.lists(st.integers(0, 40), min_size=1, max_size=3),
)
def test_split_is_stratified_complete_and_disjoint(labels: list[int], hundredths: list[int], seed: int) -> None:
    ratios = [share / 100 for share in hundredths if sum(hundredths) <= 100] or [0.7, 0.3]
    if not sum(ratios):
        ratios = [1.0]
    parts = split(labels, ratios, seed)
    assert sorted(position for part in parts for position in part) == list(range(len(labels)))
    assert parts == split(labels, ratios, seed)
    for label, count in Counter(labels).items():
        for ratio, part in zip([*ratios, 1 - sum(ratios)], parts, strict=True):
            assert abs(sum(labels[position] == label for position in part) - ratio * count) < 1 + 1e-9


@settings(deadline=None, max_examples=50)
@given(count=st.integers(1, 300), seed=st.integers(0, 9))
def test_split_of_labels_that_are_all_different(count: int, seed: int) -> None:
    train, validation, unused = split([(number / 7, 1.0) for number in range(count)], [0.8, 0.2], seed)
    assert (abs(len(train) - 0.8 * count) < 1, abs(len(validation) - 0.2 * count) < 1, unused) == (True, True, [])


def test_split_depends_on_the_seed() -> None:
    assert split([0] * 50, [0.5], 1) != split([0] * 50, [0.5], 2)


def test_ratios_and_chunks(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(photos, tmp_path / "a", "--train-ratio", 0.6, "--validation-ratio", 0.2, "--test-ratio=0.1", "--chunks", 2)
        == 0
    )
    prefixes = [tmp_path / f"a_{part}_{n}" for part in ("train", "val", "test") for n in (0, 1)]
    assert [len(records(prefix)) for prefix in prefixes] == [12, 12, 4, 4, 2, 2]
    paths = [line[2] for prefix in prefixes for line in listed(prefix)]
    assert len(set(paths)) == len(paths) == 36
    assert "unused: 4 images" in capsys.readouterr().out
    assert not (tmp_path / "a.rec").exists()


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("--train-ratio 0 --validation-ratio 1", "a_val"),
        ("--validation-ratio 0.3333333333333333", "a_train"),
        ("--train-ratio 0.5", "a_train"),
        ("--train-ratio 1", "a"),
    ],
)
def test_names_of_parts(photos: Path, tmp_path: Path, flags: str, name: str) -> None:
    assert run(photos, tmp_path / "a", *flags.split()) == 0
    assert (tmp_path / f"{name}.rec").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--train-ratio 0.9 --test-ratio 0.2", "add up to 1.1"),
        ("--test-ratio 1.2", "not all from 0 to 1"),
        ("--train-ratio nan", "not all from 0 to 1"),
        ("--train-ratio 0", "add up to 0"),
        ("--validation-ratio 0.01 --chunks 2", "0 image(s) for 2 file(s)"),
        ("--chunks 50", "40 image(s) for 50 file(s)"),
        ("--quality 101", "1 to 100"),
        ("--quality 95 --encoding .png", "0 to 9"),
        ("--pass-through --resize 8 --quality 90", "--quality, --resize"),
        ("--pass-through --center-crop", "--center-crop"),
        ("--root /", "--root is for .lst files"),
        ("--label-width 2", "1 label(s), but --label-width is 2"),
    ],
)
def test_refused(photos: Path, tmp_path: Path, flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(photos, tmp_path / "out", *flags.split()) == 1
    assert message in capsys.readouterr().err
    assert names(tmp_path) == set()


def test_im2rec_argument_order_is_explained(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "out", photos) == 1
    assert "here SOURCE is first" in capsys.readouterr().err


# ---- images


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ("", (80, 120, 3)),
        ("--resize 32", (32, 48, 3)),
        ("--resize 100", (100, 150, 3)),
        ("--center-crop", (80, 80, 3)),
        ("--center-crop --resize 7", (7, 7, 3)),
        ("--color gray --encoding .png", (80, 120)),
        ("--color 0", (80, 120)),
        ("--color -1", (80, 120, 3)),
    ],
)
def test_sizes_and_channels(tmp_path: Path, flags: str, shape: tuple[int, ...]) -> None:
    save(tmp_path / "in/a/1.jpg", picture(80, 120))
    assert run(tmp_path / "in", tmp_path / "out", *flags.split()) == 0
    assert pixels(records(tmp_path / "out")[0]).shape == shape


def test_pixels_survive(tmp_path: Path) -> None:
    colour, gray, alpha = picture(), picture(channels=1), picture(channels=4)
    for name, image in (("colour", colour), ("gray", gray), ("alpha", alpha)):
        save(tmp_path / f"in/{name}/1.png", image)
    assert run(tmp_path / "in", tmp_path / "rgb", "--encoding", ".png", "--no-shuffle") == 0
    assert run(tmp_path / "in", tmp_path / "same", "--encoding", ".png", "--no-shuffle", "--color", "unchanged") == 0
    assert run(tmp_path / "in", tmp_path / "jpg", "--no-shuffle", "--color", "unchanged") == 0
    expected = [alpha, colour, gray]
    for record, image in zip(records(tmp_path / "same"), expected, strict=True):
        np.testing.assert_array_equal(pixels(record), image)
    np.testing.assert_array_equal(pixels(records(tmp_path / "rgb")[1]), colour)
    assert [pixels(record).shape[2:] for record in records(tmp_path / "rgb")] == [(3,)] * 3
    assert [pixels(record).shape[2:] for record in records(tmp_path / "jpg")] == [(3,), (3,), ()]


@pytest.mark.parametrize(
    ("flags", "said", "kind", "count"),
    [("", "the upper 8", "jpeg", 2), ("--pass-through", "a run uses the upper 8", "png of 16 bits", 1)],
)
def test_images_of_16_bits_are_told(
    tmp_path: Path, flags: str, said: str, kind: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "in/a/deep.png", np.full((4, 4), 51_400, np.uint16))
    save(tmp_path / "in/a/plain.png", np.full((4, 4), 200, np.uint8))
    assert run(tmp_path / "in", tmp_path / "out", *flags.split()) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "16 bits" in line)
    assert line.startswith("1 images have 16 bits a channel: ")
    assert said in line
    assert verify(str(tmp_path / "out.rec")).tally.kinds[kind] == count


def test_a_large_jpeg_is_reduced_as_well_as_resized(tmp_path: Path) -> None:
    save(tmp_path / "in/a/1.jpg", picture(800, 1200))
    assert run(tmp_path / "in", tmp_path / "out", "--resize", 50, "--quality", 100) == 0
    exact = cv2.resize(picture(800, 1200), (75, 50), interpolation=cv2.INTER_AREA)
    found = pixels(records(tmp_path / "out")[0])
    assert found.shape == (50, 75, 3)
    assert np.abs(found.astype(int) - exact).mean() < 3


def test_pass_through_keeps_the_bytes(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff no image")
    (photos / "cat" / "empty.jpg").touch()
    (photos / "dog" / "broken.png").write_bytes(b"no image at all")
    assert run(photos, tmp_path / "out", "--pass_through") == 0
    assert len((tmp_path / "out.skipped.txt").read_text().splitlines()) == 3
    for record, line in zip(records(tmp_path / "out"), listed(tmp_path / "out"), strict=True):
        assert record.image == (photos / line[2]).read_bytes()


@pytest.mark.parametrize("kind", [".jpg", ".png"])
def test_pass_through_packs_no_image_that_is_cut_short(photos: Path, tmp_path: Path, kind: str) -> None:
    whole = cv2.imencode(kind, picture(200, 300))[1].tobytes()
    (photos / "cat" / f"cut{kind}").write_bytes(whole[: len(whole) * 2 // 3])
    assert run(photos, tmp_path / "out", "--pass-through") == 0
    (skipped,) = (tmp_path / "out.skipped.txt").read_text().splitlines()
    assert skipped.startswith(f"cat/cut{kind}\tthe image: the image cannot be decoded")


@pytest.mark.skipif(not JPEGS.exists(), reason="needs the JPEG samples")
def test_other_peoples_jpegs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").symlink_to(JPEGS)
    assert run(tmp_path / "in", tmp_path / "out", "--encoding", ".png", "--no-shuffle") == 0
    skipped = (tmp_path / "out.skipped.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in skipped] == ["a/truncated_jpeg.jpg"]
    paths = [line[2] for line in listed(tmp_path / "out")]
    images = {path: pixels(record) for path, record in zip(paths, records(tmp_path / "out"), strict=True)}
    upright = images["a/hopper.jpg"].astype(int)
    for orientation in (2, 3, 6, 8):
        turned = images[f"a/hopper_orientation_{orientation}.jpg"].astype(int)
        assert np.abs(turned - upright).mean() < 12
    assert run(tmp_path / "in", tmp_path / "raw", "--pass-through") == 0
    assert [line.split("\t")[0] for line in (tmp_path / "raw.skipped.txt").read_text().splitlines()] == [
        "a/truncated_jpeg.jpg"
    ]
    assert len(records(tmp_path / "raw")) == len(list(JPEGS.glob("*.jpg"))) - 1


# ---- what is skipped


def test_strict_writes_nothing(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "cat" / "gone.jpg").symlink_to("nowhere")
    (photos / "cat" / "folder.jpg").mkdir()
    os.mkfifo(photos / "cat" / "pipe.jpg")
    assert run(photos, tmp_path / "out", "--strict") == 1
    error = capsys.readouterr().err
    assert "2 skipped" in error
    assert "cat/gone.jpg: cannot be read" in error
    assert names(tmp_path) == set()
    assert run(photos, tmp_path / "out") == 0
    assert (tmp_path / "out.skipped.txt").read_text().count("\n") == 2


def test_a_label_that_a_record_cannot_hold_is_skipped_by_name(photos: Path, tmp_path: Path) -> None:
    """Identities of people, as a list has them; 16777216 is a float32 number, 16777217 is not, and 1e30 neither."""
    image = next(photos.rglob("*.jpg")).relative_to(photos)
    labels = ["16777216", "16777217", "25130987", "1e30", "0.1", "-3"]
    source = photos / "ids.lst"
    source.write_text("".join(f"{number}\t{label}\t{image}\n" for number, label in enumerate(labels)))
    assert run(source, tmp_path / "ids", "--no-shuffle") == 0
    assert [record.label for record in records(tmp_path / "ids")] == pytest.approx([2**24, 0.1, -3])
    skipped = (tmp_path / "ids.skipped.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in skipped] == ["ids.lst line 2", "ids.lst line 3", "ids.lst line 4"]
    assert "the label 25130987 would become another number: records have float32 labels" in skipped[1]


def test_everything_skipped_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.lst").write_text("0\t1\tnone.jpg\n")
    assert run(tmp_path / "in.lst", tmp_path / "out") == 1
    assert "none.jpg" in capsys.readouterr().err
    assert names(tmp_path) == {"in.lst"}


def test_names_that_are_no_text(photos: Path, tmp_path: Path) -> None:
    os.rename(photos / "cat/0.jpg", os.fsencode(photos) + b"/cat/\xe9.jpg")
    os.rename(photos / "cat/1.jpg", photos / "cat/a\tb.jpg")
    assert run(photos, tmp_path / "out") == 0
    assert b"cat/\xe9.jpg" in (tmp_path / "out.lst").read_bytes()
    assert "TAB" in (tmp_path / "out.skipped.txt").read_text()
    assert run(tmp_path / "out.lst", tmp_path / "again", "--root", photos) == 0
    assert len(records(tmp_path / "again")) == 39


# ---- files


def test_overwriting(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "cat" / "empty.jpg").touch()
    assert run(photos, tmp_path / "out") == 0
    before = (tmp_path / "out.rec").read_bytes()
    assert run(photos, tmp_path / "out", "--color", "gray") == 1
    assert "out.rec exists (and 4 more); give --overwrite" in capsys.readouterr().err
    assert (tmp_path / "out.rec").read_bytes() == before
    (photos / "cat" / "empty.jpg").unlink()
    assert run(photos, tmp_path / "out", "--color", "gray", "--overwrite") == 0
    assert (tmp_path / "out.rec").read_bytes() != before
    assert names(tmp_path) == {"out.rec", "out.idx", "out.lst", "out.classes.txt"}


def test_the_list_that_is_read_is_never_overwritten(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "in.lst").write_text("0\t1\tcat/0.jpg\n")
    assert run(photos / "in.lst", photos / "in", "--overwrite") == 1
    assert "in_packed" in capsys.readouterr().err


def test_no_such_folder(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(photos, tmp_path / "none" / "out") == 1
    assert "does not exist; create it" in capsys.readouterr().err


def test_full_disk(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        assert run(photos, tmp_path / "out", "--quality", 100) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    error = capsys.readouterr().err
    assert "cannot be written" in error
    assert "(File too large)" in error
    assert ".out." not in error
    assert names(tmp_path) == set()


# ---- processes


@pytest.mark.timeout(60)
def test_the_files_do_not_depend_on_the_workers(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "empty.jpg").touch()
    flags = ("--resize", 30, "--validation-ratio", 0.25, "--seed", 5)
    for workers in (1, 4):
        (tmp_path / str(workers)).mkdir()
        assert run(photos, tmp_path / str(workers) / "out", *flags, "--workers", workers) == 0
    first, other = ({path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in ("1", "4"))
    assert len(first) == 8
    assert first == other


@pytest.mark.timeout(60)
def test_ctrl_c_leaves_nothing(photos: Path, tmp_path: Path) -> None:
    big = save(photos / "big/0.jpg", picture(1500, 1500))
    for number in range(1, 400):
        (photos / f"big/{number}.jpg").symlink_to(big)
    command = [sys.executable, "-m", "raymx.pack", str(photos), str(tmp_path / "out"), "--workers", "2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # tests in the background inherit "ignored"
    while not any(path.name.startswith(".out.") for path in tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(1)  # for the processes to start, so that the signal reaches them too
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=20)  # ends when the last process has closed stdout
    assert (process.returncode, *output) == (130, "", "raymx: interrupted; nothing was written\n")
    assert names(tmp_path) == set()


# ---- arrays


def test_arrays(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)
    assert pack_arrays(images, np.arange(5), tmp_path / "rgb.rec", ids=[9, 8, 7, 6, 5]) == 5
    found = records(tmp_path / "rgb")
    assert [(r.id, r.flag, r.label.tolist()) for r in found] == [(9 - n, 0, [n]) for n in range(5)]
    np.testing.assert_array_equal(np.stack([pixels(record)[..., ::-1] for record in found]), images)
    for gray in (images[..., 0], images[..., :1]):
        pack_arrays(gray, np.ones((5, 2)), tmp_path / "gray.rec", overwrite=True)
        np.testing.assert_array_equal(np.stack([pixels(r) for r in records(tmp_path / "gray")]), images[..., 0])
    assert records(tmp_path / "gray")[0].flag == 2
    with pytest.raises(DataError, match="overwrite"):
        pack_arrays(images, np.arange(5), tmp_path / "rgb.rec")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 4, 4)), [0, 1], "must be uint8"),
        (np.zeros((2, 4, 4, 2), np.uint8), [0, 1], r"\(n, H, W, 3\)"),
        (np.zeros((0, 4, 4), np.uint8), [], "no pixels"),
        (np.zeros((2, 4, 4), np.uint8), [0, 1, 2], r"must be \(2,\)"),
        (np.zeros((2, 4, 4), np.uint8), [0, np.nan], "finite"),
        (np.zeros((2, 4, 4), np.uint8), [2**24, 2**24 + 1], "label 16777217 would become another number"),
    ],
)
def test_wrong_arrays(tmp_path: Path, images: np.ndarray, labels: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        pack_arrays(images, labels, tmp_path / "out.rec")
    assert names(tmp_path) == set()


# ---- MXNet reads it


def test_mxnet_reads_it(photos: Path, tmp_path: Path) -> None:
    mx = pytest.importorskip("mxnet")
    assert run(photos, tmp_path / "out") == 0
    expected = [float(line[1]) for line in listed(tmp_path / "out")]
    rec, idx = str(tmp_path / "out.rec"), str(tmp_path / "out.idx")
    dataset = mx.gluon.data.vision.ImageRecordDataset(rec)
    assert [float(dataset[n][1]) for n in range(len(dataset))] == expected
    reader = mx.recordio.MXIndexedRecordIO(idx, rec, "r")
    key = int(listed(tmp_path / "out")[3][0])
    header, image = mx.recordio.unpack_img(reader.read_idx(key))
    assert (header.id, header.label, image.shape) == (key, expected[3], (40, 60, 3))
    batches = mx.io.ImageRecordIter(path_imgrec=rec, path_imgidx=idx, data_shape=(3, 40, 60), batch_size=8)
    assert [float(label) for batch in batches for label in batch.label[0].asnumpy()] == expected


def test_mxnet_reads_several_labels(photos: Path) -> None:
    mx = pytest.importorskip("mxnet")
    (photos / "in.lst").write_text("".join(f"{n}\t{n}\t{n + 0.5}\tcat/{n}.jpg\n" for n in range(4)))
    assert run(photos / "in.lst", photos / "out", "--no-shuffle") == 0
    rec = str(photos / "out.rec")
    batch = next(mx.io.ImageRecordIter(path_imgrec=rec, data_shape=(3, 40, 60), batch_size=4, label_width=2))
    assert batch.label[0].asnumpy().tolist() == [[n, n + 0.5] for n in range(4)]
