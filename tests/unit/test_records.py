"""Sets of files: numbering, what is skipped, fingerprints and label widths."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from raymx.data.recordio import labels
from raymx.data.recordio.record import DamagedRecord, RecordIOWriter, pack
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError

MAGIC = bytes.fromhex("0a23d7ce")


def write(path: Path, payloads: list[bytes], index: bool = False) -> list[int]:
    with RecordIOWriter(path, path.with_suffix(".idx") if index else None) as writer:
        return [writer.write(payload, key=10 * n) for n, payload in enumerate(payloads)]


def some(count: int, width: int = 0) -> list[bytes]:
    return [pack([n] * width if width else n, b"image %d" % n, n) for n in range(count)]


@pytest.fixture(params=["", "file://"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_numbers_run_over_the_files(tmp_path: Path, scheme: str) -> None:
    first, second = write(tmp_path / "a.rec", some(5)), write(tmp_path / "b.rec", some(3, width=2))
    records = RecordSet.open([f"{scheme}{tmp_path}/*.rec"])
    assert records.num_records == 8
    assert records.paths == (f"{scheme}{tmp_path}/a.rec", f"{scheme}{tmp_path}/b.rec")
    files, offsets, sizes = records.locate(np.array([7, 0, 4, 5]))
    assert files.tolist() == [1, 0, 0, 1]
    assert offsets.tolist() == [second[2], first[0], first[4], second[0]]
    assert sizes.tolist() == [8 + 24 + 8 + 8, 8 + 24 + 8, 8 + 24 + 8, 8 + 24 + 8 + 8]
    assert records.file_bytes == tuple((tmp_path / name).stat().st_size for name in ("a.rec", "b.rec"))
    assert records.problems == ()
    with pytest.raises(IndexError):
        records.locate(np.array([8]))


def test_keys_are_those_of_all_files_or_none(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", some(3), index=True)
    write(tmp_path / "b.rec", some(2), index=True)
    keys = RecordSet.open([tmp_path]).keys
    assert keys is not None
    assert keys.tolist() == [0, 10, 20, 0, 10]
    (tmp_path / "b.idx").unlink()
    assert RecordSet.open([tmp_path]).keys is None


def test_missing_and_empty_files_are_named(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "empty.rec").touch()
    for paths, message in (
        ([], "no record files"),
        ([f"{scheme}{tmp_path}/gone.rec"], "gone.rec does not exist; .* has empty.rec"),
        ([f"{scheme}{tmp_path}/gone*.rec"], "no file matches"),
        ([f"{scheme}{tmp_path}/empty.rec"], "empty.rec: the file has no records"),
    ):
        for on_bad in ("fail", "skip"):
            with pytest.raises(DataError, match=message):
                RecordSet.open(paths, on_bad)  # type: ignore[arg-type]


def test_damage_and_empty_files_are_skipped_when_asked(tmp_path: Path, scheme: str) -> None:
    offsets = write(tmp_path / "a.rec", some(5))
    data = (tmp_path / "a.rec").read_bytes()
    (tmp_path / "a.rec").write_bytes(data[:-1])
    (tmp_path / "b.rec").touch()
    write(tmp_path / "c.rec", some(2))
    with pytest.raises(DamagedRecord, match=rf"a\.rec, record at byte {offsets[4]}: cut short"):
        RecordSet.open([f"{scheme}{tmp_path}"])
    records = RecordSet.open([f"{scheme}{tmp_path}"], "skip")
    assert records.starts.tolist() == [0, 4, 4, 6]
    assert records.locate(np.array([3, 4]))[0].tolist() == [0, 2]
    assert [(path[-5:], problem.offset) for path, problem in records.problems] == [("a.rec", offsets[4]), ("b.rec", 0)]
    assert len(records.fingerprint()) == 3


def test_a_set_travels(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", some(5))
    records = pickle.loads(pickle.dumps(RecordSet.open([tmp_path])))
    assert records.num_records == 5
    error = pickle.loads(pickle.dumps(DamagedRecord("a.rec", 4, "why")))
    assert (str(error), error.path, error.offset, error.reason) == ("a.rec, record at byte 4: why", "a.rec", 4, "why")


# ---- fingerprints ----


def test_equal_files_have_equal_fingerprints(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.rec", some(200), index=name == "two")
    one, two = (RecordSet.open([tmp_path / name]).fingerprint() for name in ("one", "two"))
    assert list(one) == [str(tmp_path / "one" / "a.rec")]
    assert list(one.values()) == list(two.values())
    assert list(RecordSet.open([f"file://{tmp_path}/one"]).fingerprint().values()) == list(one.values())


@pytest.mark.parametrize("record", [0, 199])
@pytest.mark.parametrize("byte", [8, 12, 20])
def test_a_flipped_byte_in_a_sampled_header_changes_it(tmp_path: Path, scheme: str, record: int, byte: int) -> None:
    offsets = write(tmp_path / "a.rec", some(200))
    before = RecordSet.open([f"{scheme}{tmp_path}/a.rec"]).fingerprint()
    data = bytearray((tmp_path / "a.rec").read_bytes())
    data[offsets[record] + byte] ^= 1
    (tmp_path / "a.rec").write_bytes(data)
    after = RecordSet.open([f"{scheme}{tmp_path}/a.rec"]).fingerprint()
    assert before.keys() == after.keys()
    assert before != after


def test_other_records_change_it(tmp_path: Path) -> None:
    found = set()
    for payloads in (some(9), some(10), [*some(8), b"x" * 24], [*some(8), b"x" * 28], list(reversed(some(9)))):
        write(tmp_path / "a.rec", payloads)
        found.add(RecordSet.open([tmp_path / "a.rec"]).fingerprint()[str(tmp_path / "a.rec")])
    assert len(found) == 5


# ---- label widths ----


def test_label_widths(tmp_path: Path, scheme: str) -> None:
    write(tmp_path / "a.rec", [*some(4), *some(3, width=1), *some(2, width=19)])
    write(tmp_path / "b.rec", some(5, width=2))
    records = RecordSet.open([f"{scheme}{tmp_path}"])
    assert records.label_widths() == {1: 7, 2: 5, 19: 2}
    assert records.max_label_width() == 19


def test_widths_of_records_cut_at_magics(tmp_path: Path, scheme: str) -> None:
    """The magic may be among the labels, in the ids, or be the flag itself."""
    number = np.frombuffer(MAGIC, "<f4")[0]
    id = int.from_bytes(MAGIC + bytes(4), "little")
    payloads = [pack([1, number], b"x"), pack(number, b"x"), pack(1, MAGIC, id), MAGIC * 9, pack([number] * 3, MAGIC)]
    write(tmp_path / "a.rec", payloads)
    assert RecordSet.open([f"{scheme}{tmp_path}"]).label_widths() == {1: 2, 2: 1, 3: 1}


@pytest.mark.parametrize("payload", [b"", b"abc", b"x" * 23, pack([1, 2], b"")[:-4], b"\xff" * 40])
def test_records_too_short_for_their_labels_are_not_counted(tmp_path: Path, scheme: str, payload: bytes) -> None:
    write(tmp_path / "a.rec", [payload, *some(2), payload])
    records = RecordSet.open([f"{scheme}{tmp_path}"])
    assert records.label_widths() == {1: 2}
    write(tmp_path / "a.rec", [payload])
    assert RecordSet.open([f"{scheme}{tmp_path}"]).max_label_width() == 0


def test_far_records_are_asked_for_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "_URI_GAP_BYTES", 16)
    write(tmp_path / "a.rec", some(30, width=4))
    assert RecordSet.open([f"file://{tmp_path}"]).label_widths() == {4: 30}


def test_widths_of_files_of_others() -> None:
    path = Path(__file__).parents[3] / "shared" / "data" / "recordio" / "detection"
    if not path.exists():
        pytest.skip("no files by other writers here")
    assert RecordSet.open([path]).label_widths() == {19: 4}
