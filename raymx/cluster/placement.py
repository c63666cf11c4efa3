"""The one placement group of a trial: its bundles, and whether a cluster can hold them. Pure: no ray.

    wanted = plan(experiment, gpus_per_worker=0)
    check_fit(wanted, nodes)              # PlacementError with numbers, before anything waits for ever
    print(describe(experiment, wanted, nodes))

Bundle 0 holds the controller: the trial and the KVStore scheduler. Then comes one bundle a worker, with its data CPUs
and the CPUs of the servers that sit beside it, and then one bundle a dedicated server. An elastic run has the workers
that it starts with in this group; each one more is a placement group of its own, with one bundle (a slot).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raymx.errors import PlacementError
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.rules import is_dist
from raymx.text.words import columns, count

CONTROLLER_CPUS = 1.0
MOST_DATA_CPUS = 8  # of data.cpus: auto
_ANY_NUMBER = 10_000  # of trials: where a node's CPUs are not known yet
_TOLERANCE = 1e-6  # CPUs; Ray itself counts in 1/10000


@dataclass(frozen=True)
class Roles:
    """How many workers and servers there are, and what one of each asks for."""

    workers: int
    """Those that an elastic run starts with."""
    max_workers: int
    workers_in_words: str
    """``2 workers``, ``2 to 8 workers``."""
    worker_cpus: float
    """A worker's own CPUs and its data CPUs."""
    worker_gpus: float
    servers: int
    server_cpus: float
    dedicated_servers: bool


@dataclass(frozen=True)
class Plan:
    """Bundles of one placement group, and which bundle each worker and each server belongs to.

    ``slot_bundle`` is what one more worker of an elastic run needs, and ``max_slots`` how many there may be.
    """

    bundles: tuple[Mapping[str, float], ...]
    strategy: str
    worker_bundles: tuple[int, ...]
    server_bundles: tuple[int, ...]
    roles: Roles
    slot_bundle: Mapping[str, float]
    max_slots: int
    controller_bundle: int = 0


@dataclass(frozen=True)
class NodeResources:
    """What one node of the cluster has for this run. ``has_avx512``: None where it is not known;
    ``unusable_gpus``: those that MXNet has no code for, in words."""

    name: str
    cpu: float
    gpu: float
    has_avx512: bool | None = None
    unusable_gpus: str = ""


def plan(experiment: ExperimentConfig, gpus_per_worker: float) -> Plan:
    """The bundles of an experiment; ``gpus_per_worker`` is the number that ``auto`` came to.

    For an elastic experiment those of its fewest workers, with which it starts.
    ``data.cpus: auto`` counts as 1 until `with_data_cpus` has made it a number.
    """
    resources, kvstore = experiment.resources, experiment.kvstore
    return _plan(
        Roles(
            workers=resources.min_workers,
            max_workers=resources.max_workers,
            workers_in_words=resources.workers_in_words,
            worker_cpus=resources.cpus_per_worker + experiment.data.read_cpus,
            worker_gpus=gpus_per_worker,
            servers=kvstore.servers if is_dist(experiment) else 0,
            server_cpus=kvstore.cpus_per_server,
            dedicated_servers=kvstore.server_placement == "dedicated",
        )
    )


def _plan(roles: Roles) -> Plan:
    workers = tuple(range(1, 1 + roles.workers))
    if roles.dedicated_servers:
        servers = tuple(range(1 + roles.workers, 1 + roles.workers + roles.servers))
    else:
        servers = tuple(workers[server % roles.workers] for server in range(roles.servers))
    cpus = dict.fromkeys((0, *workers, *servers), 0.0)
    cpus[0] = CONTROLLER_CPUS
    for bundle in workers:
        cpus[bundle] += roles.worker_cpus
    for bundle in servers:
        cpus[bundle] += roles.server_cpus
    gpus = {"GPU": float(roles.worker_gpus)} if roles.worker_gpus else {}
    bundles = tuple({"CPU": cpus[bundle], **(gpus if bundle in workers else {})} for bundle in sorted(cpus))
    return Plan(
        bundles,
        "PACK",
        workers,
        servers,
        roles,
        slot_bundle={"CPU": roles.worker_cpus, **gpus},
        max_slots=roles.max_workers - roles.workers,
    )


def check_fit(plan: Plan, nodes: Sequence[NodeResources]) -> None:
    """Raise a PlacementError with what is asked, what there is and what would fit, when ``nodes`` cannot hold ``plan``.

    ``nodes`` are the cluster's totals: what other jobs hold now may be free later. An elastic plan fits with its fewest
    workers.
    """
    if not fits(plan, nodes):
        raise PlacementError(
            "\n".join(
                (
                    "The cluster cannot hold this experiment.",
                    f"  Asked: {_amount(*_totals(plan))}: {_roles_in_words(plan.roles)}",
                    f"  There: {nodes_in_words(nodes)}",
                    *(f"  {line}" for line in _advice(plan, nodes)),
                )
            )
        )


def fits(plan: Plan, nodes: Sequence[NodeResources]) -> bool:
    """Whether ``nodes`` could hold ``plan``, an elastic one with its fewest workers."""
    return _nodes_used(plan, nodes) is not None


def holds(bundles: Sequence[Mapping[str, float]], nodes: Sequence[NodeResources]) -> bool:
    """Whether ``nodes`` could hold these bundles, each of which lies on one node."""
    return _fit(bundles, nodes) is not None


def size(plan: Plan) -> tuple[float, float]:
    """(GPUs, CPUs) of all bundles: to compare plans."""
    return _totals(plan)[::-1]


def logical_cpus(plan: Plan) -> int:
    """CPUs that a Ray needs which raymx starts for this plan alone; an elastic plan counts its fewest workers."""
    return math.ceil(_totals(plan)[0] - _TOLERANCE)


def at_once(plan: Plan, nodes: Sequence[NodeResources], most: int = 1000) -> int:
    """How many of such trials fit on these nodes together, at most ``most``."""
    fitting = itertools.takewhile(lambda n: _fit(plan.bundles * n, nodes) is not None, range(1, most + 1))
    return max(fitting, default=0)


def apart(plan: Plan, nodes: Sequence[NodeResources]) -> tuple[int, float]:
    """How many of such trials fit so that no two share a node, and the CPUs to add to each so that none do.

    A trial that fits on one node is made larger than half of the largest one. Those that need several may share some.
    """
    used = _nodes_used(plan, nodes)
    if used is None or len(used) > 1:
        smallest = min(bundle["CPU"] for bundle in plan.bundles)
        return (0 if used is None else max(1, sum(node.cpu >= smallest for node in nodes) // len(used))), 0.0
    needs = _totals(plan)[0]
    holders = [node for node in nodes if _nodes_used(plan, [node])]
    spare = max(0.0, math.floor(max(node.cpu for node in holders) / 2) + 1 - needs) if len(holders) > 1 else 0.0
    return sum(node.cpu >= needs + spare for node in holders), spare


def with_spare(plan: Plan, cpus: float) -> Plan:
    """The plan on one node, with so many CPUs more that nobody uses: they keep others away."""
    first = {**plan.bundles[0], "CPU": plan.bundles[0]["CPU"] + cpus}
    return replace(plan, bundles=(first, *plan.bundles[1:]), strategy="STRICT_PACK") if cpus else plan


def share(plan: Plan, nodes: Sequence[NodeResources], part: float) -> int:
    """How many of such trials together ask for at most this part of the CPUs, and of the GPUs; at least 1."""
    limits = [(sum(node.cpu for node in nodes), _totals(plan)[0]), (sum(node.gpu for node in nodes), _totals(plan)[1])]
    most = min(part * there / asked for there, asked in limits if asked)
    return max(1, math.floor(min(most, _ANY_NUMBER) + _TOLERANCE))


def auto_gpus(experiment: ExperimentConfig, nodes: Sequence[NodeResources]) -> int:
    """The most GPUs a worker with which all workers fit (of an elastic experiment its fewest).

    0 when there is no GPU or not one for each.
    """
    most = int(max((node.gpu for node in nodes), default=0))
    return next((gpus for gpus in range(most, 0, -1) if _nodes_used(plan(experiment, gpus), nodes)), 0)


def with_data_cpus(
    experiment: ExperimentConfig, gpus_per_worker: float, free: Sequence[NodeResources]
) -> ExperimentConfig:
    """The experiment with a number for ``data.cpus: auto``: the most, from 1 to 8, for which nodes have room now.

    1 when there is none even for that: then the plan waits, or is refused. For an elastic experiment all its workers
    must have room: rather more workers than more CPUs for data, so it is 1 where they never do.
    """
    if experiment.data.cpus != "auto":
        return experiment
    tries = [
        experiment.model_copy(update={"data": experiment.data.model_copy(update={"cpus": float(cpus)})})
        for cpus in range(MOST_DATA_CPUS, 0, -1)
    ]
    return next((one for one in tries if _room(plan(one, gpus_per_worker), free)), tries[-1])


def _room(plan: Plan, free: Sequence[NodeResources]) -> bool:
    """Whether all workers fit, those that an elastic run may grow to as well."""
    return _nodes_used(plan, free, plan.max_slots) is not None


def describe(
    experiment: ExperimentConfig, plan: Plan, nodes: Sequence[NodeResources] | None, *, trials: int = 1
) -> str:
    """A table of who needs what, and whether it fits ``nodes`` (None: no cluster, raymx starts a Ray of its own)."""
    roles = plan.roles
    place = "a bundle of its own" if roles.dedicated_servers else "beside a worker"
    everything = f"all, with {count(roles.workers, 'worker')}" if plan.max_slots else "all"
    rows = [
        ("role", "count", "CPU each", "GPU each", "place"),
        ("trial and KVStore scheduler", "1", f"{CONTROLLER_CPUS:g}", "0", "a bundle of its own"),
        (
            "worker",
            roles.workers_in_words.rpartition(" ")[0],
            f"{roles.worker_cpus:g}",
            f"{roles.worker_gpus:g}",
            "a bundle of its own",
        ),
        *([("server", str(roles.servers), f"{roles.server_cpus:g}", "0", place)] if roles.servers else []),
        (everything, "", *(f"{total:g}" for total in _totals(plan)), f"{len(plan.bundles)} bundles"),
    ]
    data_cpus = experiment.data.read_cpus
    return "\n".join(
        (
            *columns(rows),
            f"A worker's CPUs include {data_cpus:g} for reading data.",
            *([f"{roles.workers_in_words}{_growth(roles)}."] if plan.max_slots else []),
            _verdict(plan, nodes, trials),
        )
    )


def _verdict(plan: Plan, nodes: Sequence[NodeResources] | None, trials: int) -> str:
    if nodes is None:
        more = ", or one a core where that is more" if plan.max_slots else ""
        cpus = logical_cpus(plan) * trials
        return f"No cluster given: raymx starts a Ray on this machine with {cpus} logical CPUs{more}."
    used = _nodes_used(plan, nodes)
    if used is None:
        return "\n".join(("It does not fit.", f"There: {nodes_in_words(nodes)}", *_advice(plan, nodes)))
    return f"It fits, on {', '.join(used)}{_room_to_grow(plan, nodes)}."


def _room_to_grow(plan: Plan, nodes: Sequence[NodeResources]) -> str:
    if not plan.max_slots:
        return ""
    slots = next(n for n in range(plan.max_slots, -1, -1) if _nodes_used(plan, nodes, n) is not None)
    return f"; the cluster has room for {count(plan.roles.workers + slots, 'worker')}"


def _nodes_used(plan: Plan, nodes: Sequence[NodeResources], slots: int = 0) -> list[str] | None:
    """Names of the nodes that take the bundles and so many slots, or None when they do not fit.

    Best fit, largest bundle first: CPU-only bundles then stay off GPU nodes while there is room elsewhere.
    """
    return _fit((*plan.bundles, *[plan.slot_bundle] * slots), nodes)


def _fit(bundles: Sequence[Mapping[str, float]], nodes: Sequence[NodeResources]) -> list[str] | None:
    free = [[node.gpu, node.cpu] for node in nodes]
    used: set[int] = set()
    for gpu, cpu in sorted(((b.get("GPU", 0.0), b["CPU"]) for b in bundles), reverse=True):
        room = [i for i, (g, c) in enumerate(free) if g - gpu >= -_TOLERANCE and c - cpu >= -_TOLERANCE]
        if not room:
            return None
        tightest = min(room, key=lambda i: free[i])
        free[tightest] = [free[tightest][0] - gpu, free[tightest][1] - cpu]
        used.add(tightest)
    return [nodes[i].name for i in sorted(used)]


def _advice(plan: Plan, nodes: Sequence[NodeResources]) -> list[str]:
    roles = plan.roles
    if roles.worker_gpus and not any(node.gpu for node in nodes):
        return [
            f"There is no GPU in this cluster, and each worker asks for {roles.worker_gpus}: set "
            "resources.gpus_per_worker to 0 or auto (leave out --gpus), or use a cluster with GPUs."
        ]
    fewer = range(roles.workers - 1, 0, -1)
    fitting = next((n for n in fewer if _nodes_used(_plan(replace(roles, workers=n)), nodes)), 0)
    key = (
        f"resources.workers.min (--num-workers {fitting}:{roles.max_workers})"
        if plan.max_slots
        else "resources.workers (--num-workers)"
    )
    most = (
        f"{fitting} of {roles.workers} workers would fit: set {key} to {fitting}, or"
        if fitting
        else "Not even one worker would fit:"
    )
    keys = ["resources.cpus_per_worker", "data.cpus"]
    keys += ["kvstore.cpus_per_server", "kvstore.servers"] if roles.servers else []
    keys += ["resources.gpus_per_worker"] if roles.worker_gpus else []
    return [f"{most} lower {', '.join(keys[:-1])} or {keys[-1]}.", "A bundle must fit on one node."]


def needs(plan: Plan) -> str:
    """What the plan asks for, in words: the whole, then each role."""
    return f"the run needs {_amount(*_totals(plan))} ({_roles_in_words(plan.roles)})"


def _totals(plan: Plan) -> tuple[float, float]:
    """(CPUs, GPUs) of all bundles."""
    return sum(b["CPU"] for b in plan.bundles), sum(b.get("GPU", 0.0) for b in plan.bundles)


def _amount(cpu: float, gpu: float) -> str:
    return f"{cpu:g} CPU" + (f" and {gpu:g} GPU" if gpu else "")


def _growth(roles: Roles) -> str:
    """Empty where the number of workers is fixed."""
    return f": starts with {roles.workers}, grows when room appears" if roles.max_workers > roles.workers else ""


def _roles_in_words(roles: Roles) -> str:
    each = _amount(roles.worker_cpus, roles.worker_gpus)
    words = [
        f"trial and KVStore scheduler {_amount(CONTROLLER_CPUS, 0)}",
        f"{roles.workers_in_words} with {each} each{_growth(roles)}",
    ]
    if roles.servers:
        place = "in bundles of their own" if roles.dedicated_servers else "beside the workers"
        words.append(f"{count(roles.servers, 'server')} with {_amount(roles.server_cpus, 0)} each, {place}")
    return "; ".join(words)


def nodes_in_words(nodes: Sequence[NodeResources]) -> str:
    """``4 CPU and 0 GPU on 2 nodes (10.0.0.1 2 CPU, 10.0.0.2 2 CPU)``."""
    if not nodes:
        return "no node"
    total = f"{sum(n.cpu for n in nodes):g} CPU and {sum(n.gpu for n in nodes):g} GPU on {count(len(nodes), 'node')}"
    each = [f"{node.name} {_amount(node.cpu, node.gpu)}" for node in nodes[:8]]
    more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
    return f"{total} ({', '.join(each)}{more})"
