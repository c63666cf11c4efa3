"""Tune's trial schedulers as raymx has them: each class of a table's row with `raymx.sweep.fair.Fair` mixed in.

Tune pickles a trial scheduler into the run's files, and pickle finds a class by its name: so all are made, and are here
by name, when this module is imported.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from ray.tune.schedulers import TrialScheduler

from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.search_libraries import SEARCH_LIBRARIES
from raymx.experiment.trial_schedulers import TRIAL_SCHEDULERS
from raymx.sweep.combinations import library_of, scheduler_of
from raymx.sweep.fair import TIME, Fair
from raymx.sweep.pbt import FairPBT, _Explore
from raymx.sweep.space import Space

__all__ = ["TIME", "FairBOHB", "FairMedian", "FairPBT", "_Explore", "trial_scheduler"]


def trial_scheduler(experiment: ExperimentConfig) -> TrialScheduler:
    """Tune's trial scheduler for a sweep; metric and mode come from the TuneConfig. Its longest trial is that of the
    space, where epochs are an axis."""
    sweep, (_, epochs) = experiment.sweep, Space(experiment).epochs
    row = scheduler_of(sweep)
    given = {
        **dict(sweep.scheduler),
        "grace_epochs": min(sweep.scheduler.grace_epochs, epochs),
        "epochs": epochs,
        "time": TIME,
        "space": sweep.space,
        "seed": sweep.seed,
    }
    arguments = {argument: given[name] for argument, name in row.arguments.items()}
    return fair(library_of(sweep).scheduler_class or row.tune_class)(**arguments)


def fair(path: str) -> Any:
    """The class at ``module:Class`` with `Fair` mixed in, here by the name ``FairClass``; one that has it, as it is."""
    kind = pkgutil.resolve_name(path)
    if issubclass(kind, Fair):
        return kind
    name = f"Fair{path.rpartition(':')[2].removesuffix('Scheduler')}"
    if name not in globals():
        globals()[name] = type(name, (Fair, kind), {"__module__": __name__, "__doc__": kind.__doc__})
    return globals()[name]


for _row in TRIAL_SCHEDULERS.values():
    fair(_row.tune_class)
for _library in SEARCH_LIBRARIES.values():
    if _library.scheduler_class:
        fair(_library.scheduler_class)

# As they are called in the files of runs of before.
FairMedian = fair(TRIAL_SCHEDULERS["median"].tune_class)
FairBOHB = fair(SEARCH_LIBRARIES["bohb"].scheduler_class)
