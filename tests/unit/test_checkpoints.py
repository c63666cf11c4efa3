"""Checkpoints as files on any file system, damaged ones, and the choice of what a trial goes on from."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import fs

from raymx.checkpoint import files
from raymx.checkpoint.files import Position, Saved
from raymx.checkpoint.in_epoch import Candidate, Checkpoints, to_keep, to_try
from raymx.errors import CheckpointError
from raymx.kvstore.state import OptimizerState

FILES = ["net.params", "optimizer.npz", "state.json"]
TRIAL = "abc_00000"


def saved(epoch: int = 1, records: int = 128, trial: str = TRIAL, step: int = 2, size: int = 4) -> Saved:
    weights = np.arange(size, dtype=np.float32)
    optimizer = OptimizerState(
        {"0.weight": [weights, -weights], "0.bias": [], "a/b/1": [weights * 2]},
        {"0.weight": 7, "0.bias": 7, "a/b/1": 6},
        {"0.weight": weights / 3, "a/b": weights},
        {"m_schedule": 0.1 + 0.2, "learning_rate": 0.25},
    )
    return Saved(
        b"parameters",
        optimizer,
        epoch,
        step,
        {"mine": [1]},
        {"loss": 0.1},
        {"train_loss": float("inf")},
        trial,
        records,
        num_workers=3,
        global_batch_size=64,
        schedule_shift=-2.5,
    )


def assert_same(found: Saved, expected: Saved) -> None:
    empty = OptimizerState()
    assert replace(found, optimizer=empty) == replace(expected, optimizer=empty)
    one, other = found.optimizer, expected.optimizer
    assert (one.counts, one.scalars) == (other.counts, other.scalars)
    np.testing.assert_equal(one.arrays, {name: arrays for name, arrays in other.arrays.items() if arrays})
    np.testing.assert_equal(one.masters, other.masters)


@pytest.fixture(params=["paths", "local", "subtree", "another"])
def folder_and_filesystem(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any]:
    """A folder, and the file system that it is on."""
    return {
        "paths": (str(tmp_path / "c"), None),
        "local": (str(tmp_path / "c"), fs.LocalFileSystem()),
        "subtree": ("runs/c", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())),
        "another": ("bucket/runs/c", fs._MockFileSystem()),
    }[request.param]


def names(folder: str, filesystem: Any) -> list[str]:
    filesystem = filesystem or fs.LocalFileSystem()
    found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return sorted(info.base_name for info in found)


# Files


def test_a_checkpoint_reads_back_from_any_file_system(folder_and_filesystem: tuple[str, Any]) -> None:
    folder, filesystem = folder_and_filesystem
    for expected in (saved(), saved(epoch=2)):  # the second replaces the first
        files.write(folder, expected, filesystem)
        assert names(folder, filesystem) == FILES
        assert_same(files.read(folder, filesystem), expected)
        assert files.position(folder, filesystem) == expected.position == Position(TRIAL, expected.epoch, 2, 128)


def damage(how: str, path: Path) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "cut": data[: len(data) // 2],
                "longer": data + b"\n",
                "flipped": data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
            }[how]
        )


@pytest.mark.parametrize("how", ["missing", "a folder", "empty", "cut", "longer", "flipped"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, how: str) -> None:
    files.write(str(tmp_path), saved())
    damage(how, tmp_path / name)
    expected = "cannot be read" if how in ("missing", "a folder") else "is damaged"
    with pytest.raises(CheckpointError, match=f"{name} {expected}"):
        files.read(str(tmp_path))


def test_every_bit_of_a_state_is_checked(tmp_path: Path) -> None:
    files.write(str(tmp_path), saved())
    path = tmp_path / "state.json"
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        with pytest.raises(CheckpointError):
            files.position(str(tmp_path))
    path.write_bytes(data)
    assert files.position(str(tmp_path)) == saved().position


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", "[" * 100_000, '{"format": 2}', "\0", '{"a": "\ud800'])
def test_a_state_that_is_none_is_one_error(tmp_path: Path, content: str) -> None:
    files.write(str(tmp_path), saved())
    (tmp_path / "state.json").write_bytes(content.encode(errors="surrogatepass"))
    for read in (files.read, files.position):
        with pytest.raises(CheckpointError, match=r"damaged|format"):
            read(str(tmp_path))


def test_another_format_is_named(tmp_path: Path) -> None:
    files.write(str(tmp_path), saved())
    state = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps(state | {"format": 1}))
    with pytest.raises(CheckpointError, match="format 1; this raymx reads format 2"):
        files.read(str(tmp_path))


class Trap:
    sprung = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "sprung", True)


def test_a_pickle_is_refused_and_does_nothing(tmp_path: Path) -> None:
    """Checksums are whoever wrote it's own: the arrays are read with no pickle whatever they say."""
    trap = OptimizerState({"0.weight": [np.array([Trap()], dtype=object)]}, {"0.weight": 1})
    files.write(str(tmp_path), Saved(b"", trap, epoch=0, step=0))
    with pytest.raises(CheckpointError, match=r"optimizer\.npz.*allow_pickle=False"):
        files.read(str(tmp_path))
    assert not Trap.sprung
    with np.load(tmp_path / "optimizer.npz", allow_pickle=True) as stored:
        assert stored["state/0.weight/0"] is not None
    assert Trap.sprung  # it was one
    Trap.sprung = False


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file/c cannot be written: Not a directory"):
        files.write(str(tmp_path / "file" / "c"), saved())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_what_was_there(small_disk: Path) -> None:
    files.write(str(small_disk), saved())
    with pytest.raises(CheckpointError, match=r"optimizer\.npz cannot be written: No space left on device"):
        files.write(str(small_disk), saved(epoch=2, size=100_000))
    assert sorted(os.listdir(small_disk)) == FILES
    assert files.read(str(small_disk)).epoch == 1


# The choice, without files


def at(epoch: int, records: int = 0, trial: str = TRIAL) -> Candidate:
    return Candidate(f"{trial}/{epoch}/{records}", Position(trial, epoch, records // 10, records))


def test_the_furthest_goes_first() -> None:
    given, in_epoch, tune = at(3), [at(2, 100), at(3, 50), at(3, 100)], [at(1), at(2)]
    assert to_try(TRIAL, given, in_epoch, tune) == [at(3, 100), at(3, 50), given, at(2, 100), at(2), at(1)]
    assert to_try(TRIAL, None, in_epoch, tune) == [at(3, 100), at(3, 50), at(2, 100), at(2), at(1)]
    assert to_try(TRIAL, None, [], []) == []


def test_records_tell_and_not_steps() -> None:
    """Ten steps of 64 records are further than fifteen of 32."""
    small, large = (
        Candidate(name, Position(TRIAL, 0, step, records))
        for name, step, records in [("small", 15, 480), ("large", 10, 640)]
    )
    assert to_try(TRIAL, None, [small, large], []) == [large, small]


def test_at_the_same_position_the_restored_one_goes_first() -> None:
    given = Candidate("given", Position(TRIAL, 1, 5, 50))
    assert to_try(TRIAL, given, [at(1, 50)], []) == [given, at(1, 50)]


def test_a_clone_has_nothing_but_what_it_was_given() -> None:
    given = at(1, trial="another")
    assert to_try(TRIAL, given, [at(5, 100)], [at(5)]) == [given]


def test_what_another_trial_left_is_not_taken() -> None:
    given = at(1)
    others = [at(5, 100, "another"), at(0, 7, "another")]
    assert to_try(TRIAL, given, others, others) == [given]
    assert to_try(TRIAL, None, others, others) == []


def test_tunes_further_ones_are_not_taken() -> None:
    """Tune restores the newest that it knows of: of a further one it would not know the results."""
    assert to_try(TRIAL, at(2), [], [at(1), at(3)]) == [at(2), at(1)]


def test_what_is_kept() -> None:
    written = at(2, 100)
    assert to_keep(written, [at(1, 10), at(2, 50), written]) == [written, at(2, 50)]
    assert to_keep(written, [at(3, 10), at(2, 50, "another"), at(1)]) == [written, at(1)]
    assert to_keep(written, []) == [written]


# In a trial's folder


class TrialFolder:
    """A trial's folder on a storage, and what Tune and raymx leave in it."""

    def __init__(self, filesystem: Any, folder: str) -> None:
        self.filesystem, self.folder = filesystem, folder
        self.checkpoints = Checkpoints(filesystem, folder, TRIAL)

    def save(self, *positions: tuple[int, int]) -> None:
        for epoch, records in positions:
            self.checkpoints.save(saved(epoch, records, step=records // 10))
            assert self.checkpoints.wait(10)
            assert self.checkpoints.take_problem() is None

    def tune(self, number: int, epoch: int, trial: str = TRIAL) -> str:
        folder = f"{self.folder}/checkpoint_{number:06d}"
        files.write(folder, saved(epoch, 0, trial), self.filesystem)
        return folder

    @property
    def in_epoch(self) -> list[str]:
        return names(f"{self.folder}/in_epoch", self.filesystem)

    def newest(self, given: str | None = None) -> tuple[tuple[int, int] | None, list[str]]:
        found, skipped = self.checkpoints.newest(given, self.filesystem)
        return found and found.position.reached, skipped


@pytest.fixture
def trial(tmp_path: Path) -> TrialFolder:
    return TrialFolder(fs.LocalFileSystem(), str(tmp_path / "run" / "trial"))


@pytest.fixture(params=["local", "subtree", "another"])
def any_trial(request: pytest.FixtureRequest, tmp_path: Path) -> TrialFolder:
    return TrialFolder(
        *{
            "local": (fs.LocalFileSystem(), str(tmp_path / "run" / "trial")),
            "subtree": (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "run/trial"),
            "another": (fs._MockFileSystem(), "bucket/run/trial"),
        }[request.param]
    )


def test_two_are_kept_until_the_trial_has_finished(any_trial: TrialFolder) -> None:
    assert any_trial.newest() == (None, [])
    any_trial.save((0, 100), (0, 200), (1, 50))
    assert any_trial.in_epoch == ["epoch00000_step00000020", "epoch00001_step00000005"]
    assert any_trial.newest() == ((1, 50), [])
    given = any_trial.tune(0, epoch=1)
    assert any_trial.newest(given) == ((1, 50), [])
    assert any_trial.newest(any_trial.tune(1, epoch=2)) == ((2, 0), [])
    any_trial.checkpoints.clear()
    any_trial.checkpoints.clear()
    assert any_trial.checkpoints.take_problem() is None
    assert any_trial.in_epoch == []
    assert any_trial.newest(given) == ((1, 0), [])


def test_what_killed_writes_left_is_deleted(any_trial: TrialFolder) -> None:
    filesystem, folder = any_trial.filesystem, any_trial.folder
    for unfinished in ("in_epoch/epoch00000_step00000010", "in_epoch/epoch00009_step00000001", "checkpoint_000003"):
        filesystem.create_dir(f"{folder}/{unfinished}")
        with filesystem.open_output_stream(f"{folder}/{unfinished}/net.params.tmp") as file:
            file.write(b"cut")
    assert any_trial.newest() == (None, [])  # they were none yet, so there is nothing to warn of
    any_trial.save((0, 100))
    assert any_trial.in_epoch == ["epoch00000_step00000010"]
    assert names(f"{folder}/in_epoch/epoch00000_step00000010", filesystem) == FILES


def test_a_clone_gives_up_its_own(any_trial: TrialFolder) -> None:
    any_trial.save((4, 100), (4, 200))
    given = any_trial.tune(7, epoch=1, trial="another")
    any_trial.tune(3, epoch=4)
    assert any_trial.newest(given) == ((1, 0), [])
    assert any_trial.in_epoch == []


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "flipped"])
def test_a_damaged_one_is_skipped_for_the_one_before(trial: TrialFolder, name: str, how: str) -> None:
    given = trial.tune(0, epoch=1)
    trial.save((1, 100), (1, 200))
    newest = Path(trial.folder, "in_epoch", "epoch00001_step00000020")
    damage(how, newest / name)
    found, skipped = trial.newest(given)
    assert found == (1, 100)
    if (name, how) == ("state.json", "missing"):
        assert skipped == []
    else:
        assert len(skipped) == 1
        assert str(newest / name) in skipped[0]
    trial.save((1, 150))  # what is ahead of the trial now goes
    assert trial.in_epoch == ["epoch00001_step00000010", "epoch00001_step00000015"]


@pytest.mark.parametrize("name", FILES)
def test_tunes_older_ones_are_the_last_resort(trial: TrialFolder, name: str) -> None:
    for number in range(3):
        given = trial.tune(number, epoch=number)
    trial.save((0, 500), (1, 500))
    damage("empty", Path(given) / name)
    assert trial.newest(given)[0] == (1, 500)
    damage("cut", Path(trial.folder, "in_epoch", "epoch00001_step00000050", name))
    damage("flipped", Path(trial.folder, "checkpoint_000001", name))
    found, skipped = trial.newest(given)
    assert found == (0, 500)
    assert [sum(folder in text for text in skipped) for folder in ("_000002", "epoch00001", "_000001")] == [1, 1, 1]
    trial.checkpoints.clear()
    assert trial.newest(given)[0] == (0, 0)
    damage("missing", Path(trial.folder, "checkpoint_000000", "net.params"))
    with pytest.raises(CheckpointError, match=f"{TRIAL} has no checkpoint to go on from.*_000002.*_000000"):
        trial.newest(given)


def test_older_damage_is_not_told_when_it_does_not_matter(trial: TrialFolder) -> None:
    older, given = trial.tune(0, epoch=1), trial.tune(1, epoch=2)
    damage("cut", Path(older) / "state.json")
    assert trial.newest(given) == ((2, 0), [])
    damage("cut", Path(given) / "net.params")
    with pytest.raises(CheckpointError, match=r"_000001/net\.params is damaged.*_000000/state\.json is damaged"):
        trial.newest(given)


def test_a_damaged_clone_does_not_go_back_to_a_life_given_up(trial: TrialFolder) -> None:
    given = trial.tune(1, epoch=1, trial="another")
    trial.tune(0, epoch=1)
    trial.save((1, 100))
    damage("cut", Path(given) / "net.params")
    with pytest.raises(CheckpointError, match=r"_000001/net\.params is damaged"):
        trial.newest(given)


def test_nothing_given_and_all_damaged_is_a_new_start(trial: TrialFolder) -> None:
    trial.save((0, 100))
    damage("cut", Path(trial.folder, "in_epoch", "epoch00000_step00000010", "net.params"))
    found, skipped = trial.newest()
    assert found is None
    assert len(skipped) == 1


# Writing in the background


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[int]]:
    """Writing waits for the event; the list has the epochs whose writing has begun."""
    go_on, begun, write = threading.Event(), [], files.write

    def wait_and_write(folder: str, saved: Saved, filesystem: Any) -> None:
        begun.append(saved.epoch)
        assert go_on.wait(10)
        write(folder, saved, filesystem)

    monkeypatch.setattr(files, "write", wait_and_write)
    return go_on, begun


def in_thread(function: Callable[..., Any], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def test_one_is_written_at_a_time(trial: TrialFolder, slow: tuple[threading.Event, list[int]]) -> None:
    go_on, begun = slow
    checkpoints = trial.checkpoints
    assert not checkpoints.busy
    checkpoints.save(saved(epoch=1))
    assert checkpoints.busy
    assert not checkpoints.wait(0.01)
    second = in_thread(checkpoints.save, saved(epoch=2))
    second.join(0.1)
    assert second.is_alive()
    assert begun == [1]
    go_on.set()
    second.join(10)
    assert not second.is_alive()
    checkpoints.close()
    assert not checkpoints.busy
    assert begun == [1, 2]
    assert trial.newest()[0] == (2, 128)


def test_a_full_disk_is_a_problem_and_no_end(small_disk: Path) -> None:
    trial = TrialFolder(fs.LocalFileSystem(), str(small_disk))
    trial.save((1, 100))
    problems = []
    for records in (200, 300):
        trial.checkpoints.save(saved(1, records, step=records // 10, size=100_000))
        assert trial.checkpoints.wait(10)
        problems.append(trial.checkpoints.take_problem())
    assert problems[0] == problems[1]  # so it is one warning
    assert problems[0] is not None
    assert "in_epoch cannot be written (No space left on device)" in problems[0]
    assert trial.checkpoints.take_problem() is None
    assert trial.in_epoch == ["epoch00001_step00000010"]
    assert trial.newest() == ((1, 100), [])
