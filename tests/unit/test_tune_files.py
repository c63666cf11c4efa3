"""Tune's files of a run that is resumed: whole, cut short, or not there."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from raymx.driver.tune_files import TuneFiles, look
from raymx.errors import CheckpointError
from raymx.storage import location

PICKLE, STATE = pickle.dumps({"_tune_config": list(range(100))}), '{"trial_data": []}'


def run(folder: Path, tuner: bytes | None = PICKLE, **states: str) -> TuneFiles:
    (folder / "Trial_1_00000").mkdir()
    if tuner is not None:
        (folder / "tuner.pkl").write_bytes(tuner)
    for name, text in states.items():
        (folder / f"experiment_state-{name}.json").write_text(text)
    return look(location(str(folder)))


def test_a_whole_run(tmp_path: Path) -> None:
    assert run(tmp_path, a=STATE) == TuneFiles(has_tuner=True, is_begun=True)


@pytest.mark.parametrize(
    ("tuner", "how"), [(b"", "damaged"), (PICKLE[:-7], "damaged"), (PICKLE[:1], "damaged"), (None, "missing")]
)
def test_a_tuner_that_is_cut_short_is_to_be_made_anew(tuner: bytes | None, how: str, tmp_path: Path) -> None:
    found = run(tmp_path, tuner, a=STATE)
    assert (found.has_tuner, found.is_begun) == (False, True)
    assert found.warnings == (f"{tmp_path}/tuner.pkl is {how}: it is made anew from run.yaml, and nothing is lost",)


def test_a_state_that_is_cut_short_is_put_aside(tmp_path: Path) -> None:
    found = run(tmp_path, a=STATE, b=STATE[:5])
    assert (found.has_tuner, found.is_begun) == (True, True)
    assert "experiment_state-b.json is damaged" in found.warnings[0]
    assert sorted(file.name for file in tmp_path.glob("experiment*")) == [
        "experiment_state-a.json",
        "experiment_state-b.json.damaged",
    ]


def test_without_any_state_of_trials_that_have_begun_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"experiment_state-a\.json is damaged, and no older one is there"):
        run(tmp_path, a="")
    assert (tmp_path / "experiment_state-a.json").exists()


def test_a_run_in_which_nothing_had_begun_begins(tmp_path: Path) -> None:
    (tmp_path / "tuner.pkl").write_bytes(PICKLE)
    assert look(location(str(tmp_path))) == TuneFiles(has_tuner=True, is_begun=False)
