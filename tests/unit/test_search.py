"""What a search library suggests: points that cannot run, and points that were suggested before."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from factories import make_experiment

pytest.importorskip("ray.tune")

from ray.tune.search import Searcher

from raymx.experiment.without_effect import effective
from raymx.sweep.axis import axes_of
from raymx.sweep.listener import Listener, listen
from raymx.sweep.plan import Cell
from raymx.sweep.search import Checked
from raymx.sweep.space import Space


class Library(Searcher):
    """Suggests these points, and keeps what it is told."""

    def __init__(self, rates: Iterable[float]) -> None:
        super().__init__(metric="accuracy", mode="max")
        self._rates = iter(rates)
        self.told: dict[str, float | None] = {}

    def suggest(self, trial_id: str) -> Any:
        rate = next(self._rates, None)
        return Searcher.FINISHED if rate is None else {"axes": {"rate": rate}}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.told[trial_id] = None if result is None else result["accuracy"]

    def save(self, checkpoint_path: str) -> None: ...
    def restore(self, checkpoint_path: str) -> None: ...


class Heard(Listener):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def heard() -> Iterable[Heard]:
    one = Heard()
    listen(one)
    yield one
    listen(Listener())


def checked(library: Library, **options: Any) -> Checked:
    return Checked(library, lambda number, point: Cell(number, point), "accuracy", "max", 10, **options)


def rate_of(found: Any) -> Any:
    return found if found is None or isinstance(found, str) else found["point"]["axes"]["rate"]


def test_a_point_that_was_suggested_before_is_not_trained_again(heard: Heard) -> None:
    library = Library([1, 2, 1, 1, 3])
    search = checked(library)
    assert [rate_of(search.suggest(name)) for name in ("a", "b")] == [1, 2]
    search.on_trial_complete("a", {"accuracy": 0.5})
    assert rate_of(search.suggest("c")) == 3
    assert library.told == {"a": 0.5, "c": 0.5, "c-1": 0.5}  # of both it knows what came of the first


def test_what_a_library_makes_of_a_range_is_kept_within_it(heard: Heard) -> None:
    """A rounding of its own may lie a little beyond, and four figures of 0.99997 would be 1."""
    axes = axes_of({"rate": {"uniform": [0.9, 0.99999]}})
    search = checked(Library([0.99997, 1.0000001, 0.95123456]), axes=axes)
    assert [rate_of(search.suggest(str(number))) for number in range(3)] == [0.99997, 0.99999, 0.9512]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_trial_that_ended_with_nan_is_told_as_a_failed_one(heard: Heard, value: float) -> None:
    library = Library([0.1, 0.1])
    search = checked(library)
    search.suggest("a")
    search.on_trial_result("a", {"accuracy": value})
    search.on_trial_complete("a", {"accuracy": value})
    search.suggest("b")  # the same point
    assert library.told == {"a": None, "b": None}


def test_of_a_point_whose_trial_goes_on_the_library_is_told_later(heard: Heard) -> None:
    library = Library([1, 1, 2])
    search = checked(library)
    search.suggest("a")
    assert rate_of(search.suggest("b")) == 2
    assert library.told == {}
    search.on_trial_complete("a", {"accuracy": 0.7})
    assert library.told == {"a": 0.7, "b": 0.7}


def test_points_that_train_the_same_are_one(heard: Heard) -> None:
    library = Library([0.50001, 0.5, 1])
    axes = axes_of({"rate": {"uniform": [0.1, 1]}})
    search = checked(library, key=lambda point: str(round(float(point["rate"]), 3)), axes=axes)
    assert [rate_of(search.suggest(name)) for name in ("a", "b")] == [0.5, 1]


def test_the_search_ends_when_the_space_is_used_up_and_says_so(heard: Heard) -> None:
    search = checked(Library([1, 2, 2, 1, 2, 1, 2]), size=2)
    assert [rate_of(search.suggest(name)) for name in "abc"] == [1, 2, Searcher.FINISHED]
    assert heard.warnings == ["the search ends after 2 cells: all points of sweep.space have been suggested"]


def test_one_that_repeats_itself_waits_for_what_runs_and_then_ends(heard: Heard) -> None:
    search = checked(Library([1] * 1000))
    assert rate_of(search.suggest("a")) == 1
    assert search.suggest("b") is None
    search.on_trial_complete("a", {"accuracy": 0.5})
    assert search.suggest("b") == Searcher.FINISHED
    assert "200 points in a row could not run, or had been suggested before" in heard.warnings[0]


def test_what_it_knows_goes_on_with_a_resumed_run(heard: Heard) -> None:
    search = checked(Library([1]))
    search.suggest("a")
    search.on_trial_complete("a", {"accuracy": 0.5})
    library = Library([1, 2])
    again = checked(library)
    again.set_state(pickle.loads(pickle.dumps(search.get_state())))
    assert rate_of(again.suggest("b")) == 2
    assert library.told == {"b": 0.5}
    again.set_state({"number": 1, "possible": 1, "names": {}})  # of a run of before


@pytest.mark.parametrize(
    ("axes", "size"),
    [
        ({"training.epochs": {"grid": [1, 2]}, "training.seed": {"choice": [1, 2, 3]}}, 6),
        ({"training.epochs": {"randint": [1, 4]}}, 3),
        ({"training.epochs": {"grid": [1, 2]}, "training.base_lr": {"uniform": [0.1, 0.2]}}, None),
    ],
)
def test_the_number_of_points(axes: dict[str, Any], size: int | None) -> None:
    assert Space(make_experiment(sweep={"space": axes})).size == size


def test_the_key_of_a_sweep_is_what_is_trained() -> None:
    space = Space(make_experiment(sweep={"space": {"training.async_lr_factor": {"uniform": [0.5, 1.0]}}}))
    assert len({effective(space.at({"training.async_lr_factor": factor})) for factor in (0.5, 0.75)}) == 1
