"""Local paths and URIs: what a name stands for, and reading and writing whole files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from raymx.errors import DataError
from raymx.experiment.references import data_problem
from raymx.storage import (
    RECORDS_BEGIN,
    exists,
    expand,
    is_uri,
    locations,
    map_ahead,
    open_output,
    open_reader,
    with_suffix,
)

Name = Callable[[object], str]


@pytest.fixture(params=["local", "uri"])
def name(request: pytest.FixtureRequest) -> Name:
    """How a local path is written."""
    return str if request.param == "local" else (lambda path: f"file://{path}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in ("b.rec", "a.rec", "a.idx", "notes.txt", "deep/c.rec", "deep/er/d.rec", "none/x.txt"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((RECORDS_BEGIN if file.endswith(".rec") else b"") + file.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("path", "uri"),
    [("a.rec", False), ("/x/a:b.rec", False), ("s3://k/a.rec", True), ("file:///a", True), ("hdfs://h/a", True)],
)
def test_is_uri(path: str, uri: bool) -> None:
    assert is_uri(path) == uri


@pytest.mark.parametrize(
    ("path", "beside"),
    [
        ("/x.y/a.rec", "/x.y/a.idx"),
        ("/x.y/a", "/x.y/a.idx"),
        ("/x/a?.rec", "/x/a?.idx"),
        ("s3://k/a.rec?region=eu-west-1", "s3://k/a.idx?region=eu-west-1"),
    ],
)
def test_the_index_is_beside(path: str, beside: str) -> None:
    assert with_suffix(path, ".idx") == beside


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["b.rec", "a.rec"], ["b.rec", "a.rec"]),
        (["*.rec"], ["a.rec", "b.rec"]),
        (["[ab].*", "deep/c.rec"], ["a.idx", "a.rec", "b.rec", "deep/c.rec"]),
        ([""], ["a.rec", "b.rec"]),
        (["deep"], ["deep/c.rec"]),
        (["deep/"], ["deep/c.rec"]),
        (["*/*.rec"], ["deep/c.rec"]),
        (["d*/**/*.rec"], ["deep/c.rec", "deep/er/d.rec"]),
        ([], []),
    ],
)
def test_expand(folder: Path, name: Name, paths: list[str], found: list[str]) -> None:
    assert expand([name(folder / path) for path in paths]) == [name(folder / file) for file in found]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("c.rec", "{0}/c.rec .*; {0} has .*a.rec"),
        ("none", "{0}/none .*{1}.rec.* has x.txt"),
        ("*.lst", "no file matches {0}/.*.lst; {0} has .*"),
    ],
)
def test_what_is_missing_is_named_with_what_is_there(folder: Path, name: Name, path: str, message: str) -> None:
    with pytest.raises(DataError, match=message.format(name(folder), r"\*")) as caught:
        expand([name(folder / path)])
    assert "\n" not in str(caught.value)


def test_relative_paths_become_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "deep")
    assert expand(["c.rec", "../a.rec"]) == [str(folder / "deep/c.rec"), str(folder / "a.rec")]


def test_a_pattern_in_a_folder_whose_name_looks_like_one(tmp_path: Path) -> None:
    folder = tmp_path / "photos [v1]" / "a"
    folder.mkdir(parents=True)
    (folder / "x.rec").touch()
    for pattern in ("photos [v1]/a/*.rec", "photos [v1]/*/*.rec", "photos [v1]/**/x.rec", "photos ?v1?/a/*.rec"):
        assert expand([str(tmp_path / pattern)]) == [str(folder / "x.rec")]
    with pytest.raises(DataError, match="no file matches"):
        expand([str(tmp_path / "photos [v1]/*.rec")])


def test_names_that_look_like_patterns_and_have_spaces(tmp_path: Path) -> None:
    odd = tmp_path / "a [1] %41*.rec"
    odd.write_bytes(b"odd")
    assert expand([str(odd)]) == [str(odd)]
    assert expand([str(tmp_path)]) == [str(odd)]
    (found,) = expand([f"file://{tmp_path}"])
    with open_reader(found) as reader:
        assert reader.read_at(0, 9) == b"odd"
    (tmp_path / "b c.rec").write_bytes(b"space")
    with open_reader(f"file://{tmp_path}/b c.rec") as reader:
        assert reader.read_at(0, 9) == b"space"


@pytest.mark.parametrize("uri", ["nosuch://host/a.rec", "file://relative/a.rec"])
def test_a_uri_that_pyarrow_refuses_is_one_line(uri: str) -> None:
    for attempt in (lambda: expand([uri]), lambda: open_reader(uri), lambda: exists(uri)):
        with pytest.raises(DataError) as caught:
            attempt()
        assert uri in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_unreachable_store_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(uri: str) -> None:
        raise OSError("When resolving region for bucket 'b': no network\nmore\nlines")

    monkeypatch.setattr(locations, "file_system", unreachable)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: expand(["s3://b/*.rec"]),
        lambda: open_reader("s3://b/a.rec"),
        lambda: open_output("s3://b/a.rec").__enter__(),
    )
    for attempt in attempts:
        with pytest.raises(DataError, match=r"s3://b/.*: cannot be .* on this node \(When resolving .*no network\)$"):
            attempt()


def test_read_at(folder: Path, name: Name) -> None:
    with open_reader(name(folder / "notes.txt")) as reader:
        assert (reader.path, reader.size) == (name(folder / "notes.txt"), 9)
        assert [reader.read_at(*part) for part in ((0, 5), (6, 3), (6, 99), (9, 1), (50, 1), (0, 0))] == [
            b"notes", b"txt", b"txt", b"", b"", b"",
        ]  # fmt: skip


@pytest.mark.parametrize("path", ["gone.rec", "deep"])
def test_what_cannot_be_read_is_named(folder: Path, name: Name, path: str) -> None:
    with pytest.raises(DataError, match=rf"{path}: cannot be read on this node \(.+\)") as caught:
        open_reader(name(folder / path))
    assert "\n" not in str(caught.value)


def test_exists(folder: Path, name: Name) -> None:
    assert [exists(name(folder / path)) for path in ("a.rec", "gone.rec", "deep")] == [True, False, False]


def test_output_has_its_name_when_whole(tmp_path: Path, name: Name) -> None:
    with open_output(name(tmp_path / "a.rec")) as file:
        file.write(b"x")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.rec", b"x")]


def failed_output(path: str) -> None:
    with contextlib.suppress(RuntimeError), open_output(path) as file:
        file.write(b"x")
        raise RuntimeError


def test_failed_output_leaves_nothing(tmp_path: Path, name: Name) -> None:
    failed_output(name(tmp_path / "a.rec"))
    assert not list(tmp_path.iterdir())


def test_failed_local_output_keeps_the_file_before(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"before")
    failed_output(str(tmp_path / "a.rec"))
    assert (tmp_path / "a.rec").read_bytes() == b"before"


def test_output_that_cannot_be_is_named(tmp_path: Path, name: Name) -> None:
    (tmp_path / "file").touch()
    message = r"a.rec: cannot be written on this node \("
    with pytest.raises(DataError, match=message), open_output(name(tmp_path / "file" / "a.rec")):
        pass


def test_map_ahead_keeps_order_and_stops() -> None:
    assert list(map_ahead(lambda x: x * x, range(50))) == [x * x for x in range(50)]
    called: list[int] = []
    results = map_ahead(called.append, range(1000), ahead=3)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(called) <= 3


def test_data_problem_of_folders_and_uris(folder: Path) -> None:
    assert data_problem(str(folder)) is None
    assert data_problem("s3://nobody/knows.rec") is None
    assert "is a folder without *.rec files; it has x.txt" in str(data_problem(str(folder / "none")))
    (folder / "none" / "x.txt").unlink()
    assert "it is empty" in str(data_problem(str(folder / "none")))
    assert "a.rec" in str(data_problem(str(folder / "c.rec")))
    assert data_problem(str(folder / "*.rec")) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(folder: Path) -> None:
    (folder / "a.rec").chmod(0)
    with pytest.raises(DataError, match=r"a\.rec: cannot be read on this node \(Permission denied\)"):
        open_reader(str(folder / "a.rec"))
