"""Which trials Tune starts again after a failure: those whose process was lost, but not for ever at one place. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# For Tune's Trial.max_failures: it starts a trial again that was lost. What else fails, the trial sees to itself.
LAST, FOR_EVER = 0, -1
RESTARTS_IN_ONE_PLACE = 10  # with no checkpoint in between: the next failure is the last
MEMORY_RESTARTS_IN_ONE_PLACE = 2  # the same, of those for lack of memory


class Restarts:
    """Sets how often Tune starts each trial again."""

    def __init__(self) -> None:
        self._trials: dict[str, Any] = {}  # Tune's own, by id
        self._lost: dict[str, tuple[list[int], int]] = {}  # how far each was, and how often it was lost there
        self._short: dict[str, int] = {}  # how often for lack of memory
        self._given_up: set[str] = set()

    def know(self, trials: Iterable[Any]) -> None:
        """All trials that Tune has: their processes may be lost before they have begun."""
        for trial in trials:
            if trial.trial_id not in self._trials:
                self.begun(trial)

    def begun(self, trial: Any) -> None:
        """A trial of Tune's has begun, or begun again."""
        self._trials[trial.trial_id] = trial
        trial.max_failures = LAST if trial.trial_id in self._given_up else FOR_EVER

    def lost(self, trial_id: str, saved: list[int], *, lack_of_memory: bool = False) -> None:
        """A trial's process was lost, when its newest checkpoint was ``saved`` (epoch, step)."""
        before, count = self._lost.get(trial_id, (saved, 0))
        short = 0 if saved > before else self._short.get(trial_id, 0)
        self._lost[trial_id] = (max(saved, before), 1 if saved > before else count + 1)
        self._short[trial_id] = short + lack_of_memory
        if self._lost[trial_id][1] >= RESTARTS_IN_ONE_PLACE or self._short[trial_id] >= MEMORY_RESTARTS_IN_ONE_PLACE:
            self.give_up(trial_id)

    def give_up(self, trial_id: str) -> None:
        """The next failure of this trial is its last."""
        self._given_up.add(trial_id)
        self._trials[trial_id].max_failures = LAST
