"""The table of searches: who chooses the points of a sweep, and what that goes with. Pure.

To add a search library that Ray Tune knows: a row here, and its packages in pyproject.toml under an extra of its name.
The experiment file, the rules of sweeps, `raymx.sweep.search` and the documentation read the row.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchLibrary:
    """One value of ``sweep.search``. ``meaning`` is a sentence for whoever chooses.

    ``searcher`` is Ray Tune's ``module:Class``; without one, the points are listed before the sweep begins.
    """

    name: str
    meaning: str
    searcher: str = ""
    module: str = ""  # what the library is imported as
    seed_argument: str = "seed"  # of the searcher
    samples: int = 10  # points that ``sweep.samples: auto`` stands for
    walks_grids: bool = False  # takes every value of a grid axis; else one is drawn
    follows_results: bool = False  # of each trial itself, so that repeats of a cell would confuse it
    trial_scheduler: str = ""  # the only one that it goes with, which it has without being asked; "" for any
    scheduler_class: str = ""  # Ray Tune's ``module:Class`` in place of that trial scheduler's own

    @property
    def listed(self) -> bool:
        """Whether the points are known before the sweep begins."""
        return not self.searcher


_ROWS = (
    SearchLibrary(
        "grid", "Every value of the grid axes; of the others, values are drawn.", samples=1, walks_grids=True
    ),
    SearchLibrary("random", "Points are drawn at random, of grid axes too."),
    SearchLibrary(
        "optuna",
        "Optuna (by default a tree-structured Parzen estimator) chooses by the results so far.",
        "ray.tune.search.optuna:OptunaSearch",
        "optuna",
    ),
    SearchLibrary(
        "bohb",
        "BOHB (HyperBand with a model of the results so far) chooses, and pauses trials.",
        "ray.tune.search.bohb:TuneBOHB",
        "hpbandster",
        follows_results=True,
        trial_scheduler="hyperband",
        scheduler_class="ray.tune.schedulers:HyperBandForBOHB",
    ),
    SearchLibrary(
        "hyperopt",
        "Hyperopt (a tree-structured Parzen estimator) chooses by the results so far.",
        "ray.tune.search.hyperopt:HyperOptSearch",
        "hyperopt",
        seed_argument="random_state_seed",
    ),
)

SEARCH_LIBRARIES: dict[str, SearchLibrary] = {row.name: row for row in _ROWS}
"""By name, in the order in which a message lists them."""
