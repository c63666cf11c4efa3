"""Records, experiments and checkpoints in an S3 store: a server of moto's on this machine."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import EXPERIMENTS
from moto.server import ThreadedMotoServer
from test_checkpoints import assert_same, saved

from raymx.checkpoint.in_epoch import Checkpoints
from raymx.data.recordio.record_set import RecordSet
from raymx.data.tools.packing import pack_arrays
from raymx.driver.first_step import small
from raymx.errors import DataError
from raymx.experiment.loading import load_experiment
from raymx.storage import content, exists, expand, location, open_output
from raymx.training.first_step import try_step

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The options of a URI that name it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    yield f"endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
    made.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket's URI, into which a path can be formatted."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    uri = f"s3://b{uuid.uuid4().hex}/{{}}?{server}"
    location(uri.format("").replace("/?", "?")).make_folder()
    return uri


def put(uri: str, file: Path) -> None:
    with open_output(uri) as out:
        out.write(file.read_bytes())


def test_files_are_written_found_and_missed(bucket: str) -> None:
    for name in ("a/two.rec", "a/one.rec", "a/three.idx"):
        with open_output(bucket.format(name)) as file:
            file.write(name.encode())
    assert content(bucket.format("a/one.rec")) == b"a/one.rec"
    assert expand([bucket.format("a/*.rec")]) == [bucket.format("a/one.rec"), bucket.format("a/two.rec")]
    assert expand([bucket.format("a")]) == expand([bucket.format("a/*.rec")])
    assert not exists(bucket.format("a/four.rec"))
    with pytest.raises(DataError, match=r"s3://.*/b/\*\.rec"):
        expand([bucket.format("b/*.rec")])
    assert content(bucket.format("a/four.rec")) is None


@pytest.mark.parametrize("with_index", [True, False])
def test_records_are_those_of_the_file(bucket: str, tmp_path: Path, with_index: bool) -> None:
    numbers = np.random.default_rng(0)
    images = numbers.integers(0, 255, (300, 16, 16, 1)).astype(np.uint8)
    pack_arrays(images, numbers.integers(0, 9, 300), tmp_path / "x.rec")
    put(bucket.format("x.rec"), tmp_path / "x.rec")
    if with_index:
        put(bucket.format("x.idx"), tmp_path / "x.idx")
    here, there = RecordSet.open([tmp_path / "x.rec"]), RecordSet.open([bucket.format("x.rec")])
    assert there.num_records == 300
    assert list(there.fingerprint().values()) == list(here.fingerprint().values())
    ids = np.arange(300)
    np.testing.assert_array_equal(there.headers(ids).labels, here.headers(ids).labels)


def test_a_checkpoint_comes_back_and_the_older_one_goes(bucket: str) -> None:
    folder = location(bucket.format("runs"))
    kept = Checkpoints(folder.system, folder.path, "abc_00000")
    for epoch in (1, 2, 3):
        kept.save(saved(epoch, size=100_000))
        assert kept.wait(60)
    assert kept.take_problem() is None
    found, skipped = Checkpoints(folder.system, folder.path, "abc_00000").newest()
    assert found is not None
    assert_same(found, saved(3, size=100_000))
    assert skipped == []
    assert len(folder.names()[0]) <= 2


def test_an_experiment_whose_records_are_there(bucket: str) -> None:
    for name in ("fashion_mnist_val.rec", "fashion_mnist_val.idx"):
        put(bucket.format(name), EXPERIMENTS / "data" / name)
    records = bucket.format("fashion_mnist_val.rec")
    found = load_experiment(
        EXPERIMENTS / "fashion_mnist.yaml", {"data.train": records, "data.validation": records, "model.net": "nets:mlp"}
    )
    assert 2 < try_step(small(found), str(EXPERIMENTS))["loss"] < 3
