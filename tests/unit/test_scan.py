"""Finding records in whole, cut and damaged files: both ways of looking agree, and nothing undamaged is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raymx.data.recordio import load, scan
from raymx.data.recordio.record import DamagedRecord, FileIndex, RecordIOWriter, iter_payloads, read_payload
from raymx.errors import DataError

MAGIC = bytes.fromhex("0a23d7ce")
PIECES = st.lists(st.sampled_from([MAGIC, b"a", b"bc", b"wxyz", b"0123456789" * 3]), max_size=8).map(b"".join)
SMALL_FILE = [b"first", b"AAAA" + MAGIC + b"BBBB", b"", b"x" * 30, MAGIC + MAGIC, b"seventeen bytes..", b"last"]
property_settings = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def write(path: Path, payloads: list[bytes]) -> list[int]:
    with RecordIOWriter(path) as writer:
        return [writer.write(payload) for payload in payloads]


def outcome(path: Path | str, on_bad: scan.OnBad = "skip") -> object:
    """All that a scan says, or the error's text."""
    try:
        found = scan.scan(str(path), on_bad)
    except DataError as error:
        return str(error).removeprefix("file://")
    return found.offsets.tolist(), found.sizes.tolist(), found.problems


def payloads_of(path: Path, index: FileIndex) -> list[bytes]:
    data = path.read_bytes()
    return [read_payload(data, at, size=size) for at, size in zip(index.offsets, index.sizes, strict=True)]


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches after the second record, a few words at a time."""
    monkeypatch.setattr(scan, "_SAMPLE", 2)
    monkeypatch.setattr(scan, "SEARCH_BYTES", 256)


@property_settings
@given(payloads=st.lists(PIECES, max_size=40), cut=st.integers(0, 40), flips=st.lists(st.integers(0, 2000), max_size=3))
def test_search_walk_and_uri_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payloads: list[bytes], cut: int, flips: list[int]
) -> None:
    path = tmp_path / "a.rec"
    write(path, payloads)
    data = bytearray(path.read_bytes())
    for flip in flips:
        if data:
            data[flip % len(data)] ^= 1 << flip % 8
    path.write_bytes(data[: len(data) - cut] if cut % 2 else data)
    for on_bad in ("skip", "fail"):
        with monkeypatch.context() as patch:
            patch.setattr(scan, "SMALL_BYTES", -1)
            walked = outcome(path, on_bad)
        with monkeypatch.context() as patch:
            patch.setattr(scan, "_SAMPLE", 2)
            patch.setattr(scan, "SEARCH_BYTES", 256)
            patch.setattr(load, "BLOCK_BYTES", 64)
            assert outcome(path, on_bad) == walked
            assert outcome(f"file://{path}", on_bad) == walked
    if not flips and not cut % 2:
        assert list(iter_payloads(str(path))) == payloads


@pytest.mark.usefixtures("searching")
def test_what_a_writer_did_not_cut_at_magics_is_read(tmp_path: Path) -> None:
    """The format of other writers' files: a search is misled, a walk is not."""
    record = MAGIC + (40).to_bytes(4, "little") + (MAGIC + b"abcdefgh") * 3 + MAGIC
    (tmp_path / "a.rec").write_bytes(record * 50)
    assert len(scan.scan(str(tmp_path / "a.rec"))) == 50
    assert [bytes(payload) for payload in iter_payloads(str(tmp_path / "a.rec"))] == [record[8:]] * 50


@pytest.mark.parametrize("sizes", [(20, 90_000), (90_000, 20)])
def test_records_of_all_sizes_in_one_file(tmp_path: Path, sizes: tuple[int, int]) -> None:
    offsets = write(tmp_path / "a.rec", [b"x" * size for size in sizes for _ in range(600)])
    assert scan.scan(str(tmp_path / "a.rec")).offsets.tolist() == offsets


def test_a_file_cut_at_any_byte_gives_the_records_before(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    offsets = write(path, SMALL_FILE)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        found = scan.scan(str(path), "skip")
        assert found.offsets.tolist() == [at for at, end in zip(offsets, [*offsets[1:], len(whole)]) if end <= cut]  # noqa: B905
        assert payloads_of(path, found) == SMALL_FILE[: len(found)]
        assert len(found.problems) == (cut not in [0, *offsets])
        if found.problems:
            assert "cut short" in found.problems[0].reason
            assert f"{cut - found.problems[0].offset} bytes were skipped" in found.problems[0].reason
            with pytest.raises(DamagedRecord, match="cut short"):
                scan.scan(str(path))


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_at_any_place_loses_no_other_record(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "a.rec"
    offsets = write(path, SMALL_FILE)
    whole = path.read_bytes()
    sizes = np.diff([*offsets, len(whole)])
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        found = scan.scan(str(path), "skip")
        hit = int(np.searchsorted(offsets, place, side="right")) - 1
        others = {at: size for row, (at, size) in enumerate(zip(offsets, sizes, strict=True)) if row != hit}
        places = dict(zip(found.offsets.tolist(), found.sizes.tolist(), strict=True))
        lost = others.keys() - places.keys()
        # A length (of any part) that ends, by chance, where a later record does swallows those between.
        assert not lost or (min(lost) > offsets[hit] and place - offsets[hit] < 24)
        assert all(places[at] == size for at, size in others.items() if at in places)


def test_damage_amid_many_small_records(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    offsets = write(path, [b"%07d" % n * 3 for n in range(3000)])
    data = bytearray(path.read_bytes())
    data[offsets[1000] : offsets[1003] + 9] = bytes(offsets[1003] + 9 - offsets[1000])  # a hole
    data[offsets[2000]] ^= 1  # one magic
    path.write_bytes(data)
    found = scan.scan(str(path), "skip")
    # The record before a hole cannot be told from one whose length is wrong.
    assert found.offsets.tolist() == [*offsets[:999], *offsets[1004:2000], *offsets[2001:]]
    assert [problem.offset for problem in found.problems] == [offsets[999], offsets[2000]]
    assert "no record begins" in found.problems[0].reason
    assert found.problems[1].reason == (
        "damaged: expected the magic 0xced7230a, found 0xced7230b; 32 bytes were skipped"
    )
    with pytest.raises(DamagedRecord, match=f"byte {offsets[1000]}: damaged"):
        scan.scan(str(path))


@pytest.mark.parametrize("content", [b"", b"x", b"no records at all, only text", bytes(5000), MAGIC, MAGIC * 9])
def test_files_without_any_record(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(content)
    for name in (str(path), f"file://{path}"):
        found = scan.scan(name, "skip")
        assert (len(found), len(found.problems), found.file_bytes) == (0, bool(content), len(content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in (f"{tmp_path}/gone.rec", f"file://{tmp_path}/gone.rec"):
        with pytest.raises(DataError, match=r"gone\.rec: cannot be read on this node \("):
            scan.scan(name, "skip")


def test_a_uri_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    write(tmp_path / "a.rec", [b"x" * 20] * 500)

    class Counted(load.Reader):
        def __init__(self, path: str) -> None:
            self.path, self.data = path, (tmp_path / "a.rec").read_bytes()
            self.size = len(self.data)

        def read_at(self, offset: int, count: int) -> bytes:
            reads.append(count)
            return self.data[offset : offset + count]

        def close(self) -> None:
            pass

    monkeypatch.setattr(load, "open_reader", Counted)
    monkeypatch.setattr(load, "BLOCK_BYTES", 1000)
    assert len(scan.scan("s3://bucket/a.rec")) == 500
    assert len(reads) <= 2 * 14
