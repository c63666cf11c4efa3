"""What Ray says about a role's process, as an error of raymx's. Ray is imported, and not started."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError

from raymx.cluster import generation
from raymx.cluster.losses import lost, lost_with_stream
from raymx.errors import OutOfMemory, RoleLost

OUT_OF_MEMORY = (
    "Task was killed due to the node running low on memory.\n"
    "Memory on the node (IP: n1, ID: 6f2e) was 27.71GB used / 28.80GB limit (0.962273)\n"
)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (OutOfMemoryError(OUT_OF_MEMORY), OutOfMemory, "worker 1 was ended for lack of memory: 27.7 of 28.8 GB on"),
        (ActorDiedError(None), RoleLost, "worker 1 died: process was killed or crashed"),
    ],
)
def test_an_error_of_rays(raised: RayError, kind: type[RoleLost], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(ref: Any) -> Any:
        raise raised

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(kind, match=text) as caught:
        generation.value_of("a ref", "worker 1")
    assert type(caught.value) is kind
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (
            OUT_OF_MEMORY,
            OutOfMemory,
            "a read task of worker 1 of 2 was ended for lack of memory: 27.7 of 28.8 GB on n1",
        ),
        ("Failed to retrieve object 7.", RoleLost, "worker 1 of 2: ObjectLostError: Failed to retrieve object 7."),
    ],
)
def test_what_is_lost_with_a_read_task(said: str, kind: type[RoleLost], text: str) -> None:
    error = lost_with_stream("worker 1 of 2", "ObjectLostError", said)
    assert (type(error), str(error)) == (kind, text)


def test_a_loss_without_words_has_some() -> None:
    assert str(lost("worker 1", "")) == "worker 1: no reason is known"
