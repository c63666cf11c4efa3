"""Whether raymx finds why a step takes as long as it does: runs whose cause is known, and what is said of them.

    python benchmarks/why.py [--json PATH] [--check] [--repeats 5]

Two workers and a server train steps of a known length (why_loop.py) on one machine, in warm processes: undisturbed, and
with one cause after the other. For each: the cause that is named, the share of a step that is told beside the injected
one (from the undisturbed run's speed in the same round), and the gain that is promised beside the gain of removing the
cause. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from common import Figure, arguments, finish, spread

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from factories import make_experiment, make_trial

from raymx.results import step_text
from raymx.results.gains import speedup_without
from raymx.results.step_text import StepTime

HERE = Path(__file__).resolve().parent
BATCH, EPOCHS, STEP_S = 40, 3, 0.1  # of 1,000 records
NEAR, GAIN_NEAR, QUIET = 0.05, 0.15, 0.05  # of shares, of gains; what is no cause


@dataclass(frozen=True)
class Case:
    """A cause: the part that is to be named, and what makes it."""

    name: str
    part: str
    options: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)


CASES = (
    Case(
        "a transform that sleeps",
        "data",
        {},
        # More epochs, since the first batches come together, when whole tasks have read them.
        {"data": {"transform": "why_loop:slow_transform", "cache": "none"}, "training": {"epochs": 2 * EPOCHS}},
    ),
    Case("a loop that waits and sleeps", "loop", {"loop_s": 0.04}),
    Case("one of two workers slowed by half", "straggler", {"slow_worker_s": STEP_S / 2}),
    Case("a checkpoint in every step", "checkpoint", {}, {"checkpoint": {"every_steps": 1}}),
    Case(
        "a slow optimizer on the server",
        "communication",
        {},
        {"training": {"optimizer": {"name": "why_loop:SlowSGD"}}},
    ),
)
NOTHING = Case("nothing", "")


def experiment(case: Case) -> Any:
    sections: dict[str, dict[str, Any]] = {
        "model": {"net": "why_loop:Net", "classes": 10, "options": {"step_s": STEP_S, **case.options}},
        "data": {
            "train": str(HERE.parent / "experiments" / "data" / "fashion_mnist_val.rec"),
            "image_shape": [1, 28, 28],
            "cpus": 1,
        },
        "training": {"epochs": EPOCHS, "global_batch_size": BATCH, "loop": "why_loop:train"},
        "kvstore": {"type": "dist_sync"},
        "resources": {"workers": 2, "standby": False},
        "checkpoint": {"every_steps": None, "every_s": None},
    }
    for name, keys in case.sections.items():
        sections[name] = {**sections.get(name, {}), **keys}
    return make_experiment(directory=HERE, **sections)


def measured(trial: Any, case: Case) -> tuple[float, StepTime]:
    """Seconds a step, and where they went."""
    rows = trial.begin(experiment(case)).run()
    step = step_text.of_rows(rows)
    assert step is not None, rows
    return step.step_s, step


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    import ray

    ray.init("local", num_cpus=8, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    trial = make_trial(1, 3, 2)
    told: dict[str, list[StepTime]] = {case.name: [] for case in (NOTHING, *CASES)}
    gains: dict[str, list[float]] = {case.name: [] for case in CASES}
    try:
        for _ in range(args.repeats):
            undisturbed, step = measured(trial, NOTHING)
            told[NOTHING.name].append(step)
            for case in CASES:
                step_s, step = measured(trial, case)
                told[case.name].append(step)
                # With no gradients and weights to wait for, a step is what its computing takes.
                gains[case.name].append(step_s / (STEP_S if case.part == "communication" else undisturbed))
    finally:
        trial.close()
        ray.shutdown()
    figures = [figure for case in CASES for figure in _figures(case, told[case.name], gains[case.name])]
    return finish(args, [*figures, _quiet(told[NOTHING.name])], _notes(told, gains))


def _figures(case: Case, steps: list[StepTime], gains: list[float]) -> list[Figure]:
    named = sum(step.largest_wait == case.part for step in steps) / len(steps)
    shares = [(step.fractions[case.part], 1 - 1 / gain) for step, gain in zip(steps, gains, strict=True)]
    off = max(abs(found - injected) for found, injected in shares)
    promised = [speedup_without(step.fractions[case.part]) for step in steps]
    apart = [abs(one / gain - 1) for one, gain in zip(promised, gains, strict=True)]
    return [
        Figure(f"{case.name}: named {case.part}", named, None, None, "1", named == 1),
        Figure(
            "  its share, beside the injected one",
            median(found for found, _ in shares),
            median(injected for _, injected in shares),
            None,
            f"each within {NEAR:g}: {off:.3f}",
            off <= NEAR,
        ),
        Figure(
            "  the gain that is promised, and that is had",
            median(promised),
            median(gains),
            median(one / gain for one, gain in zip(promised, gains, strict=True)),
            f"each within {GAIN_NEAR:g}: {max(apart):.3f}",
            max(apart) <= GAIN_NEAR,
        ),
    ]


def _quiet(steps: list[StepTime]) -> Figure:
    """No cause but what two workers' gradients and weights take on this machine."""
    most = max(step.fractions[part] for step in steps for part in ("data", "straggler", "checkpoint", "loop"))
    return Figure("nothing: the largest false cause", most, None, None, f"< {QUIET:g}", most < QUIET)


def _notes(told: dict[str, list[StepTime]], gains: dict[str, list[float]]) -> list[str]:
    words = [f"- {name}: {step_text.sentence(steps[-1])}" for name, steps in told.items()]
    return [*words, *(f"- {name}, times as long as with nothing: {spread(found)}" for name, found in gains.items())]


if __name__ == "__main__":
    sys.exit(main())
