"""Every record once an epoch, the same global batches whatever the number of workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymx.data.pipeline.order import BatchPlan, Rows, Shuffle, epoch_order, validation_rows

SIZES = [(392, 50), (392, 392), (1, 8), (100, 7), (64, 64), (65, 64)]
WORKERS = [1, 2, 3, 5, 8]


def real(rows: Rows) -> list[int]:
    return rows.ids[rows.weights == 1].tolist()


def test_order_is_a_pure_function_of_seed_and_epoch() -> None:
    first = epoch_order(1000, Shuffle("global", seed=1), epoch=2)
    assert first.dtype == np.int64
    np.testing.assert_array_equal(np.sort(first), np.arange(1000))
    np.testing.assert_array_equal(first, epoch_order(1000, Shuffle("global", seed=1), epoch=2))
    for seed, epoch in ((2, 2), (1, 3)):
        assert (first != epoch_order(1000, Shuffle("global", seed), epoch)).mean() > 0.9


def test_order_never_changes_between_releases() -> None:
    """A checkpoint's position means nothing when these numbers change."""
    assert epoch_order(8, Shuffle("global", seed=1), epoch=0).tolist() == [2, 0, 1, 4, 5, 6, 7, 3]


def test_order_none_is_the_files_order() -> None:
    np.testing.assert_array_equal(epoch_order(5, Shuffle("none", seed=1), epoch=7), np.arange(5))


def test_impossible_shuffles_are_named() -> None:
    with pytest.raises(ValueError, match=r"'globl'.*'global', 'chunk', 'none'"):
        Shuffle("globl")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="window_records 0"):
        Shuffle("chunk", window_records=0)


@given(
    num_records=st.integers(1, 500),
    chunk=st.integers(1, 100),
    window=st.integers(1, 300),
    order=st.sampled_from(["global", "chunk", "none"]),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 9),
)
def test_any_order_has_each_record_once(
    num_records: int, chunk: int, window: int, order: str, seed: int, epoch: int
) -> None:
    shuffle = Shuffle(order, seed, chunk, window)  # type: ignore[arg-type]
    found = epoch_order(num_records, shuffle, epoch)
    assert sorted(found.tolist()) == list(range(num_records))
    np.testing.assert_array_equal(found, epoch_order(num_records, shuffle, epoch))


def test_chunk_order_never_changes_between_releases() -> None:
    assert epoch_order(9, Shuffle("chunk", 1, 3, 6), 0).tolist() == [7, 8, 0, 1, 2, 6, 5, 4, 3]


def test_chunks_stay_together_within_a_window() -> None:
    """Each window holds whole chunks, those of a window are mixed, and windows differ from epoch to epoch."""
    shuffle = Shuffle("chunk", 1, chunk_records=10, window_records=50)
    orders = [epoch_order(1000, shuffle, epoch) for epoch in range(2)]
    for order in orders:
        windows = order.reshape(20, 50)
        assert all(len(set((window // 10).tolist())) == 5 for window in windows)
        assert np.mean([len(set((window[:10] // 10).tolist())) for window in windows]) > 3
    assert (orders[0] != orders[1]).mean() > 0.9
    assert len({int(window[0] // 10) for window in orders[0].reshape(20, 50)}) > 10


@pytest.mark.parametrize(("num_records", "batch"), SIZES)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_each_record_exactly_once_in_the_same_global_batches(num_records: int, batch: int, num_workers: int) -> None:
    plan = BatchPlan(num_records, batch, num_workers)
    order = epoch_order(num_records, Shuffle("global", seed=1), epoch=0)
    assert len(plan.starts()) == plan.steps
    for step, start in enumerate(plan.starts()):
        rows = [plan.worker_rows(order, start, rank) for rank in range(num_workers)]
        together = [record for part in rows for record in real(part)]
        assert together == order[step * batch : (step + 1) * batch].tolist()
        assert {part.real_global for part in rows} == {len(together)} == {plan.real_rows(start)}
        assert {part.records_done for part in rows} == {min((step + 1) * batch, num_records)}
        counts = [part.real_local for part in rows]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == len(together)
        for part in rows:
            assert part.ids.shape == part.weights.shape == (plan.rows_per_worker,)
            assert part.weights.dtype == np.float32
            assert part.weights.sum() == part.real_local
            assert set(part.ids.tolist()) <= set(together)
    assert sum(map(plan.real_rows, plan.starts())) == num_records


@given(
    num_records=st.integers(1, 300),
    data=st.data(),
    sizes=st.lists(st.tuples(st.integers(1, 70), st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=5),
)
def test_each_record_once_in_its_order_however_the_batch_changes_within_an_epoch(
    num_records: int, data: st.DataObject, sizes: list[tuple[int, int, int]]
) -> None:
    """A run that has other batch sizes, workers and devices from some steps of an epoch on."""
    order = epoch_order(num_records, Shuffle("global", seed=1), epoch=0)
    seen: list[int] = []
    step = record = 0
    for number, size in enumerate(sizes):
        plan = BatchPlan(num_records, *size)
        left = plan.starts(record)
        kept = len(left) if number + 1 == len(sizes) else data.draw(st.integers(0, len(left)), label="steps")
        for start in left[:kept]:
            assert start == record
            rows = [plan.worker_rows(order, start, rank) for rank in range(plan.num_workers)]
            seen += [one for part in rows for one in real(part)]
            (record,) = {part.records_done for part in rows}
            step += 1
            assert plan.steps_from(step, record) == step + len(plan.starts(record))
        assert len(seen) == record
    assert record == num_records
    assert plan.steps_from(step, record) == step
    assert seen == order.tolist()


@given(num_records=st.integers(1, 300), batch=st.integers(1, 70))
def test_without_a_change_an_epoch_has_the_same_steps_from_anywhere(num_records: int, batch: int) -> None:
    plan = BatchPlan(num_records, batch, 3)
    for step, start in enumerate(plan.starts()):
        assert (start, plan.steps_from(step, start)) == (step * batch, plan.steps)
        assert plan.starts(start) == plan.starts()[step:]
    assert plan.steps_from(plan.steps, num_records) == plan.steps


def test_steps_after_a_change_of_the_batch() -> None:
    """100 records: 3 steps of 10, then of 30: at 30, 60 and 90, the last with 10."""
    plan = BatchPlan(100, 30, 2)
    assert (plan.steps_from(3, 30), list(plan.starts(30)), plan.real_rows(90)) == (6, [30, 60, 90], 10)


def test_the_case_that_drops_rows_elsewhere() -> None:
    plan = BatchPlan(392, 50, 3)
    assert (plan.steps, plan.rows_per_worker, plan.real_rows(350)) == (8, 17, 42)


@pytest.mark.parametrize(("batch", "num_workers", "devices", "rows"), [(64, 2, 1, 32), (64, 3, 1, 22), (64, 3, 4, 24)])
def test_rows_of_a_worker_divide_over_its_devices(batch: int, num_workers: int, devices: int, rows: int) -> None:
    assert BatchPlan(1000, batch, num_workers, devices).rows_per_worker == rows


def test_worker_without_a_real_record_gets_padding_of_that_batch() -> None:
    plan = BatchPlan(num_records=9, global_batch_size=8, num_workers=4)
    rows = plan.worker_rows(np.arange(9), 8, 3)
    assert (rows.ids.tolist(), rows.weights.tolist(), rows.real_local, rows.real_global) == ([8, 8], [0, 0], 0, 1)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("num_records", [1, 7, 392])
def test_validation_visits_each_record_once_in_static_shapes(num_records: int, num_workers: int) -> None:
    seen: list[int] = []
    for rank in range(num_workers):
        for part in validation_rows(num_records, rows=16, num_workers=num_workers, rank=rank):
            assert part.ids.shape == (16,)
            assert part.real_local == part.real_global == len(real(part)) > 0
            seen += real(part)
    assert seen == list(range(num_records))


def test_impossible_numbers_are_named() -> None:
    plan, order = BatchPlan(10, 4, 2), np.arange(10)
    with pytest.raises(ValueError, match="num_workers is 0"):
        BatchPlan(10, 4, 0)
    for start in (10, -1):
        with pytest.raises(ValueError, match=rf"begins at record {start}; this epoch has the records 0 to 9"):
            plan.worker_rows(order, start, 0)
    with pytest.raises(ValueError, match=r"rank is 2.*0 to 1"):
        plan.worker_rows(order, 0, 2)
    with pytest.raises(ValueError, match="order has 9 records; the plan has 10"):
        plan.worker_rows(order[:9], 0, 0)
