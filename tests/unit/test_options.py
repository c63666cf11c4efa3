"""The command line: flags of MXNet and Ray as overrides of keys."""

from __future__ import annotations

import pytest

from raymx.cli.options import RESUME_NEWEST, overrides, parser
from raymx.errors import ExperimentError


def given(*arguments: str) -> dict[str, object]:
    return overrides(parser().parse_args(arguments))


def test_nothing_given_overrides_nothing() -> None:
    args = parser().parse_args([])
    assert overrides(args) == {}
    assert (args.experiment, args.resume, args.address, args.storage_path) == (None, None, None, None)
    assert (args.dry_run, args.verbose) == (None, False)


def test_flags_of_mxnet() -> None:
    arguments = (
        "e.yaml --kv-store dist_async -n 4 -s 2 --gpus 0,1 --batch-size 64 --lr 1e-2 --num-epochs 3 "
        "--dtype float64 --gc-type 2bit --gc-threshold 0.5 --disp-batches 20 --name run-1"
    )
    assert given(*arguments.split()) == {
        "kvstore.type": "dist_async",
        "resources.workers": 4,
        "kvstore.servers": 2,
        "resources.gpus_per_worker": 2,
        "batch_lr": 64,
        "training.base_lr": 0.01,
        "training.epochs": 3,
        "precision.dtype": "float64",
        "kvstore.compression.type": "2bit",
        "kvstore.compression.threshold": 0.5,
        "report.disp_batches": 20,
        "name": "run-1",
    }
    assert given("--num-workers", "3", "--num-servers", "1") == {"resources.workers": 3, "kvstore.servers": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "2:8"),
        ("--num-workers", "2:8"),
        ("--set", "resources.workers=2:8"),
        ("--set", "resources.workers= 2:8 "),
        ("-n", "{min: 2, max: 8}"),
        ("-n", "4", "--set", "resources.workers=2:8"),
    ],
)
def test_a_range_of_workers(arguments: tuple[str, ...]) -> None:
    assert given(*arguments) == {"resources.workers": {"min": 2, "max": 8}}


def test_what_is_wrong_with_a_range_is_said_by_the_experiment() -> None:
    assert given("-n", "2:75") == {"resources.workers": {"min": 2, "max": 75}}
    assert given("-n", "8:2") == {"resources.workers": {"min": 8, "max": 2}}
    assert given("-n", "2:many") == {"resources.workers": "2:many"}
    assert given("--set", "resources.workers.max=4") == {"resources.workers.max": 4}


def test_names_stay_text() -> None:
    assert given("--name", "2024", "--gc-type", "none") == {"name": "2024", "kvstore.compression.type": "none"}


@pytest.mark.parametrize(("text", "gpus"), [("0,1", 2), ("3,1,2", 3), ("0", 1), ("auto", "auto"), ("", 0)])
def test_gpus(text: str, gpus: object) -> None:
    assert given("--gpus", text) == {"resources.gpus_per_worker": gpus}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("2", "--set resources.gpus_per_worker=2"),
        ("1", "for one GPU a worker write --gpus 0"),
        ("0,0", "different GPU ids"),
        ("all", "nor auto"),
        ("0,", "not a list"),
        ("-1", "not a list"),
    ],
)
def test_gpus_that_could_be_meant_otherwise(text: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        given(f"--gpus={text}")
    assert part in capsys.readouterr().err


def test_set_is_yaml_and_wins_wherever_it_stands() -> None:
    found = given(
        "--set",
        "training.base_lr=1e-1",
        "--lr",
        "0.5",
        "--set",
        "data.train=[a, b]",
        "--set",
        "model.loss=m:f",
        "--set",
        "resources.gpus_per_worker=auto",
        "--set",
        "kvstore.interface=",
    )
    assert found == {
        "training.base_lr": 0.1,
        "data.train": ["a", "b"],
        "model.loss": "m:f",
        "resources.gpus_per_worker": "auto",
        "kvstore.interface": None,
    }


def test_set_of_a_section_does_not_lose_to_an_earlier_flag() -> None:
    assert list(given("--set", "kvstore.compression=none", "--gc-type", "2bit")) == [
        "kvstore.compression.type",
        "kvstore.compression",
    ]


@pytest.mark.parametrize("text", ["training.base_lr", "=1", ".a=1", "a..b=1", "a=[1"])
def test_malformed_set(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"^--set "):
        given("--set", text)


def test_resume_names_a_folder_or_means_the_newest() -> None:
    assert parser().parse_args(["e.yaml", "--resume"]).resume == RESUME_NEWEST
    assert parser().parse_args(["e.yaml", "--resume", "runs/a"]).resume == "runs/a"


def test_flags_are_not_abbreviated() -> None:
    with pytest.raises(SystemExit):
        given("--num-work", "2")


def test_help_says_that_the_batch_is_global() -> None:
    text = " ".join(parser().format_help().split())
    assert "samples in one update over ALL workers" in text
    assert "(training.global_batch_size)" in text


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["--dry-run", "x.yaml"], "full"),
        (["x.yaml", "--dry-run"], "full"),
        (["--dry-run=fast", "x.yaml"], "fast"),
    ],
)
def test_a_dry_run_may_stand_before_the_experiment(given: list[str], found: str) -> None:
    args = parser().parse_args(given)
    assert (args.dry_run, args.experiment) == (found, "x.yaml")
