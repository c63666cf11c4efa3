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
    grace_epochs: Count = 1
    reduction_factor: Annotated[float, Field(gt=1, description="a number above 1")] = 3.0
    perturbation_epochs: Count = 1


class Objective(Section):
    """What a sweep is after; ``metric`` null is the validation metric."""

    metric: Annotated[Text | None, Field(description="the name of a reported metric, or null")] = None
    mode: Literal["max", "min"] | None = None


class Price(Section):
    """What an hour of one CPU and of one GPU costs, in any currency."""

    cpu: NotNegative = 0.0
    gpu: NotNegative = 0.0


class Sweep(Section):
    """Which settings are tried, how often, and by what trials are compared. With an empty ``space`` it is one run."""

    space: Annotated[
        dict[str, Any],
        Field(description=f"a mapping of keys such as precision.dtype to {either(forms())}"),
    ] = {}
    repeats: Count = 1
    samples: Annotated[Count | Literal["auto"], Field(description="a whole number, at least 1, or auto")] = "auto"
    search: Annotated[str, NameIn(SEARCH_LIBRARIES)] = "grid"
    scheduler: TrialScheduler = TrialScheduler()
    max_concurrent_trials: Annotated[
        Count | Literal["auto"], Field(description="a whole number, at least 1, or auto")
    ] = "auto"
    max_share: Annotated[float, Field(gt=0, le=1, description="a number above 0, at most 1")] = 1.0
    priority: Annotated[int, Field(description="a whole number")] = 0
    yield_after_s: NotNegative = 30.0
    objective: Objective = Objective()
    price_per_hour: Price = Price()
    seed: Annotated[int, Field(ge=0, lt=2**31, description="a whole number from 0 to 2147483647")] = 1

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
