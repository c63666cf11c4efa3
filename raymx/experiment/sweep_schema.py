"""The ``sweep`` section of the experiment file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from raymx.experiment.values import Count, NotNegative, Section, Text, show


class TrialScheduler(Section):
    """Who stops, pauses or clones trials before their end; numbers are epochs."""

    name: Literal["fifo", "asha", "hyperband", "pbt", "median"] = "fifo"
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
        Field(
            description=(
                "a mapping of keys such as precision.dtype to {grid: [...]}, {choice: [...]}, {uniform: [low, high]}, "
                "{loguniform: [low, high]} or {randint: [low, high]}"
            )
        ),
    ] = {}
    repeats: Count = 1
    samples: Annotated[Count | Literal["auto"], Field(description="a whole number, at least 1, or auto")] = "auto"
    search: Literal["grid", "random", "optuna", "bohb", "hyperopt"] = "grid"
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
            f"sweep.space.{key} {problem}" for key, value in self.space.items() if (problem := _axis_problem(value))
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self


AXIS_KINDS = ("grid", "choice", "uniform", "loguniform", "randint")


def _axis_problem(value: object) -> str:
    """What is wrong with one axis of a sweep, or ""."""
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in AXIS_KINDS:
        return (
            f"is {show(value)}: it must be one of {{grid: [...]}}, {{choice: [...]}}, {{uniform: [low, high]}}, "
            "{loguniform: [low, high]}, {randint: [low, high]}"
        )
    kind, given = next(iter(value.items()))
    if kind in ("grid", "choice"):
        return "" if isinstance(given, list) and given else f"is {show(value)}: {kind} takes a list of values"
    kinds = int if kind == "randint" else (int, float)
    numbers = (
        isinstance(given, list)
        and len(given) == 2
        and all(isinstance(end, kinds) and not isinstance(end, bool) for end in given)
    )
    if not numbers or not given[0] < given[1] or (kind == "loguniform" and given[0] <= 0):
        more = " above 0" if kind == "loguniform" else ""
        whole = "whole " if kind == "randint" else ""
        return f"is {show(value)}: {kind} takes two {whole}numbers{more}, the lower one first"
    return ""
