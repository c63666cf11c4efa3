"""What is looked at before the first step: labels, and records that are none; and how many bad ones a run skips."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from raymx.cluster import failure_policy
from raymx.cluster.failure_policy import History
from raymx.data.pipeline import first_look
from raymx.data.pipeline.batch import Stream
from raymx.data.pipeline.planning import Share
from raymx.data.pipeline.warmup import decode_here
from raymx.data.pipeline.worker_data import WorkerData
from raymx.data.recordio.record import RecordIOWriter, pack
from raymx.data.recordio.record_set import RecordSet
from raymx.errors import DataError, TooManyBadRecords
from raymx.experiment.loading import parse_experiment
from raymx.trial import failures
from raymx.trial.requests import check_bad_records

PNG = cv2.imencode(".png", np.zeros((2, 2, 1), np.uint8))[1].tobytes()
SAGEMAKER = b"\x0a\x22\x0a\x06values\x12\x18\x12\x16\x0a\x10" + bytes(range(60))


def stream(records: RecordSet, rows: Any, decoding: Any) -> Stream:
    return decode_here(records, rows, decoding)


def write(path: Path, labels: Sequence[Any], image: bytes = PNG) -> list[int]:
    """A record a label; the byte where each begins."""
    return write_payloads(path, [pack(label, image) for label in labels])


def write_payloads(path: Path, payloads: Sequence[bytes]) -> list[int]:
    with RecordIOWriter(path, path.with_suffix(".idx")) as writer:
        return [writer.write(payload) for payload in payloads]


def open_data(
    folder: Path,
    model: dict[str, Any] | None = None,
    loop: str = "default",
    share: Share | None = None,
    **data: Any,
) -> WorkerData:
    experiment = parse_experiment(
        {
            "name": "x",
            "model": {"net": "a:net", "classes": 3, **(model or {})},
            "training": {"global_batch_size": 4, "loop": loop},
            "data": {"train": "train.rec", "image_shape": [1, 2, 2], "cache": "none", **data},
        },
        str(folder),
    )
    return WorkerData(experiment, share or Share(0, 1, 1), stream)


# ---- labels that the loss cannot use ----


@pytest.mark.parametrize("label", [3.0, 34.0, -1.0, 0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_label_that_is_no_class_is_refused_before_the_first_step(
    tmp_path: Path, label: float, as_list: bool, split: str
) -> None:
    write(tmp_path / "train.rec", range(3))
    labels = [0, 1, label, 2]
    offsets = write(tmp_path / f"{split}.rec", [[one] for one in labels] if as_list else labels)
    data = open_data(tmp_path, validation=f"{split}.rec")
    with pytest.raises(DataError) as caught:
        _ = data.plan
    text = str(caught.value)
    assert f"{split}.rec, record at byte {offsets[2]}: its label is {label:g}, " in text
    assert "with model.classes 3 that is 0 to 2" in text
    assert "\n" not in text


def test_labels_that_are_no_classes_are_skipped_when_asked(tmp_path: Path) -> None:
    write(tmp_path / "train.rec", [0, 1, 34, 2, 2, float("nan")])
    data = open_data(tmp_path, on_bad_record="skip", max_bad=0.5)
    batches = list(data.train(0, 0))
    assert sorted(label for batch in batches for label in batch.labels[batch.weights == 1].tolist()) == [0, 1, 2, 2]
    assert data.take_skipped() == 2


@pytest.mark.parametrize(
    ("model", "loop", "labels"),
    [
        ({}, "a:loop", [5, -1]),  # what a loop of the user's does with labels is not known
        ({"loss": "a:loss"}, "default", [5, float("nan")]),
        ({"loss": "l2", "metric": "mse"}, "default", [5.5, -1e9]),
        ({"loss": "sigmoid_bce", "metric": "mse"}, "default", [0, 0.25, 1]),
        ({}, "default", [0, 1, 2, 2.0]),
    ],
)
def test_labels_that_a_loss_can_use_or_that_are_the_users_own(
    tmp_path: Path, model: dict[str, Any], loop: str, labels: list[float]
) -> None:
    write(tmp_path / "train.rec", labels)
    assert len(list(open_data(tmp_path, model, loop).train(0, 0))) == 1


@pytest.mark.parametrize(("loss", "label"), [("l2", float("nan")), ("sigmoid_bce", 2), ("sigmoid_bce", -1)])
def test_other_losses_have_labels_of_their_own(tmp_path: Path, loss: str, label: float) -> None:
    write(tmp_path / "train.rec", [0, label])
    with pytest.raises(DataError, match=rf"its label is {label:g}, but {loss} takes"):
        _ = open_data(tmp_path, {"loss": loss, "metric": "mse"}).plan


@pytest.mark.parametrize("label", [1.0, 5.0])
def test_a_transform_may_make_classes_of_labels(tmp_path: Path, label: float) -> None:
    (tmp_path / f"{tmp_path.name}.py").write_text("def less(image, label, rng): return image, label - 10\n")
    write(tmp_path / "train.rec", [10, 11, 10 + label])
    data = open_data(tmp_path, transform=f"{tmp_path.name}:less")
    if label < 3:
        assert len(list(data.train(0, 0))) == 1
    else:
        with pytest.raises(DataError, match="its label is 5, but"):
            list(data.train(0, 0))


def test_a_label_outside_a_sample_is_met_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "ALL_BYTES", 1)
    monkeypatch.setattr(first_look, "SAMPLE", 2)
    offsets = write(tmp_path / "train.rec", [0, 9, 1, 2])
    data = open_data(tmp_path)
    _ = data.plan
    with pytest.raises(DataError, match=f"byte {offsets[1]}: its label is 9"):
        list(data.train(0, 0))


def test_a_sample_has_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "train.rec", [0] * 10)
    records = RecordSet.open([tmp_path / "train.rec"])
    assert first_look.sample(records).tolist() == list(range(10))
    monkeypatch.setattr(first_look, "ALL_BYTES", 1)
    monkeypatch.setattr(first_look, "SAMPLE", 4)
    assert first_look.sample(records).tolist() == [0, 3, 6, 9]
    monkeypatch.setattr(first_look, "URI_SAMPLE", 2)
    assert first_look.sample(RecordSet.open([f"file://{tmp_path}/train.rec"])).tolist() == [0, 9]


# ---- too many bad records, and records of others ----


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_records_of_another_format_are_named(tmp_path: Path, scheme: str) -> None:
    write_payloads(tmp_path / "train.rec", [SAGEMAKER] * 200)
    for on_bad in ("fail", "skip"):
        with pytest.raises(DataError, match="Amazon SageMaker") as caught:
            _ = open_data(tmp_path, train=f"{scheme}{tmp_path}/train.rec", on_bad_record=on_bad).plan
        assert isinstance(caught.value, TooManyBadRecords) == (on_bad == "skip")
        assert "announces" not in str(caught.value)


def test_files_of_images_without_headers_are_named(tmp_path: Path) -> None:
    write_payloads(tmp_path / "train.rec", [PNG])
    with pytest.raises(DataError, match="it is an image, not a header, labels and an image"):
        _ = open_data(tmp_path).plan


@pytest.mark.parametrize(
    ("bad", "max_bad", "ends"), [(1, 0.01, False), (2, 0.01, True), (2, 0.02, False), (1, 0, True)]
)
def test_more_bad_images_than_allowed_end_the_run(tmp_path: Path, bad: int, max_bad: float, ends: bool) -> None:
    """They are met when they are decoded: their headers are right."""
    payloads = [pack(number % 3, b"junk" if number < bad else PNG) for number in range(100)]
    write_payloads(tmp_path / "train.rec", payloads)
    data = open_data(tmp_path, on_bad_record="skip", max_bad=max_bad)
    for epoch in range(2):
        if not ends:
            list(data.train(epoch, 0))
            assert data.take_skipped() == bad
            continue
        with pytest.raises(TooManyBadRecords) as caught:
            list(data.train(epoch, 0))
        assert f"data.train: {int(max_bad * 100) + 1} bad records of 100" in str(caught.value)
        assert f"data.max_bad {max_bad:g} allows {int(max_bad * 100)}" in str(caught.value)
        assert "train.rec, record at byte" in str(caught.value)


def test_damage_counts_by_what_it_takes(tmp_path: Path) -> None:
    offsets = write(tmp_path / "train.rec", [0] * 200)
    (tmp_path / "train.idx").unlink()
    content = bytearray((tmp_path / "train.rec").read_bytes())
    content[offsets[50] : offsets[60]] = b"x" * (offsets[60] - offsets[50])
    (tmp_path / "train.rec").write_bytes(content)
    with pytest.raises(TooManyBadRecords, match=r"11 bad records of 200.*train\.rec, byte"):
        _ = open_data(tmp_path, on_bad_record="skip").plan
    assert open_data(tmp_path, on_bad_record="skip", max_bad=0.1).plan.steps == 48


def test_a_set_without_a_good_record_is_refused_whatever_is_allowed(tmp_path: Path) -> None:
    write(tmp_path / "train.rec", [0] * 8, b"junk")
    with pytest.raises(TooManyBadRecords, match="8 bad records of 8"):
        list(open_data(tmp_path, on_bad_record="skip", max_bad=1.0).train(0, 0))


def test_bad_records_of_all_workers_count_together() -> None:
    reports = [{"bad_records": 3, "records": 500}, {"bad_records": 2, "records": 500}]
    check_bad_records(reports, 0.01)
    with pytest.raises(TooManyBadRecords, match=r"6 bad records of 500 .* data\.max_bad 0\.01 allows 5"):
        check_bad_records([*reports, {"bad_records": 1, "records": 500}], 0.01)
    check_bad_records([{"bad_records": 0, "records": 0}], 0.01)  # a loop with data of its own


def test_too_many_bad_records_are_not_tried_again() -> None:
    error = TooManyBadRecords("too many")
    failure = failures.failure_of(error, False, True)
    history = History().after(failure, trained=True)
    assert failure_policy.decide(failure, history, 3).action == "raise"
    assert str(failures.final(error, failure_policy.decide(failure, history, 3).reason)) == "too many"


# ---- records without an image, and auto ----


def face_data(path: Path) -> list[int]:
    """Nine images of people, then the record of an identity, which has two labels and no image."""
    return write_payloads(path, [*[pack(n % 3, PNG) for n in range(9)], pack([0, 9], b"")])


@pytest.mark.parametrize("width", [1, 2, "auto"])
def test_a_record_without_an_image_is_named_as_such(tmp_path: Path, width: Any) -> None:
    offsets = face_data(tmp_path / "train.rec")
    data = open_data(tmp_path, label_width=width, loop="a:loop")
    with pytest.raises(DataError) as caught:
        _ = data.plan
    if width == 2:
        assert "it has 1 labels; data.label_width is 2" in str(caught.value)
    else:
        assert f"record at byte {offsets[9]}: it has no image, only 2 labels" in str(caught.value)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_auto_leaves_out_records_without_an_image_and_says_its_width(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    face_data(tmp_path / "train.rec")
    given = {"train": f"{scheme}{tmp_path}/train.rec", "label_width": "auto"}
    data = open_data(tmp_path, on_bad_record="skip", max_bad=0.2, **given)
    with caplog.at_level(logging.WARNING):
        assert data.label_width == 1
        assert len(list(data.train(0, 0))) == 3
        assert data.take_skipped() == 1
        other = open_data(tmp_path, on_bad_record="skip", share=Share(1, 2, 1), **given)
        assert other.label_width == 1
    said = [message for message in caplog.messages if message.startswith("data.label_width")]
    assert said == ["data.label_width auto is 1: records have 1 label (9)"]  # by one worker


@pytest.mark.parametrize(
    ("model", "labels", "reason"),
    [
        ({}, [[1, 2], [0, 1]], "2 labels (2), but model.loss softmax_cross_entropy takes one"),
        ({"loss": "l2"}, [[1, 2], [0, 1]], "2 labels (2), but model.metric accuracy takes one"),
        ({"loss": "a:loss"}, [[1, 2], 0], "1 label (1), 2 labels (1), but model.metric accuracy takes one"),
        ({"loss": "l2", "metric": "mse"}, [[1, 2], 0], "filled up with -1, and l2 would take that for labels"),
        ({"loss": "a:loss", "metric": "mse"}, [[1, 2], 0], "and mse would take that for labels"),
    ],
)
def test_a_loss_that_cannot_take_what_auto_comes_to_is_refused(
    tmp_path: Path, model: dict[str, Any], labels: list[Any], reason: str
) -> None:
    write(tmp_path / "train.rec", labels)
    with pytest.raises(DataError, match="is auto, and records have ") as caught:
        _ = open_data(tmp_path, model, label_width="auto").plan
    assert reason in str(caught.value)


@pytest.mark.parametrize("model", [{"loss": "l2", "metric": "mse"}, {"loss": "a:loss", "metric": "a:metric"}])
def test_what_auto_comes_to_is_taken_where_it_fits(tmp_path: Path, model: dict[str, Any]) -> None:
    write(tmp_path / "train.rec", [[1, 2], [0, 1]])
    assert open_data(tmp_path, model, label_width="auto").plan.steps == 1


# ---- what is said ----


@pytest.mark.parametrize(
    ("labels", "order", "said"),
    [
        ([1] * 6, "global", "all 6 records that were looked at have the label 1"),
        ([0, 0, 1, 1, 2, 2], "none", "data.train is sorted by label (3 labels in 3 runs), and data.order is none"),
        ([0, 0, 1, 1, 2, 2], "global", ""),
        ([0, 1, 2, 0, 1, 2], "none", ""),
        ([0, 1, 2], "none", ""),  # a record a label
    ],
)
def test_labels_that_will_not_train_well_are_said(
    tmp_path: Path, labels: list[int], order: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "train.rec", labels)
    with caplog.at_level(logging.WARNING):
        _ = open_data(tmp_path, order=order).plan
    assert said in "".join(caplog.messages)
    assert bool(said) == bool(caplog.messages)
