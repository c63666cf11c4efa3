"""What can be told only from several nodes together -> findings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raymx.doctor.facts import NodeFacts, Space
from raymx.doctor.findings import Finding, Level, merged, names
from raymx.doctor.needs import Needs, builds
from raymx.doctor.node_checks import INSTALL, check_node, check_storage, not_installed
from raymx.text.words import count

CLOCKS_S = 2.0  # what clocks may differ by
HERE = "this command"

_FIREWALL = (
    "let the nodes reach each other at every TCP port (KVStore roles pick theirs when they start): in a cloud "
    "by a rule of their security group that admits the group itself; on a node by, for example, "
    "ufw allow from NETWORK, or firewall-cmd --zone=trusted --add-source=NETWORK"
)


@dataclass(frozen=True)
class Clock:
    """How far a node's clock is ahead of the driver's, in seconds, and how exactly that is known."""

    ahead_s: float
    within_s: float


@dataclass(frozen=True)
class ClusterFacts:
    """What a look at a cluster has brought, each by the name of a node; a node that did not answer lacks the rest."""

    nodes: Sequence[str]
    silent: Mapping[str, str] = field(default_factory=dict)  # why
    facts: Mapping[str, NodeFacts] = field(default_factory=dict)
    here: NodeFacts | None = None  # of this command's own Python
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # Ray's
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    unbound: Mapping[str, str] = field(default_factory=dict)  # why no port could be opened
    interfaces: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (from, to): what went wrong, or ""
    storage_path: str | None = None
    storage: Mapping[str, tuple[str, Space | None]] = field(default_factory=dict)  # what went wrong, and the disk
    sees: Mapping[str, frozenset[str]] = field(default_factory=dict)  # whose files a node sees
    token_asked: bool = False


def check_cluster(seen: ClusterFacts, needs: Needs | None) -> list[Finding]:
    """All findings about a cluster."""
    return [
        *check_answers(seen),
        *([] if needs else [not_installed()]),
        *merged(
            {
                node: check_node(facts, needs, resources=seen.resources.get(node, {}))
                for node, facts in seen.facts.items()
            }
        ),
        *check_agreement(seen),
        *check_links(seen),
        *check_places(seen),
        *check_clocks(seen.clocks),
        check_token(seen),
        *check_idle_processes(seen),
    ]


def check_answers(seen: ClusterFacts) -> list[Finding]:
    silent = [
        Finding(
            "problem",
            "nodes",
            f"{node} does not answer: {why}",
            "look there at ray status, at memory and disk, and at /tmp/ray/session_latest/logs/raylet.out; "
            "or take the node away (ray stop)",
        )
        for node, why in seen.silent.items()
    ]
    answered = len(seen.nodes) - len(seen.silent)
    whole = (
        []
        if silent and not answered
        else [
            Finding(
                "ok",
                "nodes",
                f"{count(answered, 'node')} answered: {names([n for n in seen.nodes if n not in seen.silent])}",
            )
        ]
    )
    return [*whole, *silent]


# Versions


def check_agreement(seen: ClusterFacts) -> list[Finding]:
    """Whether the nodes, and this command, have the same versions."""
    facts = {**({HERE: seen.here} if seen.here else {}), **seen.facts}
    if len(facts) < 2:
        return []
    found = []
    for what, level in _COMPARED:
        versions = {node: version for node, one in facts.items() if (version := _version(what, one))}
        if len(set(versions.values())) > 1:
            found.append(_differs(what, level, versions))
    return found or [Finding("ok", "versions", "nodes and this command agree on Python, ray, raymx, MXNet and numpy")]


_COMPARED: tuple[tuple[str, Level], ...] = (
    ("Python", "problem"),
    ("ray", "problem"),
    ("raymx", "problem"),
    ("raymx's code", "warning"),
    ("MXNet", "problem"),
    ("numpy", "warning"),
)


def _version(what: str, facts: NodeFacts) -> str:
    if what == "Python":
        return facts["python"]
    if what == "raymx":
        return str(facts["child"]["raymx"].get("version", ""))
    if what == "raymx's code":
        return str(facts["child"]["raymx"].get("code", ""))
    if what == "MXNet":
        return next(iter(builds(facts["packages"]).values()), "")
    return facts["packages"].get(what, "")


def _differs(what: str, level: Level, versions: Mapping[str, str]) -> Finding:
    by_version: dict[str, list[str]] = {}
    for node, version in versions.items():
        by_version.setdefault(version, []).append(node)
    return Finding(
        level,
        what,
        "differs: " + "; ".join(f"{version} on {names(nodes)}" for version, nodes in by_version.items()),
        "start Ray on every node with the same Python, and the command too"
        if what == "Python"
        else f"install the same on every node, and where the command is given ({INSTALL})",
    )


# Connections


def check_links(seen: ClusterFacts) -> list[Finding]:
    """Every node to every other one, both ways."""
    found = [
        Finding(
            "problem",
            "connections",
            f"{node} cannot open a port on its own address: {why}",
            "start its Ray with the address of one of its interfaces: ray start --node-ip-address=ADDRESS",
        )
        for node, why in seen.unbound.items()
    ]
    failed: dict[tuple[str, str], list[str]] = {}
    for (source, target), error in seen.links.items():
        if error:
            failed.setdefault((target, error), []).append(source)
    found += [
        Finding("problem", "connections", f"{target} cannot be reached from {names(sources)}: {error}", _FIREWALL)
        for (target, error), sources in failed.items()
    ]
    if not found and seen.links:
        over = ", ".join(sorted(set(filter(None, seen.interfaces.values()))))
        found.append(Finding("ok", "connections", f"every node reaches every other one, over {over or 'its address'}"))
    return found


# The storage path


def check_places(seen: ClusterFacts) -> list[Finding]:
    if seen.storage_path is None:
        return []
    found = merged(
        {
            node: check_storage(seen.storage_path, error, seen.facts[node]["user"], disk)
            for node, (error, disk) in seen.storage.items()
            if node in seen.facts
        }
    )
    groups: dict[frozenset[str], list[str]] = {}
    for node, others in seen.sees.items():
        groups.setdefault(others, []).append(node)
    if len(groups) > 1:
        apart = " and ".join(names(nodes) for nodes in groups.values())
        found.append(
            Finding(
                "problem",
                "storage path",
                f"{seen.storage_path} is not one folder for all: {apart} do not see each other's files",
                "give a --storage-path on a file system that all nodes share (NFS), or a URI such as s3://bucket/runs",
            )
        )
    elif len(seen.sees) > 1:
        found.append(Finding("ok", "storage path", f"each of {count(len(seen.sees), 'node')} sees the others' files"))
    return found


# The rest


def check_clocks(clocks: Mapping[str, Clock]) -> list[Finding]:
    if len(clocks) < 2:
        return []
    last, first = (pick(clocks, key=lambda node: clocks[node].ahead_s) for pick in (min, max))
    apart = clocks[first].ahead_s - clocks[last].ahead_s
    if apart - clocks[first].within_s - clocks[last].within_s > CLOCKS_S:
        return [
            Finding(
                "warning",
                "clocks",
                f"{first} is {apart:.1f} s ahead of {last}: times in results cannot be compared",
                "run an NTP service on every node (chronyd, systemd-timesyncd)",
            )
        ]
    return [Finding("ok", "clocks", f"within {max(0.1, apart):.1f} s")]


def check_token(seen: ClusterFacts) -> Finding:
    if seen.token_asked:
        return Finding("ok", "token", "the cluster asks for one, and takes ours")
    return Finding(
        "warning",
        "token",
        "the cluster asks for none: whoever reaches it can run programs there",
        "unless its network is closed: ray get-auth-token --generate, copy ~/.ray/auth_token to every node, "
        "and start Ray anew with RAY_AUTH_MODE=token",
    )


def token_here(there: bool, mode: str) -> str:
    """This machine's part in a token that was refused. ``mode``: RAY_AUTH_MODE."""
    if not there:
        return "there is no token here"
    return (
        "the token here is another cluster's"
        if mode == "token"
        else (f"RAY_AUTH_MODE is {mode or 'not set'}, so the token here was not sent")
    )


def token_fix(there: bool, mode: str) -> str:
    """What to do about it: Ray sends a token to an address that was named only when told to."""
    told = "set RAY_AUTH_MODE=token, if you trust that address with it"
    if there and mode != "token":
        return f"run on the cluster's head with --address auto, or {told}"
    return f"copy the file .ray/auth_token out of the home folder on the cluster's head to here, and {told}"


def check_idle_processes(seen: ClusterFacts) -> list[Finding]:
    """Ray ends idle processes beyond one a CPU, and counts actors among them."""
    without = tuple(
        node for node, facts in seen.facts.items() if "RAY_num_workers_soft_limit" not in facts["environment"]
    )
    if not without:
        return [Finding("ok", "idle processes", "Ray keeps them (RAY_num_workers_soft_limit)")] if seen.facts else []
    return [
        Finding(
            "note",
            "idle processes",
            "Ray ends them beyond one a CPU, so data streams may start theirs anew every epoch",
            "set RAY_num_workers_soft_limit to 4 times the CPUs where ray start is run",
            () if len(without) == len(seen.facts) else without,
        )
    ]
