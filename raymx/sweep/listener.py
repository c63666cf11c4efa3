"""Who is told what trial schedulers and searchers do. Tune pickles and calls those, so they do not know the driver."""

from __future__ import annotations

from raymx.sweep.plan import Cell


class Listener:
    """Somebody who may be told: here nobody, and in a run the driver's monitor."""

    def on_stop(self, trial_id: str) -> None:
        """The trial scheduler stops this trial before its end."""

    def on_cell(self, cell: Cell) -> None:
        """A search library has chosen a point."""

    def warn(self, text: str) -> None:
        """Something that the user should know."""


_listener = Listener()


def listen(listener: Listener) -> None:
    """From now on this one is told."""
    global _listener
    _listener = listener


def listener() -> Listener:
    """Whoever is told now."""
    return _listener
