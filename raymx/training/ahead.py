"""How far a loop queues work ahead of MXNet's engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

STEPS_AHEAD = 2  # steps that may be queued: enough to keep the engine busy, and bounded


class StepsAhead:
    """The losses of the last steps. MXNet computes them later: an operator returns once it is in the engine's queue.

    `wait` bounds that queue. What it waits for is `STEPS_AHEAD` steps old, so the engine has another to go on with.
    """

    def __init__(self, every: int, show: Callable[[float], None] | None = None) -> None:
        """``show`` is given the mean loss of a step that is computed, once in ``every`` steps."""
        self._every, self._show = every, show
        self._losses: deque[tuple[int, Any]] = deque(maxlen=STEPS_AHEAD)

    def add(self, step: int, losses: Any) -> None:
        """An NDArray of a step's losses, of any shape; a step that adds several, one a device, is known by the last."""
        if self._losses and self._losses[-1][0] == step:
            self._losses.pop()
        self._losses.append((step, losses))

    def wait(self, number: int) -> None:
        """Before step ``number`` of an epoch is queued: until the oldest step here is computed, once enough are."""
        if len(self._losses) < STEPS_AHEAD:
            return
        losses = self._losses[0][1]
        losses.wait_to_read()
        if self._show and number % self._every == 0:
            self._show(float(losses.mean().asscalar()))
