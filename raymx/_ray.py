"""Ray's private names: all that raymx uses of Ray and Ray does not promise to keep.

Each function here is for one thing, and says what to do when a new Ray lacks the names in it. `PRIVATE_NAMES` lists
them, and those few that must be used elsewhere. A test names all that the installed Ray lacks; another one refuses
private names of Ray's in all other modules.

Ray is imported late: many commands of raymx's never need it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TRAINABLE = "ray.tune.trainable.trainable:Trainable"
_PBT = "ray.tune.schedulers.pbt:PopulationBasedTraining"
_WANDB = "ray.air.integrations.wandb:WandbLoggerCallback"

PRIVATE_NAMES: dict[str, str] = {
    # What raymx's subclasses of Ray's classes use of them, as self.NAME.
    f"{_TRAINABLE}._storage": "Trial: where its files are to stay. Pass the run's storage path on in the config.",
    f"{_TRAINABLE}._last_result": "Trial: the row to repeat while Tune ends the process. Keep the last that step gave.",
    f"{_PBT}._trial_state": "FairPBT: how far each trial is. Keep that in on_trial_result.",
    f"{_PBT}._next_perturbation_sync": "FairPBT: the epoch that all wait for. See how trials wait for each other now, "
    "and whether they still do for one that has failed.",
    f"{_PBT}._perturbation_interval": "FairPBT: the epochs between two such waits, as trial_scheduler gives them.",
    f"{_PBT}._exploit": "FairPBT: a clone keeps its own cell and repeat. Do that where Ray sets a clone's config now.",
    f"{_WANDB}._start_logging_actor": "WandB: starts a trial's process. See log_trial_start of Ray's.",
    f"{_WANDB}._signal_logging_actor_stop": "WandB: ends those of interrupted trials. See log_trial_end of Ray's.",
    f"{_WANDB}._cleanup_logging_actor": "WandB: what a process failed with. Without, nobody is told of lost rows.",
    f"{_WANDB}._trial_queues": "WandB: the trials that have a process. Keep a set of those that were started.",
    f"{_WANDB}._trial_logging_futures": "WandB: see _cleanup_logging_actor.",
    # In files of the doctor's that travel by their source, to nodes without raymx.
    "ray._private.worker:_global_node": "doctor/probe.py: where Ray keeps its files on a node. See how ray.init knows.",
    "ray._private.node:Node.get_temp_dir_path": "doctor/probe.py: see _global_node.",
    # Seen from outside.
    "ray.autoscaler._private.monitor": "cluster/autoscaler.py: the process of this file, which has the autoscaler's "
    "configuration on its command line. Look at the processes on the head of a cluster of `ray up`.",
}
"""``module:attributes`` -> who uses it, for what, and what to do without. The functions below add theirs."""


def _uses(*names: str) -> Callable[[_Function], _Function]:
    """Put Ray's names that a function uses into the table, with its docstring."""

    def add(function: _Function) -> _Function:
        PRIVATE_NAMES.update(dict.fromkeys(names, f"raymx._ray.{function.__name__}: {function.__doc__}"))
        return function

    return add


# ---- the cluster ----


@_uses("ray._private.state:state.get_draining_nodes")
def draining_nodes() -> frozenset[str]:
    """The ids of the nodes that are about to go. Without: an empty set, so that trials learn it from what they lose."""
    from ray._private.state import state

    return frozenset(state.get_draining_nodes())


@_uses("ray._private.state:available_resources_per_node")
def available_resources() -> dict[str, dict[str, float]]:
    """What nobody has reserved, by node id. Without: `ray.util.state`, or all that nodes have (ray.nodes())."""
    from ray._private.state import available_resources_per_node

    return dict(available_resources_per_node())


@dataclass(frozen=True)
class PlacementGroupRow:
    """A placement group of any job of the cluster."""

    job_id: str  # of its creator, in hex
    name: str
    is_pending: bool
    bundles: tuple[dict[str, float], ...]
    created_ms: int  # since 1970
    is_placed: bool = True  # it holds what it asked for


@_uses(
    "ray._private.state:state._connect_and_get_accessor",
    "ray._private.state:GlobalStateAccessor.get_placement_group_table",
    "ray.core.generated.gcs_pb2:PlacementGroupTableData",
)
def placement_groups() -> list[PlacementGroupRow]:
    """The placement groups of all jobs. Ray's own table has neither the job nor the time: without these, look for both
    in ray.util.state, or give no group, so that sweeps yield to nobody."""
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData

    found = map(PlacementGroupTableData.FromString, state._connect_and_get_accessor().get_placement_group_table())
    return [
        PlacementGroupRow(
            group.creator_job_id.hex(),
            group.name,
            group.state == PlacementGroupTableData.PENDING,
            tuple(dict(bundle.unit_resources) for bundle in group.bundles),
            group.placement_group_creation_timestamp_ms,
            group.state in (PlacementGroupTableData.CREATED, PlacementGroupTableData.RESCHEDULING),
        )
        for group in found
    ]


# ---- Ray's key-value store ----


@_uses("ray.experimental.internal_kv:_internal_kv_put")
def put_value(namespace: bytes, key: bytes, value: bytes) -> None:
    """Write into the cluster's key-value store. Without: an actor with a dictionary, detached and named."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, value, overwrite=True, namespace=namespace)


@_uses("ray.experimental.internal_kv:_internal_kv_get")
def get_value(namespace: bytes, key: bytes) -> bytes | None:
    """Read from the cluster's key-value store; None when it has no such key. Without: as of `put_value`."""
    from ray.experimental.internal_kv import _internal_kv_get

    found: bytes | None = _internal_kv_get(key, namespace=namespace)
    return found


@_uses("ray.experimental.internal_kv:_internal_kv_del")
def remove_values(namespace: bytes, key: bytes, *, below: bool = False) -> None:
    """Remove a key, or with ``below`` all that begin with it. Without: as of `put_value`."""
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(key, del_by_prefix=below, namespace=namespace)


# ---- processes ----


@_uses("ray.actor:_modify_class.__ray_ready__")
def ready(actor: Any) -> Any:
    """A reference that is there once the actor's process has started. Without: give the roles a method of no effect."""
    return actor.__ray_ready__.remote()


@_uses("ray._private.worker:global_worker.node", "ray._private.node:Node.get_logs_dir_path")
def log_folder() -> str:
    """Where this node's logs are, which the dashboard serves. Without: session_latest/logs in `temporary_folder`."""
    from ray._private.worker import global_worker

    return str(global_worker.node.get_logs_dir_path())


@_uses("ray.air._internal.usage:tag_callbacks")
def leave_callbacks_uncounted() -> None:
    """Ray's usage statistics count a run's callbacks by kind, for which Tune imports MLflow and W&B where they are
    installed, whether the run uses them or not. Without: those seconds are lost."""
    from ray.air._internal import usage

    usage.tag_callbacks = lambda callbacks: False


@_uses("ray._private.worker:print_to_stdstream")
def silence_raylets() -> None:
    """Keep what raylets tell every driver off the screen, whatever log_to_driver says: of one that ends, its stack
    trace. Without: see who prints "(raylet)" now."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None


@_uses("ray._private.runtime_env.packaging:get_excludes_from_ignore_files")
def ignore_rules(folder: Path) -> list[Callable[[Path], bool]]:
    """What .gitignore and .rayignore in a folder leave out, as Ray reads them for a working directory. Without: the
    package pathspec, which Ray reads them with."""
    from ray._private.runtime_env.packaging import get_excludes_from_ignore_files

    found: list[Callable[[Path], bool]] = get_excludes_from_ignore_files(
        folder, include_gitignore=True, logger=_Silent()
    )
    return found


class _Silent:
    def info(self, *_: object) -> None:
        """Ray logs each ignore file."""


# ---- the head and its dashboard ----


@_uses("ray._common.utils:get_default_ray_temp_dir")
def temporary_folder() -> str:
    """Where Ray keeps its sessions on this machine. Without: RAY_TMPDIR or /tmp/ray."""
    from ray._common.utils import get_default_ray_temp_dir

    return str(get_default_ray_temp_dir())


@_uses("ray._private.services:find_bootstrap_address")
def head_here() -> str | None:
    """HOST:PORT of the cluster that runs on this machine; None when none does. Without: the file ray_current_cluster
    in `temporary_folder`."""
    from ray._private import services

    found: str | None = services.find_bootstrap_address(None)
    return found


@_uses("ray._common.utils:get_ray_address_file")
def head_file() -> Path:
    """The file with which a cluster's head says that it runs on this machine; the user who started it owns it.
    Without: the file ray_current_cluster in `temporary_folder`."""
    from ray._common.utils import get_ray_address_file

    return Path(get_ray_address_file(None))


@_uses("ray.dashboard.utils:ray_address_to_api_server_url")
def dashboard_url(address: str) -> str:
    """The dashboard's URL of the cluster at HOST:PORT. Without: ray.init gives it, as dashboard_url."""
    from ray.dashboard.utils import ray_address_to_api_server_url

    return str(ray_address_to_api_server_url(address))


@_uses("ray.job_submission:JobSubmissionClient._do_request")
def ask_dashboard(client: Any, path: str) -> Any:
    """The answer to a GET through a JobSubmissionClient, with its token. Without: requests.get, with the token of
    ~/.ray/auth_token in the header."""
    return client._do_request("GET", path)


@_uses(
    "ray._private.authentication.authentication_token_setup:enable_token_auth_by_default",
    "ray._private.authentication.authentication_token_setup:ensure_token_if_auth_enabled",
)
def make_token() -> None:
    """Have a cluster that is started here ask for this machine's token, as ray.init does. Without: leave it to `ray
    start`, and see that a cluster of this machine is not open to its other users."""
    from ray._private.authentication import authentication_token_setup as token

    token.enable_token_auth_by_default()
    token.ensure_token_if_auth_enabled(create_token_if_missing=True)


@_uses("ray._private.authentication.authentication_token_setup:maybe_enable_token_auth_if_token_available")
def use_token() -> None:
    """Send this machine's token to a cluster of this machine, as ray.init does, unless RAY_AUTH_MODE says otherwise.
    Without: set RAY_AUTH_MODE=token where ~/.ray/auth_token is there."""
    from ray._private.authentication import authentication_token_setup as token

    token.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


# ---- Ray Data, Tune and the trackers ----


@_uses("ray.data._internal.execution.execution_callback:ExecutionCallback")
def execution_callback() -> type[Any]:
    """The class that Ray Data calls at each turn of its loop, to make a subclass of. Without: training gives half of
    Python's time to that loop where batches are ready; see what DataContext has instead."""
    from ray.data._internal.execution.execution_callback import ExecutionCallback

    return ExecutionCallback


@_uses("ray.data._internal.execution.streaming_executor:StreamingExecutor._resource_manager")
def object_store_bytes(executor: Any) -> float:
    """What an execution of Ray Data keeps in the object store now, by its own count; 0 where it does not say. Without:
    0, and no column object_store_mib."""
    try:
        return float(executor._resource_manager.get_global_usage().object_store_memory)
    except Exception:  # it is for a column of results alone
        return 0.0


@_uses("ray.data.context:DataContext._max_num_blocks_in_streaming_gen_buffer")
def let_tasks_run_ahead(context: Any) -> None:
    """Have read tasks run to their end, however late their blocks are taken. Without: a task that waits keeps its CPU
    from a stream that is needed first; see what DataContext has against that."""
    context._max_num_blocks_in_streaming_gen_buffer = None


@_uses(
    "ray.data._internal.execution.streaming_executor:create_cluster_autoscaler",
    "ray.data._internal.cluster_autoscaler.placement_group_cluster_autoscaler:PlacementGroupClusterAutoscaler",
)
@functools.cache
def ask_for_no_nodes() -> None:
    """Have Ray Data ask for no nodes for what runs in a placement group, which has them: it would start a process for
    that. Without: leave it out, and that process takes some seconds of the first epoch's CPU time."""
    from ray.data._internal.cluster_autoscaler.placement_group_cluster_autoscaler import PlacementGroupClusterAutoscaler
    from ray.data._internal.execution import streaming_executor
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    rays_own = streaming_executor.create_cluster_autoscaler

    def create(topology: Any, resource_manager: Any, data_context: Any, *, execution_id: str) -> Any:
        both = data_context.scheduling_strategy, data_context.scheduling_strategy_large_args
        if not all(isinstance(strategy, PlacementGroupSchedulingStrategy) for strategy in both):
            return rays_own(topology, resource_manager, data_context, execution_id=execution_id)
        return PlacementGroupClusterAutoscaler(execution_id, *both, autoscaling_coordinator=_NobodyToAsk())

    streaming_executor.create_cluster_autoscaler = create


class _NobodyToAsk:
    """In place of Ray Data's process that asks for nodes."""

    def request_resources(self, **_: Any) -> None: ...

    def cancel_request(self) -> None: ...


@_uses("ray.tune.trainable.trainable:_DICT_CHECKPOINT_FILE_NAME")
def tune_pickle() -> str:
    """The name of the file that Tune unpickles when it restores a trial, which raymx refuses. Without: see what
    Trainable.restore does now; that it runs no code out of a checkpoint is tested."""
    from ray.tune.trainable.trainable import _DICT_CHECKPOINT_FILE_NAME

    return str(_DICT_CHECKPOINT_FILE_NAME)


@_uses("ray.tune.execution.tune_controller:TrialRunnerWrapper._tune_controller")
def whole_controller(controller: Any) -> Any:
    """Tune's controller, also out of the wrapper that some calls of a trial scheduler get, which shows a part of it
    and warns. Without: see what those calls get now."""
    return getattr(controller, "_tune_controller", controller)


@_uses("ray.tune.execution.tune_controller:TuneController._reuse_actors")
def reuse_actors(controller: Any, reuse: bool) -> None:
    """Whether the next trial gets the processes of the one that has just ended. Without: where another job waits for
    its place, a sweep keeps it to its end."""
    whole_controller(controller)._reuse_actors = reuse


@_uses("ray.tune.execution.tune_controller:TuneController._live_trials")
def forget_live_trial(controller: Any, trial: Any) -> None:
    """Take a trial that has ended out of those that others wait for; Tune leaves some in. Without: see whether
    get_live_trials still gives ended ones."""
    whole_controller(controller)._live_trials.discard(trial)


@_uses("ray.air._internal.mlflow:_MLflowLoggerUtil._get_client")
def mlflow_client(mlflow_util: Any) -> Any:
    """MLflow's client as Ray's callback has set it up. Without: mlflow.tracking.MlflowClient of the same URI."""
    return mlflow_util._get_client()
