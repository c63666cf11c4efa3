"""Loss scaling: the loss is multiplied by a scale, so that small gradients do not become 0 in float16, and the update
divides by it. A step whose gradients become inf or nan under the scale is skipped, in all workers, and changes nothing.

Pure: no mxnet. `raymx.kvstore.trainer` finds the overflow and skips; here is what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raymx.errors import TrainingError

# As mxnet.contrib.amp has it.
FIRST, MOST = 2.0**16, 2.0**24  # of a dynamic scale: to begin with, and at most
GROW_AFTER = 2000  # good steps after which a dynamic scale is doubled

MOST_IN_A_ROW = 50  # skipped steps: more than from MOST down to far below 1, so no scale helps


@dataclass
class LossScale:
    """The scale of the next step's loss. A dynamic one is halved by an overflow, and doubled after `GROW_AFTER` steps
    with none. It is the same in all workers of a sync run, since they agree about each step.
    """

    value: float
    dynamic: bool = False
    good_steps: int = 0  # since it was last changed
    in_a_row: int = 0  # skipped steps up to now
    skipped: int = 0  # steps since `take_skipped`

    def step_done(self, overflow: bool) -> None:
        """Count a step. Raises TrainingError after `MOST_IN_A_ROW` steps that were all skipped."""
        if overflow:
            self.skipped += 1
            self.in_a_row += 1
            self._give_up()
        else:
            self.in_a_row = 0
        if self.dynamic:
            self._adapt(overflow)

    def _adapt(self, overflow: bool) -> None:
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self.value /= 2
        elif self.good_steps >= GROW_AFTER:
            self.value, self.good_steps = min(self.value * 2, MOST), 0

    def _give_up(self) -> None:
        if self.in_a_row >= MOST_IN_A_ROW:
            fix = (
                "the loss itself is inf or nan: lower training.base_lr, or look at the data"
                if self.dynamic
                else "lower precision.loss_scale, or make it dynamic; if that does not help, lower training.base_lr"
            )
            raise TrainingError(
                f"{self.in_a_row} steps in a row were skipped, since gradients were inf or nan at loss "
                f"scale {self.value:g}: {fix}"
            )

    def take_skipped(self) -> int:
        """The steps that were skipped since the last call."""
        count, self.skipped = self.skipped, 0
        return count

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps, among the optimizer's numbers; a fixed scale is the experiment's."""
        return {_VALUE: self.value, _GOOD_STEPS: self.good_steps} if self.dynamic else {}


@dataclass(frozen=True)
class Scales:
    """What is pushed is the gradients' sum over rows, times the loss scale, times a factor; ``mean``: what makes the
    gradients' mean of their sum.
    """

    mean: float
    half: bool = False  # what is pushed travels in float16
    compressed: bool = False

    def push_factor(self, loss_scale: float) -> float:
        """In float16 a worker sends its part of the mean, which a large batch does not bring nearer to inf. 2-bit
        compression is of gradients as they are: its threshold does not mean another thing under a loss scale.
        """
        if self.half:
            return self.mean
        return 1.0 / loss_scale if self.compressed else 1.0

    def of_pushed(self, loss_scale: float) -> float:
        """What makes the gradients' mean of what was pushed."""
        return self.mean / (loss_scale * self.push_factor(loss_scale))


# Names that no attribute of an optimizer can have.
_VALUE, _GOOD_STEPS = "loss_scale.value", "loss_scale.good_steps"


def loss_scale(setting: float | str | None, saved: Mapping[str, float]) -> LossScale | None:
    """The scale that `raymx.experiment.rules.loss_scale` says: a number, "dynamic" or None.

    A dynamic one goes on from ``saved``, the optimizer's numbers of a checkpoint, where they have one.
    """
    if setting is None:
        return None
    if setting == "dynamic":
        return LossScale(saved.get(_VALUE, FIRST), dynamic=True, good_steps=int(saved.get(_GOOD_STEPS, 0)))
    return LossScale(float(setting))
