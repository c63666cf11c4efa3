"""``--dry-run``: what would run and where, or why it cannot."""

from __future__ import annotations

from collections.abc import Iterator

from raymx.cluster import placement
from raymx.driver.connection import cluster_address, connect
from raymx.driver.first_step import try_first_steps
from raymx.driver.planning import cpus_here, free_now, prepare_here, prepare_on, room_now
from raymx.experiment import loading, rules
from raymx.experiment.loading import ExperimentConfig
from raymx.kvstore import schedule
from raymx.sweep import plan as sweep_plan
from raymx.sweep.plan import RunPlan
from raymx.sweep.space import Space
from raymx.text.words import count


def dry_run(experiment: ExperimentConfig, address: str | None, *, fast: bool = False) -> Iterator[str]:
    """In words: the resolved experiment, its placement, its sweep's cells. Raises RaymxError when it cannot run.

    With an address (or RAY_ADDRESS) it looks at that cluster. It places nothing; unless ``fast``, one step is tried in
    a process of this machine.
    """
    yield loading.to_yaml(experiment)
    nodes = None
    if cluster_address(address):
        connect(experiment, address, verbose=False, ship=False)
        room = room_now(experiment)
        nodes = room.known
        prepared = prepare_on(experiment, room, free_now())
    else:
        prepared = prepare_here(experiment, cpus_here(experiment))
    if experiment.sweep.space:
        yield sweep_plan.describe(prepared)
    plan = placement.with_spare(prepared.plan, prepared.spare_cpus)
    yield placement.describe(prepared.base, plan, nodes, trials=prepared.at_once)
    if nodes is not None and room.unknown and not placement.fits(plan, nodes):
        kinds = ", ".join(dict.fromkeys(room.unknown))
        yield f"Nodes of {kinds} may hold it: their size is not known before they join."
    if not experiment.sweep.space:
        yield rate(prepared.base)
        yield from (f"note: {note}" for note in rules.notes(prepared.base))
    if not fast:
        yield from try_first_steps(_kinds(prepared), elsewhere=nodes is not None)


def _kinds(prepared: RunPlan) -> list[ExperimentConfig]:
    """The experiments of the cells that can run; of a search, the base's."""
    space = Space(prepared.base)
    return [space.at(cell.point) for cell in prepared.planned] or [prepared.base]


def rate(experiment: ExperimentConfig) -> str:
    """The batch and the learning rate that it comes to, in a line: a sweep's table has them for each cell."""
    training = experiment.training
    peak = schedule.from_experiment(experiment, 1).peak
    return (
        f"batch {training.global_batch_size}, learning rate {peak:.4g} at its peak, warmup "
        f"{rules.warmup_epochs(experiment):.3g} of {count(training.epochs, 'epoch')}"
    )
