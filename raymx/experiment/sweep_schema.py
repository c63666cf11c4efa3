"""The ``sweep`` section of the experiment file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from raymx.experiment.axis_kinds import axis_problem, forms
from raymx.experiment.search_libraries import SEARCH_LIBRARIES
from raymx.experiment.trial_schedulers import TRIAL_SCHEDULERS
from raymx.experiment.values import Count, NameIn, NotNegative, Section, Text, show
from raymx.text.words import either


class TrialScheduler(Section):
    """Who stops, pauses or clones trials before their end; numbers are epochs."""

    name: Annotated[str, NameIn(TRIAL_SCHEDULERS)] = "fifo"
    """``asha`` and ``median`` stop bad trials; ``hyperband`` pauses them; ``pbt`` clones good ones."""
    grace_epochs: Count = 1
    """Of ``asha`` and ``median``: epochs before which no trial is stopped."""
    reduction_factor: Annotated[float, Field(gt=1, description="a number above 1")] = 3.0
    """Of ``asha`` and ``hyperband``: one trial in so many goes on."""
    perturbation_epochs: Count = 1
    """Of ``pbt``: epochs from one cloning to the next."""


class Objective(Section):
    """What a sweep is after; ``metric`` null is the validation metric."""

    metric: Annotated[Text | None, Field(description="the name of a reported metric, or null")] = None
    """The column that is judged; ``null`` is that of ``checkpoint``."""
    mode: Literal["max", "min"] | None = None
    """``null`` as in ``checkpoint``."""


class Price(Section):
    """What an hour of one CPU and of one GPU costs, in any currency."""

    cpu: NotNegative = 0.0
    """Of one CPU."""
    gpu: NotNegative = 0.0
    """Of one GPU."""


class Sweep(Section):
    """Which settings are tried, how often, and by what trials are compared. With an empty ``space`` it is one run."""

    space: Annotated[
        dict[str, Any],
        Field(description=f"a mapping of keys such as precision.dtype to {either(forms())}"),
    ] = {}
    """The axes: keys of the experiment, each with its values. ``{}`` is a single run."""
    repeats: Count = 1
    """Trials of each cell, each with the next seed: differences can then be told from noise."""
    samples: Annotated[Count | Literal["auto"], Field(description="a whole number, at least 1, or auto")] = "auto"
    """Points that are drawn; ``auto``: 1 for ``grid``, 10 for other searches."""
    search: Annotated[str, NameIn(SEARCH_LIBRARIES)] = "grid"
    """``grid`` takes all combinations; ``random`` draws from every axis; the others choose by results."""
    scheduler: TrialScheduler = TrialScheduler()
    """The trial scheduler: who stops, pauses or clones trials."""
    max_concurrent_trials: Annotated[
        Count | Literal["auto"], Field(description="a whole number, at least 1, or auto")
    ] = "auto"
    """``auto``: one trial a node (or on as many as it needs), so that speeds can be compared; a number where that does
    not matter.
    """
    max_share: Annotated[float, Field(gt=0, le=1, description="a number above 0, at most 1")] = 1.0
    """The part of the cluster's CPUs and GPUs that the trials take together (elastic ones with their fewest workers).
    """
    priority: Annotated[int, Field(description="a whole number")] = 0
    """A waiting sweep of a higher one gets room at once, one of a lower gets none."""
    yield_after_s: NotNegative = 30.0
    """Seconds that another job must have waited for room before this sweep gives up its place between two trials."""
    objective: Objective = Objective()
    """What is judged."""
    price_per_hour: Price = Price()
    """What a trial's reserved CPUs and GPUs cost, in any currency."""
    seed: Annotated[int, Field(ge=0, lt=2**31, description="a whole number from 0 to 2147483647")] = 1
    """Of what is drawn, and of the order of trials, which is random."""

    @model_validator(mode="after")
    def _axes(self) -> Sweep:
        problems = [
            f"sweep.space.{key} is {show(value)}: {problem}"
            for key, value in self.space.items()
            if (problem := axis_problem(value))
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self
