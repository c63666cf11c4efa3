"""Classes that are numbered differently beside the files of one experiment; and `pack --classes`."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from factories import make_experiment

from raymx.data.pipeline.planning import Share
from raymx.data.pipeline.worker_data import WorkerData
from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.errors import DataError, ExperimentError
from raymx.experiment import class_files
from raymx.experiment.loading import check_files
from raymx.pack import main

IMAGE = cv2.imencode(".png", np.zeros((8, 8, 3), np.uint8))[1].tobytes()


def folders(source: Path, *names: str) -> Path:
    for name in names:
        (source / name).mkdir(parents=True)
        for number in range(2):
            (source / name / f"{number}.png").write_bytes(IMAGE)
    return source


def test_where_the_classes_of_a_file_are_said() -> None:
    assert class_files.names_beside("/d/photos_train_0.rec") == [
        "/d/photos_train_0.classes.txt",
        "/d/photos_train.classes.txt",
        "/d/photos.classes.txt",
    ]
    assert class_files.names_beside("/d/a.rec") == ["/d/a.classes.txt"]
    assert class_files.names_beside("s3://b/a_val.rec?region=x") == [
        "s3://b/a_val.classes.txt?region=x",
        "s3://b/a.classes.txt?region=x",
    ]


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("0\ta\n1\tb\n2\tc\n", "0\ta\n1\tc\n", "label 1 is b in the one and c in the other"),
        ("0\ta\n1\tb\n", "0\ta\n2\tb\n", "b is label 1 in the one and 2 in the other"),
        ("0\ta\n1\tb\n", "0\ta\n1\tb\n2\tc\n", None),
        ("0\ta\r\n1\tb\r\n", "0\ta\n1\tb", None),
    ],
)
def test_what_is_numbered_differently(one: str, other: str, reason: str | None) -> None:
    assert class_files.conflict(class_files.parse(one), class_files.parse(other)) == reason


def packed(tmp_path: Path, *flags: str) -> None:
    for name, classes in (("train", "abc"), ("val", "ac")):
        source = folders(tmp_path / name, *classes)
        assert main([str(source), str(tmp_path / f"of_{name}"), "--workers", "1", *flags]) == 0


def test_a_run_whose_classes_differ_is_refused_and_both_are_named(tmp_path: Path) -> None:
    packed(tmp_path)
    given = {"train": "of_train.rec", "validation": "of_val.rec", "image_shape": [3, 8, 8]}
    experiment = make_experiment(directory=tmp_path, data=given)
    with pytest.raises(ExperimentError) as caught:
        check_files(experiment)
    text = str(caught.value)
    assert f"data.train has {tmp_path}/of_train.classes.txt and data.validation {tmp_path}/of_val.classes.txt" in text
    assert "label 1 is b in the one and c in the other" in text
    assert "--classes" in text
    assert "\n" not in text
    uris = {key: f"file://{tmp_path}/{given[key]}" for key in ("train", "validation")}
    there = make_experiment(directory=tmp_path, data={**given, **uris})
    check_files(there)  # the machine that starts a run may not read them
    with pytest.raises(DataError, match=r"of_train\.classes\.txt and .*of_val\.classes\.txt"):
        _ = WorkerData(there, Share(0, 1, 1), lambda *_: iter(())).plan  # type: ignore[arg-type, return-value]


def test_several_files_of_one_split_are_compared_too(tmp_path: Path) -> None:
    packed(tmp_path)
    with pytest.raises(ExperimentError, match="which number classes differently"):
        check_files(make_experiment(directory=tmp_path, data={"train": "of_*.rec", "image_shape": [3, 8, 8]}))


def test_one_list_of_names_numbers_all_sets_alike(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("c\nb\r\n\na\nz\n")
    packed(tmp_path, "--classes", str(tmp_path / "names"))
    for name in ("train", "val"):
        assert (tmp_path / f"of_{name}.classes.txt").read_text() == "0\tc\n1\tb\n2\ta\n3\tz\n"
    labels = {line.split("\t")[2][0]: line.split("\t")[1] for line in (tmp_path / "of_val.lst").open()}
    assert labels == {"c": "0", "a": "2"}
    data = {"train": "of_train.rec", "validation": "of_val.rec", "image_shape": [3, 8, 8]}
    check_files(make_experiment(directory=tmp_path, data=data))


def test_the_classes_of_another_set_are_such_a_list(tmp_path: Path) -> None:
    source = folders(tmp_path / "some", "b")
    (tmp_path / "first.classes.txt").write_text("0\ta\n1\tb\n")
    assert main([str(source), str(tmp_path / "x"), "--workers", "1", "--classes", f"{tmp_path}/first.classes.txt"]) == 0
    assert (tmp_path / "x.classes.txt").read_text() == "0\ta\n1\tb\n"
    assert {line.split("\t")[1] for line in (tmp_path / "x.lst").open()} == {"1"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a\n", "the class folders b, c are not among the 1 names of --classes"),
        ("a\nb\na\nc\n", "a is there twice"),
        ("", "it has no name"),
        ("1\ta\n2\tb\n", "the labels 1, 2 do not count from 0"),
        ("a\nb\tx\nc\n", "has a TAB"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "a Git LFS pointer: git lfs pull"),
    ],
)
def test_lists_that_cannot_be(tmp_path: Path, names: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = folders(tmp_path / "some", *"abc")
    (tmp_path / "names").write_text(names)
    assert main([str(source), str(tmp_path / "x"), "--classes", str(tmp_path / "names")]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert not (tmp_path / "x.rec").exists()


def test_no_list_of_names_for_a_list_of_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.lst").write_text("0\t1\tx.png\n")
    assert main([str(tmp_path / "a.lst"), str(tmp_path / "x"), "--classes", str(tmp_path / "names")]) == 1
    assert "--classes is for class folders" in capsys.readouterr().err


def test_records_without_a_file_of_classes_are_fine(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with RecordIOWriter(tmp_path / f"{name}.rec") as writer:
            writer.write(pack(0, IMAGE))
    (tmp_path / "a.classes.txt").write_text("0\tx\n")
    check_files(make_experiment(directory=tmp_path, data={"train": "a.rec", "validation": "b.rec"}))
