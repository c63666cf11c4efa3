"""A run has the code of its start, and a resumed one says what has changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import make_experiment
from test_report import found_in

from raymx.experiment import code_copy, user_code
from raymx.sweep.space import trial_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "there"
    (there / "own").mkdir(parents=True)
    (there / "nets_of_this_test.py").write_text("from own_of_this_test import units\n")
    (there / "own_of_this_test.py").write_text("units = 8\n")
    (there / "own" / "more.py").write_text("")
    (there / "start.params").write_bytes(b"p")
    (there / "made_of_this_test.py").write_text("")
    (there / ".gitignore").write_text("*.params\nmade*.py\n")
    (there / "data").mkdir()
    (there / "data" / "a.rec").write_bytes(b"r")
    (there / "runs" / "r").mkdir(parents=True)
    (there / "runs" / "r" / "run.yaml").write_text("")
    return there


@pytest.fixture
def process() -> Iterator[None]:
    """What a role's process imports and sets is undone."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    user_code.use_code("", False)
    for name in [name for name in sys.modules if name.endswith("_of_this_test")]:
        del sys.modules[name]


def test_an_edit_after_the_start_is_not_imported(folder: Path, process: None) -> None:
    with code_copy.copied(str(folder)) as code:
        (folder / "own_of_this_test.py").write_text("units = 64\n")
        user_code.use_code(code, False)
        assert user_code.load_object("nets_of_this_test:units", str(folder)) == 8
        assert user_code.code_folder(str(folder)) == code
        assert (Path(code) / "start.params").read_bytes() == b"p"
        assert (Path(code) / "own" / "more.py").is_file()
        assert (Path(code) / "made_of_this_test.py").is_file()  # on this machine nothing that is ignored is missing
        assert (Path(code) / "data" / "a.rec").read_bytes() == b"r"
        assert (Path(code) / "runs" / "r").is_symlink()
    assert not Path(code).exists()
    assert (folder / "start.params").read_bytes() == b"p"


def test_without_a_copy_the_folder_itself_is_imported(folder: Path, process: None) -> None:
    user_code.use_code("/nowhere", False)
    assert user_code.code_folder(str(folder)) == str(folder)


def test_on_another_node_it_is_what_ray_has_unpacked(
    folder: Path, process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    user_code.use_code("/nowhere", True)
    assert user_code.code_folder("/there") == str(folder)
    user_code.use_code("", True)
    assert user_code.code_folder("/there") == "/there"


def test_a_traceback_names_the_files_that_were_written(process: None, folder: Path) -> None:
    with code_copy.copied(str(folder)) as code:
        user_code.use_code(code, False)
        text = f'File "{code}/nets_of_this_test.py", line 1'
        assert user_code.as_written(text, "/home/me") == 'File "/home/me/nets_of_this_test.py", line 1'


def test_a_folder_that_is_too_large_is_not_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_copy, "MOST_FILES", 2)
    with code_copy.copied(str(folder)) as code:
        assert code == ""
    with code_copy.copied("/no/such/folder") as code:
        assert code == ""


def test_a_folder_of_data_is_linked_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_copy, "MOST_IN_FOLDER", 1)
    (folder / "data" / "b.rec").write_bytes(b"r")
    with code_copy.copied(str(folder)) as code:
        assert (Path(code) / "data").is_symlink()
        assert not (Path(code) / "own").is_symlink()


def test_what_has_changed_is_said(folder: Path) -> None:
    before = code_copy.zipped(str(folder))
    assert code_copy.changed(before, str(folder)) == []
    (folder / "own_of_this_test.py").write_text("units = 64\n")
    (folder / "new.py").write_text("")
    (folder / "own" / "more.py").unlink()
    (folder / "start.params").write_bytes(b"other")
    assert code_copy.changed(before, str(folder)) == ["new.py (new)", "own/more.py (gone)", "own_of_this_test.py"]
    assert code_copy.changed(b"damaged", str(folder)) == []
    assert code_copy.version(before) != code_copy.version(code_copy.zipped(str(folder)))


def test_a_resumed_run_gets_the_code_of_its_resume() -> None:
    one = make_experiment()
    first, again = (trial_config(one, one.to_dict(), "run", code=code) for code in ("/first", "/again"))
    assert (first["cluster"]["code"], again["cluster"]["code"]) == ("/first", "/again")  # of a restored trial it is new


def test_a_report_tells_trials_of_different_code_apart() -> None:
    def change(facts: dict[str, Any], reports: list[dict[str, Any]]) -> None:
        facts["code"] = "old" if facts["repeat"] == 0 else "new"

    text = " ".join(found_in(repeats=2, change=change).answer_sentences)
    assert "trained by 2 versions of the experiment's own modules" in text
    assert "versions" not in " ".join(found_in(repeats=2).answer_sentences)


def test_a_process_that_ends_at_once_removes_its_copies(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("")
    with code_copy.copied(str(tmp_path)) as folder:
        assert Path(folder, "nets.py").exists()
        code_copy.remove_all()
        assert not Path(folder).exists()
    assert (tmp_path / "nets.py").exists()
