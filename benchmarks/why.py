"""Whether raymx finds why a step takes as long as it does: runs whose cause is known, and what is said of them.

    python benchmarks/why.py [--json PATH] [--check] [--repeats 5] [--cases NAME,...]

Workers and a server train steps of a known length (why_loop.py) on one machine, in warm processes: with nothing wrong,
and with one cause after the other. For each: whether the named cause is right, the share of a step that is told beside
the injected one, and the gain that is promised beside the gain of removing the cause, in the same round. One case has
two hosts made of Linux namespaces (tests/hosts/hosts.py) on slow links, one holds a server to a tenth of a core by a
control group: both need root, and are left out without. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from cgroups import held
from cgroups import why_not as why_no_cgroup
from common import Figure, arguments, finish, spread

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "hosts"))
import hosts as lan_hosts
import ray_hosts
from factories import make_experiment, make_trial

from raymx.report.causes import causes
from raymx.results import step_text
from raymx.results.gains import speedup_without
from raymx.results.setup import Setup
from raymx.results.step_text import StepTime

HERE = Path(__file__).resolve().parent
BATCH, EPOCHS, STEP_S = 40, 3, 0.1  # of 1,000 records
NEAR, GAIN_NEAR, QUIET = 0.05, 0.15, 0.05  # of shares, of gains; what is no cause
LINK_MBIT, RUN_TIMEOUT_S = 100.0, 240.0
SERVER_CPUS = 0.1
Rows = list[dict[str, Any]]
Sections = Mapping[str, Mapping[str, Any]]
LARGE = 448  # pixels of a side, as in why_loop.py, which needs mxnet
PARTS_OF_NOTHING = ("data", "straggler", "checkpoint", "loop")


@dataclass(frozen=True)
class Case:
    """A cause: the part that is to be named, what else is to be said, and what makes it.

    ``sections`` are those of the experiment with the cause, ``removed`` without; ``options`` are the loop's. ``around``
    is what is done while it runs.
    """

    name: str
    title: str
    part: str
    says: str  # a regular expression
    options: Mapping[str, Any] = field(default_factory=dict)
    sections: Sections = field(default_factory=dict)
    removed: Sections = field(default_factory=dict)
    removed_options: Mapping[str, Any] = field(default_factory=dict)
    warms_up: bool = False  # the first run, which starts Ray's processes that read, is not counted
    around: Callable[[Any], contextlib.AbstractContextManager[None]] | None = None


@dataclass(frozen=True)
class Told:
    """Of one run: seconds a step, where they went, and the causes in words."""

    step_s: float
    step: StepTime
    said: tuple[str, ...]


def held_server(trial: Any) -> contextlib.AbstractContextManager[None]:
    return held(trial.roles("Server"), SERVER_CPUS)


THREE: Sections = {"resources": {"workers": 3}}
TINY: Sections = {
    "training": {"loop": "why_loop:tiny", "global_batch_size": 10, "epochs": 4},
    "resources": {"workers": 1},
    "kvstore": {"type": "local"},
}
CASES = (
    Case(
        "transform",
        "a transform that sleeps",
        "data",
        r"the transform why_loop:slow_transform \d+ %.*data\.cpus",
        sections={
            "data": {"transform": "why_loop:slow_transform", "cache": "none", "image_shape": [1, LARGE, LARGE]},
            "training": {"epochs": EPOCHS + 1},
        },
        warms_up=True,
    ),
    Case("loop", "a loop that waits and sleeps", "loop", r"had not queued the next step", {"loop_s": 0.04}),
    Case(
        "asscalar",
        "asscalar of a weight in every batch",
        "loop",
        r"why_loop\.py:\d+ asscalar\(\) held",
        {"reads_weights": True, "host_s": 0.04},
        removed_options={"host_s": 0.04},
    ),
    Case(
        "straggler",
        "one of three workers slowed by half",
        "straggler",
        r"waits for worker 1, which is held up by its own computing",
        {"slow_worker_s": STEP_S / 2},
        THREE,
        THREE,
    ),
    Case(
        "checkpoint",
        "a checkpoint in every step",
        "checkpoint",
        r"held for a checkpoint",
        sections={"checkpoint": {"every_steps": 1}},
    ),
    Case(
        "optimizer",
        "a slow optimizer on the server",
        "communication",
        r"the busiest server's updates take",
        sections={"training": {"optimizer": {"name": "why_loop:SlowSGD"}}},
    ),
    Case(
        "server",
        "a server held to a tenth of a core",
        "communication",
        r"the busiest server uses 0\.\d+ of 1 CPU",
        around=held_server,
    ),
    Case(
        "tiny",
        "a net of tiny layers, not hybridized",
        "compute",
        r"no faster than Python queues its operators",
        sections=TINY,
        removed=TINY,
        removed_options={"hybridized": True},
    ),
)
LINK = Case("link", "two hosts on links of 100 Mbit/s", "communication", r"push [\d.]+ MB and pull [\d.]+ MB a step")
LINK_STEP_S = 0.2


def settings(sections: Sections, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The sections of an experiment."""
    found: dict[str, dict[str, Any]] = {
        "model": {"net": "why_loop:Net", "classes": 10, "options": {"step_s": STEP_S, **options}},
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
    for name, keys in sections.items():
        found[name] = {**found.get(name, {}), **keys}
    return found


def measured(trial: Any, sections: Sections, options: Mapping[str, Any], around: Any = None) -> Told:
    """Of one run in the warm processes."""
    experiment = make_experiment(directory=HERE, **settings(sections, options))
    with around(trial) if around else contextlib.nullcontext():
        return told_of(trial.begin(experiment).run(), experiment)


def told_of(rows: Rows, experiment: Any) -> Told:
    step = step_text.of_rows(rows)
    assert step is not None, rows
    said = tuple(f"{cause.seen}; {cause.worth}" for cause in causes(rows, Setup.of(experiment)))
    return Told(step.step_s, step, said)


@dataclass
class Result:
    """Of one case, a pair of runs a round: with the cause, and without."""

    case: Case
    pairs: list[tuple[Told, Told]] = field(default_factory=list)


# ---- here ----


def here(cases: Sequence[Case], repeats: int) -> Iterator[tuple[Case, Told, Told]]:
    """Each case in each round, beside its removal, which several cases may share."""
    import ray

    ray.init("local", num_cpus=8, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    trial = make_trial(1, 3, 2, 2)
    try:
        for case in (case for case in cases if case.warms_up):
            once = {**case.sections, "training": {**case.sections["training"], "epochs": 1}}
            measured(trial, once, case.options, case.around)
        for _ in range(repeats):
            removed: dict[str, Told] = {}
            for case in cases:
                key = repr((case.removed, case.removed_options))
                if key not in removed:
                    removed[key] = measured(trial, case.removed, case.removed_options)
                yield case, measured(trial, case.sections, case.options, case.around), removed[key]
    finally:
        trial.close()
        ray.shutdown()


# ---- on two hosts ----


def linked(repeats: int) -> Iterator[tuple[Case, Told, Told]]:
    """Two hosts, of which one has a worker and the server, the other a worker: with slow links, and without a limit."""
    with tempfile.TemporaryDirectory() as folder:
        (shared := Path(folder) / "shared").mkdir()
        shutil.copy(HERE / "why_loop.py", shared)
        with lan_hosts.lan(Path(folder), 2, shared=shared) as both:
            ray_hosts.start(both, [ray_hosts.HEAD_CPUS, ray_hosts.OTHER_CPUS])
            for number in range(repeats):
                pair = [on_hosts(both, shared, f"{number}-{limit:g}", limit) for limit in (LINK_MBIT, 0.0)]
                yield LINK, pair[0], pair[1]


def on_hosts(both: Sequence[Any], shared: Path, name: str, limit_mbit: float) -> Told:
    for host in both:
        host.limit(limit_mbit)
    experiment = {"name": "why", **settings({}, {"step_s": LINK_STEP_S})}
    (shared / f"{name}.yaml").write_text(yaml.safe_dump(experiment))
    runs = shared / f"runs-{name}"
    command = [sys.executable, "-m", "raymx.run", shared / f"{name}.yaml", "--address", "auto", "--storage-path", runs]
    both[0].run(command, RUN_TIMEOUT_S)
    (result,) = runs.glob("*/*/result.json")
    rows = [json.loads(line) for line in result.read_text().splitlines()]
    if len(rows[-1]["nodes"].split(",")) != 2:
        raise RuntimeError(f"the roles are not on two hosts but on {rows[-1]['nodes']}")
    return told_of(rows, make_experiment(directory=shared, **settings({}, {"step_s": LINK_STEP_S})))


# ---- the table ----


def figures(result: Result) -> list[Figure]:
    case, pairs = result.case, result.pairs
    shares = [(share(case, told, removed), 1 - removed.step_s / told.step_s) for told, removed in pairs]
    gains = [(promised(case, told), told.step_s / removed.step_s) for told, removed in pairs]
    off = max(abs(found - injected) for found, injected in shares)
    apart = max(abs(one / had - 1) for one, had in gains)
    right = sum(is_named(case, told) for told, _ in pairs) / len(pairs)
    return [
        Figure(f"{case.title}: named {case.part}", right, None, None, "1", right == 1),
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
            median(one for one, _ in gains),
            median(had for _, had in gains),
            median(one / had for one, had in gains),
            f"each within {GAIN_NEAR:g}: {apart:.3f}",
            apart <= GAIN_NEAR,
        ),
    ]


def is_named(case: Case, told: Told) -> bool:
    """Whether the right part takes most, and the right words are said."""
    right = step_text.is_host_bound(told.step) if case.part == "compute" else told.step.largest_wait == case.part
    return right and any(re.search(case.says, text) for text in told.said)


def share(case: Case, told: Told, removed: Told) -> float:
    """What the cause adds to its part, as a part of a step: gradients and weights take some time without it too."""
    if case.part == "compute":
        return 1 - 1 / promised(case, told)
    return told.step.fractions[case.part] - removed.step.fractions[case.part] * removed.step_s / told.step_s


def promised(case: Case, told: Told) -> float:
    if case.part == "compute":
        return step_text.host_bound_gain(told.step).times
    return speedup_without(told.step.fractions[case.part])


def quiet(results: Sequence[Result]) -> list[Figure]:
    """What is told of the steps with nothing wrong."""
    steps = [removed.step for result in results for _, removed in result.pairs if not result.case.removed_options]
    if not steps:
        return []
    most = max(step.fractions[part] for step in steps for part in PARTS_OF_NOTHING)
    return [Figure("nothing: the largest false cause", most, None, None, f"< {QUIET:g}", most < QUIET)]


def notes(results: Sequence[Result]) -> list[str]:
    found = []
    for result in results:
        told, removed = result.pairs[-1]
        found += [f"- {result.case.name}: {step_text.sentence(told.step)}", *(f"    - {text}" for text in told.said)]
        found.append(f"    - removed: {step_text.sentence(removed.step)}")
        times = [told.step_s / removed.step_s for told, removed in result.pairs]
        found.append(f"    - times as long: {spread(times)}")
    return found


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", type=chosen, default=chosen(""), help="names of cases, with commas between")
    args = parser.parse_args()
    results = {case.name: Result(case) for case in args.cases}
    left_out = [f"- left out: {name}: {why}" for name, why in impossible(args.cases).items()]
    for name in impossible(args.cases):
        del results[name]
    local = [case for case in args.cases if case.name in results and case is not LINK]
    runs = [here(local, args.repeats)] * bool(local) + [linked(args.repeats)] * (LINK.name in results)
    for run in runs:
        for case, told, removed in run:
            results[case.name].pairs.append((told, removed))
    table = [figure for result in results.values() for figure in figures(result)]
    return finish(args, [*table, *quiet(list(results.values()))], [*left_out, *notes(list(results.values()))])


def chosen(names: str) -> list[Case]:
    """Those cases; all for "". Raises ArgumentTypeError for a name of none."""
    every = {case.name: case for case in (*CASES, LINK)}
    wanted = [name for name in names.split(",") if name] or list(every)
    if unknown := [name for name in wanted if name not in every]:
        raise argparse.ArgumentTypeError(f"no case is called {unknown[0]}: there are {', '.join(every)}")
    return [every[name] for name in wanted]


def impossible(cases: Sequence[Case]) -> dict[str, str]:
    """By name, the cases that this machine cannot have, and why."""
    checks = {"link": lan_hosts.why_not, "server": why_no_cgroup}
    return {case.name: why for case in cases if case.name in checks and (why := checks[case.name]())}


if __name__ == "__main__":
    sys.exit(main())
