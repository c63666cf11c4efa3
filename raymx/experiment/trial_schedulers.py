"""The table of trial schedulers: which class of Ray Tune's each one is, and what it is given. Pure.

To add one: a row here; where Tune's class needs help, a subclass in `raymx.sweep` that the row names. The experiment
file, the rules of sweeps, `raymx.sweep.schedulers` and the documentation read the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_BY_EPOCH = {"time_attr": "time"}


@dataclass(frozen=True)
class TrialSchedulerType:
    """One trial scheduler. ``meaning`` is a sentence for whoever chooses.

    ``tune_class`` is ``module:Class``. ``arguments`` says for each keyword argument of the class what it gets: a key of
    ``sweep.scheduler``, ``epochs`` (of training), ``time`` (the column that trials are compared by), or ``space`` and
    ``seed`` of the sweep.
    """

    name: str
    meaning: str
    tune_class: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    pauses: bool = False  # so that more trials begin than run at once
    clones: bool = False  # the best trials in place of the worst: it chooses settings, and changes them within a trial


_ROWS = (
    TrialSchedulerType("fifo", "Every trial runs to its end.", "ray.tune.schedulers:FIFOScheduler"),
    TrialSchedulerType(
        "asha",
        "Stops trials that are worse than most were after as many epochs.",
        "ray.tune.schedulers:ASHAScheduler",
        {
            **_BY_EPOCH,
            "max_t": "epochs",
            "grace_period": "grace_epochs",
            "reduction_factor": "reduction_factor",
        },
    ),
    TrialSchedulerType(
        "hyperband",
        "Runs trials in brackets: pauses them, and goes on with the best.",
        "ray.tune.schedulers:HyperBandScheduler",
        {**_BY_EPOCH, "max_t": "epochs", "reduction_factor": "reduction_factor"},
        pauses=True,
    ),
    TrialSchedulerType(
        "pbt",
        "Population-based training: clones the best trials in place of the worst, with other settings.",
        "raymx.sweep.pbt:FairPBT",
        {**_BY_EPOCH, "perturbation_interval": "perturbation_epochs", "space": "space", "seed": "seed"},
        pauses=True,
        clones=True,
    ),
    TrialSchedulerType(
        "median",
        "Stops trials that are worse than the median of the others.",
        "ray.tune.schedulers:MedianStoppingRule",
        {**_BY_EPOCH, "grace_period": "grace_epochs"},
    ),
)

TRIAL_SCHEDULERS: dict[str, TrialSchedulerType] = {row.name: row for row in _ROWS}
"""By name, in the order in which a message lists them."""
