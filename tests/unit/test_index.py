"""The .idx beside a .rec: used when it is right, named when it is not, never a crash."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from raymx.data.recordio import index as index_module
from raymx.data.recordio.index import index_of, index_path, index_problem, write_index
from raymx.data.recordio.record import RecordIOWriter, scan
from raymx.errors import DataError

MAGIC = bytes.fromhex("0a23d7ce")
NUM_RECORDS = 90


def write(path: Path, count: int = NUM_RECORDS) -> list[int]:
    with RecordIOWriter(path, path.with_suffix(".idx")) as writer:
        return [writer.write(b"%03d" % n * (n % 7) + MAGIC * (n % 3), key=n) for n in range(count)]


@pytest.fixture(params=["", "file://"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    write(tmp_path / "a.rec")
    return f"{request.param}{tmp_path}/a.rec"


def lines_of(path: str) -> list[str]:
    return Path(index_path(path).removeprefix("file://")).read_text().splitlines()


def rewrite(path: str, lines: list[str]) -> None:
    Path(index_path(path).removeprefix("file://")).write_text("".join(f"{line}\n" for line in lines))


def no_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr(index_module, "scan", refuse)


def test_a_right_index_saves_the_scan(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scan(path)
    assert index_problem(path, expected) is None
    no_scan(monkeypatch)
    found = index_of(path)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    np.testing.assert_array_equal(found.sizes, expected.sizes)
    assert (found.path, found.file_bytes, found.problems) == (path, expected.file_bytes, ())
    assert found.keys is not None
    assert found.keys.tolist() == list(range(NUM_RECORDS))


def test_shuffled_lines_and_keys_with_gaps(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = [int(line.split()[1]) for line in lines_of(path)]
    keys = [7 * n + 10**12 for n in range(NUM_RECORDS)]
    lines = [f"{key}\t{offset}" for key, offset in zip(keys, offsets, strict=True)]
    rewrite(path, [lines[n] for n in np.random.default_rng(1).permutation(NUM_RECORDS)])
    no_scan(monkeypatch)
    found = index_of(path)
    assert found.keys is not None
    assert dict(zip(found.keys.tolist(), found.offsets.tolist(), strict=True)) == dict(zip(keys, offsets, strict=True))
    assert found.offsets.tolist() == offsets


def changed(lines: list[str], how: str) -> list[str]:
    """A stale .idx; the middle is line 46."""
    middle, key = len(lines) // 2, len(lines)
    return {
        "one missing": lines[:middle] + lines[middle + 1 :],
        "first missing": lines[1:],
        "last missing": lines[:-1],
        "one moved": [*lines[:middle], f"{key}\t{int(lines[middle].split()[1]) + 4}", *lines[middle + 1 :]],
        "odd": [*lines[:middle], f"{key}\t7", *lines[middle + 1 :]],
        "negative": [*lines, f"{key}\t-4"],
        "beyond": [*lines, f"{key}\t99999996"],
        "twice": [*lines, f"{key}\t0"],
        "text": [*lines[:middle], "not an index", *lines[middle + 1 :]],
        "three": [*lines[:middle], "1\t2\t3", *lines[middle + 1 :]],
        "huge": [*lines[:middle], f"{2**70}\t0", *lines[middle + 1 :]],
        "blank": [*lines[:middle], "", *lines[middle:]],
        "empty": [],
        "other file": [f"{n}\t{8 * n}" for n in range(50)],
    }[how]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("one missing", "it lists 89 records, the file has more: byte {46} is not listed"),
        ("first missing", "it lists 89 records, the file has more: byte 0 is not listed"),
        ("last missing", "it lists 89 records, the file has more: byte {90} is not listed"),
        ("one moved", "it lists 90 records, the file has more: byte {46} is not listed"),
        ("odd", "line 46 says byte 7, where no record begins"),
        ("negative", "line 91 says byte -4, where no record begins"),
        ("beyond", "line 91 says byte 99999996, where no record begins"),
        ("twice", "lines 1 and 91 both say byte 0"),
        ("text", "line 46 is not a key, a tab and an offset, but 'not an index'"),
        ("three", "line 46 is not a key"),
        ("huge", "line 46 is not a key"),
        ("blank", "line 46 is not a key"),
        ("empty", "it is empty, the file is not"),
        ("other file", "line 3 says byte 16, where no record begins"),
    ],
)
def test_a_stale_index_is_named_and_not_used(
    path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str, reason: str
) -> None:
    monkeypatch.setattr(index_module, "SAMPLE", 200)  # all
    expected, lines = scan(path), lines_of(path)
    for number in (46, 90):
        reason = reason.replace(f"{{{number}}}", lines[number - 1].split()[1])
    rewrite(path, changed(lines, how))
    with caplog.at_level(logging.WARNING):
        found = index_of(path)
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert found.keys is None
    (message,) = [record.getMessage() for record in caplog.records]
    assert reason in message
    assert message.startswith(index_path(path))
    assert f"python -m raymx.data index {path} writes a new one" in message
    assert index_problem(path, expected) is not None


@pytest.mark.parametrize("content", [b"\0\xff\xfe" * 100, b"x" * 10_000, b"1.5\t0\n", "٣\t٠x\n".encode(), b"\r\r\n"])
def test_garbage_is_never_a_crash(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    write(tmp_path / "a.rec")
    (tmp_path / "a.idx").write_bytes(content)
    assert len(index_of(str(tmp_path / "a.rec"))) == NUM_RECORDS
    assert len(caplog.records) == 1
    assert len(caplog.text) < 1000


def test_windows_line_ends_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.rec")
    (tmp_path / "a.idx").write_bytes((tmp_path / "a.idx").read_bytes().replace(b"\n", b"\r\n"))
    assert index_of(str(tmp_path / "a.rec")).keys is not None
    assert not caplog.records


def test_no_index_no_keys(path: str, caplog: pytest.LogCaptureFixture) -> None:
    Path(index_path(path).removeprefix("file://")).unlink()
    assert index_of(path).keys is None
    assert not caplog.records


def test_an_empty_file_with_and_without_an_empty_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.rec").touch()
    assert len(index_of(str(tmp_path / "a.rec"))) == 0
    (tmp_path / "a.idx").touch()
    assert len(index_of(str(tmp_path / "a.rec"))) == 0
    assert not caplog.records
    (tmp_path / "a.idx").write_text("0\t0\n")
    assert len(index_of(str(tmp_path / "a.rec"))) == 0
    assert "the file is empty" in caplog.text


def test_the_index_of_a_cut_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The damage is named, not the index, and the keys of what is whole stay."""
    offsets = write(tmp_path / "a.rec")
    data = (tmp_path / "a.rec").read_bytes()
    (tmp_path / "a.rec").write_bytes(data[:-1])
    with pytest.raises(DataError, match=f"byte {offsets[-1]}: cut short"):
        index_of(str(tmp_path / "a.rec"))
    found = index_of(str(tmp_path / "a.rec"), "skip")
    assert found.keys is not None
    assert found.keys.tolist() == list(range(NUM_RECORDS - 1))
    assert [problem.offset for problem in found.problems] == [offsets[-1]]


def test_a_large_file_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.rec", 5000)
    reads: list[int] = []
    original = index_module.record_end

    def counted(*arguments: object) -> int:
        reads.append(1)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(index_module, "record_end", counted)
    no_scan(monkeypatch)
    assert len(index_of(str(tmp_path / "a.rec"))) == 5000
    assert len(reads) == index_module.SAMPLE


def test_write_index(path: str) -> None:
    written = lines_of(path)
    rewrite(path, ["junk"])
    assert write_index(path, index_path(path)) == NUM_RECORDS
    assert lines_of(path) == written


def test_no_index_is_written_of_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"junk")
    with pytest.raises(DataError):
        write_index(str(tmp_path / "a.rec"), str(tmp_path / "a.idx"))
    assert not (tmp_path / "a.idx").exists()


def test_mxnet_reads_what_we_index(tmp_path: Path) -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    write(tmp_path / "a.rec")
    write_index(str(tmp_path / "a.rec"), str(tmp_path / "b.idx"))
    reader = recordio.MXIndexedRecordIO(str(tmp_path / "b.idx"), str(tmp_path / "a.rec"), "r")
    assert reader.read_idx(5) == b"005" * 5 + MAGIC * 2
