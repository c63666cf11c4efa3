"""Files that are not what their names say: pointers of Git LFS, pages of servers, empty and foreign ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from factories import make_experiment

from raymx.data.__main__ import main as data_main
from raymx.data.recordio.framing import MAGIC, MAGIC_BYTES
from raymx.data.recordio.record import RecordIOWriter, index_of, pack, scan
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError, ExperimentError
from raymx.experiment.loading import check_files
from raymx.pack import main as pack_main
from raymx.run import main as run_main
from raymx.storage import kind_of, placeholder_of

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
SAID = "a Git LFS pointer: git lfs pull"


def good(path: Path) -> None:
    with RecordIOWriter(path) as writer:
        for label in range(3):
            writer.write(pack(label, b"an image"))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (POINTER, SAID),
        (b"/annex/objects/MD5E-s1--abc.rec\n", "git annex get"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code>', "an error message of a server"),
        (b"0\t0\n1\t5000\n", "an index (.idx)"),
        (b"0\t3.000000\ta/b.jpg\n", "a list of images (.lst)"),
        (b"\x1f\x8b\x08\0", "unpack it"),
        (b"PK\x03\x04", "unpack it"),
        (b"\x89PNG\r\n", "an image"),
        (b"\x93NUMPY\x01", "pack_arrays"),
        (bytes(200), "a file of zeros"),
    ],
)
def test_kinds(head: bytes, kind: str) -> None:
    assert kind in str(kind_of(head))


@pytest.mark.parametrize("head", [b"", b"x", MAGIC_BYTES + bytes(200), b"import mxnet as mx\n", b"\xff\xd8", bytes(20)])
def test_what_is_not_known_is_not_named(head: bytes) -> None:
    assert kind_of(head) is None
    assert placeholder_of(b"0\t1\n") is None  # as a file of classes may begin


def test_the_magic_is_dmlc_cores() -> None:
    assert MAGIC == 0xCED7230A


def problems(folder: Path, **data: Any) -> str:
    try:
        check_files(make_experiment(directory=folder, data={"image_shape": [3, 8, 8], **data}))
    except ExperimentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("train", ["b.rec", "*.rec", ".", ["a.rec", "b.rec"]])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (POINTER, SAID),
        (b"<html>", "a web page"),
        (b"", "b.rec is empty"),
        (b"foreign" * 9, "it begins with 666f7265"),
    ],
)
@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_file_of_another_kind_is_named_before_ray_starts(
    tmp_path: Path, train: Any, content: bytes, reason: str, split: str
) -> None:
    good(tmp_path / "a.rec")
    (tmp_path / "b.rec").write_bytes(content)
    text = problems(tmp_path, **{"train": "a.rec", split: train})
    assert text.startswith(f"data.{split} is ")
    assert "\n" not in text
    assert f"{tmp_path}/b.rec is" in text
    assert reason in text


def test_what_a_run_may_skip_is_left_to_it(tmp_path: Path) -> None:
    good(tmp_path / "a.rec")
    (tmp_path / "b.rec").write_bytes(b"foreign" * 9)
    (tmp_path / "c.rec").touch()
    assert problems(tmp_path, train=".", on_bad_record="skip") == ""
    assert "c.rec is empty" in problems(tmp_path, train="c.rec", on_bad_record="skip")
    (tmp_path / "c.rec").write_bytes(POINTER)  # is no damage: the records are elsewhere
    assert SAID in problems(tmp_path, train=".", on_bad_record="skip")


def test_dry_run_refuses_a_folder_with_such_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records").mkdir()
    good(tmp_path / "records" / "a.rec")
    (tmp_path / "records" / "b.rec").write_bytes(POINTER)
    (tmp_path / "x.yaml").write_text(
        "name: x\nmodel: {net: alexnet, classes: 3}\ndata: {train: records, image_shape: [3, 8, 8]}\n"
    )
    assert run_main([str(tmp_path / "x.yaml"), "--dry-run"]) != 0
    assert f"{tmp_path}/records/b.rec is no RecordIO file, but {SAID}" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("on_bad", ["fail", "skip"])
def test_a_pointer_among_records_is_never_skipped(tmp_path: Path, scheme: str, on_bad: Any) -> None:
    good(tmp_path / "a.rec")
    (tmp_path / "b.rec").write_bytes(POINTER)
    with pytest.raises(DataError, match=r"b\.rec.* no RecordIO file, but a Git LFS pointer: git lfs pull"):
        RecordSet.open([f"{scheme}{tmp_path}"], on_bad)


def test_a_pointer_in_place_of_an_index_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good(tmp_path / "a.rec")
    (tmp_path / "a.idx").write_bytes(POINTER)
    with caplog.at_level(logging.WARNING):
        assert len(index_of(str(tmp_path / "a.rec"))) == 3
    assert f"is not used: it is {SAID}" in caplog.text


def test_verify_names_the_kind_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good(tmp_path / "a.rec")
    (tmp_path / "b.rec").write_bytes(POINTER)
    assert data_main(["verify", "--quick", str(tmp_path / "b.rec"), str(tmp_path / "a.rec")]) == 1
    out = capsys.readouterr().out
    assert f"byte 0: no RecordIO file, but {SAID}" in out
    assert "1 file" not in out
    assert "3 whole records" in out
    assert "git lfs" in scan(str(tmp_path / "b.rec"), "skip").problems[0].reason


def test_a_pointer_in_place_of_a_transform_or_a_list_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good(tmp_path / "a.rec")
    (tmp_path / "changes.py").write_bytes(POINTER)
    assert SAID in problems(tmp_path, train="a.rec", transform="changes:less")
    (tmp_path / "a.lst").write_bytes(POINTER)
    assert pack_main([str(tmp_path / "a.lst"), str(tmp_path / "out")]) == 1
    assert SAID in capsys.readouterr().err
