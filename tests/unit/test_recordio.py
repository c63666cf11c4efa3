"""The format, byte for byte, alone and against MXNet's own reader and writer."""

from __future__ import annotations

import contextlib
import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

from raymx.data.recordio import reading
from raymx.data.recordio.record import (
    DamagedRecord,
    RecordIOWriter,
    index_of,
    iter_payloads,
    pack,
    ranges,
    read_payload,
    read_payloads,
    scan,
    unpack,
)
from raymx.errors import DataError
from raymx.storage import open_reader

MAGIC = bytes.fromhex("0a23d7ce")
OTHERS_FILES = Path(__file__).parents[3] / "shared" / "data" / "recordio"

# Written and read back by mxnet 1.9.1.
VECTORS = [
    (b"AAAA" + MAGIC + b"BBBB", "0a23d7ce 04000020 41414141 0a23d7ce 04000060 42424242"),
    (b"AAA" + MAGIC + b"BBBBB", "0a23d7ce 0c000000 4141410a 23d7ce42 42424242"),
    (MAGIC, "0a23d7ce 00000020 0a23d7ce 00000060"),
    (MAGIC + MAGIC, "0a23d7ce 00000020 0a23d7ce 00000040 0a23d7ce 00000060"),
    (MAGIC + b"ZZ", "0a23d7ce 00000020 0a23d7ce 02000060 5a5a0000"),
    (b"", "0a23d7ce 00000000"),
    (b"x", "0a23d7ce 01000000 78000000"),
]


def write(path: Path, payloads: list[bytes]) -> list[int]:
    with RecordIOWriter(path, path.with_suffix(".idx")) as writer:
        return [writer.write(payload) for payload in payloads]


def awkward_payloads(count: int) -> list[bytes]:
    """Payloads full of magics at every alignment."""
    rng = np.random.default_rng(0)
    pieces = (MAGIC, b"a", b"bc", b"wxyz")
    return [b"".join(pieces[k] for k in rng.integers(0, 4, rng.integers(12))) for _ in range(count)]


@pytest.mark.parametrize(("payload", "on_disk"), VECTORS)
def test_byte_vectors(tmp_path: Path, payload: bytes, on_disk: str) -> None:
    write(tmp_path / "a.rec", [payload])
    assert (tmp_path / "a.rec").read_bytes() == bytes.fromhex(on_disk)
    assert read_payload(bytes.fromhex(on_disk), 0) == payload


def test_header_vector() -> None:
    expected = bytes.fromhex(
        "03000000 00000000 0700000000000000 0900000000000000 0000803f 00002040 000040c0 494d47".replace(" ", "")
    )
    assert pack([1, 2.5, -3], b"IMG", id=7, id2=9) == expected
    record = unpack(expected)
    assert (record.flag, record.id, record.id2, record.image) == (3, 7, 9, b"IMG")
    np.testing.assert_array_equal(record.label, np.array([1, 2.5, -3], np.float32))


def test_single_label_is_in_the_header() -> None:
    record = unpack(pack(4, b"IMG"))
    assert (record.flag, record.label.tolist(), record.label.dtype, record.image) == (0, [4.0], np.float32, b"IMG")


def test_scan_and_read_back(tmp_path: Path) -> None:
    payloads = awkward_payloads(200)
    offsets = write(tmp_path / "a.rec", payloads)
    index = scan(tmp_path / "a.rec")
    assert index.offsets.tolist() == offsets
    assert index.sizes.sum() == (tmp_path / "a.rec").stat().st_size
    with open(tmp_path / "a.rec", "rb") as file:
        assert [read_payload(file, offset) for offset in offsets] == payloads
    lines = [f"{i}\t{offset}" for i, offset in enumerate(offsets)]
    assert (tmp_path / "a.idx").read_text().splitlines() == lines


def test_mxnet_reads_what_we_write(tmp_path: Path) -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    payloads = [*awkward_payloads(50), pack([1, 2], b"IMG", 3, 4)]
    write(tmp_path / "a.rec", payloads)
    reader = recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "r")
    assert [reader.read_idx(i) for i in range(len(payloads))] == payloads
    header, image = recordio.unpack(payloads[-1])
    assert (header.flag, header.label.tolist(), header.id, header.id2, image) == (2, [1, 2], 3, 4, b"IMG")


def test_we_write_what_mxnet_writes(tmp_path: Path) -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    payloads = [recordio.pack(recordio.IRHeader(0, 5.0, 1, 0), b"IMG"), *awkward_payloads(50)]
    assert payloads[0] == pack(5.0, b"IMG", id=1)
    writer = recordio.MXRecordIO(str(tmp_path / "theirs.rec"), "w")
    for payload in payloads:
        writer.write(payload)
    writer.close()
    write(tmp_path / "ours.rec", payloads)
    assert (tmp_path / "ours.rec").read_bytes() == (tmp_path / "theirs.rec").read_bytes()


def test_files_of_others_are_read_whole() -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    files = sorted(OTHERS_FILES.rglob("*.rec"))
    if not files:
        pytest.skip("no files by other writers here")
    for path in files:
        reader, theirs = recordio.MXRecordIO(str(path), "r"), []
        while (payload := reader.read()) is not None:
            theirs.append(payload)
        with open(path, "rb") as file:
            assert [read_payload(file, int(offset)) for offset in scan(path).offsets] == theirs


def damage(path: Path, how: str) -> int:
    """Damage the third of four records; returns the offset that the error must name."""
    third = write(path, [b"x" * 100] * 4)[2]
    data = bytearray(path.read_bytes())
    if how == "magic":
        data[third] ^= 1
    elif how == "flag":
        data[third + 7] |= 0x60
    else:
        del data[third + {"cut header": 5, "cut payload": 50}[how] :]
    path.write_bytes(data)
    return third


@pytest.mark.parametrize(
    ("how", "reason"),
    [("magic", "magic"), ("flag", "flag 3"), ("cut header", "cut short"), ("cut payload", "cut short")],
)
def test_damage_names_file_offset_and_reason(tmp_path: Path, how: str, reason: str) -> None:
    path = tmp_path / "bad.rec"
    third = damage(path, how)
    for attempt in (lambda: scan(path), lambda: read_payload(path.read_bytes(), third, str(path))):
        with pytest.raises(DataError) as caught:
            attempt()
        assert all(part in str(caught.value) for part in (str(path), f"byte {third}", reason))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_record_cut_between_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "bad.rec"
    write(path, [b"AAAA" + MAGIC + b"BBBB"])
    path.write_bytes(path.read_bytes()[:12])
    with pytest.raises(DataError, match="cut short"):
        scan(path)


def test_files_joined_are_one(tmp_path: Path) -> None:
    payloads = awkward_payloads(30)
    write(tmp_path / "a.rec", payloads[:10])
    write(tmp_path / "b.rec", payloads[10:])
    joined = tmp_path / "joined.rec"
    joined.write_bytes((tmp_path / "a.rec").read_bytes() + (tmp_path / "b.rec").read_bytes())
    assert list(iter_payloads(str(joined))) == payloads


def test_writer_and_reader_by_uri(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/a.rec"
    with RecordIOWriter(uri, f"file://{tmp_path}/a.idx") as writer:
        offsets = [writer.write(payload) for payload in awkward_payloads(50)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.idx", "a.rec"]
    with open_reader(uri) as reader:
        assert [read_payload(reader, offset) for offset in offsets] == awkward_payloads(50)
    assert index_of(uri).keys is not None


def test_reading_with_a_size(tmp_path: Path) -> None:
    offsets = write(tmp_path / "a.rec", [b"one", b"AAAA" + MAGIC + b"BBBB", b"", b"x" * 99])
    sizes = scan(str(tmp_path / "a.rec")).sizes.tolist()
    with open_reader(str(tmp_path / "a.rec")) as reader:
        for offset, size in zip(offsets, sizes, strict=True):
            assert read_payload(reader, offset, size=size) == read_payload(reader, offset)
        for offset, size in ((offsets[0], sizes[0] + 4), (offsets[1], sizes[1] + sizes[2]), (offsets[3], 4)):
            with pytest.raises(DamagedRecord, match=rf"a\.rec, record at byte {offset}: .*(stale|cut short)"):
                read_payload(reader, offset, size=size)
        with pytest.raises(DamagedRecord, match="cut short"):
            read_payload(reader, offsets[3], size=sizes[3] + 4)


@pytest.mark.parametrize("uri", [False, True])
@pytest.mark.parametrize("window_bytes", [64, 1 << 20])
@pytest.mark.parametrize("max_gap_bytes", [0, 1000])
def test_many_payloads_in_the_order_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: bool, window_bytes: int, max_gap_bytes: int
) -> None:
    monkeypatch.setattr(reading, "WINDOW_BYTES", window_bytes)
    payloads = awkward_payloads(60)
    write(tmp_path / "a.rec", payloads)
    index = scan(str(tmp_path / "a.rec"))
    ids = np.random.default_rng(0).integers(0, 60, 100)  # some twice
    with open_reader(f"file://{tmp_path}/a.rec" if uri else str(tmp_path / "a.rec")) as reader:
        found = list(read_payloads(reader, index.offsets[ids], index.sizes[ids], max_gap_bytes))
        assert found == [payloads[number] for number in ids]
        assert list(read_payloads(reader, index.offsets[:0], index.sizes[:0])) == []


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_damaged_record_stands_in_its_place(tmp_path: Path, scheme: str) -> None:
    third = damage(tmp_path / "a.rec", "magic")
    offsets = np.arange(4) * 108
    with open_reader(f"{scheme}{tmp_path}/a.rec") as reader:
        found = list(read_payloads(reader, offsets, np.full(4, 108)))
        stopped = read_payloads(reader, offsets, np.full(4, 108))
        next(stopped)
        stopped.close()  # type: ignore[attr-defined]
    assert [found[0], found[1], found[3]] == [b"x" * 100] * 3
    assert isinstance(found[2], DamagedRecord)
    assert found[2].offset == third
    assert found[2].reason in str(found[2])


def test_ranges() -> None:
    offsets, sizes = np.array([300, 0, 100, 104, 300]), np.array([50, 100, 4, 6, 50])
    assert [(part.start, part.count, part.rows) for part in ranges(offsets, sizes, 0)] == [
        (0, 110, (1, 2, 3)), (300, 50, (0, 4)),
    ]  # fmt: skip
    assert [(part.start, part.count) for part in ranges(offsets, sizes, 190)] == [(0, 350)]
    assert [(part.start, part.count) for part in ranges(offsets, sizes, 190, merged_bytes=105)] == [
        (0, 104), (104, 6), (300, 50),
    ]  # fmt: skip
    assert ranges(offsets[:0], sizes[:0]) == []


@pytest.mark.parametrize("size", [3, 90_000])
def test_views_outlive_the_iterator(tmp_path: Path, size: int) -> None:
    payloads = [bytes([n]) * size for n in range(9)]
    write(tmp_path / "a.rec", payloads)
    kept = list(iter_payloads(str(tmp_path / "a.rec")))
    (tmp_path / "a.rec").unlink()
    gc.collect()
    assert kept == payloads
    assert all(isinstance(view, memoryview) for view in kept)
    first = iter_payloads(str(tmp_path / "gone.rec"))
    with pytest.raises(DataError, match=r"gone\.rec: cannot be read"):
        next(first)


def test_iterating_a_damaged_file_gives_what_comes_before(tmp_path: Path) -> None:
    for how in ("magic", "flag", "cut header", "cut payload"):
        third = damage(tmp_path / "a.rec", how)
        found: list[object] = []
        with pytest.raises(DamagedRecord, match=f"byte {third}: "):
            found.extend(iter_payloads(str(tmp_path / "a.rec")))
        assert found == [b"x" * 100] * 2


def test_unpack_of_a_view_copies_nothing() -> None:
    payload = memoryview(pack([1, 2], b"IMAGE", id=4))
    record = unpack(payload)
    assert isinstance(record.image, memoryview)
    assert record.image.obj is payload.obj
    assert (bytes(record.image), record.label.tolist(), record.id) == (b"IMAGE", [1, 2], 4)


def test_files_of_others_unpack_as_in_mxnet() -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    files = sorted(OTHERS_FILES.rglob("*.rec"))
    if not files:
        pytest.skip("no files by other writers here")
    for path in files:
        for payload in iter_payloads(str(path)):
            header, image = recordio.unpack(bytes(payload))
            record = unpack(payload)
            assert (record.flag, record.id, record.id2, record.image) == (header.flag, header.id, header.id2, image)
            np.testing.assert_array_equal(record.label, np.ravel(header.label))
            assert len(record.label) == (19 if path.parent.name == "detection" else 1)


def test_keys_of_others_files_are_as_in_mxnet() -> None:
    recordio = pytest.importorskip("mxnet.recordio")
    path = OTHERS_FILES / "detection" / "val.rec"
    if not path.exists():
        pytest.skip("no files by other writers here")
    theirs = recordio.MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "r")
    index = index_of(str(path))
    assert index.keys is not None
    assert dict(zip(index.keys.tolist(), index.offsets.tolist(), strict=True)) == theirs.idx


def test_empty_and_missing_file(tmp_path: Path) -> None:
    (tmp_path / "empty.rec").touch()
    assert len(scan(tmp_path / "empty.rec")) == 0
    with pytest.raises(DataError, match=r"gone\.rec: cannot be read on this node \(No such file"):
        scan(tmp_path / "gone.rec")


@pytest.mark.parametrize("payload", [b"short", pack([1, 2, 3], b"")[:-1]])
def test_unpack_of_too_few_bytes(payload: bytes) -> None:
    with pytest.raises(DataError, match=r"here: .* bytes"):
        unpack(payload, "here")


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    with RecordIOWriter(tmp_path / "a.rec", tmp_path / "a.idx") as writer:
        writer.write(b"x", key=5)
        writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.idx", "a.rec"]
    assert (tmp_path / "a.idx").read_text() == "5\t0\n"


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with contextlib.suppress(RuntimeError), RecordIOWriter(tmp_path / "a.rec", tmp_path / "a.idx") as writer:
        writer.write(b"x")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
