"""What workers and servers take: as columns, and where it is seen."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from raymx.data.pipeline import store_use
from raymx.kvstore.state import Layout, load
from raymx.kvstore.update_meter import UpdateMeter
from raymx.results import server_columns, worker_columns
from raymx.training import memory
from raymx.training.gpu_usage import GpuFigures, GpuSampler, visible
from raymx.training.input_use import InputUse
from raymx.training.usage import Usage


def report(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "usage": {"cpus": 1.0, "rss_peak_mib": 200.0},
        "sync_s": 0.0,
        "held_s": 0.0,
        "store": ("one", 0.0),
        "input": {"batches": {}, "spent": {}, "transfer_s": 0.0},
    }
    return {**plain, **changes}


class TestWorkerColumns:
    def test_what_is_not_told_has_no_column(self) -> None:
        assert set(worker_columns.columns_of([report()], 10.0)) == {
            "worker_rss_peak_mib",
            "sync_fraction",
            "checkpoint_s",
            "object_store_mib",
        }

    def test_the_workers_that_waited_longest(self) -> None:
        found = worker_columns.columns_of([report(sync_s=1.0, held_s=0.5), report(sync_s=4.0, held_s=0.25)], 10.0)
        assert (found["sync_fraction"], found["checkpoint_s"]) == (0.4, 0.5)
        assert worker_columns.columns_of([report(sync_s=1.0)], 0.0)["sync_fraction"] == 0.0

    def test_workers_of_one_node_share_its_object_store(self) -> None:
        told = [report(store=("one", 40.0)), report(store=("other", 70.0)), report(store=("one", 50.0))]
        assert worker_columns.columns_of(told, 10.0)["object_store_mib"] == 90.0

    def test_gpus_and_the_fullest_node(self) -> None:
        usage = {"rss_peak_mib": 1.0, "node_memory": 0.5, "gpu_memory_peak_mib": 900.0, "gpu_utilization": 0.2}
        other = {"rss_peak_mib": 3.0, "node_memory": 0.7, "gpu_memory_peak_mib": 800.0, "gpu_utilization": 0.6}
        found = worker_columns.columns_of([report(usage=usage), report(usage=other)], 10.0)
        assert found["node_memory_fraction"] == 0.7
        assert found["gpu_memory_peak_mib"] == 900.0
        assert found["gpu_utilization"] == pytest.approx(0.4)
        assert found["worker_rss_peak_mib"] == 3.0

    def test_where_batches_come_from_and_what_making_them_takes(self) -> None:
        one = {
            "batches": {"here": 1, "tasks": 3},
            "spent": {"here": {"read": 0.1, "decode": 0.4}, "tasks": {"read": 1.0, "decode": 5.0, "transform": 2.0}},
            "transfer_s": 0.3,
        }
        other = {"batches": {"memory": 4}, "spent": {"memory": {}}, "transfer_s": 0.2}
        found = worker_columns.columns_of([report(input=one), report(input=other)], 10.0)
        assert found["kept_batches_fraction"] == 0.5
        assert found["own_batches_fraction"] == 0.125
        assert found["read_cpus_used"] == pytest.approx(0.8)
        assert [(stage, round(seconds, 3)) for stage, seconds in found["input_stages"]] == [
            ("read", 1.1),
            ("decode", 5.4),
            ("transform", 2.0),
            ("to devices", 0.5),
        ]


def test_what_making_a_batch_takes() -> None:
    told = {"batches": {"here": 1, "tasks": 3, "memory": 6}, "spent": {"here": {"read": 1.0}, "tasks": {"decode": 5.0}}}
    assert worker_columns.reading_s(told) == 1.5
    assert worker_columns.reading_s({"batches": {"memory": 6}, "spent": {"memory": {}}}) == 0.0


ROW = {"steps": 9, "train_s": 5.0, "num_workers": 2}


def server(**changes: float) -> dict[str, float]:
    return {"cpus": 0.5, "rss_peak_mib": 100.0, "updates": 40, "rounds": 10, "update_s": 2.0, **changes}


class TestServerColumns:
    def test_the_first_step_is_taken_out(self) -> None:
        """As it is out of all figures of speed: ten rounds were made, and nine are timed."""
        found = server_columns.columns_of([server(), server(update_s=1.0)], ROW, in_step=True)
        assert found["server_update_fraction"] == pytest.approx(0.36)
        assert found["server_update_s"] == pytest.approx([1.8, 0.9])
        assert found["server_updates"] == [40, 40]

    def test_async_every_worker_makes_updates(self) -> None:
        found = server_columns.columns_of([server(rounds=20)], ROW, in_step=False)
        assert found["server_update_fraction"] == pytest.approx(0.36)

    def test_without_the_optimizer_there_are_no_updates(self) -> None:
        found = server_columns.columns_of([{"cpus": 0.5, "rss_peak_mib": 100.0}], ROW, in_step=True, where=(1.0, 0))
        assert found == {"server_cpus_used": 0.5, "server_rss_peak_mib": 100.0, "server_bytes_imbalance": 1.0}

    def test_a_row_with_no_timed_step(self) -> None:
        row = {"steps": 0, "train_s": 0.0, "num_workers": 1}
        assert "server_update_fraction" not in server_columns.columns_of([server()], row, in_step=True)

    def test_the_array_that_makes_it_uneven(self) -> None:
        found = server_columns.columns_of([server()], ROW, in_step=True, where=(1.8, 1), largest=("dense0_weight", 900))
        assert found["server_bytes_imbalance"] == 1.8
        assert found["server_largest_array"] == [1, "dense0_weight", 900]


class TestLoad:
    def test_small_arrays_lie_whole_where_their_key_says(self) -> None:
        found = load(Layout(2, 1_000_000), {0: 100, 1: 300})  # key 1 is on server 9973 % 2
        assert (found.imbalance, found.server, found.key, found.size) == (1.5, 1, 1, 300)

    def test_what_is_cut_is_even(self) -> None:
        found = load(Layout(4, 1_000), {0: 4_000})
        assert (found.imbalance, found.key) == (1.0, None)

    def test_one_server_has_all(self) -> None:
        assert load(Layout(1, 1_000), {0: 4_000, 1: 10}).imbalance == 1.0
        assert load(Layout(1, 1_000), {0: 4_000, 1: 10}).key is None


class TestUpdateMeter:
    """A clock and marks by hand: a mark is reached 3 s after it was queued, once that time has come."""

    def setup_method(self) -> None:
        self.now, self.marks = 0.0, list[float]()
        self.meter = UpdateMeter(self.mark, self.reached, lambda: self.now)

    def mark(self, arrays: Any) -> int:
        self.marks.append(self.now + 3.0)
        return len(self.marks) - 1

    def reached(self, number: int) -> float | None:
        return self.marks[number] if self.marks[number] <= self.now else None

    def update(self, key: int, seconds: float) -> None:
        def make() -> None:
            self.now += seconds

        self.meter.update(key, None, make)

    def test_an_update_lasts_until_its_weight_is_written(self) -> None:
        self.update(0, 1.0)
        self.now += 4.0
        self.update(1, 2.0)
        self.now += 4.0
        assert self.meter.take() == {"updates": 2, "rounds": 1, "update_s": 9.0}
        assert self.meter.take() == {"updates": 0, "rounds": 0, "update_s": 0}

    def test_a_mark_that_is_under_way_is_taken_in_later(self) -> None:
        self.update(0, 1.0)
        assert self.meter.take()["update_s"] == 0
        self.now += 4.0
        self.update(0, 1.0)
        self.now += 4.0
        assert self.meter.take()["update_s"] == 4.0  # the mean of both, for the one that was made since

    def test_of_many_one_in_several_is_measured_and_stands_for_the_others(self) -> None:
        for _ in range(2000):
            self.update(0, 0.001)
        self.now += 4.0
        self.meter.take()  # 333 a second: from now on every second one
        self.marks.clear()
        for _ in range(10):
            self.update(0, 1.0)
            self.now += 3.0
        assert len(self.marks) == 5
        assert self.meter.take() == pytest.approx({"updates": 10, "rounds": 10, "update_s": 40.0})

    def steps(self, number: int) -> list[float]:
        """So many steps, of a second each, which update one key; when each began."""
        began = []
        for _ in range(number):
            began.append(self.now)
            self.update(0, 1.0)
        return began

    def test_of_a_long_epoch_the_steps_of_a_trace_are_kept(self) -> None:
        """However many come before and after it, up to its row; ``take`` of a row begins no count anew."""
        self.meter.keep(1001, 1003)
        began = self.steps(500)
        self.meter.take()
        began += self.steps(2000)
        self.now += 4.0
        kept = self.meter.kept(began[1000], began[1002])
        assert [one[:2] for one in kept] == [(0, at) for at in began[1000:1003]]
        assert self.meter.kept(0.0, self.now) == []  # once

    def test_steps_of_a_trace_that_were_skipped_before_it_are_made_up_for(self) -> None:
        self.meter.keep(1001, 1003)
        began = self.steps(1000)  # of 1003, three were skipped
        self.now += 4.0
        assert len(self.meter.kept(began[997], began[999])) == 3

    def test_with_an_update_of_each_worker_workers_need_not_be_at_one_step(self) -> None:
        self.meter.keep(11, 12, updates_a_step=2)
        began = self.steps(100)
        self.now += 4.0
        assert len(self.meter.kept(0.0, began[-1])) == 48

    def test_what_is_outside_of_a_trace_is_measured_as_without_one(self) -> None:
        self.meter.keep(1, 10)
        for _ in range(2000):
            self.update(0, 0.001)
        self.now += 4.0
        self.meter.take()
        self.marks.clear()
        self.steps(10)
        assert len(self.marks) == 5


class TestMemory:
    def test_of_a_node(self) -> None:
        assert memory.of_node("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\n") == 0.75
        assert memory.of_node("") is None

    def test_of_a_container(self) -> None:
        """Files that can be dropped are no use of memory."""
        assert memory.of_container("1000\n", "600\n", "anon 500\ninactive_file 100\n") == 0.5
        assert memory.of_container("max\n", "600\n", "") is None
        assert memory.of_container("9223372036854771712\n", "600\n", "") is None

    def test_of_this_machine(self) -> None:
        found = memory.used_fraction()
        assert found is not None
        assert 0 < found < 1


class FakeNvml:
    """The part of pynvml that is used: two GPUs, of which the second does not tell what it computes."""

    def __init__(self) -> None:
        self.asked = list[Any]()

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        self.asked.append(number)
        return number

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        self.asked.append(name)
        return name

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(used=(1 + gpu) << 30, total=4 << 30)

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        if gpu:
            raise RuntimeError("not supported")
        return SimpleNamespace(gpu=40)


class TestGpus:
    @pytest.mark.parametrize(
        ("setting", "count", "expected"),
        [
            (None, 2, [0, 1]),
            ("3,1,2", 2, [3, 1]),
            ("GPU-ab, GPU-cd", 1, ["GPU-ab"]),
            ("", 1, []),
        ],
    )
    def test_which_are_this_process(self, setting: str | None, count: int, expected: list[Any]) -> None:
        assert visible(setting, count) == expected

    def test_figures(self) -> None:
        figures = GpuFigures()
        assert figures.told() == {}
        for used, busy in ((100, 0.5), (300, 1.0), (200, None)):
            figures.add(used << 20, 400 << 20, busy)
        assert figures.told() == {"gpu_memory_peak_mib": 300, "gpu_memory_fraction": 0.75, "gpu_utilization": 0.75}

    def test_a_thread_looks_at_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nvml = FakeNvml()
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        sampler = GpuSampler(2, every_s=0.001)
        deadline, found = time.monotonic() + 20, dict[str, float]()
        while found.get("gpu_memory_peak_mib") != 2048 and time.monotonic() < deadline:
            time.sleep(0.005)
            found = sampler.take()
        sampler.close()
        assert found["gpu_memory_fraction"] == 0.5
        assert found["gpu_utilization"] == pytest.approx(0.4)
        assert nvml.asked == [0, 1]

    def test_without_the_package_there_are_no_figures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        usage = Usage(num_gpus=1)
        time.sleep(0.05)
        assert not any(name.startswith("gpu") for name in usage.take())
        usage.close()


def test_the_most_that_streams_kept_is_taken_once() -> None:
    store_use.take_mib()
    for size in (1 << 20, 3 << 20, 2 << 20):
        store_use.note(size)
    assert store_use.take_mib() == 3.0
    assert store_use.take_mib() == 0.0


def test_batches_are_added_up_by_where_they_come_from() -> None:
    use = InputUse()
    for source, spent in (("here", {"read": 1.0}), ("here", {"read": 0.5, "decode": 2.0}), ("memory", {})):
        use.took(SimpleNamespace(source=source, spent=spent), 0.25)  # type: ignore[arg-type]
    assert use.take() == {
        "batches": {"here": 2, "memory": 1},
        "spent": {"here": {"read": 1.5, "decode": 2.0}, "memory": {}},
        "transfer_s": 0.75,
    }
    assert use.take() == {"batches": {}, "spent": {}, "transfer_s": 0.0}
