"""The command line of ``python -m raymx.launch``: the flags of MXNet's launch.py, and raymx's own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from raymx import __version__
from raymx.errors import ExperimentError
from raymx.launch import environment, points
from raymx.launch.script import Script

_REFUSED = {
    "hostfile": "-H: the nodes are those of a Ray cluster: start one (ray up, or ray start on each host of the file), "
    "and name it with --address",
    "server_hostfile": "-SH: it is BytePS's, which raymx does not start; servers sit beside the workers on the nodes "
    "of the Ray cluster: leave it out",
    "byteps_launch": "--byteps-launch: raymx starts MXNet's own KVStore; leave it out, and the script's byteps with it",
    "scheduler_ip": "--scheduler-ip: the KVStore scheduler is where Ray places it, and the roles know it: leave it out",
    "scheduler_port": "--scheduler-port: it is BytePS's; give the KVStore scheduler's port with --port",
}
_LAUNCHERS = {
    "local": "",
    "ssh": "--launcher ssh: Ray reaches the nodes, without ssh; name the cluster with --address",
    "mpi": "start Ray in the allocation (ray start on each node), leave --launcher out, and give --address",
    "sge": "start Ray in the job (ray start on each node), leave --launcher out, and give --address",
    "yarn": "start Ray on the nodes, leave --launcher out, and give --address",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m raymx.launch",
        allow_abbrev=False,
        usage="%(prog)s -n N [-s S] [flags] [--] COMMAND ...",
        description="Run a training script that was written for MXNet's launch.py on Ray, as it is: workers, servers "
        "and the KVStore scheduler as Ray actors in one placement group. Nothing is left when one of them dies.",
    )
    top.add_argument("--version", action="version", version=f"raymx {__version__}")
    _add_launch_flags(top.add_argument_group("MXNet's flags"))
    _add_ray_flags(top.add_argument_group("Ray's flags"))
    _add_own_flags(top.add_argument_group("failures, results and sweeps"))
    top.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND ...",
        help="the script's command as it is given by hand, last of all: python train.py --kv-store dist_sync",
    )
    top.add_argument("--run-id", help=argparse.SUPPRESS)  # of a submitted run: its folder's name
    return top


def _add_launch_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("-n", "--num-workers", type=int, required=True, metavar="N", help="workers")
    add("-s", "--num-servers", type=int, metavar="N", help="servers; as many as workers when not given, 0 for none")
    for name, more in (("", "all roles"), ("-worker", "the workers"), ("-server", "the servers")):
        add(
            f"--env{name}",
            action="append",
            default=[],
            metavar="NAME[:VALUE]",
            help=f"an environment variable for {more}; without a value, this shell's; can be given again",
        )
    add(
        "-p",
        "--port",
        type=int,
        default=0,
        metavar="PORT",
        help="port of the KVStore scheduler; a free one when not given",
    )
    add("--p3", action="store_true", help="MXNet's P3 (DMLC_PS_VAN_TYPE=p3), for stores of a p3 type")
    add("--launcher", choices=tuple(_LAUNCHERS), help="local and ssh change nothing, since Ray places the roles")
    add("--sync-dst-dir", metavar="PATH", help="changes nothing: the folder travels with Ray, to a place of its own")
    add("-H", "--hostfile", metavar="FILE", help="refused: a Ray cluster's nodes are those that it has")
    add("-SH", "--server-hostfile", help=argparse.SUPPRESS)
    add("--byteps-launch", action="store_true", default=None, help=argparse.SUPPRESS)
    add("--scheduler-ip", help=argparse.SUPPRESS)
    add("--scheduler-port", help=argparse.SUPPRESS)


def _add_ray_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--address", help="a running Ray cluster (host:port or auto); when not given, Ray starts here")
    add("--storage-path", metavar="PATH", help="folder or URI for results of all runs, ~/ray_results when not given")
    add("--name", help="name of the run; the script's when not given")
    add("--cpus-per-worker", type=float, default=1.0, metavar="X", help="CPUs of a worker, and its OMP_NUM_THREADS")
    add(
        "--gpus-per-worker", type=float, default=0.0, metavar="X", help="GPUs of a worker, which are its gpu(0), gpu(1)"
    )
    add("--cpus-per-server", type=float, default=1.0, metavar="X", help="CPUs of a server, and its OMP_NUM_THREADS")
    add(
        "--shared-folder",
        action="store_true",
        help="all nodes have the script's folder under the same path: it does not travel, and parameters written there "
        "are found again wherever a worker starts",
    )
    add("--verbose", action="store_true", help="show what Ray says too")


def _add_own_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--restarts",
        type=int,
        default=0,
        metavar="N",
        help="how often all roles are started again after one has failed",
    )
    add(
        "--resume-flag",
        default="",
        metavar="TEXT",
        help="added to the command when parameters are there, the epoch in place of {epoch}: '--load-epoch {epoch}'",
    )
    add("--resume-prefix", default="", metavar="PATH", help="parameters are PATH-NNNN.params, NNNN the epoch")
    add(
        "--pattern",
        action="append",
        default=[],
        metavar="REGEX",
        help="a regular expression for the script's own log lines: each named group is a column, "
        "(?P<samples_per_sec>...) is speed and (?P<epoch>...) the epoch from 0; can be given again",
    )
    add(
        "--objective",
        default="",
        metavar="METRIC[:MODE]",
        help="what trials are compared by, max or min of it; the validation metric when not given",
    )
    add(
        "--sweep",
        action="append",
        default=[],
        metavar="FLAG=A,B",
        help="run the script with each value of its flag --FLAG, and with each combination where several are given",
    )
    add("--repeats", type=int, default=1, metavar="N", help="how often each combination is run")
    add(
        "--concurrent", type=int, default=1, metavar="N", help="trials at once; the script must bear that in one folder"
    )
    add(
        "--guard",
        action="store_true",
        help="raymx's own servers: nothing from the network is unpickled, learning rates and multipliers reach them, "
        "and Gluon's trainer can compress; a script with the line  import raymx.mx  has it without the flag",
    )
    add(
        "--servers-run-script",
        action="store_true",
        help="servers run the whole command, as under MXNet's launch.py, and not its import of mxnet alone",
    )


def script_of(args: argparse.Namespace, client: Mapping[str, str]) -> Script:
    """The script that a command line asks for. Raises ExperimentError with the fix for a flag that cannot be had."""
    for name, why in _REFUSED.items():
        if getattr(args, name) is not None:
            raise ExperimentError(why)
    if args.launcher not in (None, "local", "ssh"):
        raise ExperimentError(f"--launcher {args.launcher}: Ray starts the roles: {_LAUNCHERS[args.launcher]}")
    everyone = environment.pairs(args.env, "--env", client)
    if args.p3:
        everyone = {"DMLC_PS_VAN_TYPE": "p3", "DMLC_PS_WATER_MARK": "10", **everyone}
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    return Script(
        command,
        workers=args.num_workers,
        servers=args.num_servers,
        cpus_per_worker=args.cpus_per_worker,
        gpus_per_worker=args.gpus_per_worker,
        cpus_per_server=args.cpus_per_server,
        env=everyone,
        env_worker=environment.pairs(args.env_worker, "--env-worker", client),
        env_server=environment.pairs(args.env_server, "--env-server", client),
        port=args.port,
        restarts=args.restarts,
        resume_flag=args.resume_flag,
        resume_prefix=args.resume_prefix,
        patterns=args.pattern,
        objective=args.objective,
        sweep=_axes(args.sweep),
        repeats=args.repeats,
        concurrent=args.concurrent,
        guard=args.guard,
        servers_run_script=args.servers_run_script,
        name=args.name or "",
    )


def notes(args: argparse.Namespace) -> list[str]:
    """A sentence for each flag that is taken and changes nothing."""
    found = [_LAUNCHERS[args.launcher]] if args.launcher and _LAUNCHERS[args.launcher] else []
    if args.sync_dst_dir:
        found.append(
            f"--sync-dst-dir {args.sync_dst_dir}: the folder travels with Ray, and the script runs in it; paths that "
            f"name {args.sync_dst_dir} are not there unless you put something there"
        )
    return found


def _axes(texts: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, values = points.axis(text)
        found[name] = (*found.get(name, ()), *values)
    return found
