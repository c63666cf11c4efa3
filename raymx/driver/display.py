"""What a run prints: a few lines that a user can use, and one live line in a terminal."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from raymx import __version__
from raymx.experiment import rules
from raymx.results.rows import diverged
from raymx.results.trace import VIEWER
from raymx.sweep.plan import RunPlan
from raymx.sweep.trial_records import TrialRecord
from raymx.text.words import count

BAR = 24
PHASES = {
    "waiting": "waiting for room in the cluster",
    "forming": "forming the KVStore",
    "leaving": "moving to other nodes",
}
"""What a trial that does not train is doing."""


class Display:
    """Writes to one stream. In a terminal what changes is drawn in place below it; elsewhere that is left out, and the
    text goes out as it is."""

    resume_with = "python -m raymx.run --resume"

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._console = stream, Console(file=stream)
        self._in_place = stream.isatty()
        self._live: Live | None = None  # what is drawn in place, once something was
        self._said: set[str] = set()
        self._epochs = 0

    def say(self, text: str) -> None:
        """A line that stays; nobody sees it where the terminal was closed, and the run saves and ends all the same."""
        with contextlib.suppress(OSError):
            if self._live:
                self._live.console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
            else:
                self._stream.write(f"{text}\n")
                self._stream.flush()

    def close(self) -> None:
        """Nothing more will be shown."""
        if self._live:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def head(self, prepared: RunPlan, started: str) -> None:
        """What is going to run, and where; ``started`` says so when raymx started Ray itself."""
        experiment, plan = prepared.base, prepared.plan
        self._epochs = experiment.training.epochs
        servers = len(plan.server_bundles)
        roles = plan.roles.workers_in_words + (f" and {count(servers, 'server')}" if servers else "")
        self.say(
            f"raymx {__version__}: {experiment.name}, {experiment.model.net}, {roles}, "
            f"{rules.resolved_store_type(experiment)}, {experiment.precision.dtype}"
        )
        if started:
            self.say(started)
        self.warnings(rules.notes(experiment), "note")

    def warnings(self, texts: Iterable[str], word: str = "warning") -> None:
        """Each one once."""
        for text in texts:
            if text not in self._said:
                self._said.add(text)
                self.say(f"{word}: {text}")

    def note(self, trial_id: str, text: str) -> None:
        """Something that changed in a trial."""
        self.say(text)

    def trial(self, record: TrialRecord) -> None:
        """A trial has begun or ended."""

    def refresh(self) -> None:
        """Some progress was shown: draw it, where it is not drawn at once."""

    def progress(self, trial_id: str, progress: Mapping[str, Any]) -> None:
        """Redraw the live line."""
        if progress:
            self._draw(Text(live_line(progress, self._epochs), no_wrap=True, overflow="ellipsis"))

    def row(self, row: Mapping[str, Any]) -> None:
        self.say(row_line(row, self._epochs))

    def end(self, summary: Mapping[str, Any], path: str) -> None:
        """How it ended and where everything is."""
        self.close()
        best = summary["best"]
        self.say(
            f"{summary['state']} after {summary['wall_s']:.0f} s"
            + (
                f": best {best['metric']} {best['value']:.4f} in epoch {best['epoch']:g}{_last(summary)}"
                if best
                else ""
            )
        )
        for text in step_lines(summary.get("step")):
            self.say(text)
        self.say(f"results     {path}")
        if summary["parameters"]:
            self.say(f"parameters  {summary['parameters']}")
        for text in trace_lines(summary):
            self.say(text)
        if summary["state"] != "finished" and not diverged(summary.get("final") or {}):  # that would end there again
            self.say(f"go on with  {self.resume_with} {path}")

    def _draw(self, shown: RenderableType) -> None:
        """Draw this in place of what was drawn before."""
        if not self._in_place:
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(shown, refresh=True)


def trace_lines(summary: Mapping[str, Any]) -> list[str]:
    """Where the trace is, or the first one, and what opens it."""
    traces = summary.get("traces")
    if not traces:
        return []
    more = f", and {len(traces) - 1} more" if traces[1:] else ""
    return [f"trace       {traces[0]}{more}: at {VIEWER} choose Open trace file"]


def step_lines(step: Mapping[str, Any] | None) -> list[str]:
    """Where a step's time went: a sentence, its bar, and what is most worth changing."""
    if not step:
        return []
    return [step["said"], f"[{step['bar']}]", *step["advice"]]


def _last(summary: Mapping[str, Any]) -> str:
    """The last value of the metric, where it is not the best."""
    value = summary["final"].get(summary["best"]["metric"])
    is_other = isinstance(value, float) and not math.isnan(value) and value != summary["best"]["value"]
    return f", last {value:.4f}" if is_other else ""


def live_line(progress: Mapping[str, Any], epochs: int) -> str:
    """One line of at most about 100 columns."""
    phase = progress.get("phase")
    if phase != "training" or not progress.get("steps"):
        return f"{PHASES.get(str(phase), 'waiting for the first batch')} ..."
    done = progress["step"] / progress["steps"]
    filled = round(done * BAR)
    speed, loss = progress.get("samples_per_sec"), progress.get("loss")
    return (
        f"epoch {progress['epoch'] + 1}/{epochs} [{'#' * filled}{'.' * (BAR - filled)}] "
        f"{progress['step']}/{progress['steps']} steps"
        + (f"  {speed:,.0f} samples/s" if speed else "")
        + (f"  loss {loss:.3f}" if loss is not None else "")
    )


def row_line(row: Mapping[str, Any], epochs: int) -> str:
    """A result in one line: the metrics, then what it cost."""
    metrics = "  ".join(
        f"{name} {value:.4f}"
        for name, value in row.items()
        if name.startswith(("train_", "validation_"))
        and isinstance(value, float)
        and name != "train_s"
        and not name.endswith("_samples")
    )
    speed = row.get("samples_per_sec")
    cost = f"  {speed:,.0f} samples/s" if speed and not math.isnan(speed) else ""
    return f"epoch {row.get('epoch', math.nan):g}/{epochs}  {metrics}{cost}"
