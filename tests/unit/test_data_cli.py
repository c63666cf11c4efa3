"""``python -m raymx.data``: exit codes, what is printed, and the files it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from raymx.data.__main__ import main
from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.data.tools import verify as verify_module


def image(number: int, kind: str = ".png", channels: int = 3) -> bytes:
    pixels = np.full((8, 10 + number % 2, channels), number % 251, np.uint8)
    return bytes(cv2.imencode(kind, pixels)[1].tobytes())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four PNG images of two sizes and two JPEG images, one with two labels; with an .idx."""
    payloads = [pack(n, image(n), n) for n in range(4)]
    payloads += [pack(4, image(4, ".jpg", 1), 4), pack([5, 0.5], image(5, ".jpg"), 5)]
    with RecordIOWriter(tmp_path / "a.rec", tmp_path / "a.idx") as writer:
        for number, payload in enumerate(payloads):
            writer.write(payload, key=100 + number)
    return tmp_path / "a.rec"


def spoil(path: Path) -> int:
    """Damage the second image, not its record; returns the record's offset."""
    offset = int(path.with_suffix(".idx").read_text().splitlines()[1].split()[1])
    data = bytearray(path.read_bytes())
    data[offset + 8 + 24 : offset + 8 + 32] = b"no image"
    path.write_bytes(data)
    return offset


def test_alone_it_helps_and_exits_2() -> None:
    result = subprocess.run([sys.executable, "-m", "raymx.data"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert all(command in result.stdout for command in ("verify", "index", "show"))


@pytest.mark.parametrize("arguments", [["verify"], ["other", "x"], ["show", "x", "--count", "0"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "index", "show"):
        assert main([command, str(tmp_path / "gone.rec")]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"error: {tmp_path}/gone.rec does not exist; {tmp_path} is empty\n"


def test_verify_of_a_right_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    for part in ("6 in ", "1 (5), 2 (1)", "png (4), jpeg (2)", "8x10x3 (2)", "8x10", "8x11", "right", "none"):
        assert part in out
    assert out.splitlines()[-1] == "all right: 1 file, 6 records"


def test_verify_as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--json", f"file://{path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    (file,) = found["files"]
    assert found["right"] is True
    assert (file["records"], file["bytes"], file["index"]) == (6, path.stat().st_size, "right")
    assert file["label_widths"] == {"1": 5, "2": 1}
    assert file["kinds"] == {"png": 4, "jpeg": 2}
    assert (file["smallest"][:2], file["largest"]) == ([8, 10], [8, 11, 3])
    assert (file["num_broken"], file["broken"]) == (0, [])


def test_a_broken_image_is_found_unless_quick(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = spoil(path)
    assert main(["verify", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"byte {offset}: the image cannot be decoded" in out
    assert out.splitlines()[-1] == "NOT right: 1 broken places and 0 stale .idx; 1 file, 6 whole records"
    assert main(["verify", "--quick", str(path)]) == 0
    assert "kinds" not in capsys.readouterr().out


def test_broken_records_are_listed_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RecordIOWriter(tmp_path / "a.rec") as writer:
        for _ in range(25):
            writer.write(b"short")
    (tmp_path / "a.rec").write_bytes((tmp_path / "a.rec").read_bytes()[:-2])
    (tmp_path / "b.rec").touch()
    assert main(["verify", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum("but the record header alone has 24" in line for line in lines) == verify_module.SHOWN
    assert "    and 5 more" in lines
    assert "    byte 0: the file has no records" in lines
    assert main(["verify", "--json", str(tmp_path)]) == 1
    broken = json.loads(capsys.readouterr().out)["files"][0]["broken"]
    assert len(broken) == 25
    assert "cut short" in broken[-1]["reason"]


def test_several_processes_find_the_same(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(path)
    main(["verify", "--json", str(path)])
    alone = capsys.readouterr().out
    monkeypatch.setattr(verify_module, "MANY", 1)
    monkeypatch.setattr(verify_module, "_CHUNK", 2)
    assert main(["verify", "--json", "--workers", "2", str(path)]) == 1
    assert capsys.readouterr().out == alone


def test_index_is_written_kept_and_replaced(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = path.with_suffix(".idx")
    before = index.read_text()
    assert main(["index", str(path)]) == 0
    assert "is right; left as it is" in capsys.readouterr().out
    assert index.read_text() == before  # with keys of its own
    index.unlink()
    assert main(["verify", str(path)]) == 0
    assert main(["index", str(path)]) == 0
    assert "written, 6 records" in capsys.readouterr().out
    index.write_text(before.replace("100\t0\n", ""))
    assert main(["verify", str(path)]) == 1
    assert "stale: it lists 5 records, the file has more: byte 0 is not listed" in capsys.readouterr().out
    assert main(["index", str(path)]) == 0
    assert "replaced, 6 records (it was stale: it lists 5" in capsys.readouterr().out
    assert [line.split()[0] for line in index.read_text().splitlines()] == list("012345")


def test_no_index_of_a_damaged_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.with_suffix(".idx").unlink()
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["index", str(path)]) == 1
    assert "cut short" in capsys.readouterr().err
    assert not path.with_suffix(".idx").exists()
    assert main(["index", __file__[:-2] + "idx"]) == 1


def test_show(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(path), "--count", "2", "--start", "4"]) == 0
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["file", "key", "offset", "bytes", "labels", "id", "kind", "size"]
    assert [row[:2] for row in rows] == [["a.rec", "104"], ["a.rec", "105"]]
    assert [row[4:] for row in rows] == [["4", "4", "jpeg", "8x10x1"], ["5", "0.5", "5", "jpeg", "8x11x3"]]


def test_show_of_broken_and_random_records(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(path)
    assert main(["show", str(path), "--random"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert "the image cannot be decoded" in lines[2]
    assert main(["show", str(path), "--start", "6"]) == 1
    assert "numbered from 0 to 5" in capsys.readouterr().err


def test_contact_sheet(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(path)
    assert main(["show", str(path), "--picture", str(tmp_path / "sheet.png")]) == 0
    sheet = cv2.imread(str(tmp_path / "sheet.png"))
    assert sheet.shape == (2 * 182, 3 * 160, 3)
    assert (sheet[182 + 80, 80] == 3).all()  # record 3, in the second line
    assert (sheet[80, 160 + 80] == 255).all()  # the broken one
    assert main(["show", str(path), "--picture", str(tmp_path / "sheet.nosuch")]) == 1
    assert "use .png or .jpg" in capsys.readouterr().err


# ---- labels ----


def labelled(path: Path, labels: list[float | list[float]], kind: str = ".png") -> Path:
    with RecordIOWriter(path) as writer:
        for number, label in enumerate(labels):
            writer.write(pack(label, image(number, kind)))
    return path


@pytest.mark.parametrize(
    ("labels", "lines"),
    [
        ([2, 34, 2, 5], ["labels        2 to 34; 3 different", "2 (2), 5 (1), 34 (1)", "4 runs of equal neighbours"]),
        ([0, 0, 1, 1, 1], ["sorted, in 2 runs of equal neighbours: train with data.order global"]),
        ([7, 7, 7], ["labels        7 to 7; 1 different", "all the same, in 1 run"]),
        ([0, float("nan"), -1], ["labels        -1 to 0; 2 different; 1 not finite (NaN or infinite)"]),
        ([[0, 4], [0.5, 9]], ["labels        0 to 9"]),
        ([*range(7), 6, 0], ["most 0 (2), 6 (2), 1 (1); fewest 5 (1), 4 (1), 3 (1)"]),
    ],
)
def test_verify_shows_labels(
    tmp_path: Path, labels: list[float | list[float]], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(labelled(tmp_path / "a.rec", labels))]) == 0
    out = capsys.readouterr().out
    for line in lines:
        assert line in out


def test_labels_as_json_do_not_depend_on_the_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = labelled(tmp_path / "a.rec", [1, 1, 1, 0, 0, [1, 2], 0, 3])
    assert main(["verify", "--json", str(path)]) == 0
    alone = json.loads(capsys.readouterr().out)["files"][0]["labels"]
    assert alone == {
        "low": 0, "high": 3, "not_finite": 0, "counts": {"0": 3, "1": 3, "3": 1}, "runs": 3, "order": "sorted"
    }  # fmt: skip
    for size in (1, 2, 3):
        monkeypatch.setattr(verify_module, "_CHUNK", size)
        main(["verify", "--json", str(path)])
        assert json.loads(capsys.readouterr().out)["files"][0]["labels"] == alone


def test_labels_of_which_no_two_are_equal_are_not_counted_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_module, "COUNTED", 3)
    main(["verify", str(labelled(tmp_path / "a.rec", [0.5, 1.5, 2.5, 3.5, 9.5]))])
    out = capsys.readouterr().out
    assert "labels        0.5 to 9.5\n" in out
    assert "different" not in out


def test_records_of_others_and_without_an_image_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RecordIOWriter(tmp_path / "a.rec") as writer:
        writer.write(b"\x0a\x22\x0a\x06values\x12\x18" + bytes(70))
        writer.write(pack([1, 2], b""))
        writer.write(b"short")
    for flags in ([], ["--quick"]):
        assert main(["verify", *flags, str(tmp_path / "a.rec")]) == 1
        out = capsys.readouterr().out
        assert "byte 0: it is a protobuf record of Amazon SageMaker's" in out
        assert "announces" not in out
        assert "it has no image, only 2 labels" in out
        assert "5 bytes, but the record header alone has 24" in out
    main(["show", str(tmp_path / "a.rec")])
    assert "it has no image, only 2 labels" in capsys.readouterr().out


def test_verify_goes_on_after_a_path_that_is_missing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = str(path.with_name("gone.rec"))
    assert main(["verify", gone, str(path)]) == 1
    out, err = capsys.readouterr()
    assert "6 in " in out
    assert out.splitlines()[-1] == "NOT right: 0 broken places and 0 stale .idx, 1 not read; 1 file, 6 whole records"
    assert err.startswith(f"error: {gone} does not exist")
    assert main(["verify", "--json", gone, str(path)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["right"], len(found["files"]), len(found["missing"])) == (False, 1, 1)
