"""Streams that are played one after the other, the next one started ahead; and what is kept in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from raymx.data.pipeline.batch import Batch, Stream
from raymx.data.pipeline.caching import RecordCache
from raymx.data.pipeline.decoding import BadRecord, Decoded, Decoding
from raymx.data.pipeline.image import Pixels
from raymx.data.pipeline.order import Rows, all_rows
from raymx.data.pipeline.prefetch import Prefetcher, Segment
from raymx.errors import DataError

DECODING = Decoding(Pixels((1, 2, 2)))


def rows(*ids: int, real: int | None = None) -> Rows:
    count = len(ids) if real is None else real
    weights = np.array([1.0] * count + [0.0] * (len(ids) - count), np.float32)
    return Rows(np.array(ids), weights, count, count)


def decoded(part: Rows, bad: Sequence[int] = ()) -> Batch:
    """Pixels and labels are the record's number; records of ``bad`` cannot be used."""
    usable = np.array([record not in bad for record in part.ids.tolist()], np.uint8)
    images = np.broadcast_to(part.ids.astype(np.uint8)[:, None, None, None], (len(part.ids), 2, 2, 1))
    named = [BadRecord("a.rec", record, "bad") for record in dict.fromkeys(part.ids.tolist()) if record in bad]
    return Batch.of(Decoded(images, part.ids.astype(np.float32)[:, None], np.zeros_like(usable), usable, named), part)


class Opener:
    """Opens streams of what a segment's rows are, and remembers what became of them."""

    def __init__(self, fails: str = "") -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.changed = threading.Condition()
        self._fails = fails

    def __call__(self, segment: Segment) -> Stream:
        self._note(self.opened, segment.name)
        if segment.name == self._fails:
            raise DataError(segment.name)
        try:
            for one in segment.rows():
                yield decoded(one)
        finally:
            self._note(self.closed, segment.name)

    def _note(self, names: list[str], name: str) -> None:
        with self.changed:
            names.append(name)
            self.changed.notify_all()

    def wait(self, met: Callable[[], bool]) -> bool:
        with self.changed:
            return self.changed.wait_for(met, timeout=10)


def segment(name: str, count: int) -> Segment:
    return Segment(name, count, lambda: [rows(number) for number in range(count)])


def play(feed: Prefetcher, name: str, count: int, following: Segment | None = None) -> list[int]:
    return [int(batch.labels[0]) for batch in feed.play([segment(name, count)], following)]


def test_segments_are_played_in_order() -> None:
    opener = Opener()
    segments = [segment("a", 2), segment("b", 3)]
    assert [int(batch.labels[0]) for batch in Prefetcher(opener, lead=1).play(segments)] == [0, 1, 0, 1, 2]
    assert opener.opened == opener.closed == ["a", "b"]


def test_what_follows_is_started_before_the_end_and_taken_over() -> None:
    opener, after = Opener(), segment("b", 3)
    feed = Prefetcher(opener, lead=2)
    playing = feed.play([segment("a", 5)], after)
    for _ in range(3):
        next(playing)
    assert opener.opened == ["a"]
    next(playing)  # one is left, and the lead is 2
    assert opener.wait(lambda: "b" in opener.opened)
    assert len(list(playing)) == 1
    assert play(feed, "b", 3) == [0, 1, 2]
    assert opener.opened == ["a", "b"]


def test_what_was_started_for_something_else_is_given_up() -> None:
    opener = Opener()
    feed = Prefetcher(opener, lead=9)
    assert play(feed, "a", 2, segment("unwanted", 3)) == [0, 1]
    assert play(feed, "c", 2) == [0, 1]
    assert opener.wait(lambda: "unwanted" in opener.closed)


def test_a_warmup_does_not_wait_for_the_stream_behind_it() -> None:
    may_open = threading.Event()
    opener = Opener()

    def slowly(segment: Segment) -> Stream:
        assert may_open.wait(10)
        return opener(segment)

    playing = Prefetcher(slowly, lead=1).play([segment("a", 2)], warmup=[decoded(rows(number)) for number in (7, 8)])
    assert [int(next(playing).labels[0]) for _ in range(2)] == [7, 8]
    may_open.set()
    assert [int(batch.labels[0]) for batch in playing] == [0, 1]
    assert opener.opened == ["a"]


def test_a_warmup_alone_starts_what_follows() -> None:
    opener = Opener()
    feed = Prefetcher(opener, lead=1)
    assert [int(batch.labels[0]) for batch in feed.play([], segment("b", 2), warmup=[decoded(rows(7))])] == [7]
    assert opener.wait(lambda: "b" in opener.opened)
    assert play(feed, "b", 2) == [0, 1]
    assert opener.opened == ["b"]


def test_an_error_of_the_warmup_leaves_no_stream() -> None:
    opener = Opener()
    feed = Prefetcher(opener, lead=1)

    def warmup() -> Stream:
        yield decoded(rows(7))
        raise DataError("bad")

    playing = feed.play([segment("a", 2)], warmup=warmup())
    next(playing)
    with pytest.raises(DataError, match="bad"):
        next(playing)
    feed.close()
    assert opener.wait(lambda: opener.closed == opener.opened)


def test_closing_gives_up_what_was_started() -> None:
    opener = Opener()
    feed = Prefetcher(opener, lead=9)
    play(feed, "a", 1, segment("b", 3))
    feed.close()
    assert opener.wait(lambda: opener.closed == ["a", "b"] or opener.closed == ["b", "a"])


def test_leaving_early_closes_the_stream() -> None:
    opener = Opener()
    playing = Prefetcher(opener, lead=1).play([segment("a", 5)])
    next(playing)
    playing.close()
    assert opener.closed == ["a"]


def test_an_error_of_a_stream_started_ahead_is_raised_where_it_is_played() -> None:
    feed = Prefetcher(Opener(fails="b"), lead=9)
    assert play(feed, "a", 2, segment("b", 2)) == [0, 1]
    with pytest.raises(DataError, match="b"):
        play(feed, "b", 2)


def test_kept_batches_equal_streamed_ones() -> None:
    kept = RecordCache(7, DECODING)
    planned = [rows(3, 1, 5), rows(2, 2, 2, real=1)]
    for one in planned:
        kept.add(one, decoded(one))
    assert not kept.complete
    others = kept.fill_rows(planned, 3)
    assert [one.ids.tolist() for one in others] == [[0, 4, 6]]
    for one in others:
        kept.add(one, decoded(one))
    assert kept.complete
    wanted = rows(6, 0, 3, 3, real=3)
    again, streamed = kept.batch(wanted), decoded(wanted)
    for name in ("images", "labels", "weights", "mirror"):
        np.testing.assert_array_equal(getattr(again, name), getattr(streamed, name))
    assert again.images.dtype == np.uint8


def test_kept_bad_records_stay_bad() -> None:
    kept = RecordCache(4, DECODING)
    one = rows(0, 1, 2, 3)
    kept.add(one, decoded(one, bad=[2]))
    batch = kept.batch(rows(2, 3, 2, real=2))
    assert batch.weights.tolist() == [0, 1, 0]
    assert (batch.real_local, batch.real_global, [bad.offset for bad in batch.bad]) == (1, 2, [2])


def test_a_worker_with_padding_only_keeps_and_counts_nothing() -> None:
    kept = RecordCache(2, DECODING)
    padding = rows(0, 1, real=0)
    batch = decoded(padding, bad=[0])
    assert batch.bad == ()
    kept.add(padding, batch)
    assert kept.missing([]).tolist() == [0, 1]


def test_missing_records_are_all_of_them_but_the_planned_ones() -> None:
    assert RecordCache(5, DECODING).missing(list(all_rows(np.array([0, 3]), 2))).tolist() == [1, 2, 4]
