"""What a run consists of: which cells of its sweep can run here, and how many trials at once. Pure: no ray, no mxnet.

A run without a sweep has one cell. What cannot run costs nothing: it is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from raymx.cluster import abilities, placement
from raymx.cluster.placement import NodeResources, Plan
from raymx.errors import ExperimentError, PlacementError
from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.without_effect import effective, idle
from raymx.kvstore import schedule
from raymx.sweep.axis import Point, in_words
from raymx.sweep.combinations import pausing
from raymx.sweep.space import Space, gpus_of, verdict
from raymx.text.words import columns, count

_HEADS = ("batch", "peak rate", "warmup", "CPU", "GPU")
SAME_AS = "; the same as cell "
"""Before a number, at the end of the reason of a cell that is none of its own."""
_TRIED = 64  # points of a search library's space that are looked at beforehand


@dataclass(frozen=True)
class Cell:
    """A point of the space, and why it cannot run ("" when it can)."""

    number: int
    point: Point
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunPlan:
    """A run on a cluster of known size."""

    base: ExperimentConfig  # with a number for data.cpus; with its sweep
    gpus: int  # what resources.gpus_per_worker auto comes to
    cells: tuple[Cell, ...]  # empty where a search library chooses them
    plan: Plan  # of the largest trial
    at_once: int
    spare_cpus: float  # added to each trial, to keep it alone on its node

    @property
    def planned(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if not cell.reason)

    @cached_property
    def trials(self) -> int:
        """Trials of the whole run."""
        sweep, space = self.base.sweep, Space(self.base)
        return sweep.repeats * (space.samples if space.searched else len(self.planned))


def prepare(experiment: ExperimentConfig, nodes: Sequence[NodeResources], free: Sequence[NodeResources]) -> RunPlan:
    """Look at a run on these ``nodes``.

    CPUs for data are taken where they are ``free`` now: a run should not wait for them.

    Raises ExperimentError or PlacementError when nothing of it can run.
    """
    space = Space(experiment)
    judged = _merged(space, [judge(space, number, point, nodes) for number, point in enumerate(_points(space))])
    possible = [space.at(cell.point) for cell in judged if not cell.reason]
    if not possible:
        raise _nothing(space, judged, nodes)
    gpus = min(
        (placement.auto_gpus(one, nodes) for one in possible if one.resources.gpus_per_worker == "auto"), default=0
    )
    number, spare = _concurrency(experiment, [_plan(one, gpus) for one in possible], nodes)
    cpus = min((_data_cpus(one, gpus, number, free) for one in possible if one.data.cpus == "auto"), default=None)
    if cpus is not None:
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update={"cpus": cpus})})
        space = Space(experiment)
        possible = [space.at(cell.point) for cell in judged if not cell.reason]
    plan = max((_plan(one, gpus) for one in possible), key=placement.size)
    if space.axes:
        number, spare = _concurrency(experiment, [plan], nodes)
    return RunPlan(experiment, gpus, () if space.searched else tuple(judged), plan, number, spare)


def largest(experiment: ExperimentConfig) -> tuple[float, float]:
    """(GPUs, CPUs) of a run's largest trial, where ``auto`` counts as no GPU and one data CPU."""
    space = Space(experiment)
    sizes = [placement.size(_plan(one, 0)) for point in _points(space) if (one := _at(space, point)) is not None]
    return max((gpus for gpus, _ in sizes), default=0.0), max((cpus for _, cpus in sizes), default=0.0)


def _at(space: Space, point: Point) -> ExperimentConfig | None:
    try:
        return space.at(point)
    except ExperimentError:  # values that do not go together: its cell is skipped
        return None


def judge(space: Space, number: int, point: Point, nodes: Sequence[NodeResources]) -> Cell:
    """Whether the experiment of a point can run on these nodes."""
    try:
        experiment = space.at(point)
    except ExperimentError as error:  # values that are right alone, and not together
        return Cell(number, point, str(error).splitlines()[0])
    auto = placement.auto_gpus(experiment, nodes)
    reason = verdict(experiment, int(sum(node.gpu for node in nodes)))
    reason = reason or abilities.problem(experiment, gpus_of(experiment, auto), nodes)
    if not reason:
        try:
            placement.check_fit(_plan(experiment, auto), nodes)
        except PlacementError as error:
            reason = " ".join(line.strip() for line in str(error).splitlines()[:3])
    return Cell(number, point, reason, tuple(rules.notes(experiment)))


def _merged(space: Space, cells: Sequence[Cell]) -> list[Cell]:
    """The cells; one whose experiment comes to the same as that of a cell before it is left out, and says so."""
    if not space.axes or space.searched:
        return list(cells)
    first: dict[str, Cell] = {}
    found = []
    for cell in cells:
        same = cell if cell.reason else first.setdefault(effective(space.at(cell.point)), cell)
        found.append(cell if same is cell else replace(cell, reason=_the_same(space, cell, same)))
    return found


def _the_same(space: Space, cell: Cell, same: Cell) -> str:
    """Why a cell is no cell of its own: what differs in it changes nothing."""
    idle_here = idle(space.at(cell.point))
    changed = [key for key, value in cell.point.items() if same.point[key] != value]
    why = "; ".join(f"{key} changes nothing: {idle_here[key]}" for key in changed if key in idle_here)
    return f"{why or 'what differs comes to the same experiment'}{SAME_AS}{same.number}"


def _points(space: Space) -> Iterable[Point]:
    return space.draw(_TRIED) if space.searched else space.points()


def _plan(experiment: ExperimentConfig, auto: int) -> Plan:
    return placement.plan(experiment, gpus_of(experiment, auto))


def _concurrency(
    experiment: ExperimentConfig, plans: Sequence[Plan], nodes: Sequence[NodeResources]
) -> tuple[int, float]:
    """(trials at once, CPUs to add to each), for the largest of them."""
    sweep, plan = experiment.sweep, max(plans, key=placement.size)
    if not sweep.space:
        return 1, 0.0
    if sweep.max_concurrent_trials == "auto":
        number, spare = placement.apart(plan, nodes)
    else:
        number, spare = placement.at_once(plan, nodes, sweep.max_concurrent_trials), 0.0
    return max(1, min(number, placement.share(placement.with_spare(plan, spare), nodes, sweep.max_share))), spare


def _data_cpus(experiment: ExperimentConfig, auto: int, trials: int, free: Sequence[NodeResources]) -> float:
    """The most, up to 8, with which so many trials find room at once."""
    gpus = gpus_of(experiment, auto)
    if trials == 1:
        return placement.with_data_cpus(experiment, gpus, free).data.read_cpus
    for cpus in range(placement.MOST_DATA_CPUS, 1, -1):
        one = experiment.model_copy(update={"data": experiment.data.model_copy(update={"cpus": float(cpus)})})
        if placement.at_once(placement.plan(one, gpus), free, trials) == trials:
            return float(cpus)
    return 1.0


def _nothing(space: Space, judged: Sequence[Cell], nodes: Sequence[NodeResources]) -> Exception:
    """The error where no cell can run; for a single run, its own."""
    if not space.axes:
        auto = placement.auto_gpus(space.base, nodes)
        rules.check(space.base, gpus_available=int(sum(node.gpu for node in nodes)))
        if unable := abilities.problem(space.base, gpus_of(space.base, auto), nodes):
            return PlacementError(unable)
        placement.check_fit(_plan(space.base, auto), nodes)
    lines = [f"  {in_words(cell.point)}: {cell.reason}" for cell in judged[:10]]
    more = [f"  and {len(judged) - 10} more"] if len(judged) > 10 else []
    fix = "change sweep.space, or the settings that its values do not go with"
    return ExperimentError(
        "\n".join([f"sweep.space has {count(len(judged), 'cell')}, and none can run:", *lines, *more, fix])
    )


def describe(prepared: RunPlan) -> str:
    """The whole grid in a table: each cell, whether it can run, and how many trials run at once."""
    sweep, space = prepared.base.sweep, Space(prepared.base)
    rows = [("cell", *(axis.key.rpartition(".")[2] for axis in space.axes), *_HEADS, "verdict")]
    reasons = list(dict.fromkeys(cell.reason for cell in prepared.cells if cell.reason))
    rows += [_row(space, cell, prepared.gpus, reasons) for cell in prepared.cells]
    table = columns(rows)
    if space.searched:
        table = [f"{sweep.search} chooses {space.samples} points of {', '.join(axis.key for axis in space.axes)}"]
    skipped = (
        ""
        if space.searched
        else (f"; {sum(bool(cell.reason) for cell in prepared.cells)} of {len(prepared.cells)} cells skipped")
    )
    at_once = "as many as there is room for, the others paused" if pausing(sweep) else f"{prepared.at_once} at once"
    why = [f"({number}) {reason}." for number, reason in enumerate(reasons, 1)]
    return "\n".join(
        (
            *table,
            *why,
            *_notes(prepared),
            f"{prepared.trials} trials of {epochs_in_words(prepared)} ({sweep.repeats} a cell), {at_once}{skipped}.",
        )
    )


def _notes(prepared: RunPlan) -> list[str]:
    """What is worth knowing of the cells that can run, each with their numbers."""
    found: dict[str, list[str]] = {}
    for cell in prepared.planned:
        for note in cell.notes:
            found.setdefault(note, []).append(str(cell.number))
    return [f"note: {note} (cell{'s' * (len(cells) > 1)} {', '.join(cells)})" for note, cells in found.items()]


def epochs_in_words(prepared: RunPlan) -> str:
    """``5 epochs``, ``2 to 6 epochs``: of each trial."""
    least, most = Space(prepared.base).epochs
    return f"{least} to {most} epochs" if least < most else f"{most} epochs"


def _row(space: Space, cell: Cell, gpus: int, reasons: Sequence[str]) -> tuple[str, ...]:
    amounts: tuple[str, ...] = ("",) * len(_HEADS)
    if not cell.reason:
        experiment = space.at(cell.point)
        gpu, cpu = placement.size(_plan(experiment, gpus))
        training = experiment.training
        warmup = f"{rules.warmup_epochs(experiment):.3g} of {training.epochs}"
        peak = f"{schedule.from_experiment(experiment, 1).peak:.4g}"
        amounts = (str(training.global_batch_size), peak, warmup, f"{cpu:g}", f"{gpu:g}")
    return (
        str(cell.number),
        *(str(cell.point[axis.key]) for axis in space.axes),
        *amounts,
        f"skipped ({reasons.index(cell.reason) + 1})" if cell.reason else "runs",
    )
