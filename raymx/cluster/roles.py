"""The Ray actors that host KVStore roles: one process a role, generation after generation.

Each takes its generation's environment as plain data, blocks in one method while it serves or trains, and answers
control calls in others (concurrency groups are threads of the same process).
"""

from __future__ import annotations

import gc
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError

from raymx.cluster import cores, stacks
from raymx.cluster.losses import lost_with_stream
from raymx.errors import KVStoreError, RaymxError
from raymx.experiment.user_code import as_written, folder_here, use_code
from raymx.kvstore import native
from raymx.kvstore.env import socket_path
from raymx.kvstore.guard import no_other_store
from raymx.kvstore.server import HostedServer, enter_generation, serve_as_scheduler
from raymx.kvstore.update_meter import UpdateMeter
from raymx.training.running import KeptWarnings, loop_of, users_error
from raymx.training.usage import Usage


@dataclass(frozen=True)
class Process:
    """What a role's process is given once, before it imports mxnet, and cannot change afterwards."""

    threads: int = 1
    cpus_on_node: float = 0.0  # of the whole trial: cores are bound where the node has that many
    env: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    code: str = ""  # the driver's copy of the modules in it
    ahead: bool = False  # started while others train: it may import all that it will need
    standby: bool = False  # it will take the part of another process, and has that one's cores and GPUs
    cores: tuple[int, ...] = ()
    gpus: str | None = None  # CUDA_VISIBLE_DEVICES
    amp: str = ""  # what AMP casts to


@dataclass(frozen=True)
class Task:
    """What a worker's loop is given for one generation."""

    experiment: Mapping[str, Any]
    rank: int
    num_workers: int
    generation: int
    distributed: bool
    num_devices: int
    gpus: bool
    placement_group: Any = None
    bundle_index: int = -1
    hold_from: int | None = None  # the report number at whose boundary the loop waits for the trial


def _prepare(process: Process) -> dict[str, Any]:
    """Settings first, then the import that reads them. What a standby of this process is given of it."""
    allowed, bound = os.sched_getaffinity(0), list(process.cores)
    if not process.standby and process.cpus_on_node and len(allowed) >= process.cpus_on_node:
        bound = cores.claim(process.threads, allowed)
    os.environ.update(cores.thread_env(process.threads, bound))
    os.environ.update(process.env)
    if process.gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = process.gpus
    os.environ.pop("DMLC_ROLE", None)  # with a role set, importing mxnet would serve and then exit
    _gently(process, native.import_mxnet)
    return {"cores": tuple(bound), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}


def _gently(process: Process, action: Callable[[], None]) -> None:
    """Do it; a standby does it with what training leaves of the cores."""
    if process.standby:
        cores.when_idle(action)
    else:
        action()


def _use_code(process: Process) -> None:
    """From now on this process imports the driver's copy of the experiment's modules, or what Ray unpacked of them."""
    if process.code:
        use_code(process.code, "working_dir" in (ray.get_runtime_context().get_runtime_env_string() or ""))


@ray.remote(concurrency_groups={"serve": 1, "watch": 1, "control": 2})
class Server:
    """A KVStore server."""

    def __init__(self, process: Process) -> None:
        self._directory = folder_here(process.directory)
        _use_code(process)
        self._binding = _prepare(process)
        from raymx.training import marks  # which needs mxnet

        self._server = HostedServer(lambda: UpdateMeter(marks.mark, marks.take))
        self._usage = Usage()

    @ray.method(concurrency_group="control")
    def binding(self) -> dict[str, Any]:
        """The cores and GPUs that this process has, for its standby."""
        return self._binding

    @ray.method(concurrency_group="serve")
    def serve(self, env: Mapping[str, str], store_type: str) -> None:
        """Serve one generation; returns when the workers have ended it."""
        self._server.serve(env, store_type)

    @ray.method(concurrency_group="watch")
    def wait_failure(self) -> str:
        return self._server.wait_failure()

    @ray.method(concurrency_group="control")
    def rank(self) -> int:
        return self._server.rank

    @ray.method(concurrency_group="control")
    def install(self, spec: Any, restored: Any) -> None:
        try:
            with no_other_store():
                self._server.install(replace(spec, directory=self._directory), restored)
        except Exception as error:
            raise users_error("the optimizer cannot be made", error, self._directory) from None

    @ray.method(concurrency_group="control")
    def state(self) -> Any:
        return self._server.updater().state()

    @ray.method(concurrency_group="control")
    def last_update(self) -> tuple[int, float]:
        """(number of updates, the rate of the last one)"""
        updater = self._server.updater()
        return updater.num_update, updater.learning_rate

    @ray.method(concurrency_group="control")
    def set_learning_rate(self, learning_rate: float) -> None:
        self._server.updater().set_learning_rate(learning_rate)

    @ray.method(concurrency_group="control")
    def usage(self) -> dict[str, float]:
        """See `raymx.training.usage`, and `raymx.kvstore.update_meter` where the optimizer is here."""
        return {**self._usage.take(), **self._server.take_updates()}

    @ray.method(concurrency_group="control")
    def updates(self, since: float, until: float) -> tuple[str, list[tuple[int, float, float]]]:
        """The node, and `raymx.kvstore.server.HostedServer.updates`."""
        return os.uname().nodename, self._server.updates(since, until)

    @ray.method(concurrency_group="control")
    def clock(self) -> float:
        """What time it is here."""
        return time.time()

    @ray.method(concurrency_group="control")
    def refused(self) -> list[int]:
        """The commands from the network that this server refused in this generation, by their numbers."""
        return list(self._server.refused)


@ray.remote(concurrency_groups={"serve": 1, "control": 1})
class KVScheduler:
    """The KVStore scheduler. It needs MXNet's C library and no Python import of mxnet."""

    @ray.method(concurrency_group="control")
    def free_port(self, host: str) -> int:
        """A port free on this node now; binding may still fail, and the group then asks again."""
        with socket.socket() as probe:
            probe.bind((host, 0))
            return int(probe.getsockname()[1])

    @ray.method(concurrency_group="serve")
    def serve(self, env: Mapping[str, str]) -> None:
        native.preload_cuda()
        serve_as_scheduler(env, native.mxnet_library())

    @ray.method(concurrency_group="control")
    def wait_bound(self, host: str, port: int, unix_socket: bool, timeout_s: float) -> bool:
        """Whether the port is open within the time-out: a role that connects too early waits 100 ms to try again."""
        deadline = time.monotonic() + timeout_s
        while not _is_open(host, port, unix_socket):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True


@ray.remote(concurrency_groups={"loop": 1, "events": 1, "hold": 1, "watch": 2, "control": 3})
class Worker:
    """A KVStore worker: it has the store, the data stream and the training loop."""

    def __init__(self, process: Process) -> None:
        self._directory = folder_here(process.directory)
        _use_code(process)
        self._warnings = KeptWarnings()
        logging.getLogger("raymx").addHandler(self._warnings)
        self._binding = _prepare(process)
        if process.ahead:
            _gently(process, _import_ahead)
            _train_a_small_net()
        if process.amp:  # after the small net: in float16 its CPU could not compute
            from raymx.training.precision import start_amp

            start_amp(process.amp)
        self._store: Any = None
        self._context: Any = None
        self._entered = threading.Event()

    @ray.method(concurrency_group="control")
    def binding(self) -> dict[str, Any]:
        """The cores and GPUs that this process has, for its standby."""
        return self._binding

    @ray.method(concurrency_group="control")
    def join(self, env: Mapping[str, str], store_type: str, gpus: float) -> int:
        """Create the store, which takes part in a generation when it is a dist one; this worker's rank in it."""
        import mxnet as mx

        if gpus and mx.context.num_gpus() < math.ceil(gpus):
            raise KVStoreError(
                f"resources.gpus_per_worker is {gpus}, but MXNet sees {mx.context.num_gpus()} GPUs on node "
                f"{ray.util.get_node_ip_address()}: install raymx with [cu112] there, or set gpus_per_worker to 0"
            )
        enter_generation(env)
        try:
            self._store = mx.kv.create(store_type)
        except mx.MXNetError as error:
            raise KVStoreError(f"a worker could not join: {error}") from None
        return int(self._store.rank)

    @ray.method(concurrency_group="loop")
    def run_loop(self, task: Task, saved: Any) -> None:
        """Run the experiment's loop to its end. Raises TrainingError with the user's traceback."""
        from raymx.training.channel import LoopEnded

        try:
            context = self._enter(task, saved)
            with no_other_store(), context.host_waits, context.clock:
                loop_of(task.experiment, self._directory)(context)
            self._context.channel.ask("end")  # it can still be asked for a checkpoint
        except LoopEnded:
            pass
        except RaymxError as error:  # a transform's has a traceback
            error.args = (as_written(str(error), self._directory),)
            raise
        except RayError as error:  # of the data stream: what it read was lost with its process or node
            who = f"worker {task.rank} of {task.num_workers}"
            raise lost_with_stream(who, type(error).__name__, str(error)) from None
        except BaseException as error:
            failed = users_error(f"worker {task.rank} of {task.num_workers}", error, self._directory)
            failed.position = self._context.position if self._context else None
            raise failed from None

    def _enter(self, task: Task, saved: Any) -> Any:
        import mxnet as mx

        from raymx.experiment.loading import parse_experiment
        from raymx.training.context import WorkerContext
        from raymx.training.membership import Membership

        device = mx.gpu if task.gpus else mx.cpu
        membership = Membership(
            task.rank, task.num_workers, task.generation, task.distributed, task.placement_group, task.bundle_index
        )
        self._context = WorkerContext(
            parse_experiment(task.experiment, self._directory),
            membership,
            self._store,
            [device(i) for i in range(task.num_devices)],
            saved,
        )
        if task.hold_from is not None:
            self._context.channel.hold(task.hold_from)
        self._entered.set()
        return self._context

    @ray.method(concurrency_group="events")
    def next_event(self) -> Any:
        self._entered.wait()
        return self._context.channel.next_event()

    @ray.method(concurrency_group="control")
    def command(self, name: str, argument: Any = None) -> Any:
        return self._context.channel.command(name, argument)

    @ray.method(concurrency_group="hold")
    def hold(self, count: int, after: int) -> None:
        self._entered.wait()
        self._context.channel.hold(count, after)

    @ray.method(concurrency_group="watch")
    def progress(self) -> dict[str, Any]:
        """Where the loop is, a number that grows whenever it moves, and the warnings since the last call."""
        context = self._context
        return {
            **(context.progress if context else {}),
            "heartbeat": context.heartbeat if context else 0,
            "met": context.channel.met if context else 0,
            "pid": os.getpid(),
            "warnings": self._warnings.take(),
        }

    @ray.method(concurrency_group="watch")
    def clock(self) -> float:
        """What time it is here."""
        return time.time()

    @ray.method(concurrency_group="watch")
    def stacks(self) -> str:
        return stacks.of_this_process()

    @ray.method(concurrency_group="control")
    def leave(self) -> bool:
        """Give the store up, which ends this worker's part in the generation; whether it is really gone."""
        if self._context:
            self._context.close()
        self._context = None
        self._entered.clear()
        store, self._store = weakref.ref(self._store), None
        if store() is not None:  # a cycle of the user's, perhaps
            gc.collect()
        return store() is None


def _import_ahead() -> None:
    """Import what a worker's first step would import, of which the data stream's takes a second."""
    import raymx.data.pipeline.stream
    import raymx.training.loop  # noqa: F401


def _train_a_small_net() -> None:
    """One step, with which MXNet's engine and its libraries start their threads."""
    import mxnet as mx

    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3), mx.gluon.nn.Dense(2))
    net.initialize()
    with mx.autograd.record():
        loss = net(mx.nd.zeros((2, 1, 8, 8))).sum()
    loss.backward()
    mx.nd.waitall()


def _is_open(host: str, port: int, unix_socket: bool) -> bool:
    if unix_socket:
        return os.path.exists(socket_path(port))
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
