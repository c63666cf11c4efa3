"""Which axes, searches and trial schedulers do not go together, each with its reason. Pure: no ray, no mxnet."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Sequence

from raymx.errors import ExperimentError
from raymx.experiment.loading import BATCH_LR
from raymx.experiment.search_libraries import SEARCH_LIBRARIES, SearchLibrary
from raymx.experiment.sweep_schema import Sweep
from raymx.experiment.trial_schedulers import TRIAL_SCHEDULERS, TrialSchedulerType
from raymx.text.words import either

EPOCHS_AXES = ("training", "training.epochs")
"""The axes by which trials may differ in their number of epochs: one at most, since the first sets the second too."""
_WITHIN_A_TRIAL = (
    "training.base_lr",
    "batch_lr",
    "training.global_batch_size",
    "training.async_lr_factor",
    "training.optimizer.",
    "training.decay",
    "kvstore.compression",
    "data.augment",
)
_NO_AXIS = ("sweep", "name", "tracking", "checkpoint", "report", "failures")


def library_of(sweep: Sweep) -> SearchLibrary:
    """The row of the sweep's search."""
    return SEARCH_LIBRARIES[sweep.search]


def scheduler_of(sweep: Sweep) -> TrialSchedulerType:
    """The row of the sweep's trial scheduler: that of its search library where it goes with one only."""
    return TRIAL_SCHEDULERS[library_of(sweep).trial_scheduler or sweep.scheduler.name]


def pausing(sweep: Sweep) -> bool:
    """Whether the trial scheduler pauses trials, so that more of them begin than run at once."""
    return scheduler_of(sweep).pauses


def combination_problems(keys: Sequence[str], sweep: Sweep) -> Iterator[str]:
    """What is wrong with axes of these ``keys``, and with what searches and schedules them, a sentence each."""
    yield from _key_problems(keys, sweep)
    if keys:
        yield from _search_problems(sweep)
        yield from _scheduler_problems(sweep)
        yield from _pausing_problems(sweep)
        yield from _length_problems(keys, sweep)


def _key_problems(keys: Sequence[str], sweep: Sweep) -> Iterator[str]:
    for one, other in itertools.permutations(keys, 2):
        if other.startswith(f"{one}."):
            yield f"sweep.space has {one} and {other}: the first one sets the second too; leave one of them out"
    if BATCH_LR in keys and {"training.global_batch_size", "training.base_batch_size"} & set(keys):
        yield "sweep.space has batch_lr and a batch size of its own: leave one of them out"
    if sweep.repeats > 1 and "training.seed" in keys:
        yield (
            f"sweep.repeats is {sweep.repeats} and sweep.space has training.seed, which repeats change themselves: "
            "leave one of them out"
        )
    for key in keys:
        if key.partition(".")[0] in _NO_AXIS:
            yield f"sweep.space.{key}: it does not change what is trained, so it is no axis"


def _search_problems(sweep: Sweep) -> Iterator[str]:
    if library_of(sweep).follows_results and sweep.repeats > 1:
        yield (
            f"sweep.repeats is {sweep.repeats}, but {sweep.search} follows each trial's own result: set it to 1, or "
            "use another search"
        )


def _scheduler_problems(sweep: Sweep) -> Iterator[str]:
    library, asked = library_of(sweep), TRIAL_SCHEDULERS[sweep.scheduler.name]
    if asked.clones and not library.listed:
        yield f"sweep.search is {sweep.search}, but {asked.name} chooses settings itself: use {_listed()}"
    if asked.clones:
        for key in sweep.space:
            if not key.startswith(_WITHIN_A_TRIAL) or key == "training.optimizer.name":
                yield (
                    f"sweep.space has {key}, which {asked.name} cannot change within a trial: it can change "
                    f"{', '.join(name.rstrip('.') for name in _WITHIN_A_TRIAL)}"
                )
    only = library.trial_scheduler
    if only and asked.name not in ("fifo", only):  # fifo is what nobody has asked for
        yield f"sweep.scheduler is {asked.name}, but {sweep.search} goes with {only}: use that, or another search"


def _pausing_problems(sweep: Sweep) -> Iterator[str]:
    limited = [
        name
        for name, is_set in (
            ("max_concurrent_trials", sweep.max_concurrent_trials != "auto"),
            ("max_share", sweep.max_share < 1),
        )
        if is_set
    ]
    if limited and pausing(sweep):
        others = either([row.name for row in TRIAL_SCHEDULERS.values() if not row.pauses])
        yield (
            f"sweep.{limited[0]} is {getattr(sweep, limited[0])}, but with this trial scheduler all trials begin, "
            f"and those without room are paused: leave it out, or use {others}"
        )


def _length_problems(keys: Sequence[str], sweep: Sweep) -> Iterator[str]:
    """Trials that are paused together, at the same epochs, must be of one length: others would wait for one that has
    ended."""
    row = scheduler_of(sweep)
    for key in set(keys) & set(EPOCHS_AXES):
        if row.pauses and not row.clones:
            others = either([each.name for each in TRIAL_SCHEDULERS.values() if not each.pauses])
            yield (
                f"sweep.space has {key}, and {row.name} itself says after how many epochs trials are paused and end: "
                f"leave it out and give training.epochs the most, or use {others}"
            )


def _listed() -> str:
    return either([row.name for row in SEARCH_LIBRARIES.values() if row.listed])


def check_installed(sweep: Sweep) -> None:
    """Raise ExperimentError when the sweep's search library is not there."""
    module = library_of(sweep).module
    if module and importlib.util.find_spec(module) is None:
        raise ExperimentError(
            f"sweep.search is {sweep.search}, and its library is not installed: "
            f'pip install "raymx[{sweep.search}]", or use {_listed()}'
        )
